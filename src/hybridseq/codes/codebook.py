"""An ordered ±1 code with a claimed minimum distance, and the enumeration that checks the claim."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

_ROWS = 1024  # rows of the distance matrix held at once: 1024 x 4096 float32 is 16 MB


@dataclass(frozen=True, eq=False)
class Codebook:
    """An ordered list of distinct code words in {-1, +1}^m (the set C of A, Lemma 5.1).

    Args:
        name: what the code is called, with its parameters, for example ``"Golay [24,12,8]"``.
        words: array (num_words, m) of +1 and -1, kept as read-only int8.
        distance: the minimum Hamming distance that the code claims; `verify_distance` checks it.
        linear: whether word i is the product of the words 2^b over the set bits b of i (so word 0 is all +1).

    Raises:
        ValueError: for entries other than +1 and -1, a wrong shape, or a claimed distance outside 1..m.

    Example:
        >>> Codebook("pair", [[1, 1], [-1, -1]], distance=2).m
        2
    """

    name: str
    words: np.ndarray
    distance: int
    linear: bool = False

    def __post_init__(self) -> None:
        given = np.asarray(self.words)
        if given.ndim != 2 or 0 in given.shape:
            raise ValueError(f"words has shape {given.shape}; it must be (num_words, m) with both at least 1")
        wrong = np.argwhere((given != 1) & (given != -1))
        if len(wrong):
            row, column = wrong[0]
            raise ValueError(
                f"words[{row}][{column}] = {given[row, column]}; every entry must be +1 or -1 (map bit 0 to +1, bit 1 to -1)"
            )
        # A single word has no pair; its distance is m by convention.
        if not isinstance(self.distance, (int, np.integer)) or not 1 <= self.distance <= given.shape[1]:
            raise ValueError(f"distance = {self.distance!r}; it must be an integer from 1 to m = {given.shape[1]}")
        words = np.array(given, dtype=np.int8)
        words.setflags(write=False)
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "distance", int(self.distance))

    @property
    def m(self) -> int:
        """Length of a word."""
        return self.words.shape[1]

    def __len__(self) -> int:
        return self.words.shape[0]

    def __getitem__(self, index):
        return self.words[index]

    def repeat(self, times: int) -> Codebook:
        """Every word written `times` times in a row: m and the distance grow together, so their ratio stays.

        >>> Codebook("pair", [[1, 1], [-1, -1]], distance=2).repeat(3).distance
        6
        """
        if not isinstance(times, (int, np.integer)) or times < 1:
            raise ValueError(f"times = {times!r}; it must be an integer of at least 1")
        if times == 1:
            return self
        words = np.tile(self.words, (1, times))
        return replace(self, name=f"{self.name} x {times}", words=words, distance=self.distance * times)

    def require(self, num_words: int = 1, ratio: Fraction = Fraction(1, 3)) -> Codebook:
        """Return the codebook itself if it has `num_words` words and distance at least `ratio` * m.

        The ratio 1/3 is the assumption of A, Lemma 5.1; the comparison is exact.

        Raises:
            ValueError: too few words, or too small a distance.
        """
        if len(self) < num_words:
            raise ValueError(
                f"num_words = {num_words}, but the code {self.name} has {len(self)} words; "
                f"ask for at most {len(self)} or take a larger family"
            )
        if Fraction(self.distance) < Fraction(ratio) * self.m:
            raise ValueError(
                f"distance = {self.distance} of the code {self.name} is below {Fraction(ratio)} of its length m = {self.m}; "
                f"it must be at least {-(-Fraction(ratio) * self.m // 1)}: take another code (repeating words keeps the ratio)"
            )
        return self


@dataclass(frozen=True)
class DistanceCertificate:
    """The outcome of one full enumeration: the exact minimum distance and a pair of words that attains it.

    `method` is ``"minimum weight"`` (linear codes: closure and every weight) or ``"all pairs"``; `cases` counts the
    words or pairs looked at. Anyone can check `witness` by counting the places in which the two words differ.
    """

    name: str
    num_words: int
    m: int
    distance: int
    method: str
    cases: int
    witness: tuple[int, int]


def verify_distance(codebook: Codebook) -> DistanceCertificate:
    """Enumerate the code and certify its exact minimum distance.

    Linear codes: the words are checked to be the span of words 1, 2, 4, ... and the least weight is taken over all of
    them. Other codes: all pairs. Cost: num_words * m, or num_words^2 * m / 2 operations.

    Raises:
        ValueError: the code is not closed although declared linear, or its distance differs from the claim (the message
            names a pair of words).

    Example:
        >>> verify_distance(Codebook("pair", [[1, 1], [-1, -1]], distance=2)).cases
        1
    """
    if len(codebook) == 1:
        return _certificate(codebook, codebook.m, "all pairs", 0, (0, 0))
    measured = _least_weight(codebook) if codebook.linear else _least_pair(codebook)
    distance, *_, witness = measured
    if distance != codebook.distance:
        raise ValueError(
            f"distance = {codebook.distance} is claimed by the code {codebook.name}, but words {witness[0]} and "
            f"{witness[1]} differ in {distance} places; the claim must be {distance}"
        )
    return _certificate(codebook, *measured)


def _certificate(codebook, distance, method, cases, witness) -> DistanceCertificate:
    return DistanceCertificate(codebook.name, len(codebook), codebook.m, distance, method, cases, witness)


def _least_weight(codebook: Codebook) -> tuple[int, str, int, tuple[int, int]]:
    words = codebook.words
    if (words[0] != 1).any():
        raise ValueError(f"the code {codebook.name} is declared linear, but word 0 is not all +1")
    for index in range(1, len(words)):
        low = index & -index
        if index == low:  # a generator; the block above it is the block below it times this word
            block = words[index : min(2 * index, len(words))]
            bad = np.argwhere((block != words[: len(block)] * words[index]).any(axis=1))
            if len(bad):
                raise ValueError(
                    f"the code {codebook.name} is declared linear, but word {index + bad[0, 0]} is not word {bad[0, 0]} "
                    f"times word {index}"
                )
    weights = (words == -1).sum(axis=1)
    nearest = 1 + int(weights[1:].argmin())
    return int(weights[nearest]), "minimum weight", len(words) - 1, (0, nearest)


def _least_pair(codebook: Codebook) -> tuple[int, str, int, tuple[int, int]]:
    words = codebook.words.astype(np.float32)  # exact: every product sum is an integer of at most m
    best, witness = codebook.m + 1, (0, 0)
    for start in range(0, len(words), _ROWS):
        block = words[start : start + _ROWS]
        differing = (codebook.m - block @ words.T) / 2
        differing[np.arange(len(block)), start + np.arange(len(block))] = codebook.m + 1  # a word against itself
        row, column = np.unravel_index(differing.argmin(), differing.shape)
        if differing[row, column] < best:
            best, witness = int(differing[row, column]), (start + int(row), int(column))
    pairs = len(words) * (len(words) - 1) // 2
    return best, "all pairs", pairs, (min(witness), max(witness))
