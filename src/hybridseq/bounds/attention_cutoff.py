"""K_s: how many keys with a positive rounded exponential leave any attention weight at all (paper A, Appendices A and C).

In F_s with spacing δ = 2⁻ˢ and largest code MAX = 2²ˢ − 1 a weight is p = [e/Z]_s, e a rounded exponential and Z the exact sum of
all of them. With k positive exponentials Z >= e + (k − 1)δ and e <= MAX·δ, so the largest weight of any row is that of the *best
row*, one exponential at the top and k − 1 at δ. It rounds to a positive number exactly if

    MAX / (MAX + k − 1) > δ/2,   that is   k <= K_s = (2²ˢ − 1)(2^(s+1) − 1)          (ties toward zero).

Equal scores give 1/k, positive up to k = 2^(s+1) − 1. Nothing here depends on how scores are made.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.evidence import Check


def formula(s: int) -> int:
    """K_s = (2²ˢ − 1)(2^(s+1) − 1), for ties toward zero.

    >>> [formula(s) for s in (1, 2, 3, 4)]
    [9, 105, 945, 7905]
    """
    return (4**s - 1) * (2 ** (s + 1) - 1)


def faint_score(ar: FixedPoint) -> int:
    """The lowest score code whose rounded exponential is δ (code 1)."""
    low, high = max(-((ar.s + 2) << ar.s), -ar.max_code), 0
    codes = np.arange(low, high + 1).astype(ar.dtype)
    return int(codes[np.flatnonzero(ar.exp(codes) == 1)[0]])


def best_row(ar: FixedPoint, keys: int) -> np.ndarray:
    """The score codes of ``keys`` keys that make the first weight as large as it can be: one at the top, the others faint."""
    if keys < 1:
        raise ValueError(f"keys={keys!r}: a row needs at least one key")
    z = np.full(keys, faint_score(ar), dtype=ar.dtype)
    z[0] = ar.max_code
    return z


def largest_weight(ar: FixedPoint, keys):
    """The code of the largest weight that any row with ``keys`` positive exponentials can have (integer or array).

    The quotient of the best row on its own, so ``keys`` may be far larger than any row that fits in memory.
    """
    keys = np.asarray(keys, dtype=object)
    return ar.round_ratio(np.full(keys.shape, ar.max_code * ar.one, dtype=object), ar.max_code + keys - 1)


def uniform_head(ar: FixedPoint, counts: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    """Codes (p(c), u(c)) of a head over c keys with score 0 and value 1: the weight of each key, and the ordered sum.

    >>> uniform_head(FixedPoint(1), range(6))[1].tolist()
    [0, 2, 2, 3, 0, 0]
    """
    counts = [int(c) for c in counts]
    width = max(counts)
    seen = np.arange(width) < np.array(counts)[:, None]
    p = ar.softmax(np.zeros((len(counts), width), dtype=ar.dtype), seen)
    u = ar.mix(p, ar.full((width, 1), 1))[:, 0]
    return p[:, 0], u


# checks -------------------------------------------------------------------------------------------------------------------


def check_best_row(formats: Iterable[FixedPoint]) -> Check:
    """Softmax itself on the best row, both sides: K_s keys leave one weight of δ, one key more leaves none."""
    rows, got, expected = [], [], []
    for ar in formats:
        k = formula(ar.s)
        for keys, survivors in ((k, [1, 1]), (k + 1, [0, 0])):
            p = ar.softmax(best_row(ar, keys))
            rows.append(f"{ar.name}, {keys} keys")
            got.append([int(p[0]), int(np.count_nonzero(p))])
            expected.append(survivors)
    scope = f"softmax of whole rows, {_names(rows)}, k = K_s and K_s + 1"
    return Check.equal("the best row keeps one weight of δ at K_s keys and none at K_s + 1", got, expected, scope, rows)


def check_quotient(formats: Iterable[FixedPoint]) -> Check:
    """The quotient of the best row on both sides of K_s, exact integers, so rows need not exist."""
    formats = list(formats)
    got = [largest_weight(ar, [formula(ar.s), formula(ar.s) + 1]).tolist() for ar in formats]
    names = [ar.name for ar in formats]
    scope = f"exact quotients, {_names(names)}, k = K_s and K_s + 1"
    return Check.equal("the largest possible weight is δ at K_s and 0 beyond", got, [[1, 0]] * len(formats), scope, names)


def check_no_row_survives(ar: FixedPoint) -> Check:
    """Every weight that K_s + 1 positive exponentials can produce is 0, and some weight at K_s is not.

    A weight depends on its own exponential and on the sum of the other k − 1 alone. Exponentials are codes 1 to MAX, so that sum
    takes each value from k − 1 to (k − 1)·MAX; all pairs are tried.
    """
    k = formula(ar.s)
    own = np.arange(1, ar.max_code + 1)[:, None]
    others = np.arange(k, k * ar.max_code + 1)[None, :]  # the other k of k + 1 keys
    alive = np.argwhere(ar.round_ratio(own * ar.one, own + others) != 0)
    at_k = ar.round_ratio(own * ar.one, own + k - 1)
    found = None if not len(alive) else {"own": int(own[alive[0][0], 0]), "others": int(others[0, alive[0][1]])}
    return Check.true(
        f"no weight survives K_s + 1 = {k + 1} positive exponentials, one survives K_s",
        not len(alive) and at_k.max() == 1,
        f"{ar.name}: every own exponential and every sum of the others",
        cases=own.size * others.size,
        counterexample=found or {"largest weight at K_s": int(at_k.max())},
    )


def check_uniform(formats: Iterable[FixedPoint]) -> Check:
    """Equal scores: every count from 1 to 2^(s+2); the weights are positive exactly up to 2^(s+1) − 1 keys."""
    names, got, expected = [], [], []
    for ar in formats:
        counts = np.arange(1, 2 ** (ar.s + 2) + 1)
        heard = counts <= 2 ** (ar.s + 1) - 1
        quotient = ar.round_ratio(np.full(counts.shape, ar.one**2, dtype=object), counts.astype(object) * ar.one)
        ways = [quotient]
        if ar.s <= 4:  # and through softmax and mixing, not only through the quotient
            ways += uniform_head(ar, counts)
        wrong = np.any([(way > 0) != heard for way in ways], axis=0)
        names += [f"{ar.name}, {c} keys" for c in counts]
        got += (heard ^ wrong).tolist()
        expected += heard.tolist()
    scope = f"every number of keys from 1 to 2^(s+2), {_names(names)}"
    return Check.equal("equal scores keep their weights up to 2^(s+1) − 1 keys and lose them beyond", got, expected, scope, names)


def _names(rows: list[str]) -> str:
    first, last = (row.split(",")[0] for row in (rows[0], rows[-1]))
    return first if first == last else f"{first} to {last}"
