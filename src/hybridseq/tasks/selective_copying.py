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

from dataclasses import dataclass

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.labelled_sequences import MASKED, LabelledSequences, check_count
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["COUNT_FROM", "MASKED", "SelectiveCopying"]

COUNT_FROM = {"current": 1, "previous": 0}
"""What #1 points at: the current token (Definition 4.1) or the one before it; the value is added to i - n."""


@dataclass(frozen=True)
class SelectiveCopying(LabelledSequences):
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
            check_count(getattr(self, name), name)
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

    @property
    def marks(self) -> range:
        """Ids of the numbers."""
        return range(self.num_numbers)

    @property
    def words(self) -> range:
        """Ids of the words."""
        return range(self.num_numbers, self.vocab_size)

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

    def _read(self, row: list[int]) -> list[int]:
        seen, number, labels = [], None, []
        for token in row:
            seen.append(token)
            if token < self.num_numbers:
                number = token + self.first_number
            back = seen if self.count_from == "current" else seen[:-1]
            labels.append(back[-number] if number is not None and number <= len(back) else MASKED)
        return labels

    def sample_one_number(self, num: int, seq_len: int, generator: Generator, before: int) -> np.ndarray:
        """Random words with exactly one number, uniform, at a uniform place among the first `before` positions.

        Raises ValueError unless 1 <= before <= seq_len.
        """
        if not 1 <= before <= check_count(seq_len):
            raise ValueError(f"before must lie in 1..{seq_len}, got {before}")
        tokens = generator.at(0).integers(self.num_words, (check_count(num, "num"), seq_len)) + self.num_numbers
        tokens[np.arange(num), generator.at(1).integers(before, (num,))] = generator.at(2).integers(self.num_numbers, (num,))
        return tokens
