"""F_s, the finite format of paper A (Section 3.2 and Appendix A), evaluated exactly on integer codes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from hybridseq.arithmetic import transcendental
from hybridseq.arithmetic.base import Arithmetic, check_scale
from hybridseq.arithmetic.rounding import (
    FLOAT64_EXACT,
    INT64_SAFE,
    check_tie_rule,
    exact_root,
    integers,
    largest,
    nearest_ratio,
    nearest_root,
    nearest_shift,
    tie_moves_away,
)

MACHINE_NUMBERS = "bhilqefd"
"""Type codes of signed integers and floats of at most 64 bits, which scale by 2ˢ without rounding."""
CACHED = 1 << 16
"""Entries that one step of an affine map touches at once: small enough to stay in a processor's cache."""
TABULATED = 1 << 14
"""Accumulators from which it pays to round each distinct value once."""
MIXED = 1 << 22
"""Attention weights that one step of :meth:`FixedPoint.mix` looks at, which bounds its memory."""
INT64_FORMATS = 15
"""Up to this s the product of two codes fits a signed 64-bit integer; larger formats are stored as Python ints."""


@dataclass(frozen=True)
class FixedPoint(Arithmetic):
    """F_s = {0} ∪ {±k·2⁻ˢ : 1 ≤ k ≤ 2²ˢ − 1}, with rounding after every operation.

    A value x is stored as its integer *code* x·2ˢ. Each scalar operation rounds to the nearest code and saturates at
    ±(2²ˢ − 1); ties follow ``ties``. Sums run from left to right and round at every step. The only wide accumulators are those
    that the paper names: the reductions of the norms, the query-key products and the softmax denominator.

    Parameters
    ----------
    s : int >= 1
        Bits behind the point. Anything that needs the value 1/4 asks for s >= 2 itself.
    ties : str
        One of ``zero`` (the default; the only rule under which paper A's cell works for all s >= 2), ``even``, ``away``,
        ``odd``, ``up``, ``down``.

    Raises
    ------
    ValueError
        If ``s`` is not an integer >= 1 or ``ties`` is unknown.

    Source: paper A, Appendix A; the tie rule and the softmax displays are reconstructed (chapter 1 lists the choices).

    Examples
    --------
    >>> f = FixedPoint(2)
    >>> f.max_value, f.size
    (Fraction(15, 4), 31)
    >>> f.array([0.375, 0.875, -0.375, 10]).tolist()     # codes: ties toward zero, saturation
    [1, 3, -1, 15]
    >>> f.sum(np.array([15, 3, -4])).item(), f.sum(np.array([-4, 3, 15])).item()
    (11, 14)
    """

    s: int
    ties: str = "zero"
    exact = True

    def __post_init__(self):
        if isinstance(self.s, bool) or not isinstance(self.s, int | np.integer) or self.s < 1:
            raise ValueError(f"s={self.s!r}: the format F_s needs an integer s >= 1 (bits behind the point)")
        object.__setattr__(self, "s", int(self.s))
        check_tie_rule(self.ties)

    # the format ---------------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """For example ``F_4`` or ``F_4 (ties even)``."""
        return f"F_{self.s}" if self.ties == "zero" else f"F_{self.s} (ties {self.ties})"

    @property
    def one(self) -> int:
        """The code of 1, which is 2ˢ."""
        return 1 << self.s

    @property
    def max_code(self) -> int:
        """The largest code, 2²ˢ − 1."""
        return (1 << (2 * self.s)) - 1

    @property
    def size(self) -> int:
        """|F_s| = 2^(2s+1) − 1."""
        return 2 * self.max_code + 1

    @property
    def bits(self) -> int:
        """Bits that store one number: 2s + 1."""
        return 2 * self.s + 1

    @property
    def delta(self) -> Fraction:
        """The spacing δ = 2⁻ˢ."""
        return Fraction(1, self.one)

    @property
    def max_value(self) -> Fraction:
        """B_s = 2ˢ − 2⁻ˢ, the largest value."""
        return Fraction(self.max_code, self.one)

    @property
    def dtype(self):
        """Storage of codes: int64, or Python ints (``object``) where products of two codes could overflow (s > 15)."""
        return np.dtype(np.int64) if self.s <= INT64_FORMATS else np.dtype(object)

    def require(self, s_min: int, reason: str) -> None:
        """Raise ``ValueError`` unless s >= ``s_min``; ``reason`` says what needs it."""
        if self.s < s_min:
            raise ValueError(f"s={self.s}: {reason} needs s >= {s_min}; use FixedPoint({s_min}) or larger")

    def check(self, codes) -> np.ndarray:
        """Return ``codes`` as a stored array, or raise ``ValueError`` if one is no code of this format."""
        codes = np.asarray(codes)
        whole = (int, np.integer)
        if codes.dtype == object:
            strangers = [c for c in codes.ravel() if isinstance(c, bool) or not isinstance(c, whole)]
        else:
            strangers = [] if np.issubdtype(codes.dtype, np.integer) or not codes.size else [codes.ravel()[0]]
        if strangers:
            raise ValueError(f"codes hold {strangers[0]!r}, which is no code of {self.name}; use array() for real values")
        if largest(codes) > self.max_code:
            raise ValueError(
                f"code {largest(codes)} lies outside {self.name}: allowed codes are -{self.max_code}..{self.max_code}"
            )
        return codes.astype(self.dtype)

    # rounding -----------------------------------------------------------------------------------------------------------
    def saturate(self, codes):
        """Clip integers to ±(2²ˢ − 1)."""
        codes = integers(codes)
        if self.s > INT64_FORMATS:
            codes = codes.astype(object)
        if codes.dtype == object and codes.ndim == 0:  # numpy's functions do not take a Python int as large as this may be
            return np.array(min(max(codes.item(), -self.max_code), self.max_code), dtype=self.dtype)
        return np.minimum(np.maximum(codes, -self.max_code), self.max_code)

    def _stored(self, codes):
        return np.asarray(self.saturate(codes), dtype=self.dtype)

    def round_ratio(self, num, den):
        """[num/den · 2⁻ˢ]_s on codes: the code nearest to the exact ratio ``num/den`` (integers, den > 0), saturated."""
        num, den = integers(num), integers(den)
        if num.dtype != object and max(2 * largest(num), 2 * largest(den)) >= INT64_SAFE:
            num = num.astype(object)
        return self._stored(nearest_ratio(num, den, self.ties))

    def codes(self) -> np.ndarray:
        """All |F_s| codes in ascending order (s <= 11: longer lists do not belong in memory)."""
        if self.s > 11:
            raise ValueError(f"s={self.s}: {self.name} has {self.size:,} members; codes() lists them for s <= 11 only")
        return np.arange(-self.max_code, self.max_code + 1, dtype=self.dtype)

    def exp_table(self) -> np.ndarray:
        """[exp x]_s for every member x of the format, in ascending order of x (s <= 11)."""
        return self.exp(self.codes())

    def array(self, values: Any) -> np.ndarray:
        if isinstance(values, np.ndarray) and values.dtype.char in MACHINE_NUMBERS and self.s <= INT64_FORMATS:
            return self._array_of_machine_numbers(values)
        raw = np.asarray(values, dtype=object)
        codes = np.empty(raw.shape, dtype=object)
        for index, value in np.ndenumerate(raw):
            codes[index] = self._code(value)
        return codes.astype(self.dtype)

    def _array_of_machine_numbers(self, values: np.ndarray) -> np.ndarray:
        """:meth:`array` for int or float arrays, exact: scaling by 2ˢ and splitting off the fraction round nothing."""
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = values[~np.isfinite(values)].ravel()[0]
            raise ValueError(f"value {bad!r} has no nearest number in {self.name}: it must be a finite real")
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        magnitude = np.abs(np.clip(values, -self.one, self.one)) * self.one
        base = np.floor(magnitude).astype(np.int64)
        rest = magnitude - base
        negative = np.asarray(values < 0)
        up = (rest > 0.5) | ((rest == 0.5) & tie_moves_away(base, negative, self.ties))
        rounded = np.minimum(base + up, self.max_code)
        return np.where(negative, -rounded, rounded)

    def _code(self, value) -> int:
        try:
            exact = Fraction(value if isinstance(value, int | float | Fraction) else value.item()) * self.one
        except (OverflowError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"value {value!r} has no nearest number in {self.name}: it must be a finite real") from error
        # As objects: numpy would store a denominator of 2**63 or more as an unsigned integer.
        num, den = (np.array(n, dtype=object) for n in exact.as_integer_ratio())
        return int(self.saturate(nearest_ratio(num, den, self.ties)))

    def values(self, x) -> np.ndarray:
        return np.asarray(x).astype(np.float64) / self.one

    def fraction(self, code: int) -> Fraction:
        """The exact value of one code."""
        return Fraction(int(code), self.one)

    def full(self, shape, value) -> np.ndarray:
        return np.full(shape, self._code(value), dtype=self.dtype)

    # elementwise --------------------------------------------------------------------------------------------------------
    def add(self, a, b):
        return self.saturate(np.add(a, b))

    def sub(self, a, b):
        return self.saturate(np.subtract(a, b))

    def mul(self, a, b):
        return self.saturate(nearest_shift(np.multiply(integers(a), integers(b)), self.s, self.ties))

    def neg(self, a):
        return np.negative(a)

    def relu(self, a):
        return np.maximum(a, 0)

    def exp(self, x):
        return transcendental.evaluate("exp", x, self.s).astype(self.dtype)

    def sigmoid(self, x):
        return transcendental.evaluate("sigmoid", x, self.s).astype(self.dtype)

    def where(self, condition, a, b):
        return np.where(condition, a, b)

    def stack(self, arrays, axis=0):
        return np.stack(arrays, axis=axis)

    def concat(self, arrays, axis=-1):
        return np.concatenate(arrays, axis=axis)

    # ordered sums -------------------------------------------------------------------------------------------------------
    def sum(self, x, axis=-1):
        x = np.moveaxis(integers(x), axis, -1)
        total = np.asarray(x.sum(axis=-1), dtype=self.dtype)
        # Where the magnitudes add up to at most max_code no partial sum can saturate, and order is immaterial.
        at_risk = np.abs(x).sum(axis=-1) > self.max_code
        if not np.any(at_risk):
            return total
        if total.ndim == 0:
            return self._ordered_sum(x)
        total[at_risk] = self._ordered_sum(x[at_risk])
        return total

    def _ordered_sum(self, x):
        partial = np.zeros(x.shape[:-1], dtype=self.dtype)
        for column in range(x.shape[-1]):
            partial = self.add(partial, x[..., column])
        return partial

    def affine(self, weight, x, bias=None):
        weight, x = np.asarray(weight), np.asarray(x)
        if weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
            raise ValueError(f"affine: weight {weight.shape} does not take vectors of length {x.shape[-1]}")
        rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
        total = np.zeros((len(rows), weight.shape[0]), dtype=self.dtype)
        columns = np.nonzero((weight != 0).any(axis=0))[0]  # a zero column adds zeros
        block = max(1, CACHED // max(weight.shape[0], 1))
        for start in range(0, len(rows), block):
            here = slice(start, start + block)
            partial = total[here]
            for column in columns:
                partial = self.add(partial, self.mul(weight[:, column], rows[here, column, None]))
            total[here] = partial
        total = total.reshape(x.shape[:-1] + weight.shape[:1])
        return total if bias is None else self.add(total, bias)

    # wide reductions ----------------------------------------------------------------------------------------------------
    def _widened(self, bound: int, *arrays):
        return tuple(integers(a) if bound < INT64_SAFE else np.asarray(a).astype(object) for a in arrays)

    def _scaled(self, total, dim: int, scale: str):
        """Round the exact accumulator ``total`` (units δ²), divided by 1, √dim or dim, to a code."""
        check_scale(scale)
        total = integers(total)
        if total.dtype == object or total.size < TABULATED:
            return self._rounded_accumulator(total, dim, scale)
        # Many accumulators, few values: round each value once. Codes of ±1 share a factor 2²ˢ, which is taken out first.
        shared = int(np.bitwise_or.reduce(total, axis=None))
        shift = (shared & -shared).bit_length() - 1 if shared else 0
        index = total >> shift
        low, high = int(index.min()), int(index.max())
        if high - low >= total.size // 4:
            return self._rounded_accumulator(total, dim, scale)
        index -= low
        return self._rounded_accumulator(np.arange(low, high + 1) << shift, dim, scale)[index]

    def _rounded_accumulator(self, total, dim: int, scale: str):
        if scale == "raw":
            return self._stored(nearest_shift(total, self.s, self.ties))
        if scale == "dim":
            return self.round_ratio(total, self.one * dim)
        return self._nearest_root(total, np.asarray(1), self.one**2 * dim)

    def _nearest_root(self, x, factor, den):
        """The code nearest to x·√(factor/den), integers: ``factor`` >= 0 and ``den`` > 0 broadcast against ``x``."""
        x, factor, den = np.broadcast_arrays(x, factor, den)
        if x.ndim == 0:
            return self._nearest_root(x.reshape(1), factor, den).reshape(())
        negative = np.asarray(x < 0, dtype=bool)
        if self.s > INT64_FORMATS:
            entries = zip(x.ravel(), factor.ravel(), den.ravel(), negative.ravel(), strict=True)
            roots = [exact_root(int(v) ** 2 * int(f), int(d), bool(n), self.ties) for v, f, d, n in entries]
            rounded = np.empty(x.size, dtype=object)
            rounded[:] = [min(root, self.max_code) for root in roots]
            rounded = rounded.reshape(x.shape)
            return np.where(negative, -rounded, rounded)
        estimate = np.abs(x).astype(np.float64) * np.sqrt(factor.astype(np.float64) / den.astype(np.float64))
        rounded = nearest_root(
            estimate,
            lambda i: [int(v) ** 2 * int(f) for v, f in zip(x[i], factor[i], strict=True)],
            lambda i: [int(d) for d in den[i]],
            negative,
            self.ties,
            self.max_code,
        )
        return rounded.astype(self.dtype)

    def wide_dot(self, x, y, scale="raw"):
        x, y = np.asarray(x), np.asarray(y)
        if x.shape[-1] != y.shape[-1]:
            raise ValueError(f"wide_dot: vectors of length {x.shape[-1]} and {y.shape[-1]}; they must agree")
        x, y = self._widened(x.shape[-1] * largest(x) * largest(y), x, y)
        return self._scaled((x * y).sum(axis=-1), x.shape[-1], scale)

    def scores(self, q, k, scale="sqrt"):
        q, k = np.asarray(q), np.asarray(k)
        if q.shape[-1] != k.shape[-1]:
            raise ValueError(f"scores: queries have dimension {q.shape[-1]} and keys {k.shape[-1]}; they must agree")
        bound = q.shape[-1] * largest(q) * largest(k)
        transposed = np.swapaxes(k, -1, -2)
        if bound < FLOAT64_EXACT:
            # Every partial sum is an integer below 2^53, so the floating-point product is exact.
            total = np.matmul(q.astype(np.float64), transposed.astype(np.float64)).astype(np.int64)
        else:
            q, transposed = self._widened(bound, q, transposed)
            total = np.matmul(q, transposed)
        return self._scaled(total, q.shape[-1], scale)

    def softmax(self, z, mask=None):
        """Rounded softmax without max subtraction: e = [exp z]_s, Z = Σ e exact, p = [e/Z]_s; Z = 0 gives p = 0.

        Deviates: the paper's display is lost in our copy; Z = 0 ↦ 0 is our completion (chapter 1).
        """
        e = self.exp(z)
        if mask is not None:
            e = np.where(mask, e, 0)
        return self.normalise(e)

    def normalise(self, e):
        """p_r = [e_r / Σ e]_s over the last axis, the denominator exact; all zeros stay zeros."""
        e = np.asarray(e)
        total = e.sum(axis=-1, keepdims=True)
        scaled = e * self.one
        p = np.zeros(e.shape, dtype=self.dtype)
        live = (e != 0) & (2 * scaled >= total)  # below one half of a code every rule gives 0
        p[live] = self.round_ratio(scaled[live], np.broadcast_to(total, e.shape)[live])
        return p

    def mix(self, p, v):
        p, v = np.asarray(p), np.asarray(v)
        if p.shape[-1] != v.shape[-2]:
            raise ValueError(f"mix: {p.shape[-1]} weights for {v.shape[-2]} values; they must agree")
        batch = np.broadcast_shapes(p.shape[:-2], v.shape[:-2])
        p = np.broadcast_to(p, batch + p.shape[-2:]).reshape(prod(batch), *p.shape[-2:])
        v = np.broadcast_to(v, batch + v.shape[-2:]).reshape(prod(batch), *v.shape[-2:])
        total = np.zeros(p.shape[:2] + v.shape[-1:], dtype=self.dtype)
        block = max(1, MIXED // max(1, p.shape[0] * p.shape[2]))
        for start in range(0, p.shape[1], block):
            here = slice(start, start + block)
            total[:, here] = self._mix_live(p[:, here], v)
        return total.reshape(batch + total.shape[1:])

    def _mix_live(self, p, v):
        # A zero weight adds nothing, so each query walks over its live keys only, in position order.
        total = np.zeros(p.shape[:2] + v.shape[-1:], dtype=self.dtype)
        batch_at, query_at, key_at = np.nonzero(p)
        if not len(key_at):
            return total
        query = batch_at * p.shape[1] + query_at
        first = np.flatnonzero(np.diff(query, prepend=-1))  # nonzero lists queries in order, and keys within a query
        rank = np.arange(len(query)) - np.repeat(first, np.diff(first, append=len(query)))
        order = np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[order], np.arange(int(rank.max()) + 2))
        for step in range(len(edges) - 1):
            here = order[edges[step] : edges[step + 1]]
            b, i, r = batch_at[here], query_at[here], key_at[here]
            total[b, i] = self.add(total[b, i], self.mul(p[b, i, r][:, None], v[b, r]))
        return total

    def rms_norm(self, x):
        return self._normalised(x, np.asarray(x).shape[-1])

    def l2_norm(self, x):
        return self._normalised(x, 1)

    def _normalised(self, x, factor: int):
        """[x · √(factor / Σx²)]_s; the code is the integer nearest to √(2²ˢ x² factor / Σx²)."""
        x = np.asarray(x)
        (wide,) = self._widened(x.shape[-1] * largest(x) ** 2, x)
        square_sum = (wide * wide).sum(axis=-1, keepdims=True)
        return self._nearest_root(x, np.asarray(self.one**2 * factor), np.where(square_sum == 0, 1, square_sum))

    # facts about the softmax --------------------------------------------------------------------------------------------
    def _tie_counts(self) -> int:
        """1 if the tie between code 0 and code 1 goes to code 1, else 0."""
        return int(self.ties in ("away", "odd", "up"))

    def cutoff(self) -> int:
        """K_s: the largest number of positive exponentials for which some attention weight can be nonzero.

        (2²ˢ − 1)(2^(s+1) − 1) under ties toward zero or to even (paper A, Appendix A and C). One exponential at the maximum
        and the others at δ is the best case; its weight rounds to a positive code iff MAX·2ˢ/(MAX + k − 1) passes 1/2.
        """
        return self.max_code * (2 * self.one - 1) + self._tie_counts()

    def uniform_cutoff(self) -> int:
        """The largest number of *equal* positive exponentials whose weights stay nonzero: 2^(s+1) − 1 (ties to zero)."""
        return 2 * self.one - 1 + self._tie_counts()
