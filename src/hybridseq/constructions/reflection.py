"""Rounding is a reflection: one positive-gate Gated DeltaNet head tracks permutations (chapter 4; beyond the papers).

The head has width n, starts at delta times the identity, and reads one transposition (i j) a token:

    alpha = beta = 3/4,    k = L2norm(e_i + e_j) = kappa (e_i + e_j),    v = 0.

On rows whose entries are 0 and ±delta, at most one of the two touched entries nonzero, the rounded update equals the reflection
I - (e_i + e_j)(e_i + e_j)^T: it exchanges x_i and x_j and changes their signs. So the state stays a signed permutation matrix
times delta, and row m has its entry where the tokens so far have carried m.

Source: an observation of this book. `hybridseq.constructions.rounding_proofs` proves it for all s >= 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations
from typing import Any

import numpy as np

from hybridseq import rng
from hybridseq.arithmetic import FixedPoint
from hybridseq.constructions.parity_cell import (
    SMALLEST_SUBNORMAL,
    THREE_QUARTERS,
    FlushingFloat,
    Update,
    update_inputs,
)  # fmt: skip
from hybridseq.evidence import Check
from hybridseq.mixers.delta_rule import DeltaInputs, DeltaRule


def transposition(n: int, i: int, j: int) -> Update:
    """The token that exchanges positions i and j of 0..n-1.

    Raises:
        ValueError: i and j are not two different numbers in 0..n-1.
    """
    if i == j or not all(0 <= p < n for p in (i, j)):
        raise ValueError(f"transposition ({i}, {j}): needs two different positions in 0..{n - 1}")
    return Update(f"({i} {j})", THREE_QUARTERS, THREE_QUARTERS, tuple(int(c in (i, j)) for c in range(n)))


def pairs(n: int) -> list[tuple[int, int]]:
    """All transpositions of n places, (0, 1) first."""
    return list(combinations(range(n), 2))


@dataclass(frozen=True)
class PermutationHead:
    """One delta-rule head of width n that carries a permutation.

    Args:
        n: number of places, >= 2. arithmetic: `FixedPoint(s)` with s >= 2, or a float together with `unit`.
        order, products: evaluation order of the delta rule. kappa: entry of the keys instead of the normalised one.
        unit: the size of delta; needed for floats only.

    Raises:
        ValueError: n < 2, s < 2, a float without unit.

    State: n x n numbers, of which n are not zero. Cost: O(n^2) operations a token.

    Example (the cycle 0 -> 1 -> 2 -> 0 as two transpositions):
        >>> head = PermutationHead(3, FixedPoint(2))
        >>> head.permutation(head.run([(0, 1), (0, 2)])).tolist()
        [1, 2, 0]
    """

    n: int
    arithmetic: Any
    order: str = "A"
    products: str = "rounded"
    kappa: Any = None
    unit: Any = None
    core: DeltaRule = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.n < 2:
            raise ValueError(f"n={self.n!r}: needs at least 2 places")
        if isinstance(self.arithmetic, FixedPoint):
            self.arithmetic.require(2, "the permutation head, whose gates are 3/4,")
        elif self.unit is None:
            raise ValueError(f"unit=None: {self.arithmetic.name} has no smallest step; give the size of delta as unit")
        object.__setattr__(self, "core", DeltaRule(self.n, order=self.order, products=self.products))

    @property
    def delta(self):
        """The size of delta as a real number."""
        return self.arithmetic.delta if self.unit is None else self.unit

    @cached_property
    def tokens(self) -> DeltaInputs:
        """The inputs of all transpositions, in the order of `pairs`: k, v, q (n(n-1)/2, n); alpha, beta (n(n-1)/2,)."""
        return update_inputs(self.arithmetic, [transposition(self.n, i, j) for i, j in pairs(self.n)], self.unit, self.kappa)

    def state(self, signed):
        """Signed permutation matrices (..., n, n) with entries 0, 1, -1 as stored states."""
        signed = np.asarray(signed)
        if isinstance(self.arithmetic, FixedPoint):
            return self.arithmetic.check(signed)
        return self.arithmetic.array(signed * self.delta)

    def codes(self, state) -> np.ndarray:
        """A stored state in units of delta."""
        if self.arithmetic.exact:
            return np.asarray(state)
        return self.arithmetic.values(state) / float(self.delta)

    def step(self, state, token):
        """One token a batch element: state (..., n, n), token (...,) numbers into `pairs`."""
        t = self.tokens
        token = np.asarray(token)
        inputs = DeltaInputs(t.q[token], t.k[token], t.v[token], t.alpha[token], t.beta[token])
        return self.core.step(self.arithmetic, state, inputs)

    def run(self, transpositions, state=None):
        """The state after a word of transpositions, first letter first; from delta times the identity unless given.

        Args:
            transpositions: list of (i, j), or an integer array (..., length) of numbers into `pairs` for a batch of words.
        """
        numbers = np.asarray(self._numbers(transpositions))
        if state is None:
            state = self.state(np.broadcast_to(np.eye(self.n, dtype=np.int64), (*numbers.shape[:-1], self.n, self.n)))
        for t in range(numbers.shape[-1]):
            state = self.step(state, numbers[..., t])
        return state

    def _numbers(self, transpositions):
        if isinstance(transpositions, np.ndarray):
            return transpositions
        known = {pair: number for number, pair in enumerate(pairs(self.n))}
        return [known[tuple(sorted(pair))] for pair in transpositions]

    def permutation(self, state) -> np.ndarray:
        """Where each place's content went: (..., n) with p[m] = column of the nonzero entry of row m.

        Raises:
            ValueError: a state is not a signed permutation matrix times delta.
        """
        codes = self.codes(state)
        if not is_signed_permutation(codes).all():
            raise ValueError(f"state holds no permutation: {np.asarray(codes).tolist()}")
        return np.abs(codes).astype(float).argmax(axis=-1)

    def query(self, state, place: int) -> np.ndarray:
        """What a later layer reads with q = e_place: |u| = relu(u) + relu(-u) in units of delta, one-hot in who sits there."""
        ar = self.arithmetic
        q = ar.array(np.eye(self.n, dtype=int)[place])
        u = ar.dot(state, q)
        return self.codes(ar.add(ar.relu(u), ar.relu(ar.neg(u))))


def is_signed_permutation(codes) -> np.ndarray:
    """Which matrices (..., n, n) have one entry ±1 in each row and column and zeros elsewhere."""
    size = np.abs(np.asarray(codes))
    small = ((size == 0) | (size == 1)).all(axis=(-1, -2))
    return small & (size.sum(axis=-1) == 1).all(axis=-1) & (size.sum(axis=-2) == 1).all(axis=-1)


def compose(n: int, numbers) -> np.ndarray:
    """The reference: p[m] after words of numbers into `pairs`, by exchanging labels: (..., length) -> (..., n)."""
    numbers = np.asarray(numbers)
    p = np.broadcast_to(np.arange(n), (*numbers.shape[:-1], n))
    for t in range(numbers.shape[-1]):
        p = exchange(n, p, numbers[..., t])
    return p


def exchange(n: int, p, token) -> np.ndarray:
    """One letter of `compose`: places (..., n) after one more transposition each, token (...,) numbers into `pairs`."""
    ends = np.array(pairs(n))[np.asarray(token)]
    first, second = ends[..., :1], ends[..., 1:]
    return np.where(p == first, second, np.where(p == second, first, p))


def permutation_matrices(n: int) -> np.ndarray:
    """All n! matrices with a one at (m, p[m]): (n!, n, n)."""
    return np.eye(n, dtype=np.int64)[np.array(list(permutations(range(n))))]


def reachable_signed(n: int) -> np.ndarray:
    """Every state, in units of delta, that words of transpositions reach: 2^(n-1) n! signed matrices (two for n = 2)."""
    start = np.eye(n, dtype=np.int64)
    seen, waiting = {start.tobytes(): start}, [start]
    reflections = [start - np.outer(start[i] + start[j], start[i] + start[j]) for i, j in pairs(n)]
    while waiting:
        here = waiting.pop()
        for reflection in reflections:
            there = here @ reflection
            if seen.setdefault(there.tobytes(), there) is there:
                waiting.append(there)
    return np.array(list(seen.values()))


# checks -----------------------------------------------------------------------------------------------------------------
def check_swaps(n: int, arithmetic, order: str = "A", kappa=None, matrices=None) -> Check:
    """Every state times every token: the update is the reflection. For the n! matrices without signs this is the Cayley table.

    Args:
        matrices: the states to start from, (states, n, n) of 0 and ±1; default all n! permutation matrices.
    """
    head = PermutationHead(n, arithmetic, order, kappa=kappa)
    start = permutation_matrices(n) if matrices is None else np.asarray(matrices)
    letters = pairs(n)
    unit = np.eye(n, dtype=np.int64)
    reflections = np.array([unit - np.outer(unit[i] + unit[j], unit[i] + unit[j]) for i, j in letters])
    state = head.state(np.repeat(start, len(letters), axis=0))
    after = head.codes(head.step(state, np.tile(np.arange(len(letters)), len(start))))
    expected = (start[:, None] @ reflections).reshape(-1, n, n)
    wrong = np.flatnonzero((after != expected).any(axis=(-1, -2)))
    report = None
    if len(wrong):
        w = int(wrong[0])
        where = {"state": start[w // len(letters)].tolist(), "token": letters[w % len(letters)]}
        report = where | {"got": after[w].tolist(), "wrong": len(wrong)}
    return Check.true(
        f"one token = one transposition, n = {n}, {arithmetic.name}, order {order}", not len(wrong),
        f"{len(start):,} states x {len(letters)} transpositions", len(after), report,
    )  # fmt: skip


def check_random_words(n: int, arithmetic, order: str, length: int, words: int, seed: int) -> Check:
    """Random words of transpositions: the head carries the composed permutation after every token."""
    head = PermutationHead(n, arithmetic, order)
    letters = random_letters(n, length, seed, words)
    survived = tokens_survived(head, letters)
    return Check.true(
        f"random words, n = {n}, {arithmetic.name}, order {order}", survived == length,
        f"{words} words of {length} transpositions, every prefix", words * length, {"right for tokens": survived},
    )  # fmt: skip


def tokens_survived(head: PermutationHead, letters) -> int:
    """For how many tokens the head carries the right permutation in every word of a batch (the length if it never fails).

    letters: (..., length) numbers into `pairs`.
    """
    state, p = head.run(letters[..., :0]), compose(head.n, letters[..., :0])
    for t in range(letters.shape[-1]):
        state, p = head.step(state, letters[..., t]), exchange(head.n, p, letters[..., t])
        if not is_signed_permutation(head.codes(state)).all() or (head.permutation(state) != p).any():
            return t
    return letters.shape[-1]


def random_letters(n: int, length: int, seed: int, words: int = 1) -> np.ndarray:
    """Random words of transpositions of n places: (words, length) numbers into `pairs`."""
    return rng.Generator(seed).at(n, length).integers(n * (n - 1) // 2, (words, length))


def controls(n: int = 5, s: int = 4) -> dict[str, PermutationHead]:
    """Heads that differ from the working one in how they round, and should fail: one rounding an update, subnormals flushed."""
    flushed = FlushingFloat("torch", "float32")
    return {
        "one rounding an update": PermutationHead(n, FixedPoint(s), "W"),
        "transition matrix rounded": PermutationHead(n, FixedPoint(s), "M"),
        "float32, subnormals flushed": PermutationHead(n, flushed, unit=SMALLEST_SUBNORMAL["float32"]),
    }
