"""The address code of a construction: the smallest named family with enough words, repeated until it is long enough."""

from __future__ import annotations

import math

import numpy as np

from hybridseq.codes.codebook import Codebook
from hybridseq.codes.linear import bch, extended_bch, golay, random_linear, reed_muller

# (words, build): the first family whose size reaches the request is taken; all satisfy 3 * distance >= m.
FAMILIES = ((16, reed_muller), (128, bch), (4096, golay), (65536, extended_bch))


def address_codebook(num_words: int, min_length: int = 1, *, seed: int = 0) -> Codebook:
    """The address code E_n of A, Lemma 5.1 and Theorem 5.3: `num_words` words, length at least `min_length`.

    Family by the number of words (16: Reed-Muller, 128: BCH, 4096: Golay, 65,536: extended BCH, beyond: random linear),
    then every word repeated t = ceil(min_length / m_b) times. The whole family is returned; the first `num_words` words
    are the addresses. Its length is O(log num_words) for a fixed `min_length`.

    Args:
        num_words: 1 to 2^20; the decoder of Theorem 5.3 needs n + 3 (n addresses, MARK, BLANK, DUMMY).
        min_length: the threshold m_0(s) that the words must reach.
        seed: used beyond 65,536 words only, where the code is drawn at random and its distance verified.

    Example:
        >>> address_codebook(259, 55).m
        72
    """
    for argument, value in (("num_words", num_words), ("min_length", min_length)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{argument} = {value!r}; it must be an integer of at least 1")
    for size, build in FAMILIES:
        if num_words <= size:
            base = build()
            break
    else:
        base = random_linear(num_words, seed=seed)
    return base.repeat(math.ceil(min_length / base.m)).require(num_words)
