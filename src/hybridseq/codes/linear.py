"""Linear address codes: Reed-Muller, BCH, Golay, repetition, lexicodes, and random codes with a verified distance.

A generator row is a binary string; bit 0 becomes +1, bit 1 becomes -1, most significant bit first. Words are enumerated
by `span`: start with the zero word and, for each generator row r, append w XOR r for every word w so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hybridseq.codes.codebook import Codebook

_BCH_15_7 = 0b111010001  # x^8 + x^7 + x^6 + x^4 + 1
_GOLAY_23_12 = 0b110001110101  # x^11 + x^10 + x^6 + x^5 + x^4 + x^2 + 1
_BCH_63_16 = 0o6331141367235453  # degree 47, the polynomial of designed distance 23 over GF(64) with x^6 + x + 1
_MAX_RANDOM_DIMENSION = 20  # 2^20 words of 245 signs are 257 MB


def span(rows: Sequence[int], m: int) -> np.ndarray:
    """All 2^len(rows) sums of the generator rows (integers below 2^m) as ±1 words, in the order of the module's text.

    Word i is the sum of the rows at the set bits of i.

    >>> span([0b11, 0b01], 2).tolist()
    [[1, 1], [-1, -1], [1, -1], [-1, 1]]
    """
    for row in rows:
        if not 0 <= row < 2**m:
            raise ValueError(f"rows contains {row}; a generator row of length m = {m} must lie in 0..2^{m} - 1")
    words = np.ones((1, m), dtype=np.int8)
    for row in rows:
        signs = np.array([-1 if row >> (m - 1 - place) & 1 else 1 for place in range(m)], dtype=np.int8)
        words = np.concatenate([words, words * signs])
    return words


def _linear(name: str, rows: Sequence[int], m: int, distance: int) -> Codebook:
    return Codebook(name, span(rows, m), distance, linear=True)


def repetition(m: int) -> Codebook:
    """The repetition code [m, 1, m]: the all +1 word and the all -1 word.

    >>> len(repetition(5)), repetition(5).distance
    (2, 5)
    """
    return _linear(f"repetition [{m},1,{m}]", [2**m - 1], m, m)


def reed_muller() -> Codebook:
    """The first-order Reed-Muller code RM(1,3), [8,4,4]: the affine functions of three bits.

    >>> len(reed_muller()), reed_muller().m
    (16, 8)
    """
    return _linear("Reed-Muller [8,4,4]", [0b11111111, 0b00001111, 0b00110011, 0b01010101], 8, 4)


def bch() -> Codebook:
    """The double-error-correcting BCH code [15,7,5].

    >>> len(bch()), bch().distance
    (128, 5)
    """
    return _linear("BCH [15,7,5]", [_BCH_15_7 << shift for shift in range(7)], 15, 5)


def golay() -> Codebook:
    """The extended binary Golay code [24,12,8].

    >>> len(golay()), golay().distance
    (4096, 8)
    """
    return _linear("Golay [24,12,8]", [_with_parity(_GOLAY_23_12 << shift) for shift in range(12)], 24, 8)


def extended_bch() -> Codebook:
    """The extended BCH code [64,16,24].

    >>> len(extended_bch()), extended_bch().distance
    (65536, 24)
    """
    return _linear("extended BCH [64,16,24]", [_with_parity(_BCH_63_16 << shift) for shift in range(16)], 64, 24)


def _with_parity(row: int) -> int:
    return row << 1 | row.bit_count() & 1


def lexicode(m: int, distance: int) -> Codebook:
    """The greedy code: run through 0 .. 2^m - 1 and keep what differs from everything kept in `distance` places or more.

    Binary lexicodes are linear (Conway and Sloane 1986), which `verify_distance` confirms on each one.

    Args:
        m: length, 1 to 16 (the search costs 2^m times the size of the code).

    Example:
        >>> [len(lexicode(3 * d, d)) for d in (1, 2, 3)]
        [8, 32, 32]
    """
    if not 1 <= m <= 16:
        raise ValueError(f"m = {m}; a lexicode is searched for m from 1 to 16")
    if not 1 <= distance <= m:
        raise ValueError(f"distance = {distance}; it must lie in 1..m = {m}")
    candidates = np.arange(2**m)
    kept = []
    while len(candidates):
        kept.append(int(candidates[0]))
        candidates = candidates[np.bitwise_count(candidates ^ candidates[0]) >= distance]
    rows = [word for index, word in enumerate(kept) if index.bit_count() == 1]
    book = _linear(f"lexicode m={m} d={distance}", rows, m, distance)
    weights = (book.words[1:] == -1).sum(axis=1)  # the greedy code may exceed the distance that it was asked for
    return Codebook(book.name, book.words, int(weights.min()) if len(weights) else m, linear=True)


def random_linear(num_words: int, *, seed: int, m: int | None = None, attempts: int = 64) -> Codebook:
    """A random linear code with distance at least m/3, drawn until its enumerated minimum weight says so.

    The Gilbert-Varshamov bound gives such codes at m of about 12.25 log2(num_words), the default, so the length stays
    logarithmic in the number of words. The code returned carries its exact minimum distance.

    Args:
        num_words: at least this many words, 2 to 2^20.
        seed: of the PCG64 stream that the generator rows come from.
        m: length; default ceil(12.25 k) for k = ceil(log2 num_words).
        attempts: draws before giving up.

    Raises:
        ValueError: num_words outside its range, or no draw reached the distance.

    Example:
        >>> 3 * random_linear(16, seed=0).distance >= random_linear(16, seed=0).m
        True
    """
    if not isinstance(num_words, (int, np.integer)) or not 2 <= num_words <= 2**_MAX_RANDOM_DIMENSION:
        raise ValueError(f"num_words = {num_words!r}; it must be an integer from 2 to 2^{_MAX_RANDOM_DIMENSION}")
    dimension = int(num_words - 1).bit_length()
    m = math.ceil(12.25 * dimension) if m is None else m
    if m < dimension:
        raise ValueError(f"m = {m} is too short for {num_words} words; it must be at least {dimension}")
    stream = np.random.PCG64(seed)
    blocks = -(-m // 64)
    for _ in range(attempts):
        raw = [stream.random_raw(blocks) for _ in range(dimension)]
        rows = [sum(int(part) << 64 * place for place, part in enumerate(parts)) >> (64 * blocks - m) for parts in raw]
        least = _minimum_weight(rows, m)
        if 3 * least >= m:
            return _linear(f"random linear [{m},{dimension},{least}], seed {seed}", rows, m, least)
    raise ValueError(
        f"m = {m}: none of {attempts} random codes with {2**dimension} words has distance {-(-m // 3)} or more; "
        f"raise m (about {math.ceil(12.25 * dimension)} is enough) or attempts"
    )


def _minimum_weight(rows: Sequence[int], m: int) -> int:
    """Least weight over the nonzero sums of the rows, on packed 64-bit pieces (0 if the rows are dependent)."""
    weights = np.zeros(2 ** len(rows), dtype=np.int32)
    for piece in range(-(-m // 64)):
        packed = np.zeros(1, dtype=np.uint64)
        for row in rows:
            packed = np.concatenate([packed, packed ^ np.uint64(row >> 64 * piece & (2**64 - 1))])
        weights += np.bitwise_count(packed)
    return int(weights[1:].min())
