"""Saturating integers with power-of-two attention weights and exact accumulators (paper C's protocol simulator)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from hybridseq.arithmetic.base import Arithmetic, check_scale
from hybridseq.arithmetic.rounding import FLOAT64_EXACT, INT64_SAFE, integers, largest


@dataclass(frozen=True)
class Integer(Arithmetic):
    """p-bit two's complement integers, saturated after every operation; sums inside one operation are exact.

    Attention weights are the integers 2^clip(⟨q, k⟩ + ⌊g/2⌋, 0, g). A weighted mean is the exact ratio num/den rounded half up,
    (2 num + den) div (2 den). Because numerators and denominators are exact integers, partial results of disjoint key ranges
    add up to the whole, in any order, bit for bit: this is what lets a protocol replay a model.

    Parameters
    ----------
    p : int from 1 to 30, bits of a stored number; values lie in −2^(p−1) .. 2^(p−1) − 1.
    g : int from 0 to 60, range of the exponent of a weight (weights are 1 .. 2^g).

    Raises
    ------
    ValueError
        If ``p`` or ``g`` is no integer of its range, or an operation is asked for that the format lacks (exp, sigmoid, norms).

    Source: reconstructed from paper C, Section 3; the paper fixes precision p only.

    Examples
    --------
    >>> z = Integer(8, 4)
    >>> z.add(np.array([100]), np.array([100])).tolist()
    [127]
    >>> z.mix(np.array([[1, 2]]), np.array([[3], [6]])).tolist()       # (3 + 12)/3 = 5
    [[5]]
    """

    p: int
    g: int = 0
    exact = True
    wide_affine = True

    def __post_init__(self):
        for name, value, low, high in (("p", self.p, 1, 30), ("g", self.g, 0, 60)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
                meaning = "the word length" if name == "p" else "the exponent range of a weight"
                raise ValueError(f"{name}={value!r}: {meaning} must be an integer from {low} to {high}")
            object.__setattr__(self, name, int(value))

    @property
    def name(self) -> str:
        """For example ``Z_8 (g = 4)``."""
        return f"Z_{self.p} (g = {self.g})"

    @property
    def bits(self) -> int:
        """Bits that store one number."""
        return self.p

    @property
    def low(self) -> int:
        """The smallest integer, −2^(p−1)."""
        return -(1 << (self.p - 1))

    @property
    def high(self) -> int:
        """The largest integer, 2^(p−1) − 1."""
        return (1 << (self.p - 1)) - 1

    def saturate(self, x):
        """Clip to the range of the format; the result is int64."""
        return np.asarray(np.clip(integers(x), self.low, self.high), dtype=np.int64)

    def array(self, values: Any):
        raw = np.asarray(values, dtype=object)
        out = np.empty(raw.shape, dtype=np.int64)
        for index, value in np.ndenumerate(raw):
            try:
                exact = Fraction(value if isinstance(value, int | float | Fraction) else value.item())
            except (OverflowError, ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"value {value!r} has no nearest number in {self.name}: it must be a finite real") from error
            # Half up, the rule of every other rounding in this format.
            out[index] = min(max((2 * exact.numerator + exact.denominator) // (2 * exact.denominator), self.low), self.high)
        return out

    def values(self, x):
        return np.asarray(x, dtype=np.float64)

    def full(self, shape, value):
        return np.full(shape, int(self.array(value)), dtype=np.int64)

    def add(self, a, b):
        return self.saturate(np.add(a, b))

    def sub(self, a, b):
        return self.saturate(np.subtract(a, b))

    def mul(self, a, b):
        return self.saturate(np.multiply(a, b))

    def neg(self, a):
        return self.saturate(np.negative(a))

    def relu(self, a):
        return np.maximum(a, 0)

    def _undefined(self, operation: str):
        raise ValueError(f"{operation} is not defined in {self.name}; use FixedPoint or Float for layers that need it")

    def exp(self, x):
        self._undefined("exp")

    def sigmoid(self, x):
        self._undefined("sigmoid")

    def where(self, condition, a, b):
        return np.where(condition, a, b)

    def stack(self, arrays, axis=0):
        return np.stack(arrays, axis=axis)

    def concat(self, arrays, axis=-1):
        return np.concatenate(arrays, axis=axis)

    def sum(self, x, axis=-1):
        return self.saturate(np.sum(np.asarray(x, dtype=np.int64), axis=axis))

    def dot(self, x, y):
        return self.wide_dot(x, y)

    def affine(self, weight, x, bias=None):
        product = self._product(np.asarray(x), np.asarray(weight).T)
        return self.saturate(product if bias is None else product + bias)

    def wide_dot(self, x, y, scale="raw"):
        x, y = self._roomy(np.shape(x)[-1], x, y)
        return self.saturate(self._scaled((x * y).sum(axis=-1), scale))

    def scores(self, q, k, scale="raw"):
        """⟨q, k⟩ for all pairs, exact and not saturated (an accumulator, not a stored number); ``scale`` must be raw."""
        return self._scaled(self._product(np.asarray(q), np.swapaxes(k, -1, -2)), scale)

    def _roomy(self, terms: int, *arrays):
        """The arrays as Python ints where a sum of ``terms`` products could leave a signed 64-bit integer."""
        bound = 2 * terms * prod(largest(a) for a in arrays)
        return tuple(np.asarray(a).astype(np.int64 if bound < INT64_SAFE else object) for a in arrays)

    def _product(self, a, b):
        """The exact matrix product."""
        if b.ndim == 2 < a.ndim:  # one large product instead of many small ones
            return self._product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
        bound = a.shape[-1] * largest(a) * largest(b)
        if bound < FLOAT64_EXACT:  # every partial sum is an integer below 2^53
            return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
        return np.matmul(*self._roomy(a.shape[-1], a, b))

    def _scaled(self, total, scale):
        if check_scale(scale) != "raw":
            raise ValueError(f"scale={scale!r} is not available in {self.name}: integer scores are raw; pass scale='raw'")
        return total

    def softmax(self, z, mask=None):
        """Unnormalised integer weights 2^clip(z + g/2, 0, g), 0 where masked; :meth:`mix` divides by their exact sum."""
        weights = np.left_shift(np.int64(1), np.clip(np.asarray(z) + self.g // 2, 0, self.g).astype(np.int64))
        return weights if mask is None else np.where(mask, weights, 0)

    def fraction(self, num, den):
        """num/den rounded half up and saturated; 0 where den = 0 (no key was visible)."""
        num, den = np.asarray(num), np.asarray(den)
        if max(2 * largest(num) + largest(den), 2 * largest(den)) >= INT64_SAFE:
            num, den = num.astype(object), den.astype(object)
        safe = np.where(den == 0, 1, den)
        return self.saturate(np.where(den == 0, 0, (2 * num + safe) // (2 * safe)))

    def mix(self, p, v):
        p, v = np.asarray(p), np.asarray(v)
        if p.shape[-1] * largest(p) >= INT64_SAFE:
            p = p.astype(object)
        return self.fraction(self._product(p, v), p.sum(axis=-1, keepdims=True))

    def rms_norm(self, x):
        self._undefined("rms_norm")

    def l2_norm(self, x):
        self._undefined("l2_norm")
