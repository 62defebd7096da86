"""Function composition: answer F(u(x), v(x)) for a long payload u and a short control v (paper B, Definition 3.1).

A sequence of the *direct* form is the payload followed by the control (or the other way round), here for the index task with
three binary symbols and the controls 1, 2, 3 written in two bits:

    token   u_1 u_2 u_3 | v    v tokens   0   1   1  | 0    1      control 01 stands for position 2 label    .   .   .  | .
    u_2     one label, at the last position; the others are masked

Assumption 3.2 (injectivity): finitely many controls v_1, ..., v_q whose answers together name the payload. Assumption 3.6
(R-local sensitivity): two inputs that agree on their last R positions and have different answers.

Deviates: paper B leaves u(x) and v(x) free; here they are functions that are handed in, by default the first m tokens and the n
after them. An input without an answer (a control that is missing or points nowhere) is masked: its label is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from hybridseq.evidence import Check
from hybridseq.rng import Generator

__all__ = [
    "FunctionComposition",
    "check_injective",
    "check_sensitive",
    "equality",
    "index",
    "inner_product",
    "label",
    "sample",
    "selective_copying",
    "sensitivity",
    "threshold",
]

MOST_PAYLOADS = 1 << 16
"""Tables with more payloads are not listed."""

Word = tuple[int, ...]


@dataclass(frozen=True)
class FunctionComposition:
    """The task x -> F(u(x), v(x)), F: V^m x V^n -> Y (paper B, Definition 3.1).

    vocab_size: |V|; tokens are 0..|V|-1. payload_len: m. control_len: n. num_answers: |Y|; answers are 0..|Y|-1.
    function: F on two words, an answer or None where it is undefined. controls: the set Q, words of V^n.
    payload, control: u and v on a sequence (None: the first m tokens, the n tokens after them).

    Raises ValueError for sizes below 1, for an empty Q, a repeated control or one outside V^n.

    >>> task = index(3)
    >>> task.table()[3].tolist(), task.num_payloads, task.controls
    ([0, 1, 1], 8, ((0, 0), (0, 1), (1, 0)))
    """

    name: str
    vocab_size: int
    payload_len: int
    control_len: int
    num_answers: int
    function: Callable[[Word, Word], int | None]
    controls: tuple[Word, ...]
    payload: Callable[[Word], Word | None] | None = None
    control: Callable[[Word], Word | None] | None = None

    def __post_init__(self):
        for name in ("vocab_size", "payload_len", "control_len", "num_answers"):
            _check_positive(name, getattr(self, name))
        object.__setattr__(self, "controls", tuple(tuple(map(int, v)) for v in self.controls))
        if not self.controls or len(set(self.controls)) != len(self.controls):
            raise ValueError(f"controls={self.controls!r}: Q needs one or more distinct words")
        for v in self.controls:
            self._check_word("controls", v, self.control_len)

    @property
    def num_payloads(self) -> int:
        """|V|^m."""
        return self.vocab_size**self.payload_len

    def payloads(self) -> Iterable[Word]:
        """All of V^m in counting order, first symbol most significant."""
        if self.num_payloads > MOST_PAYLOADS:
            raise ValueError(
                f"payload_len={self.payload_len}: {self.num_payloads:,} payloads are not listed (at most {MOST_PAYLOADS:,})"
            )
        return product(range(self.vocab_size), repeat=self.payload_len)

    def answer(self, u: Sequence[int], v: Sequence[int]) -> int | None:
        """F(u, v). Raises ValueError for words that are not in V^m and V^n."""
        u, v = tuple(map(int, u)), tuple(map(int, v))
        self._check_word("u", u, self.payload_len)
        self._check_word("v", v, self.control_len)
        return self.function(u, v)

    def table(self) -> np.ndarray:
        """G for all payloads: integers (|V|^m, q), row u, column i holds F(u, v_i)."""
        rows = [[self.function(u, v) for v in self.controls] for u in self.payloads()]
        if any(a is None for row in rows for a in row):
            raise ValueError(f"controls: {self.name} is undefined for some payload and control of Q; leave such controls out")
        return np.array(rows, dtype=np.int64)

    def with_controls(self, controls: Iterable[Word]) -> FunctionComposition:
        """The same task with another set Q."""
        return FunctionComposition(
            self.name,
            self.vocab_size,
            self.payload_len,
            self.control_len,
            self.num_answers,
            self.function,
            tuple(controls),
            self.payload,
            self.control,
        )

    def smallest_controls(self) -> FunctionComposition:
        """The task with a smallest subset of Q that is still injective; the first in the order of Q. Cost: 2^q tables."""
        table = self.table()
        for size in range(1, len(self.controls) + 1):
            for columns in combinations(range(len(self.controls)), size):
                if _distinct_rows(table[:, columns]) == len(table):
                    return self.with_controls(self.controls[c] for c in columns)
        raise ValueError(f"controls: {self.name} is not injective on Q, so no subset is (Assumption 3.2)")

    def _check_word(self, name: str, word: Word, length: int) -> None:
        if len(word) != length or not all(0 <= t < self.vocab_size for t in word):
            raise ValueError(f"{name}={word!r}: must be {length} tokens from 0..{self.vocab_size - 1}")


def label(task: FunctionComposition, x: Sequence[int]) -> int | None:
    """F(u(x), v(x)) for one sequence, None where it is undefined (masked).

    Raises ValueError for tokens outside 0..vocab_size - 1, or a sequence of another length where payload and control are blocks.

    >>> label(index(3), [0, 1, 1, 0, 1])
    1
    """
    x = tuple(map(int, x))
    m, n = task.payload_len, task.control_len
    if not all(0 <= token < task.vocab_size for token in x):
        raise ValueError(f"x: {task.name} has the tokens 0..{task.vocab_size - 1}, got {min(x)}..{max(x)}")
    if task.payload is None and task.control is None and len(x) != m + n:
        raise ValueError(f"x: {task.name} reads {m} payload and {n} control tokens, got {len(x)}")
    u = task.payload(x) if task.payload else x[:m]
    v = task.control(x) if task.control else x[m : m + n]
    return None if u is None or v is None else task.answer(u, v)


def sample(task: FunctionComposition, gen: Generator, num: int, payload_first: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(sequences (num, m + n), answers (num,)): u uniform on V^m, v uniform on Q, independent; `payload_first`
    says which is read first.
    """
    _check_positive("num", num)
    u = gen.at(0).integers(task.vocab_size, (num, task.payload_len))
    v = np.array(task.controls)[gen.at(1).integers(len(task.controls), (num,))]
    answers = np.array([task.function(tuple(a), tuple(b)) for a, b in zip(u.tolist(), v.tolist(), strict=True)])
    return np.concatenate([u, v] if payload_first else [v, u], axis=1), answers


# instances ---------------------------------------------------------------------------------------------------------------


def index(m: int, vocab_size: int = 2) -> FunctionComposition:
    """F(u, v) = u_v: q = m controls, position v - 1 in base |V|; answers are tokens."""
    _check_positive("m", m)
    if vocab_size < 2:
        raise ValueError(f"vocab_size={vocab_size!r}: needs two tokens or more")
    n = max(1, len(_digits(m - 1, vocab_size)))
    controls = [_word(i, vocab_size, n) for i in range(m)]

    def lookup(u, v):
        place = _number(v, vocab_size)
        return u[place] if place < m else None

    return FunctionComposition(f"index, m = {m}, |V| = {vocab_size}", vocab_size, m, n, vocab_size, lookup, tuple(controls))


def inner_product(m: int) -> FunctionComposition:
    """F(u, v) = <u, v> mod 2 over bits: q = 2^m - 1 controls, all v except 0."""
    _check_positive("m", m)
    controls = list(product(range(2), repeat=m))[1:]
    return FunctionComposition(
        f"inner product, m = {m}", 2, m, m, 2, lambda u, v: sum(a * b for a, b in zip(u, v, strict=True)) % 2, tuple(controls)
    )


def threshold(m: int) -> FunctionComposition:
    """F(u, v) = [u >= v], words as binary numbers: q = 2^m - 1 controls, v = 1, 2, ..."""
    _check_positive("m", m)
    controls = list(product(range(2), repeat=m))[1:]
    return FunctionComposition(f"threshold, m = {m}", 2, m, m, 2, lambda u, v: int(u >= v), tuple(controls))


def equality(m: int) -> FunctionComposition:
    """F(u, v) = [u = v]: q = 2^m - 1 controls, all v except 0 (what matches none of them is 0)."""
    _check_positive("m", m)
    controls = list(product(range(2), repeat=m))[1:]
    return FunctionComposition(f"equality, m = {m}", 2, m, m, 2, lambda u, v: int(u == v), tuple(controls))


def selective_copying(numbers: int, words: int) -> FunctionComposition:
    """Selective copying (paper B, Definition 4.1) as a function composition: u(x) the last N tokens, v(x) the last number token.

    Tokens 0..N-1 are #1..#N, N..N+M-1 words. F(u, #n) = u_{N+1-n}, the token n - 1 places before the end. Without a number, or
    for a sequence shorter than N, the label is None.

    >>> task = selective_copying(2, 2)
    >>> label(task, [1, 2, 2, 3, 2]), label(task, [2, 2, 2, 3, 2])
    (3, None)
    """
    _check_positive("numbers", numbers)
    _check_positive("words", words)

    def lookup(u, v):
        return u[numbers - 1 - v[0]] if v[0] < numbers else None

    def last_number(x):
        seen = [t for t in x if t < numbers]
        return (seen[-1],) if seen else None

    return FunctionComposition(
        f"selective copying, N = {numbers}, M = {words}",
        numbers + words,
        numbers,
        1,
        numbers + words,
        lookup,
        tuple((v,) for v in range(numbers)),
        lambda x: x[-numbers:] if len(x) >= numbers else None,
        last_number,
    )


# assumptions -------------------------------------------------------------------------------------------------------------


def check_injective(task: FunctionComposition) -> Check:
    """Assumption 3.2 for the controls of the task: all rows of G differ; a counter-example is two payloads with equal rows."""
    table, first = task.table(), {}
    twins = None
    for u, row in zip(task.payloads(), map(tuple, table.tolist()), strict=True):
        if row in first:
            twins = {"payloads": [first[row], u], "answers": row}
            break
        first[row] = u
    return Check.true(
        f"the answers to {len(task.controls)} controls name the payload",
        twins is None,
        f"{task.name}: all {len(table)} payloads",
        cases=len(table),
        counterexample=twins,
    )


def check_sensitive(task: FunctionComposition, x: Sequence[int], other: Sequence[int], R: int) -> Check:
    """Assumption 3.6 for one pair: it agrees on the last R positions, and both answers exist and differ."""
    if isinstance(R, bool) or not isinstance(R, int | np.integer) or not 0 <= R <= len(x) or len(x) != len(other):
        raise ValueError(f"R={R!r}: must be an integer from 0 to the common length of both sequences ({len(x)} and {len(other)})")
    x, other = tuple(map(int, x)), tuple(map(int, other))
    answers = label(task, x), label(task, other)
    agree = x[len(x) - R :] == other[len(x) - R :]
    return Check.true(
        f"two inputs that agree on the last {R} positions have different answers",
        agree and None not in answers and answers[0] != answers[1],
        f"{task.name}, length {len(x)}, one pair",
        counterexample={"x": x, "other": other, "agree": agree, "answers": answers},
        value={"answers": answers},
    )


def sensitivity(task: FunctionComposition, seq_len: int) -> tuple[int, Word, Word]:
    """The largest R for which the task is R-locally sensitive at this length, and a pair that shows it. Lists all |V|^L inputs.

    Raises ValueError for more inputs than 2^16 and for a task that has one answer only.

    >>> sensitivity(index(3), 5)[0]
    4
    """
    if task.vocab_size**seq_len > MOST_PAYLOADS:
        raise ValueError(f"seq_len={seq_len!r}: {task.vocab_size}^{seq_len} inputs are not listed (at most {MOST_PAYLOADS:,})")
    inputs = [(x, label(task, x)) for x in product(range(task.vocab_size), repeat=seq_len)]
    for R in range(seq_len - 1, -1, -1):
        seen: dict[Word, tuple[Word, int]] = {}
        for x, a in inputs:
            if a is None:
                continue
            other, b = seen.setdefault(x[seq_len - R :], (x, a))
            if a != b:
                return R, other, x
    raise ValueError(f"seq_len={seq_len!r}: {task.name} has one answer for all inputs of this length")


def _distinct_rows(table: np.ndarray) -> int:
    return len(np.unique(table, axis=0))


def _digits(number: int, base: int) -> list[int]:
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits[::-1]


def _word(number: int, base: int, length: int) -> Word:
    digits = _digits(number, base)
    return tuple([0] * (length - len(digits)) + digits)


def _number(word: Word, base: int) -> int:
    value = 0
    for digit in word:
        value = value * base + digit
    return value


def _check_positive(name: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r}: must be an integer >= 1")
