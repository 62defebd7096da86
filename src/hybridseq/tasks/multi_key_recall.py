"""Multi-key associative recall (paper B, Definition 5.1): what followed the last k tokens when they stood together before.

The vocabulary is M words. The key at position i (counted from 1) is (x_{i-k+1}, ..., x_i). Let j < i be the last position at
which the same key ended; the label is x_{j+1}. Positions without a whole key, or whose key has not occurred before, carry no
label (-1) and are never counted. With the words a, b and k = 2:

    position          1    2    3    4    5    6    7
    token             a    b    a    a    b    a    b
    key               .    ab   ba   aa   ab   ba   ab
    skip_first=False  .    .    .    .    a    a    a      at 5: ab ended at 2, x_3 = a; at 7: ab ended last at 5, x_6 = a
    skip_first=True   .    .    .    .    .    a    a      the key that ends at 2 is forgotten, so 5 has no label

Two occurrences may overlap, and the label may be the token at i itself: a a a has the label a at 3.

Deviates: Definition 5.1 asks for one answer, behind the whole sequence; here every position asks, and `answers` is the last
one. Its slices x_{i:i+k} are read as k tokens: with both ends counted the answer x_{i+k} would belong to the key. It takes the
last position at which the key stands, which is the end of the sequence itself, where nothing follows; here the occurrence is an
earlier one. It does not say what to do when there is none. Released generators never store the key of the first k tokens,
because they begin one position late; `skip_first` says whether that key counts, and has no default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.labelled_sequences import MASKED, LabelledSequences, check_count
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["MASKED", "MultiKeyRecall"]

_MOST_KEYS = 1 << 62
"""Keys are compared as int64 numbers in base M."""


@dataclass(frozen=True)
class MultiKeyRecall(LabelledSequences):
    """The task for one vocabulary and one length of keys. Token ids: 0, ..., M-1 are the words.

    Args:
        num_words: M >= 1.
        key_len: k >= 1, with M^k at most 2^62.
        skip_first: True leaves out the key that the first k tokens form, as released generators do; False is the definition.

    Raises:
        ValueError: M or k below 1, more than 2^62 keys, `skip_first` other than True or False.

    Example:
        >>> task = MultiKeyRecall(2, 2, skip_first=False)
        >>> task.labels([0, 1, 0, 0, 1, 0, 1]).tolist(), task.text([0, 1, 0, 0, 1, 0, 1])
        ([-1, -1, -1, -1, 0, 0, 0], 'a b a a b a b')
    """

    num_words: int
    key_len: int
    skip_first: bool

    marks: ClassVar[range] = range(0)
    """No token is special."""

    def __post_init__(self):
        for name in ("num_words", "key_len"):
            check_count(getattr(self, name), name)
        if not isinstance(self.skip_first, bool):
            raise ValueError(f"skip_first must be True or False, got {self.skip_first!r}")
        if int(self.num_words) ** int(self.key_len) > _MOST_KEYS:
            raise ValueError(f"key_len={self.key_len}: {self.num_words} words have more than 2^62 keys; use shorter keys")

    @property
    def vocab_size(self) -> int:
        """M."""
        return self.num_words

    @property
    def vocabulary(self) -> Vocabulary:
        """a, b, ... (w0, w1, ... for more than 26 words)."""
        few = self.num_words <= 26
        return Vocabulary(tuple(chr(97 + i) if few else f"w{i}" for i in range(self.num_words)))

    @property
    def words(self) -> range:
        """Ids of the words: all there are."""
        return range(self.num_words)

    # ------------------------------------------------------------------------------------------------------ the answer

    def keys(self, tokens) -> np.ndarray:
        """The key that ends at each position as a number in base M, first token most significant; -1 for the first k - 1."""
        tokens = self.check(tokens)
        keys = np.zeros_like(tokens)
        for back in range(min(self.key_len, tokens.shape[-1])):
            keys[..., back:] += self.num_words**back * tokens[..., : tokens.shape[-1] - back]
        keys[..., : self.key_len - 1] = MASKED
        return keys

    def sources(self, tokens) -> np.ndarray:
        """Where the label of each position stands (index from 0): behind the last earlier occurrence, or -1; (..., seq_len)."""
        keys = self.keys(tokens)
        if self.skip_first:
            keys[..., : self.key_len] = MASKED  # never stored; it has no earlier occurrence, so it needs no label either
        # Equal keys are neighbours once sorted; a stable sort keeps them in order, so each one's predecessor is the latest.
        order = np.argsort(keys, axis=-1, kind="stable")
        ordered = np.take_along_axis(keys, order, axis=-1)
        behind = np.where(ordered[..., 1:] == ordered[..., :-1], order[..., :-1] + 1, MASKED)
        found = np.full(keys.shape, MASKED)
        np.put_along_axis(found, order[..., 1:], behind, axis=-1)
        return np.where(keys == MASKED, MASKED, found)

    def labels(self, tokens) -> np.ndarray:
        """Label of every position, -1 where the answer is undefined: (..., seq_len) int64."""
        tokens, source = self.check(tokens), self.sources(tokens)
        return np.where(source >= 0, np.take_along_axis(tokens, np.maximum(source, 0), axis=-1), MASKED)

    def _read(self, row: list[int]) -> list[int]:
        """Walks back along what has been heard, comparing keys as lists."""
        return [self._behind(row[:end]) for end in range(1, len(row) + 1)]

    def _behind(self, heard: list[int]) -> int:
        """The token behind the last earlier place where the key at the end of `heard` stands."""
        k = self.key_len
        for start in range(len(heard) - k - 1, 0 if self.skip_first else -1, -1):
            if heard[start : start + k] == heard[-k:]:
                return heard[start + k]
        return MASKED

    # --------------------------------------------------------------------------------------------------------- inputs

    def sample(self, num: int, seq_len: int, generator: Generator) -> np.ndarray:
        """Random sequences (num, seq_len) of independent uniform words: one draw, `generator.integers(M, (num, seq_len))`."""
        return generator.integers(self.num_words, (check_count(num, "num"), check_count(seq_len)))
