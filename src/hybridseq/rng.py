"""Counter-based random numbers: splitmix64 keyed by (seed, counters).

There is no hidden state. A draw is a pure function of a seed and of integer counters (a training step, a sequence, a
position), so the same numbers come out whatever the order of the calls, on one core or on many, in numpy or in C.

The mixing function is the finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014). Keys are chained, all modulo 2^64:

    h_0 = mix(seed),    h_i = mix(h_{i-1} + counter_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Generator", "integers", "key", "mix", "uniform"]

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def _words(value, name: str) -> np.ndarray:
    """Integers as uint64 words; negative ones wrap modulo 2^64, as in C."""
    if isinstance(value, (int, np.integer)):
        return np.array(int(value) & _MASK, dtype=np.uint64)
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be an integer or an array of integers, got dtype {array.dtype}")
    return array.astype(np.uint64)


def mix(x) -> np.ndarray:
    """splitmix64's step from a word to a well-mixed word.

    x: integer or integer array of any shape. Returns uint64 of the same shape.

    >>> int(mix(0))
    16294208416658607535
    """
    with np.errstate(over="ignore"):
        z = _words(x, "x") + _INCREMENT
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        return z ^ (z >> np.uint64(31))


def key(seed, *counters) -> np.ndarray:
    """The word at (seed, counters); counters broadcast against each other.

    seed, counters: integers or integer arrays. Returns uint64 of the broadcast shape.

    >>> key(7, np.arange(2), 0).shape
    (2,)
    """
    word = mix(seed)
    for counter in counters:
        with np.errstate(over="ignore"):
            word = mix(word + _words(counter, "counter"))
    return word


def integers(high: int, seed, *counters) -> np.ndarray:
    """Integers in [0, high) at (seed, counters): key mod high (int64; the bias is below high / 2^64).

    Raises ValueError unless 1 <= high <= 2^63.

    >>> int(integers(1000, 7, 0, 0))
    336
    """
    if not 1 <= high <= 1 << 63:
        raise ValueError(f"high must lie in 1..2^63, got {high}")
    return (key(seed, *counters) % np.uint64(high)).astype(np.int64)


def uniform(seed, *counters) -> np.ndarray:
    """Reals in [0, 1) at (seed, counters): the upper 53 bits of the word, in steps of 2^-53 (float64)."""
    return (key(seed, *counters) >> np.uint64(11)) * 2.0**-53


@dataclass(frozen=True)
class Generator:
    """A place in the tree of keys: draws are functions of `seed`, `path` and the index inside the returned array.

    A generator never changes: the same call returns the same numbers. Independent draws come from different places,
    `generator.at(step)`, `generator.at(step, 1)`.

    >>> g = Generator(0)
    >>> bool((g.at(3).integers(10, (5,)) == g.at(3).integers(10, (5,))).all())
    True
    """

    seed: int
    path: tuple[int, ...] = ()

    def at(self, *counters: int) -> Generator:
        """The generator one level further down, at the given counters."""
        return Generator(self.seed, self.path + tuple(int(c) for c in counters))

    def words(self, shape) -> np.ndarray:
        """uint64 words of the given shape, one for each index in C order."""
        index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
        return key(self.seed, *self.path, index)

    def integers(self, high: int, shape) -> np.ndarray:
        """int64 in [0, high) of the given shape. Raises ValueError unless 1 <= high <= 2^63."""
        if not 1 <= high <= 1 << 63:
            raise ValueError(f"high must lie in 1..2^63, got {high}")
        return (self.words(shape) % np.uint64(high)).astype(np.int64)

    def bits(self, shape) -> np.ndarray:
        """int64 zeros and ones of the given shape (the top bit of each word)."""
        return (self.words(shape) >> np.uint64(63)).astype(np.int64)

    def uniform(self, shape) -> np.ndarray:
        """float64 in [0, 1) of the given shape, in steps of 2^-53."""
        return (self.words(shape) >> np.uint64(11)) * 2.0**-53

    def permutation(self, size: int) -> np.ndarray:
        """A permutation of 0..size-1 (int64): the order of `size` words."""
        return np.argsort(self.words((size,)), kind="stable")
