"""Correctly rounded exp and logistic function on the codes of F_s, certified by ball arithmetic.

Arb (through python-flint) returns a ball that is proved to contain the true value. A code is accepted only when the whole ball
rounds to one integer; otherwise the working precision doubles. By the Lindemann-Weierstrass theorem exp(k/2^s) is irrational for
every integer k other than 0, and so is the logistic function, so no tie exists away from 0 and the loop ends.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

FUNCTIONS = ("exp", "sigmoid")
TABLE_LIMIT = 12
"""Largest s for which whole tables are kept (106,497 entries at s = 12); above it, codes are evaluated one by one."""


def exp_range(s: int) -> tuple[int, int]:
    """Codes outside which exp is saturated: 0 at or below the first, ``max_code`` at or above the second."""
    return -(s + 2) << s, (s + 1) << s


def sigmoid_range(s: int) -> tuple[int, int]:
    """Codes outside which the logistic function rounds to 0 or to 1."""
    return -(s + 2) << s, (s + 2) << s


@lru_cache(maxsize=1 << 16)
def rounded_code(function: str, code: int, s: int) -> int:
    """The integer nearest to 2^s · f(code / 2^s), before saturation.

    ``function`` is ``"exp"`` or ``"sigmoid"``. Certified: see the module's text.
    """
    if function not in FUNCTIONS:
        raise ValueError(f"function={function!r} is not one of {', '.join(FUNCTIONS)}")
    return _certified(function, code, s)


def _certified(function: str, code: int, s: int) -> int:
    from flint import arb, ctx, fmpq

    precision = 64 + 4 * s
    before = ctx.prec
    try:
        while True:
            ctx.prec = precision
            x = arb(fmpq(code, 1 << s))
            y = x.exp() if function == "exp" else 1 / (1 + (-x).exp())
            nearest = (y * (1 << s) + arb(0.5)).floor().unique_fmpz()
            if nearest is not None:
                return int(nearest)
            precision *= 2
    finally:
        ctx.prec = before


@cache
def table(function: str, s: int) -> tuple[int, np.ndarray]:
    """``(first_code, codes)``: the function on every code of its unsaturated range, saturated to the format, read-only."""
    low, high = exp_range(s) if function == "exp" else sigmoid_range(s)
    max_code = (1 << (2 * s)) - 1
    codes = np.fromiter((min(_certified(function, k, s), max_code) for k in range(low, high + 1)), dtype=np.int64)
    codes.setflags(write=False)
    return low, codes


def evaluate(function: str, codes, s: int):
    """The function on an array of codes, correctly rounded and saturated."""
    codes = np.asarray(codes)
    if s <= TABLE_LIMIT:
        low, entries = table(function, s)
        return entries[np.clip(codes - low, 0, len(entries) - 1).astype(np.int64)]
    low, high = exp_range(s) if function == "exp" else sigmoid_range(s)
    max_code = (1 << (2 * s)) - 1
    flat = [min(max(int(c), low), high) for c in codes.ravel()]
    found = {c: min(rounded_code(function, c, s), max_code) for c in set(flat)}
    rounded = np.empty(len(flat), dtype=object if codes.dtype == object else np.int64)
    rounded[:] = [found[c] for c in flat]
    return rounded.reshape(codes.shape)
