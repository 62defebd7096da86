"""The rational numbers, exactly: for identities between formulas that hold over every field."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hybridseq.arithmetic.base import Arithmetic, check_scale


@dataclass(frozen=True)
class Rational(Arithmetic):
    """Arrays of Fractions; nothing is rounded, nothing saturates, and sums may be taken in any order.

    Two formulas built from +, - and x that agree here at random points are the same polynomial but for a chance that the
    Schwartz-Zippel bound makes as small as one likes: degree / (number of values that a coordinate was drawn from).

    Roots, exponentials and the softmax leave the rationals and raise ValueError.

    Examples
    --------
    >>> q = Rational()
    >>> third = q.array([Fraction(1, 3)])
    >>> q.add(q.add(third, third), third)[0] == 1
    True
    """

    name = "Q"
    exact = True

    def array(self, values: Any) -> np.ndarray:
        raw = np.asarray(values, dtype=object)
        out = np.empty(raw.shape, dtype=object)
        for index, value in np.ndenumerate(raw):
            out[index] = Fraction(value if isinstance(value, int | float | Fraction) else value.item())
        return out

    def values(self, x) -> np.ndarray:
        return np.asarray(x).astype(np.float64)

    def full(self, shape, value) -> np.ndarray:
        return np.full(shape, Fraction(value), dtype=object)

    def add(self, a, b):
        return np.add(a, b)

    def sub(self, a, b):
        return np.subtract(a, b)

    def mul(self, a, b):
        return np.multiply(a, b)

    def neg(self, a):
        return np.negative(a)

    def relu(self, a):
        return np.maximum(a, Fraction(0))

    def where(self, condition, a, b):
        return np.where(condition, a, b)

    def stack(self, arrays, axis=0):
        return np.stack(arrays, axis=axis)

    def concat(self, arrays, axis=-1):
        return np.concatenate(arrays, axis=axis)

    def sum(self, x, axis=-1):
        return np.add.reduce(x, axis=axis, initial=Fraction(0))

    def affine(self, weight, x, bias=None):
        product = np.matmul(x, np.transpose(weight))
        return product if bias is None else product + bias

    def wide_dot(self, x, y, scale="raw"):
        return self._scaled(self.sum(np.multiply(x, y)), np.shape(x)[-1], scale)

    def scores(self, q, k, scale="raw"):
        return self._scaled(np.matmul(q, np.swapaxes(k, -1, -2)), np.shape(q)[-1], scale)

    def _scaled(self, total, dim, scale):
        if check_scale(scale) == "sqrt":
            self._undefined("a score divided by a square root")
        return total / Fraction(dim) if scale == "dim" else total

    def mix(self, p, v):
        return np.matmul(p, v)

    def _undefined(self, operation):
        raise ValueError(f"{operation} leaves the rational numbers; use Float or FixedPoint")

    def exp(self, x):
        self._undefined("exp")

    def sigmoid(self, x):
        self._undefined("sigmoid")

    def softmax(self, z, mask=None):
        self._undefined("softmax")

    def rms_norm(self, x):
        self._undefined("rms_norm")

    def l2_norm(self, x):
        self._undefined("l2_norm")
