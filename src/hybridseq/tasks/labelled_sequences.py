"""What tasks over a small alphabet with a label, or none, at every position have in common: reading, listing, drawing.

The alphabet has words and marks; a mark (a number to look back, a bit of a question) is what a task acts on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.exhaustive import every_sequence
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["MASKED", "LabelledSequences", "check_count"]

MASKED = -1
"""The label of a position without a defined answer."""


class LabelledSequences(ABC):
    """Base of a task: it adds `vocabulary`, `vocab_size`, `labels`, `marks`, `words` and `_read`, the rest is here."""

    vocabulary: Vocabulary
    vocab_size: int
    marks: ClassVar[range] | range
    """Ids of the marks."""
    words: ClassVar[range] | range
    """Ids of the words."""

    @abstractmethod
    def labels(self, tokens) -> np.ndarray:
        """Label of every position, -1 where the answer is undefined: (..., seq_len) int64."""

    @abstractmethod
    def _read(self, row: list[int]) -> list[int]:
        """The labels of one sequence, token by token in plain Python, sharing no line with `labels`."""

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

    def answers(self, tokens) -> np.ndarray:
        """The label of the last position, (...,): what the definition asks for; -1 where it is undefined."""
        return self.labels(tokens)[..., -1]

    def solve(self, tokens) -> np.ndarray:
        """Reference solver: reads (seq_len,) or (num, seq_len) token by token in plain Python; the labels of every position.

        It shares no line with `labels`: it keeps what it has read in a list and walks back along it.
        """
        tokens = self.check(tokens)
        rows = [self._read(row) for row in tokens.reshape(-1, tokens.shape[-1]).tolist()]
        return np.array(rows).reshape(tokens.shape)

    def count(self, seq_len: int) -> int:
        """The number of sequences, |V|^seq_len."""
        return self.vocab_size ** check_count(seq_len)

    def every(self, seq_len: int, block: int = 1 << 14) -> Iterator[np.ndarray]:
        """All sequences of V^seq_len in counting order, in blocks (num, seq_len) of at most `block` rows.

        Raises ValueError beyond 2^24 sequences, or for a block below 1.
        """
        return every_sequence(self.vocab_size, check_count(seq_len), block)

    def sample(self, num: int, seq_len: int, generator: Generator, density: float | None = None) -> np.ndarray:
        """Random sequences (num, seq_len), every position independent.

        density: probability of a mark; None makes every token equally likely. Raises ValueError outside [0, 1].
        """
        shape = (check_count(num, "num"), check_count(seq_len))
        if density is None:
            return generator.integers(self.vocab_size, shape)
        if not 0 <= density <= 1:
            raise ValueError(f"density must lie in [0, 1], got {density!r}")
        marks = generator.at(0).integers(len(self.marks), shape) + self.marks.start
        words = generator.at(1).integers(len(self.words), shape) + self.words.start
        return np.where(generator.at(2).uniform(shape) < density, marks, words)


def check_count(value, name: str = "seq_len") -> int:
    """`value` as an int. Raises ValueError unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(value)
