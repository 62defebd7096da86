"""How many states a pure recurrence needs to compose functions, exactly (beyond paper C).

A recurrence alone, of whatever kind, is a machine that reads the prompt token by token; its update may differ from position to
position. After d tokens it needs one state for each *residual function*: two prefixes may share a state exactly if every
continuation has the same answer after both (Myhill and Nerode). `minimal_automaton` builds that machine from all prompts,
backwards: at the end a class is an answer, and a prefix of d tokens is the row of the classes that its next token leads to.

For two functions in the hard order the counts have a closed form (`two_function_profile`). Write R = N_1^(n_1) for the number of
rows (z_2(w, v))_w. The machine sees z_2 as a map from v to rows; while z_1 is read it keeps that map and the rows that were hit:

    after t < m tokens of z_1:   sum_j S2(m, j) R (R - 1) ... (R - j + 1) j^t     (j different rows; S2: Stirling, second kind),

and it is largest for t = m - 1. After all of z_1 the rows hit remain, R^m; after z_0 one row, R; after w the answer, N_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from hybridseq.evidence import Check
from hybridseq.tasks.sequential_composition import SequentialComposition

# counting ----------------------------------------------------------------------------------------------------------------


@cache
def stirling(n: int, k: int) -> int:
    """S2(n, k): partitions of n things into k blocks that are not empty.

    >>> [stirling(4, k) for k in range(6)]
    [0, 1, 7, 6, 1, 0]
    """
    if n < 0 or k < 0:
        raise ValueError(f"n={n}, k={k}: must be integers >= 0")
    if n == 0 or k == 0 or k > n:
        return int(n == k)
    return stirling(n - 1, k - 1) + k * stirling(n - 1, k)


def two_function_profile(m: int, n_1: int) -> list[int]:
    """States after 0, 1, ..., n tokens of the hard order, for two functions. Exact integers of any size.

    Raises ValueError unless m >= 1 and n_1 >= 1.

    >>> two_function_profile(2, 1), two_function_profile(3, 1)
    ([1, 2, 4, 6, 4, 2, 2], [1, 3, 9, 27, 57, 129, 27, 3, 3])
    """
    N_1, R = _sizes(m, n_1)
    reading_z2 = [N_1**t for t in range(N_1 + 1)]
    reading_z1 = [_maps_and_hits(m, R, t) for t in range(1, m)]
    return [*reading_z2, *reading_z1, R**m, R, N_1]


def two_function_peak(m: int, n_1: int) -> int:
    """The largest entry of the profile, for m >= 2 just before the last token of z_1:  sum_j S2(m, j) R ... (R - j + 1) j^(m-1).

    >>> [two_function_peak(*sizes) for sizes in ((2, 1), (4, 1), (2, 3), (3, 2))]
    [6, 6100, 93096, 400716]
    """
    _, R = _sizes(m, n_1)
    return _maps_and_hits(m, R, m - 1)


def _maps_and_hits(m: int, R: int, t: int) -> int:
    """Pairs of a map [m] -> [R] and a sequence of t rows in its image."""
    return sum(stirling(m, j) * prod(range(R - j + 1, R + 1)) * j**t for j in range(1, min(m, R) + 1))


def _sizes(m: int, n_1: int) -> tuple[int, int]:
    for name, value in (("m", m), ("n_1", n_1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r}: must be an integer >= 1")
    return int(m * n_1), int(m * n_1) ** int(n_1)


# the machine -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LayeredAutomaton:
    """A machine whose states and steps belong to a depth. steps[d]: (states at d, letters at d) -> state at d + 1; state 0 first.

    answers: (states at the end,) the answer of each.
    """

    steps: tuple[np.ndarray, ...]
    answers: np.ndarray

    @property
    def profile(self) -> list[int]:
        """How many states there are after 0, 1, ..., n tokens."""
        return [len(step) for step in self.steps] + [len(self.answers)]

    @property
    def peak(self) -> int:
        return max(self.profile)

    @property
    def bits(self) -> int:
        """Bits of the largest state, ceil(log2 peak)."""
        return (self.peak - 1).bit_length()

    def run(self, tokens) -> np.ndarray:
        """Answers (num,) to prompts (num, seq_len). Raises ValueError for another length, or tokens that are no letters."""
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.shape[1] != len(self.steps):
            raise ValueError(f"tokens {tokens.shape}: must have the shape (num, {len(self.steps)})")
        letters = np.array([step.shape[1] for step in self.steps])
        if not np.issubdtype(tokens.dtype, np.integer) or (tokens < 0).any() or (tokens >= letters).any():
            raise ValueError(f"tokens: must be integers from 0 and below {letters.tolist()}, position by position")
        state = np.zeros(len(tokens), dtype=np.int64)
        for step, column in zip(self.steps, tokens.T, strict=True):
            state = step[state, column]
        return self.answers[state]


def minimal_automaton(task: SequentialComposition) -> LayeredAutomaton:
    """The smallest machine with position-dependent steps that answers every prompt, and so the number of residual functions.

    Works for each prompt order. Cost: sorting as many rows as there are prompts (2^24 at most): a second for a million.

    >>> minimal_automaton(SequentialComposition(4)).profile
    [1, 4, 16, 64, 256, 4, 4]
    >>> minimal_automaton(SequentialComposition(4, order="rev")).profile
    [1, 1, 4, 7, 6, 5, 4]
    """
    found = np.concatenate([task.answers(block) for block in task.every(1 << 16)])
    answers, classes = np.unique(found, return_inverse=True)
    steps = []
    for letters in task.alphabet[::-1].tolist():
        first, classes = _distinct_rows(classes.reshape(-1, letters))
        steps.append(first)
    return LayeredAutomaton(tuple(steps[::-1]), answers)


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct rows, number of each row). Column by column, so that a pair of classes always fits a word."""
    labels = rows[:, 0]
    for column in rows.T[1:]:
        labels = np.unique(labels * (int(column.max()) + 1) + column, return_inverse=True)[1]
    _, index, labels = np.unique(labels, return_index=True, return_inverse=True)
    return rows[index].astype(np.int64), labels


# checks ------------------------------------------------------------------------------------------------------------------


def check_automaton(task: SequentialComposition, automaton: LayeredAutomaton | None = None) -> Check:
    """It answers every prompt, no state is idle, and no two states of a depth could be merged.

    Merging: at the end answers differ; before it, two equal rows of steps would be one state too many. By induction each two
    states of a depth then have a continuation after which the answers differ, so no machine has fewer states anywhere.
    """
    automaton = minimal_automaton(task) if automaton is None else automaton
    problem, cases = None, 0
    for block in task.every(1 << 16):
        wrong = np.flatnonzero(automaton.run(block) != task.answers(block))
        cases += len(block)
        if len(wrong) and problem is None:
            problem = {"prompt": block[wrong[0]].tolist(), "got": int(automaton.run(block[wrong[:1]])[0])}
    reached = np.array([0])
    for depth, step in enumerate(automaton.steps):
        if problem is None and (len(reached) != len(step) or len(_distinct_rows(step)[0]) != len(step)):
            problem = {"depth": depth, "states": len(step), "reached": len(reached), "distinct": len(_distinct_rows(step)[0])}
        reached = np.unique(step[reached])
    if problem is None and len({*automaton.answers.tolist()}) != len(automaton.answers):
        problem = {"depth": len(automaton.steps), "two states with one answer": automaton.answers.tolist()}
    return Check.true(
        f"the smallest machine for m = {task.m}, ns = {task.ns}, order {task.order}",
        problem is None,
        f"all {cases:,} prompts, all pairs of states",
        cases=cases,
        counterexample=problem,
        value={"peak": automaton.peak, "bits": automaton.bits},
    )


def check_profile(task: SequentialComposition, expected: list[int]) -> Check:
    """The numbers of states, depth by depth, against expected ones (for two functions: `two_function_profile`)."""
    return Check.equal(
        f"states after each token, m = {task.m}, ns = {task.ns}, order {task.order}",
        np.array(minimal_automaton(task).profile),
        np.array(expected),
        f"all {task.count:,} prompts",
    )
