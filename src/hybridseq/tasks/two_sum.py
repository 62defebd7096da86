"""Two-sum: does the list hold a number that cancels this one modulo M? (paper C, Definition 2.6)

All positions: tokens x_1, ..., x_n in Z_M, a bit at each of them; here M = 8:

    tokens    3  7  5  4  0  1
    bits      1  1  1  1  1  1      3 + 5 = 7 + 1 = 8;  4 + 4 = 8 and 0 + 0 = 0 with themselves
    causal    0  0  1  1  1  1      the partner must not come later
    others    1  1  1  0  0  1      the partner must be another token

Last token: T blocks of B tokens, then a query x_q of its own kind; one bit, whether some x_j + x_q = 0. This version serves
attention that reads few blocks.

    content   3 7 | 0 2 | 6 6     query   1     bit   1  (7 + 1 = 8)

Deviates: reconstructed. The problem is Match-2 of Sanford, Hsu and Telgarsky (2023); whether j = i counts, and the version that
is read at the last token, are our reading. M = n^2 unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hybridseq import rng
from hybridseq.tasks.exhaustive import every_sequence

__all__ = ["LastTokenTwoSum", "TwoSum", "free_residues", "num_free"]

_PLACE, _QUERY = 1, 2  # counters of the portable generator beside those of the content, which are (0, j)


def free_residues(modulus: int) -> np.ndarray:
    """The residues x with 2x != 0: all but 0, and M/2 where M is even. Raises ValueError for a modulus < 2.

    >>> free_residues(6).tolist(), len(free_residues(256))
    ([1, 2, 4, 5], 254)
    """
    _check_integer("modulus", modulus, 2)
    numbers = np.arange(modulus)
    return numbers[2 * numbers % modulus != 0]


def num_free(modulus: int) -> int:
    """M' = M - 2 for even M and M - 1 for odd: how many residues are free.

    >>> num_free(256), num_free(2**34 + 1) == 2**34
    (254, True)
    """
    _check_integer("modulus", modulus, 2)
    return modulus - 2 + modulus % 2


@dataclass(frozen=True)
class TwoSum:
    """The version with a bit at each position; prompts are integers (..., length).

    modulus: M >= 2. length: n >= 1. causal: a partner must stand at j <= i. itself: j = i counts. Raises ValueError otherwise.

    >>> task = TwoSum(8, 6)
    >>> task.answers([3, 7, 5, 4, 0, 1]).astype(int).tolist()
    [1, 1, 1, 1, 1, 1]
    >>> TwoSum(8, 6, causal=True, itself=False).answers([3, 7, 5, 4, 0, 1]).astype(int).tolist()
    [0, 0, 1, 0, 0, 1]
    """

    modulus: int
    length: int
    causal: bool = False
    itself: bool = True

    def __post_init__(self):
        _check_integer("modulus", self.modulus, 2)
        _check_integer("length", self.length, 1)

    @classmethod
    def squared(cls, length: int, **variant) -> TwoSum:
        """The task with M = n^2, at least 2."""
        return cls(max(2, length * length), length, **variant)

    @cached_property
    def allowed(self) -> np.ndarray:
        """Which partners j count at position i: bool (length, length)."""
        allowed = np.ones((self.length, self.length), bool)
        allowed = np.tril(allowed) if self.causal else allowed
        return allowed if self.itself else allowed & ~np.eye(self.length, dtype=bool)

    @property
    def count(self) -> int:
        """M^n prompts."""
        return self.modulus**self.length

    def check(self, tokens) -> np.ndarray:
        """Residues (..., length) as int64. Raises ValueError for another length or a number outside 0..M - 1."""
        return _check_residues("tokens", tokens, self.length, self.modulus)

    def answers(self, tokens) -> np.ndarray:
        """bool (..., length)."""
        tokens = self.check(tokens)
        cancels = tokens[..., None, :] == -tokens[..., :, None] % self.modulus  # a sum might overflow
        return (cancels & self.allowed).any(axis=-1)

    def solve(self, tokens) -> list[bool]:
        """Reference solver for one prompt (length,): loops from the definition."""
        tokens, bits = self.check(tokens).tolist(), []
        for i, x in enumerate(tokens):
            partners = tokens[: i + 1] if self.causal else list(tokens)
            if not self.itself:
                del partners[i]
            bits.append(any((x + y) % self.modulus == 0 for y in partners))
        return bits

    def sample(self, seed) -> np.ndarray:
        """The prompt of a seed, uniform: integers (...) -> (..., length); x_j = key(seed, 0, j) mod M."""
        seed = _check_seed(seed)
        return rng.integers(self.modulus, seed[..., None], 0, np.arange(self.length))

    def every(self, block: int = 1 << 14) -> Iterator[np.ndarray]:
        """All prompts in counting order, in blocks (num, length). Raises ValueError beyond 2^24 of them."""
        return every_sequence(self.modulus, self.length, block)


@dataclass(frozen=True)
class LastTokenTwoSum:
    """The version read at the last token; prompts are integers (..., blocks * block_size + 1), the query last.

    modulus: M >= 2. blocks: T >= 1. block_size: B >= 1. Raises ValueError otherwise.

    >>> task = LastTokenTwoSum(8, blocks=3, block_size=2)
    >>> bool(task.answers([3, 7, 0, 2, 6, 6, 1])), bool(task.answers([3, 7, 0, 2, 6, 6, 3]))
    (True, False)
    """

    modulus: int
    blocks: int
    block_size: int

    def __post_init__(self):
        for name, least in (("modulus", 2), ("blocks", 1), ("block_size", 1)):
            _check_integer(name, getattr(self, name), least)

    @classmethod
    def from_length(cls, length: int, block_size: int, modulus: int | None = None) -> LastTokenTwoSum:
        """`length` tokens of content and M = (length + 1)^2. Raises ValueError unless block_size divides length.

        >>> LastTokenTwoSum.from_length(12, 4)
        LastTokenTwoSum(modulus=169, blocks=3, block_size=4)
        """
        _check_integer("length", length, 1)
        _check_integer("block_size", block_size, 1)
        if length % block_size:
            raise ValueError(f"length={length}: must be a multiple of block_size={block_size}; content is whole blocks")
        return cls((length + 1) ** 2 if modulus is None else modulus, length // block_size, block_size)

    @property
    def length(self) -> int:
        """Tokens of content, T B."""
        return self.blocks * self.block_size

    @property
    def seq_len(self) -> int:
        """n = T B + 1."""
        return self.length + 1

    def check(self, tokens) -> np.ndarray:
        """Prompts (..., seq_len) as int64. Raises ValueError for another length or a number outside 0..M - 1."""
        return _check_residues("tokens", tokens, self.seq_len, self.modulus)

    def prompt(self, contents, query) -> np.ndarray:
        """Contents (..., blocks, block_size) and queries (...) as prompts. Raises ValueError for other sizes.

        >>> LastTokenTwoSum(8, 3, 2).prompt([[3, 7], [0, 2], [6, 6]], 1).tolist()
        [3, 7, 0, 2, 6, 6, 1]
        """
        contents, query = np.asarray(contents), np.asarray(query)
        if contents.shape[-2:] != (self.blocks, self.block_size):
            raise ValueError(f"contents: must be (..., {self.blocks}, {self.block_size}), got {contents.shape}")
        flat = contents.reshape(*contents.shape[:-2], self.length)
        return self.check(np.concatenate([flat, np.broadcast_to(query, flat.shape[:-1])[..., None]], axis=-1))

    def contents(self, tokens) -> np.ndarray:
        """The blocks of prompts: (..., blocks, block_size)."""
        tokens = self.check(tokens)
        return tokens[..., :-1].reshape(*tokens.shape[:-1], self.blocks, self.block_size)

    def answers(self, tokens) -> np.ndarray:
        """bool (...)."""
        tokens = self.check(tokens)
        return (tokens[..., :-1] == -tokens[..., -1:] % self.modulus).any(axis=-1)

    def solve(self, tokens) -> bool:
        """Reference solver for one prompt (seq_len,)."""
        *content, query = self.check(tokens).tolist()
        return any((x + query) % self.modulus == 0 for x in content)

    def sample(self, seed, planted: bool = False) -> np.ndarray:
        """The prompt of a seed, uniform; planted: the query cancels the content at a uniform place, so that the bit is 1."""
        seed = _check_seed(seed)
        content = rng.integers(self.modulus, seed[..., None], 0, np.arange(self.length))
        query = rng.integers(self.modulus, seed, _QUERY, 0)
        if planted:
            place = rng.integers(self.length, seed, _PLACE, 0)
            query = -np.take_along_axis(content, place[..., None], axis=-1)[..., 0] % self.modulus
        return np.concatenate([content, query[..., None]], axis=-1)


def _check_integer(name: str, value, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}: must be an integer >= {least}")


def _check_seed(seed) -> np.ndarray:
    seed = np.asarray(seed)
    if seed.dtype.kind not in "iu":
        raise ValueError(f"seed: must be an integer or integers, got {seed.dtype}")
    return seed


def _check_residues(name: str, tokens, length: int, modulus: int) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.dtype.kind not in "iu" or tokens.ndim < 1 or tokens.shape[-1] != length:
        raise ValueError(f"{name}: must be integers (..., {length}), got {tokens.dtype} of shape {tokens.shape}")
    if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < modulus:
        raise ValueError(f"{name}: residues modulo {modulus} are 0..{modulus - 1}, got {int(tokens.min())}..{int(tokens.max())}")
    return tokens.astype(np.int64)
