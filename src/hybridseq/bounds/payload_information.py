"""How much a state must know of the payload: Theorem 3.3 of paper B as printed, and three statements that hold.

All of them need the payload to be read *before* the control. M is the number of states, m log2 |V| the bits of the payload.

    printed    sum log2|S_i| >= Omega(m log2|V| - q log2|Y|)                             the right side is never positive
    T-A        always right:  sum log2|S_i| >= m log2|V|
    T-B        right with probability 1 - eps on uniform (u, v):
               sum log2|S_i| >= m log2|V| - q [h2(eps) + eps log2(|Y| - 1)]              eps <= 1 - 1/|Y|
    T-C        index:  P*(S) <= 1 - (1 / (m |V|^m)) sum_d d n_d,   n_d <= S C(m, d) (|V| - 1)^d filled from d = 0

Deviates: the paper's q log|Y| is the bracket of T-B with the factor eps lost; the order of reading is a hypothesis here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, log2

import numpy as np

from hybridseq.bounds.state_machines import Machine
from hybridseq.evidence import Certificate, Check
from hybridseq.tasks.function_composition import FunctionComposition

KIND = "shared state"


def binary_entropy(p: float) -> float:
    """h2(p) = -p log2 p - (1 - p) log2 (1 - p), in bits. Raises ValueError outside [0, 1].

    >>> binary_entropy(0.5)
    1.0
    """
    p = float(p)
    if not 0 <= p <= 1:
        raise ValueError(f"p={p!r}: a probability lies in [0, 1]")
    return -sum(x * log2(x) for x in (p, 1 - p) if x > 0)


@dataclass(frozen=True)
class Sizes:
    """m, |V|, q and |Y| of a task, all that the bounds of Theorem 3.3 read.

    Raises ValueError for |V| or |Y| below 2, m or q below 1, and where q log|Y| < m log|V|: then no task with these sizes is
    injective.
    """

    m: int
    vocab_size: int
    q: int
    num_answers: int

    def __post_init__(self):
        for name, least in (("m", 1), ("vocab_size", 2), ("q", 1), ("num_answers", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
        if self.num_answers**self.q < self.vocab_size**self.m:
            raise ValueError(
                f"q={self.q}, num_answers={self.num_answers}: {self.num_answers}^{self.q} answer vectors cannot name "
                f"{self.vocab_size}^{self.m} payloads, so Assumption 3.2 fails"
            )

    @classmethod
    def of(cls, task: FunctionComposition) -> Sizes:
        """The sizes of a task with its set Q."""
        return cls(task.payload_len, task.vocab_size, len(task.controls), task.num_answers)

    @property
    def payload_bits(self) -> float:
        """m log2 |V|, the bound of T-A."""
        return self.m * log2(self.vocab_size)

    @property
    def redundancy(self) -> float:
        """rho = q log|Y| / (m log|V|) >= 1."""
        return self.q * log2(self.num_answers) / self.payload_bits

    def printed(self) -> float:
        """m log2|V| - q log2|Y|, the right side as printed, its constant left out. Never positive; exact zero where both sides
        agree.
        """
        if self.num_answers**self.q == self.vocab_size**self.m:
            return 0.0  # not the rounding error of two equal numbers
        return self.payload_bits - self.q * log2(self.num_answers)

    def fano(self, eps: float) -> float:
        """T-B: bits that a success of 1 - eps forces. Raises ValueError for eps > 1 - 1/|Y|, where guessing is as good.

        >>> round(Sizes(3, 2, 3, 2).fano(0.1), 2)
        1.59
        """
        eps = float(eps)
        if not 0 <= eps <= 1 - 1 / self.num_answers + 1e-12:
            raise ValueError(
                f"eps={eps!r}: must lie in [0, 1 - 1/|Y|] = [0, {1 - 1 / self.num_answers:.4g}]; one state guesses as well"
            )
        eps = min(eps, 1 - 1 / self.num_answers)
        return self.payload_bits - self.q * (binary_entropy(eps) + eps * log2(self.num_answers - 1))


def fano_rate(vocab_size: int, eps: float) -> float:
    """Bits a symbol that T-B gives for the index task (q = m, Y = V): log2|V| - h2(eps) - eps log2(|V| - 1)."""
    return Sizes(1, vocab_size, 1, vocab_size).fano(eps)


def sphere_distance(m: int, vocab_size: int, num_states: int) -> int:
    """The least that the distances of all |V|^m words to a code of S words can add up to, if the balls never overlapped.

    >>> [sphere_distance(3, 2, S) for S in (1, 2, 3)]
    [12, 6, 5]
    """
    Sizes(m, vocab_size, m, vocab_size)
    if isinstance(num_states, bool) or not isinstance(num_states, int | np.integer) or not 1 <= num_states <= vocab_size**m:
        raise ValueError(f"num_states={num_states!r}: must be an integer from 1 to |V|^m = {vocab_size**m}")
    left, total = vocab_size**m, 0
    for d in range(m + 1):
        taken = min(left, num_states * comb(m, d) * (vocab_size - 1) ** d)
        total, left = total + d * taken, left - taken
    return total


def sphere_bound(m: int, vocab_size: int, num_states: int) -> Fraction:
    """T-C: no machine of S states answers the index task with a larger probability."""
    return 1 - Fraction(sphere_distance(m, vocab_size, num_states), m * vocab_size**m)


def radius_one_bound(m: int, vocab_size: int, num_states: int) -> Fraction:
    """1 - (|V|^m - S) / (m |V|^m): every word outside the code costs at least one symbol. The line that P* joins at the
    covering number.
    """
    total = vocab_size**m
    return 1 - Fraction(total - num_states, m * total)


# a shared state as a certificate -----------------------------------------------------------------------------------------


def shared_state(machine: Machine, task: FunctionComposition, letters: Sequence[int] | None = None) -> Certificate | None:
    """Two payloads that leave the same state and a control on which the right answers differ; None if all payloads differ.

    letters: the letter of each control of Q (default: |V|, |V| + 1, ...); payload symbols are their own letters.
    """
    letters = _letters(task, letters)
    payloads = list(task.payloads())
    states = machine.states(np.array(payloads))[:, -1].tolist()
    first: dict[int, tuple[int, ...]] = {}
    for u, s in zip(payloads, states, strict=True):
        other = first.setdefault(s, u)
        for v, letter in zip(task.controls, letters, strict=True):
            if task.answer(other, v) != task.answer(u, v):
                said = int(machine.last([[*u, letter]])[0])
                return Certificate(
                    KIND,
                    {
                        "payloads": [list(other), list(u)],
                        "state": s,
                        "control": list(v),
                        "letter": letter,
                        "said to both": said,
                        "right": [task.answer(other, v), task.answer(u, v)],
                    },
                )
    return None


def replay(certificate: Certificate, machine: Machine, task: FunctionComposition) -> Check:
    """Runs the machine on both payloads and the control: same state, same output, different right answers."""
    data = certificate.data
    words = [[*u, data["letter"]] for u in data["payloads"]]
    visited = machine.states(words)[:, -2].tolist()
    said = machine.last(words).tolist()
    right = [task.answer(u, data["control"]) for u in data["payloads"]]
    sound = (
        visited == [data["state"]] * 2 and said == [data["said to both"]] * 2 and right == data["right"] and right[0] != right[1]
    )
    return Check.true(
        "two payloads, one state, one answer, two truths",
        sound,
        f"{machine.name}: {data['payloads']}",
        cases=2,
        counterexample={"states": visited, "said": said, "right": right},
    )


# checks ------------------------------------------------------------------------------------------------------------------


def check_printed(sizes: Sequence[Sizes]) -> Check:
    """The printed right side is at most 0: |Y|^q >= |V|^m in exact integers, for sizes of tasks that were found injective."""
    bad = [s for s in sizes if s.num_answers**s.q < s.vocab_size**s.m or s.printed() > 0]
    return Check.true(
        "m log|V| - q log|Y| is never positive",
        not bad,
        f"{len(sizes)} sizes (m, |V|, q, |Y|)",
        cases=len(sizes),
        counterexample=bad[:1],
        value={"largest": max(s.printed() for s in sizes)},
    )


def check_states_after_payload(machine: Machine, task: FunctionComposition, letters: Sequence[int] | None = None) -> Check:
    """T-A on one machine: if it is right on all of V^m x Q, payload first, then |V|^m states occur right after the payload."""
    letters = _letters(task, letters)
    payloads = np.array(list(task.payloads()))
    said = np.stack([machine.last(np.concatenate([payloads, np.full((len(payloads), 1), a)], axis=1)) for a in letters], axis=1)
    wrong = int((said != task.table()).sum())
    used = len(set(machine.states(payloads)[:, -1].tolist()))
    return Check.true(
        f"right on every input, and {task.num_payloads} states right after the payload",
        not wrong and used == task.num_payloads,
        f"{machine.name}; {task.name}",
        cases=said.size,
        counterexample={"wrong answers": wrong, "states after the payload": used},
        value={"states": used},
    )


def check_fano(sizes: Sizes, optimum: Sequence[Fraction], name: str = "") -> Check:
    """T-B against exact optima P*(1), P*(2), ...: log2 S is never below the bits that the success forces."""
    rows = [(S, log2(S), sizes.fano(1 - p)) for S, p in enumerate(optimum, 1)]
    bad = [row for row in rows if row[1] < row[2] - 1e-9]
    return Check.true(
        "log2 S is at least what the success of the best machine with S states forces",
        not bad,
        f"{name or sizes}: S = 1..{len(rows)}",
        cases=len(rows),
        counterexample=bad[:1],
        value={"smallest slack in bits": min(bits - need for _, bits, need in rows)},
    )


def _letters(task: FunctionComposition, letters: Sequence[int] | None) -> list[int]:
    letters = list(range(task.vocab_size, task.vocab_size + len(task.controls))) if letters is None else list(letters)
    if len(letters) != len(task.controls):
        raise ValueError(f"letters={letters!r}: one letter for each of the {len(task.controls)} controls")
    return letters
