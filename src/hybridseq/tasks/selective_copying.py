"""Selective copying (paper B, Definition 4.1): the last number token says how far back the token to copy stands.

The vocabulary is N number tokens #1, ..., #N and M words. The label at position i (counted from 1) is

    x_{i+1-n},    where #n is the last number token among x_1, ..., x_i        count_from="current"
    x_{i-n}                                                                    count_from="previous"

It is undefined before the first number token and where it would stand before the first position; such positions carry no
label (-1) and are never counted. The token to copy may itself be a number. With N = 3 and the words a, b:

    position           1    2    3    4    5    6
    token              a    #2   b    a    #3   b
    count_from current .    a    #2   b    b    a      at 6: n = 3, x_4 = a
    count_from previous.    .    a    #2   #2   b      at 6: n = 3, x_3 = b

Deviates: Definition 4.1 asks for the last position only and does not say what to do without an answer. Released generators use
the second convention, so the choice has no default here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.exhaustive import every_sequence
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["COUNT_FROM", "MASKED", "SelectiveCopying"]

COUNT_FROM = {"current": 1, "previous": 0}
"""What #1 points at: the current token (Definition 4.1) or the one before it; the value is added to i - n."""

MASKED = -1
"""The label of a position without a defined answer."""



@dataclass(frozen=True)
class SelectiveCopying:
    """The task for one vocabulary. Token ids: 0, ..., N-1 are the numbers in ascending order, N, ..., N+M-1 the words.

    Args:
        num_numbers, num_words: N >= 1 and M >= 1.
        count_from: "current" or "previous", see the module; required.
        first_number: value of the first number token; the numbers are #first_number, ..., #(first_number + N - 1).

    Raises:
        ValueError: N, M or first_number below 1, unknown count_from.

    Example:
        >>> task = SelectiveCopying(3, 2, count_from="current")
        >>> task.labels([3, 1, 4, 3, 2, 4]).tolist(), task.text([3, 1, 4, 3, 2, 4])
        ([-1, 3, 1, 4, 4, 3], 'a #2 b a #3 b')
    """

    num_numbers: int
    num_words: int
    count_from: str
    first_number: int = 1

    def __post_init__(self):
        for name in ("num_numbers", "num_words", "first_number"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
        if self.count_from not in COUNT_FROM:
            raise ValueError(f"count_from must be one of {', '.join(map(repr, COUNT_FROM))}, got {self.count_from!r}")

    @property
    def vocab_size(self) -> int:
        """N + M."""
        return self.num_numbers + self.num_words

    @property
    def vocabulary(self) -> Vocabulary:
        """#1, #2, ... and then a, b, ... (w0, w1, ... for more than 26 words)."""
        numbers = tuple(f"#{self.first_number + i}" for i in range(self.num_numbers))
        few = self.num_words <= 26
        return Vocabulary(numbers + tuple(chr(97 + i) if few else f"w{i}" for i in range(self.num_words)))

    def text(self, tokens) -> str:
        """One sequence as token names."""
        return " ".join(self.vocabulary.names(tokens))

    def check(self, tokens) -> np.ndarray:
        """Tokens (..., seq_len) as int64. Raises ValueError for other ids, or no token at all."""
        tokens = np.asarray(tokens)
        if tokens.ndim < 1 or tokens.shape[-1] < 1 or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens must be integers (..., seq_len), seq_len >= 1, got {tokens.shape} {tokens.dtype}")
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab_size:
            raise ValueError(f"tokens must lie in 0..{self.vocab_size - 1}, got {int(tokens.min())}..{int(tokens.max())}")
        return tokens.astype(np.int64)

    def last_numbers(self, tokens) -> np.ndarray:
        """The value n of the last number token up to each position, 0 where there is none: (..., seq_len)."""
        tokens = self.check(tokens)
        place = np.where(tokens < self.num_numbers, np.arange(tokens.shape[-1]), -1)
        latest = np.maximum.accumulate(place, axis=-1)
        value = np.take_along_axis(tokens, np.maximum(latest, 0), axis=-1) + self.first_number
        return np.where(latest >= 0, value, 0)

    def labels(self, tokens) -> np.ndarray:
        """Label of every position, -1 where the answer is undefined: (..., seq_len) int64."""
        tokens = self.check(tokens)
        n = self.last_numbers(tokens)
        source = np.arange(tokens.shape[-1]) + COUNT_FROM[self.count_from] - n
        found = np.take_along_axis(tokens, np.clip(source, 0, tokens.shape[-1] - 1), axis=-1)
        return np.where((n > 0) & (source >= 0), found, MASKED)

    def answers(self, tokens) -> np.ndarray:
        """The label of the last position, (...,): what Definition 4.1 asks for; -1 where it is undefined."""
        return self.labels(tokens)[..., -1]

    def solve(self, tokens) -> np.ndarray:
        """Reference solver: reads (seq_len,) or (num, seq_len) token by token in plain Python; the labels of every position.

        It shares no line with `labels`: it keeps what it has read in a list and walks back along it.
        """
        tokens = self.check(tokens)
        rows = [self._read(row) for row in tokens.reshape(-1, tokens.shape[-1]).tolist()]
        return np.array(rows).reshape(tokens.shape)

    def _read(self, row: list[int]) -> list[int]:
        seen, number, labels = [], None, []
        for token in row:
            seen.append(token)
            if token < self.num_numbers:
                number = token + self.first_number
            back = seen if self.count_from == "current" else seen[:-1]
            labels.append(back[-number] if number is not None and number <= len(back) else MASKED)
        return labels

    def count(self, seq_len: int) -> int:
        """The number of sequences, |V|^seq_len."""
        return self.vocab_size ** _length(seq_len)

    def every(self, seq_len: int, block: int = 1 << 14) -> Iterator[np.ndarray]:
        """All sequences of V^seq_len in counting order, in blocks (num, seq_len) of at most `block` rows.

        Raises ValueError beyond 2^24 sequences, or for a block below 1.
        """
        return every_sequence(self.vocab_size, _length(seq_len), block)

    def sample(self, num: int, seq_len: int, generator: Generator, density: float | None = None) -> np.ndarray:
        """Random sequences (num, seq_len), every position independent.

        density: probability of a number token; None makes every token equally likely. Raises ValueError outside [0, 1].
        """
        shape = (_length(num, "num"), _length(seq_len))
        if density is None:
            return generator.integers(self.vocab_size, shape)
        if not 0 <= density <= 1:
            raise ValueError(f"density must lie in [0, 1], got {density!r}")
        numbers = generator.at(0).integers(self.num_numbers, shape)
        words = generator.at(1).integers(self.num_words, shape) + self.num_numbers
        return np.where(generator.at(2).uniform(shape) < density, numbers, words)

    def sample_one_number(self, num: int, seq_len: int, generator: Generator, before: int) -> np.ndarray:
        """Random words with exactly one number, uniform, at a uniform place among the first `before` positions.

        Raises ValueError unless 1 <= before <= seq_len.
        """
        if not 1 <= before <= _length(seq_len):
            raise ValueError(f"before must lie in 1..{seq_len}, got {before}")
        tokens = generator.at(0).integers(self.num_words, (_length(num, "num"), seq_len)) + self.num_numbers
        tokens[np.arange(num), generator.at(1).integers(before, (num,))] = generator.at(2).integers(self.num_numbers, (num,))
        return tokens


def _length(value, name: str = "seq_len") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(value)
