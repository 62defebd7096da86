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
one. It takes the last position at which the key stands, which is the end of the sequence itself, where nothing follows; here the
occurrence is an earlier one. It does not say what to do when there is none. Released generators never store the key of the
first k tokens, because they begin one position late; `skip_first` says whether that key counts, and has no default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.exhaustive import every_sequence
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["MASKED", "MultiKeyRecall"]

MASKED = -1
"""The label of a position without a defined answer."""

_MOST_KEYS = 1 << 62
"""Keys are compared as int64 numbers in base M."""


@dataclass(frozen=True)
class MultiKeyRecall:
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

    def __post_init__(self):
        for name in ("num_words", "key_len"):
            _length(getattr(self, name), name)
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

    # ------------------------------------------------------------------------------------------------------ the answer

    def keys(self, tokens) -> np.ndarray:
        """The key that ends at each position as a number in base M, first token most significant; -1 for the first k - 1."""
        tokens = self.check(tokens)
        keys = np.zeros_like(tokens)
        for back in range(self.key_len):
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

    def answers(self, tokens) -> np.ndarray:
        """The label of the last position, (...,): what Definition 5.1 asks for; -1 where it is undefined."""
        return self.labels(tokens)[..., -1]

    def solve(self, tokens) -> np.ndarray:
        """Reference solver: reads (seq_len,) or (num, seq_len) token by token in plain Python; the labels of every position.

        It shares no line with `labels`: it walks back along what it has read and compares the keys as lists.
        """
        tokens = self.check(tokens)
        rows = [self._read(row) for row in tokens.reshape(-1, tokens.shape[-1]).tolist()]
        return np.array(rows).reshape(tokens.shape)

    def _read(self, row: list[int]) -> list[int]:
        return [self._behind(row[:end]) for end in range(1, len(row) + 1)]

    def _behind(self, heard: list[int]) -> int:
        """The token behind the last earlier place where the key at the end of `heard` stands."""
        k = self.key_len
        for start in range(len(heard) - k - 1, 0 if self.skip_first else -1, -1):
            if heard[start : start + k] == heard[-k:]:
                return heard[start + k]
        return MASKED

    # --------------------------------------------------------------------------------------------------------- inputs

    def count(self, seq_len: int) -> int:
        """The number of sequences, M^seq_len."""
        return self.vocab_size ** _length(seq_len)

    def every(self, seq_len: int, block: int = 1 << 14) -> Iterator[np.ndarray]:
        """All sequences of V^seq_len in counting order, in blocks (num, seq_len) of at most `block` rows.

        Raises ValueError beyond 2^24 sequences, or for a block below 1.
        """
        return every_sequence(self.vocab_size, _length(seq_len), block)

    def sample(self, num: int, seq_len: int, generator: Generator) -> np.ndarray:
        """Random sequences (num, seq_len) of independent uniform words: one draw, `generator.integers(M, (num, seq_len))`."""
        return generator.integers(self.num_words, (_length(num, "num"), _length(seq_len)))


def _length(value, name: str = "seq_len") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(value)
