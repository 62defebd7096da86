"""Rounding integer ratios to the nearest integer, with the rule for ties as a loud argument."""

from __future__ import annotations

from math import isqrt

import numpy as np

TIE_RULES = ("zero", "even", "away", "odd", "up", "down")
"""Where a number halfway between two codes goes: toward zero, to the even or the odd code, away from zero, to +∞, to −∞."""

INT64_SAFE = 1 << 62
"""Magnitudes below this bound stay inside a signed 64-bit integer with a factor of two to spare."""

FLOAT64_EXACT = 1 << 53
"""Integers below this bound are exact in float64, so a matrix product whose partial sums stay below it is exact."""


def check_tie_rule(ties: str) -> str:
    """Return ``ties`` if it is one of :data:`TIE_RULES`, else raise ``ValueError``."""
    if ties not in TIE_RULES:
        raise ValueError(f"ties={ties!r} is not a tie rule; choose one of {', '.join(TIE_RULES)}")
    return ties


def integers(x) -> np.ndarray:
    """``x`` as an array of int64, or of Python ints where an entry does not fit (or ``x`` already holds Python ints)."""
    if isinstance(x, int):
        return np.array(x, dtype=object if abs(x) >= INT64_SAFE else np.int64)
    x = np.asarray(x)
    if x.dtype.kind == "u":  # numpy turns integers from 2^63 to 2^64 - 1 into this type, which cannot be negated
        return x.astype(np.int64 if largest(x) < INT64_SAFE else object)
    return x.astype(np.int64, copy=False) if x.dtype.kind in "ib" else x


def largest(x) -> int:
    """max |x| as a Python int; 0 for an empty array."""
    x = np.asarray(x)
    return int(max(abs(int(x.max())), abs(int(x.min())))) if x.size else 0


def tie_moves_away(quotient, negative, ties: str):
    """Whether a tie just above magnitude ``quotient`` (an integer array) goes to ``quotient + 1``.

    ``negative`` marks negative numbers; it matters to the rules ``up`` and ``down`` only.
    """
    if ties == "zero":
        return np.zeros(np.shape(quotient), dtype=bool)
    if ties == "away":
        return np.ones(np.shape(quotient), dtype=bool)
    if ties == "up":
        return ~np.asarray(negative)
    if ties == "down":
        return np.asarray(negative)
    odd = (quotient & 1) == 1
    return odd if ties == "even" else ~odd


def nearest_ratio(num, den, ties: str = "zero"):
    """The integer nearest to ``num / den``, elementwise and exactly.

    Parameters
    ----------
    num, den : integer arrays (int64 or Python ints), broadcastable; ``den`` > 0.
    ties : one of :data:`TIE_RULES`.

    Examples
    --------
    >>> nearest_ratio(np.array([1, 3, -3, 5]), 2).tolist()
    [0, 1, -1, 2]
    >>> nearest_ratio(np.array([1, 3, -3, 5]), 2, ties="even").tolist()
    [0, 2, -2, 2]
    """
    num, den = integers(num), integers(den)
    if num.ndim == 0 == den.ndim:  # numpy would turn the intermediate results of a scalar into Python ints
        return nearest_ratio(num.reshape(1), den, ties).reshape(())
    negative = num < 0
    magnitude = np.abs(num)
    quotient = magnitude // den
    twice_rest = 2 * (magnitude - quotient * den)
    up = (twice_rest > den) | ((twice_rest == den) & tie_moves_away(quotient, negative, ties))
    rounded = quotient + up
    return np.where(negative, -rounded, rounded)


def nearest_shift(num, bits: int, ties: str = "zero"):
    """:func:`nearest_ratio` for ``den = 2**bits`` (shifts instead of divisions)."""
    num = integers(num)
    if num.ndim == 0:
        return nearest_shift(num.reshape(1), bits, ties).reshape(())
    if bits == 0:
        return num
    half = 1 << (bits - 1)
    # A shift rounds down, so half moves a tie up and half - 1 moves it down; "zero" and "away" choose by the sign.
    if ties == "zero":
        return (num + (half - 1) + (num < 0)) >> bits
    if ties == "away":
        return (num + half - (num < 0)) >> bits
    if ties == "up":
        return (num + half) >> bits
    if ties == "down":
        return (num + (half - 1)) >> bits
    return nearest_ratio(num, 1 << bits, ties)


def nearest_root(estimate, p, q, negative, ties: str, limit: int):
    """The integer nearest to ±√(p/q), decided exactly, saturated at ±``limit`` < 2⁴⁵.

    ``estimate`` is a float64 approximation of √(p/q) with a relative error below 2⁻⁴⁸. Where it is farther than that from the
    midpoint of two integers it already decides; the remaining entries are settled in Python integers by comparing 4p with
    (2k + 1)² q, so no result depends on floating point.

    Parameters
    ----------
    estimate : float64 array.
    p, q : callables that take a tuple of index arrays and return lists of Python ints (the exact p and q there), q > 0.
    negative : boolean array, True where the root is taken with a minus sign.
    """
    capped = np.minimum(estimate, float(limit + 1))
    base = np.floor(capped)
    fraction = capped - base
    doubt = np.abs(fraction - 0.5) <= np.maximum(capped, 1.0) * 2.0**-47
    rounded = (base + (fraction > 0.5)).astype(np.int64)
    if doubt.any():
        where = np.nonzero(doubt)
        rounded[where] = [
            min(exact_root(pi, qi, bool(neg), ties), limit)
            for pi, qi, neg in zip(p(where), q(where), negative[where], strict=True)
        ]
    rounded = np.minimum(rounded, limit)
    return np.where(negative, -rounded, rounded)


def exact_root(p: int, q: int, negative: bool, ties: str) -> int:
    """The magnitude of the integer nearest to ±√(p/q) (Python ints, p >= 0, q > 0), with the tie rule.

    With k = ⌊√(p/q)⌋ the root lies above the midpoint of k and k + 1 exactly if 4p > (2k + 1)² q.

    Examples
    --------
    >>> exact_root(2, 1, False, "zero"), exact_root(9, 4, False, "zero"), exact_root(9, 4, False, "away")
    (1, 1, 2)
    """
    k = isqrt(p // q)
    midpoint = (2 * k + 1) ** 2 * q
    if 4 * p == midpoint:
        return k + int(tie_moves_away(np.int64(k & 1), np.bool_(negative), ties))
    return k + int(4 * p > midpoint)
