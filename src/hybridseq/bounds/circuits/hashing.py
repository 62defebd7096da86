"""Counting up to a constant with few gates: threshold circuits from perfect hash families.

A family of functions h: [M] -> [t] is perfect for t-sets if each t-set is spread out by one of them. Then

    at least t of x_1, ..., x_M   =   OR over h of AND over buckets a of OR_{h(r) = a} x_r,

with (t + 1) gates a function and O(log M) functions, where listing the t-sets takes M^t gates. The cost K_s in the exponent of a
listing circuit is therefore not forced by what attention computes.
"""

from __future__ import annotations

from itertools import combinations, count
from math import comb

import numpy as np

from hybridseq.bounds import attention_cutoff
from hybridseq.bounds.circuits.attention import input_names
from hybridseq.bounds.circuits.circuit import Builder, Circuit
from hybridseq.bounds.circuits.heads import uniform_head
from hybridseq.rng import Generator

MAX_SETS = 2_000_000


def perfect_family(seq_len: int, t: int, seed: int = 0, tries: int = 32) -> np.ndarray:
    """Functions [M] -> [t] as rows (functions, seq_len), together perfect for all t-sets.

    Greedy: of ``tries`` drawn functions the one that spreads out most sets not yet served; every t-set is looked at. A function
    that serves no set is never kept: it could miss a bucket, and a missed bucket would lower the threshold.

    Raises ValueError where there are more than two million t-sets.
    """
    sets_needed = comb(seq_len, t)
    if sets_needed > MAX_SETS:
        raise ValueError(f"seq_len={seq_len}, t={t}: {sets_needed:,} sets to serve, more than {MAX_SETS:,}; take fewer positions")
    left = np.array(list(combinations(range(seq_len), t)), dtype=np.int64).reshape(-1, t)
    draw, rows = Generator(seed).at(seq_len, t), []
    for attempt in count():
        if not len(left):
            break
        candidates = draw.at(attempt).integers(t, (tries, seq_len))
        served = [_spread(h, left, t) for h in candidates]
        best = int(np.argmax([s.sum() for s in served]))
        if served[best].any():
            rows.append(candidates[best])
            left = left[~served[best]]
    return np.array(rows).reshape(-1, seq_len)


def _spread(h: np.ndarray, sets: np.ndarray, t: int) -> np.ndarray:
    return np.bitwise_or.reduce(np.left_shift(1, h[sets]), axis=1) == (1 << t) - 1


def hashed_uniform_head(s: int, seq_len: int, seed: int = 0) -> Circuit:
    """The uniform head of :func:`uniform_head` from thresholds: [c >= t] for t = 1 ... 2^(s+1), then [u = w].

    >>> hashed_uniform_head(1, 8).depth
    6
    """
    k = 2 ** (s + 1) - 1
    build = Builder(input_names(seq_len), fold=True)
    at_least = [_threshold(build, perfect_family(seq_len, t, seed)) for t in range(1, min(k + 1, seq_len) + 1)]
    at_least += [build.constant(False)] * (k + 1 - len(at_least))
    u = attention_cutoff.uniform_head(uniform_head(s, 1).ar, range(k + 1))[1].tolist()
    by_value: dict[int, list[int]] = {}
    for c in range(1, k + 1):
        by_value.setdefault(u[c], []).append(build.AND([at_least[c - 1], build.NOT(at_least[c])]))
    found = {f"u={w}": build.OR(by_value[w]) for w in sorted(by_value) if w}
    nothing = build.OR([build.NOT(at_least[0]), at_least[k]])
    return build.finish(found | {"u=0": nothing})


def _threshold(build: Builder, family: np.ndarray) -> int:
    parts = []
    for h in family:
        buckets = [build.OR(np.flatnonzero(h == a).tolist()) for a in range(int(h.max()) + 1)]
        parts.append(build.AND(buckets))
    return build.OR(parts)
