"""Sparse affine maps between named streams, applied with the roundings of the arithmetic's own affine map.

An affine map of a finite-precision decoder sends x to

    y_r = b_r (+) sum_s over columns c in ascending order of  W_rc (x) x_c,

where (x) and (+) round after each operation. In the integers of paper C a row is one exact sum, rounded once. A zero
weight adds an exact zero, so leaving it out changes nothing: the sparse map equals `ar.affine` on the dense matrix, code
for code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real

import numpy as np

from hybridseq.residual.stream import Stream

__all__ = ["Affine"]

ONE = "1"  # the name of the constant in a row; no subspace can have it


@dataclass(frozen=True)
class Affine:
    """x -> W x + b from one named stream to another, with W sparse.

    source, target: Streams. weights: (row, column, weight) triples of non-zero real numbers (int, Fraction or float),
    sorted by row, then column; bias: (row, value) pairs of non-zero reals, sorted by row. Numbers are kept as
    given and rounded once, into the format of the arithmetic, when the map is applied. Most maps are written by name
    with `Affine.from_rows`.

    Raises ValueError for coordinates outside the streams, duplicates or numbers that are not real and finite.
    """

    source: Stream
    target: Stream
    weights: tuple[tuple[int, int, Real], ...] = ()
    bias: tuple[tuple[int, Real], ...] = ()
    _plans: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        weights = tuple(sorted(((r, c, w) for r, c, w in self.weights if _number(w) != 0), key=lambda e: e[:2]))
        bias = tuple(sorted(((r, b) for r, b in self.bias if _number(b) != 0), key=lambda e: e[0]))
        rows = [r for r, _, _ in weights] + [r for r, _ in bias]
        if any(not 0 <= r < self.target.dim for r in rows):
            raise ValueError(f"weights and bias: rows must lie in 0..{self.target.dim - 1}")
        if any(not 0 <= c < self.source.dim for _, c, _ in weights):
            raise ValueError(f"weights: columns must lie in 0..{self.source.dim - 1}")
        if len({e[:2] for e in weights}) != len(weights) or len({r for r, _ in bias}) != len(bias):
            raise ValueError("weights and bias: each entry may be given once")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "bias", bias)

    # ---------------------------------------------------------------------------------------------- construction

    @classmethod
    def from_rows(cls, source: Stream, target: Stream, rows: Mapping[str, Mapping[str, object]]) -> Affine:
        """Write a map as mathematics: one entry for each row (or slice of rows), `{target: {source: weight}}`.

        A weight is a number w, meaning w times the identity between two references of equal length, or a matrix. The
        name "1" stands for the constant, so its weight is the bias: a number, or one number for each row.

        >>> x, q = Stream({"g": 1, "A": 2}), Stream({"q": 4})
        >>> print(Affine.from_rows(x, q, {"q[::2]": {"A": 1}, "q[1::2]": {"1": 1}, "q[0]": {"g": -3}}))
        q[0] = -3 g + A[0]
        q[1] = 1
        q[2] = A[1]
        q[3] = 1
        """
        weights: dict[tuple[int, int], Real] = {}
        bias: dict[int, Real] = {}
        for target_reference, terms in rows.items():
            to = target.coordinates(target_reference)
            for source_reference, weight in terms.items():
                if source_reference == ONE:
                    entries = dict(zip(to, _constants(weight, len(to), target_reference), strict=True))
                    store = bias
                else:
                    entries = _block(to, source.coordinates(source_reference), weight, target_reference, source_reference)
                    store = weights
                if repeated := entries.keys() & store.keys():
                    row = min(repeated) if store is bias else min(repeated)[0]
                    raise ValueError(f"rows: {target.label(row)} is given twice from {source_reference!r}")
                store |= entries
        return cls(source, target, tuple((r, c, w) for (r, c), w in weights.items()), tuple(bias.items()))

    def with_weight(self, target: str, source: str, weight: Real) -> Affine:
        """A copy with one number changed; `source="1"` changes the bias. References are single coordinates.

        >>> x = Stream({"g": 1, "f": 1})
        >>> print(Affine.from_rows(x, Stream({"k": 1}), {"k": {"g": 1}}).with_weight("k", "f", -2))
        k = g - 2 f
        """
        row = _single(self.target, target)
        if source == ONE:
            return replace(self, bias=(*tuple(e for e in self.bias if e[0] != row), (row, weight)))
        column = _single(self.source, source)
        return replace(self, weights=(*tuple(e for e in self.weights if e[:2] != (row, column)), (row, column, weight)))

    # ------------------------------------------------------------------------------------------------ inspection

    def weight(self, target: str, source: str) -> Real:
        """One number by name: the weight from `source` to `target`, or the bias for `source="1"`; 0 when absent."""
        row = _single(self.target, target)
        if source == ONE:
            return dict(self.bias).get(row, 0)
        column = _single(self.source, source)
        return next((w for r, c, w in self.weights if (r, c) == (row, column)), 0)

    @property
    def reads(self) -> frozenset[int]:
        """The coordinates of the source that some row depends on."""
        return frozenset(c for _, c, _ in self.weights)

    @property
    def writes(self) -> frozenset[int]:
        """The coordinates of the target that are not identically zero."""
        return frozenset(r for r, _, _ in self.weights) | frozenset(r for r, _ in self.bias)

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """(W, b) as object arrays of the numbers as given, of shapes (target.dim, source.dim) and (target.dim,)."""
        matrix = np.zeros((self.target.dim, self.source.dim), dtype=object)
        vector = np.zeros(self.target.dim, dtype=object)
        for row, column, weight in self.weights:
            matrix[row, column] = weight
        for row, value in self.bias:
            vector[row] = value
        return matrix, vector

    def __str__(self) -> str:
        """The map as equations, one line for each row that is not zero."""
        terms = defaultdict(list)
        for row, column, weight in self.weights:
            terms[row].append((weight, self.source.label(column)))
        for row, value in self.bias:
            terms[row].append((value, ""))
        return "\n".join(f"{self.target.label(row)} = {_sum(terms[row])}" for row in sorted(terms)) or "0"

    # ----------------------------------------------------------------------------------------------- application

    def apply(self, ar, x):
        """The map on stored numbers x of shape (..., source.dim), in the arithmetic `ar`; returns (..., target.dim).

        The result equals `ar.affine(ar.array(W), x, ar.array(b))` for `W, b = dense()`: each row is rounded operation by
        operation, columns ascending, then the bias; or, where the arithmetic has `wide_affine`, accumulated exactly and rounded
        once. Raises ValueError for another last axis.

        Cost: one vectorised operation for each non-zero of the longest row; a copied coordinate costs a copy.
        """
        if x.shape[-1] != self.source.dim:
            raise ValueError(f"x must have {self.source.dim} coordinates in its last axis, got {x.shape[-1]}")
        plan = self._plan(ar)
        if ar.wide_affine:
            return ar.affine(plan[0], x, plan[1])
        parts = [group.evaluate(ar, x) for group in plan]
        if len(plan) == 1:
            return parts[0]
        if isinstance(x, np.ndarray):
            result = np.empty((*x.shape[:-1], self.target.dim), dtype=x.dtype)
            for group, part in zip(plan, parts, strict=True):
                result[..., group.place] = part
            return result
        order = np.argsort(np.concatenate([group.rows for group in plan]))
        return ar.concat(parts, -1)[..., order]  # autograd: no assignment into slices

    def _plan(self, ar) -> list[_Rows] | tuple:
        """The numbers rounded into the format of `ar`, kept for reuse: rows grouped by their number of terms, or (W, b)."""
        if ar not in self._plans:
            self._plans[ar] = tuple(map(ar.array, self.dense())) if ar.wide_affine else _compile(self, ar)
        return self._plans[ar]


@dataclass(frozen=True)
class _Rows:
    """Rows with the same number of terms: `terms` holds one (columns, factor) pair for each term in order.

    A factor is "+", "-" (weights all 1, all -1: no multiplication) or stored numbers, one for each row.
    """

    rows: np.ndarray
    place: slice | np.ndarray
    terms: tuple
    bias: object

    def evaluate(self, ar, x):
        if not self.terms:
            nothing = ar.zeros((*x.shape[:-1], len(self.rows)))
            return nothing if self.bias is None else ar.add(nothing, self.bias)
        total = None
        for columns, factor in self.terms:
            term = x[..., columns]
            if isinstance(factor, str):
                term = term if factor == "+" else ar.neg(term)
            else:
                term = ar.mul(term, factor)
            total = term if total is None else ar.add(total, term)  # 0 (+) term is the term
        return total if self.bias is None else ar.add(total, self.bias)


def _compile(affine: Affine, ar) -> list[_Rows]:
    terms = defaultdict(list)
    for row, column, weight in affine.weights:
        terms[row].append((column, weight))
    bias = dict(affine.bias)
    groups = defaultdict(list)
    for row in range(affine.target.dim):
        signs = tuple(w if w in (1, -1) else 0 for _, w in terms[row])
        groups[signs, row in bias].append(row)
    plan = []
    for (signs, has_bias), rows in groups.items():
        steps = []
        for position, sign in enumerate(signs):
            columns = _progression(np.array([terms[row][position][0] for row in rows]))
            factor = {1: "+", -1: "-"}.get(sign) or ar.array([terms[row][position][1] for row in rows])
            steps.append((columns, factor))
        rows = np.array(rows)
        constant = ar.array([bias[row] for row in rows]) if has_bias else None
        plan.append(_Rows(rows, _progression(rows), tuple(steps), constant))
    return plan


def _progression(index: np.ndarray) -> slice | np.ndarray:
    """An ascending arithmetic progression as a slice (a view instead of a copy), anything else unchanged."""
    if len(index) == 1:
        return slice(int(index[0]), int(index[0]) + 1)
    step = int(index[1] - index[0])
    if step > 0 and (np.diff(index) == step).all():
        return slice(int(index[0]), int(index[-1]) + 1, step)
    return index


def _number(value):
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real) or value != value or value in (float("inf"), -float("inf")):
        raise ValueError(f"weights and bias must be finite real numbers, got {value!r}")
    return value


def _single(stream: Stream, reference: str) -> int:
    found = stream.coordinates(reference)
    if len(found) != 1:
        raise ValueError(f"{reference!r} must name one coordinate, but names {len(found)}")
    return found[0]


def _constants(weight, count: int, reference: str) -> list:
    values = [weight] * count if isinstance(weight, Real) else list(weight)
    if len(values) != count:
        raise ValueError(f"rows: the constant of {reference!r} must have {count} numbers, got {len(values)}")
    return values


def _block(to: range, start: range, weight, target: str, source: str) -> dict:
    """Entries of one block: a multiple of the identity, or a matrix."""
    if isinstance(weight, Real):
        if len(to) != len(start):
            raise ValueError(
                f"rows: {target!r} has {len(to)} coordinates but {source!r} has {len(start)}; "
                "a single number needs equal lengths, otherwise give a matrix"
            )
        return dict.fromkeys(zip(to, start, strict=True), weight)
    matrix: Sequence = [list(row) for row in weight]
    if len(matrix) != len(to) or any(len(row) != len(start) for row in matrix):
        raise ValueError(f"rows: the matrix from {source!r} to {target!r} must have shape ({len(to)}, {len(start)})")
    return {(r, c): w for r, row in zip(to, matrix, strict=True) for c, w in zip(start, row, strict=True)}


def _sum(terms: list[tuple[Real, str]]) -> str:
    text = ""
    for weight, name in terms:
        size = abs(weight) if not isinstance(weight, float) else float(abs(weight))
        body = f"{size} {name}".strip() if size != 1 or not name else name
        if isinstance(size, Fraction) and size.denominator != 1 and name:
            body = f"({size}) {name}"
        sign = "-" if weight < 0 else "+"
        text = f"{text} {sign} {body}" if text else (f"-{body}" if weight < 0 else body)
    return text
