"""Associative recall with decoding (paper B, Definition 4.4): the last bits spell a word, and the answer stands behind it.

The vocabulary is W = 2^b words and the two bit tokens 0 and 1. At position i (counted from 1) the last b bit tokens among
x_1, ..., x_i, most significant first, spell a word: the query. The label is x_{t+1} for the last t <= i - 1 with x_t = query.
Positions without b bits so far, or without an earlier occurrence of the query, carry no label (-1) and are never counted.
With W = 4 (words a, b, c, d; b = 2):

    position   1    2    3    4    5    6    7    8
    token      c    a    1    0    d    c    b    1
    query      .    .    .    c    c    c    c    b      10 spells c; at 8 the last two bits are 01, which spell b
    label      .    .    .    a    a    a    b    1      at 6 the c at 6 has no successor yet: the one at 1 counts

The label may be a bit token, and at 8 it is the token at 8 itself.

Deviates: Definition 4.4 takes the bit subsequence of the whole sequence as the query, so it may be longer than b; here its last
b bits count. It says "the next token behind the last" word, which does not exist where that word comes last; here an
occurrence needs a successor. Its log|V| bits are log2 W bits here, since |V| = W + 2 is no power of two for W > 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.labelled_sequences import MASKED, LabelledSequences, check_count
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["MASKED", "RecallWithDecoding"]


@dataclass(frozen=True)
class RecallWithDecoding(LabelledSequences):
    """The task for one number of words. Token ids: 0, ..., W-1 are the words, W is the bit 0 and W+1 the bit 1.

    Args:
        num_words: W, a power of two of at least 2.

    Raises:
        ValueError: W is no power of two, or below 2.

    Example:
        >>> task = RecallWithDecoding(4)
        >>> task.labels([2, 0, 5, 4, 3, 2, 1, 5]).tolist(), task.text([2, 0, 5, 4, 3, 2, 1, 5])
        ([-1, -1, -1, 0, 0, 0, 1, 5], 'c a 1 0 d c b 1')
    """

    num_words: int

    def __post_init__(self):
        w = self.num_words
        if isinstance(w, bool) or not isinstance(w, int | np.integer) or w < 2 or w & (w - 1):
            raise ValueError(f"num_words={w!r}: must be a power of two of at least 2, so that every word has log2 W bits")

    @property
    def num_bits(self) -> int:
        """b = log2 W, the bits that spell one word."""
        return int(self.num_words).bit_length() - 1

    @property
    def vocab_size(self) -> int:
        """W + 2."""
        return self.num_words + 2

    @property
    def zero(self) -> int:
        """Id of the bit token 0."""
        return self.num_words

    @property
    def one(self) -> int:
        """Id of the bit token 1."""
        return self.num_words + 1

    @property
    def vocabulary(self) -> Vocabulary:
        """a, b, ... (w0, w1, ... for more than 26 words), then 0 and 1."""
        few = self.num_words <= 26
        return Vocabulary((*(chr(97 + i) if few else f"w{i}" for i in range(self.num_words)), "0", "1"))

    @property
    def marks(self) -> range:
        """Ids of the bits."""
        return range(self.zero, self.vocab_size)

    @property
    def words(self) -> range:
        """Ids of the words."""
        return range(self.num_words)

    def spell(self, words) -> np.ndarray:
        """The bit tokens of words (...,), most significant first: (..., b).

        >>> RecallWithDecoding(4).spell([2, 1]).tolist()
        [[5, 4], [4, 5]]
        """
        words = np.asarray(words)
        if words.dtype.kind not in "iu" or (words.size and not 0 <= int(words.min()) <= int(words.max()) < self.num_words):
            raise ValueError(f"words must be integers in 0..{self.num_words - 1}, got {words}")
        return self.num_words + (words[..., None].astype(np.int64) >> np.arange(self.num_bits - 1, -1, -1) & 1)

    # ------------------------------------------------------------------------------------------------------ the answer

    def queries(self, tokens) -> np.ndarray:
        """The word that the last b bits up to each position spell, -1 where there are fewer: (..., seq_len) int64."""
        tokens = self.check(tokens)
        is_bit = tokens >= self.zero
        register = np.zeros(tokens.shape[:-1], dtype=np.int64)
        spelled = np.empty_like(tokens)
        for i in range(tokens.shape[-1]):
            shifted = (2 * register + tokens[..., i] - self.zero) % self.num_words
            register = np.where(is_bit[..., i], shifted, register)
            spelled[..., i] = register
        return np.where(np.cumsum(is_bit, axis=-1) >= self.num_bits, spelled, MASKED)

    def sources(self, tokens) -> np.ndarray:
        """Where the label of each position stands (index from 0): behind the last earlier occurrence, or -1; (..., seq_len)."""
        tokens = self.check(tokens)
        queries = self.queries(tokens)
        seen = np.full((*tokens.shape[:-1], self.vocab_size), MASKED)  # where each token stood last, among x_1 .. x_{i-1}
        found = np.full(tokens.shape, MASKED)
        for i in range(tokens.shape[-1]):
            if i > 0:
                np.put_along_axis(seen, tokens[..., i - 1, None], i - 1, axis=-1)
            last = np.take_along_axis(seen, np.maximum(queries[..., i, None], 0), axis=-1)[..., 0]
            found[..., i] = np.where((queries[..., i] >= 0) & (last >= 0), last + 1, MASKED)
        return found

    def labels(self, tokens) -> np.ndarray:
        """Label of every position, -1 where the answer is undefined: (..., seq_len) int64."""
        tokens, source = self.check(tokens), self.sources(tokens)
        return np.where(source >= 0, np.take_along_axis(tokens, np.maximum(source, 0), axis=-1), MASKED)

    def _read(self, row: list[int]) -> list[int]:
        """Spells the query as text and walks back along what has been heard."""
        heard, spelled, labels = [], "", []
        for token in row:
            heard.append(token)
            if token >= self.num_words:
                spelled += "01"[token - self.num_words]
            labels.append(self._behind(heard, spelled))
        return labels

    def _behind(self, heard: list[int], spelled: str) -> int:
        """The token behind the last word in `heard` that `spelled` names at its end."""
        if len(spelled) < self.num_bits:
            return MASKED
        word = int(spelled[-self.num_bits :], 2)
        pairs = list(pairwise(heard))
        return next((after for before, after in reversed(pairs) if before == word), MASKED)

    # --------------------------------------------------------------------------------------------------------- inputs

    def sample_query(self, num: int, context: int, generator: Generator, bits: str = "after") -> np.ndarray:
        """Uniform words (num, context) and the b bits of a uniform query, after the words or before them.

        The words are what Theorem 4.6 speaks about. Raises ValueError for another place of the bits.
        """
        words = generator.at(0).integers(self.num_words, (check_count(num, "num"), check_count(context, "context")))
        query = self.spell(generator.at(1).integers(self.num_words, (num,)))
        return self.join(words, query, bits)

    def join(self, words, query, bits: str = "after") -> np.ndarray:
        """Words (num, context) and bit tokens (num, b) as one sequence, bits "after" or "before"."""
        if bits not in ("after", "before"):
            raise ValueError(f"bits={bits!r}: must be 'after' or 'before' (where the query stands)")
        return np.concatenate((words, query) if bits == "after" else (query, words), axis=-1)
