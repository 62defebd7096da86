"""The embedding Emb_M : Sigma x [M] -> F_s^d of paper A, Section 3.1: a table over tokens and positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from hybridseq.residual import Stream

__all__ = ["Embedding", "SumEmbedding", "TypedEmbedding"]


@dataclass(frozen=True, eq=False)
class Embedding:
    """x_{i} = Emb(token_i, i), looked up in a table of real numbers that is rounded once into the arithmetic.

    The table holds few distinct numbers, so it is kept as `levels` (distinct reals, ascending) and `index` (small unsigned
    integers of shape (num_tokens, max_len, dim), or (num_tokens, dim) for an embedding without positions).
    Build one with `from_table` or `from_function`.

    >>> emb = Embedding.from_table(Stream({"x": 2}), [[0, 1], [1, -1]])
    >>> from hybridseq.arithmetic import FixedPoint
    >>> emb.apply(FixedPoint(2), np.array([1, 0])).tolist()
    [[4, -4], [0, 4]]
    """

    stream: Stream
    levels: tuple[Real, ...]
    index: np.ndarray
    _stored: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        index = np.asarray(self.index)
        if index.ndim not in (2, 3) or index.shape[-1] != self.stream.dim:
            raise ValueError(
                f"index must have shape (num_tokens, max_len, {self.stream.dim}) or (num_tokens, {self.stream.dim}), "
                f"got {index.shape}"
            )
        if index.dtype.kind != "u" or (index.size and int(index.max()) >= len(self.levels)):
            raise ValueError(f"index must hold unsigned integers below the {len(self.levels)} levels")
        index = index.copy()
        index.setflags(write=False)
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "index", index)

    @classmethod
    def from_table(cls, stream: Stream, table) -> Embedding:
        """From real numbers of shape (num_tokens, max_len, dim), or (num_tokens, dim) without positions."""
        table = np.asarray(table)
        levels, index = np.unique(table, return_inverse=True)
        dtype = np.min_scalar_type(max(len(levels) - 1, 0))
        return cls(stream, tuple(levels.tolist()), index.reshape(table.shape).astype(dtype))

    @classmethod
    def from_function(cls, stream: Stream, num_tokens: int, max_len: int, vector: Callable[[int, int], object]) -> Embedding:
        """From vector(token, position) -> dim real numbers, for positions 0..max_len - 1."""
        rows = [[list(vector(token, position)) for position in range(max_len)] for token in range(num_tokens)]
        return cls.from_table(stream, np.array(rows, dtype=object))

    @property
    def num_tokens(self) -> int:
        """The size of the alphabet."""
        return self.index.shape[0]

    @property
    def max_len(self) -> int | None:
        """The longest context, or None for an embedding without positions."""
        return self.index.shape[1] if self.index.ndim == 3 else None

    def apply(self, ar, tokens):
        """Stored numbers (..., seq_len, dim) of tokens (..., seq_len)."""
        tokens = self.check(tokens)
        return self.rows(ar, tokens, np.arange(tokens.shape[-1]))

    def rows(self, ar, tokens, positions):
        """Stored numbers of (token, position) pairs, broadcast against each other: (..., dim)."""
        if ar not in self._stored:
            self._stored[ar] = ar.array(list(self.levels))
        chosen = self.index[tokens] if self.max_len is None else self.index[tokens, positions]
        return self._stored[ar][chosen.astype(np.intp)]

    def check(self, tokens) -> np.ndarray:
        """Token numbers as an integer array. Raises ValueError for other numbers, no token, or more than max_len tokens."""
        tokens = np.asarray(tokens)
        if tokens.ndim < 1 or tokens.shape[-1] < 1 or tokens.dtype.kind not in "iu":
            raise ValueError(
                f"tokens must be integers of shape (..., seq_len) with seq_len >= 1, got {tokens.shape} {tokens.dtype}"
            )
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.num_tokens:
            raise ValueError(f"tokens must lie in 0..{self.num_tokens - 1}, got {int(tokens.min())}..{int(tokens.max())}")
        if self.max_len is not None and tokens.shape[-1] > self.max_len:
            raise ValueError(f"tokens: {tokens.shape[-1]} of them, but this embedding has max_len = {self.max_len} positions")
        return tokens


@dataclass(frozen=True, eq=False)
class SumEmbedding:
    """x_i = Tok(token_i) + Pos(i): two small tables in place of one over all pairs, for long contexts and large alphabets.

    token: reals (num_tokens, dim). position: reals (max_len, dim), or None for an embedding without positions.
    Raises ValueError for tables of another width.

    >>> emb = SumEmbedding(Stream({"x": 1, "P": 1}), [[1, 0], [-1, 0]], [[0, 1], [0, 2]])
    >>> from hybridseq.arithmetic import Float
    >>> emb.apply(Float(), np.array([1, 0])).tolist()
    [[-1.0, 1.0], [1.0, 2.0]]
    """

    stream: Stream
    token: np.ndarray
    position: np.ndarray | None = None
    _stored: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        for name in ("token", "position"):
            table = getattr(self, name)
            if table is None and name == "position":
                continue
            table = np.array(table)
            if table.ndim != 2 or table.shape[1] != self.stream.dim:
                raise ValueError(f"{name} must have shape (rows, {self.stream.dim}), got {table.shape}")
            table.setflags(write=False)
            object.__setattr__(self, name, table)

    @property
    def num_tokens(self) -> int:
        """The size of the alphabet."""
        return len(self.token)

    @property
    def max_len(self) -> int | None:
        """The longest context, or None for an embedding without positions."""
        return None if self.position is None else len(self.position)

    def apply(self, ar, tokens):
        """Stored numbers (..., seq_len, dim) of tokens (..., seq_len)."""
        tokens = self.check(tokens)
        return self.rows(ar, tokens, np.arange(tokens.shape[-1]))

    def rows(self, ar, tokens, positions):
        """Stored numbers of (token, position) pairs, broadcast against each other: (..., dim)."""
        if ar not in self._stored:
            self._stored[ar] = ar.array(self.token), None if self.position is None else ar.array(self.position)
        token, position = self._stored[ar]
        return token[tokens] if position is None else ar.add(token[tokens], position[positions])

    check = Embedding.check


@dataclass(frozen=True, eq=False)
class TypedEmbedding:
    """x_i = Tok_{kind(i)}(token_i) + Pos(i): the same token may mean different things in different parts of a prompt.

    token: reals (kinds, num_tokens, dim), one table for each kind of position. kind: integers (max_len,), which table a position
    uses. position: reals (max_len, dim). Raises ValueError for tables of another width, or a kind without a table.

    >>> emb = TypedEmbedding(Stream({"x": 1, "y": 1}), [[[1, 0], [2, 0]], [[0, 1], [0, 2]]], [0, 1], [[0, 0], [5, 0]])
    >>> from hybridseq.arithmetic import Float
    >>> emb.apply(Float(), np.array([1, 1])).tolist()
    [[2.0, 0.0], [5.0, 2.0]]
    """

    stream: Stream
    token: np.ndarray
    kind: np.ndarray
    position: np.ndarray
    _stored: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        for name, axes in (("token", 3), ("kind", 1), ("position", 2)):
            table = np.array(getattr(self, name))
            if table.ndim != axes or (name != "kind" and table.shape[-1] != self.stream.dim):
                shape = {"token": "(kinds, num_tokens, {})", "kind": "(max_len,)", "position": "(max_len, {})"}[name]
                raise ValueError(f"{name} must have shape {shape.format(self.stream.dim)}, got {table.shape}")
            table.setflags(write=False)
            object.__setattr__(self, name, table)
        if self.kind.dtype.kind not in "iu" or not ((self.kind >= 0) & (self.kind < len(self.token))).all():
            raise ValueError(f"kind must hold integers below the {len(self.token)} token tables")
        if len(self.kind) != len(self.position):
            raise ValueError(f"kind has {len(self.kind)} positions but position has {len(self.position)}")

    @property
    def num_tokens(self) -> int:
        """The size of the alphabet."""
        return self.token.shape[1]

    @property
    def max_len(self) -> int:
        """The longest context."""
        return len(self.position)

    def apply(self, ar, tokens):
        """Stored numbers (..., seq_len, dim) of tokens (..., seq_len)."""
        tokens = self.check(tokens)
        return self.rows(ar, tokens, np.arange(tokens.shape[-1]))

    def rows(self, ar, tokens, positions):
        """Stored numbers of (token, position) pairs, broadcast against each other: (..., dim)."""
        if ar not in self._stored:
            self._stored[ar] = _rounded(ar, self.token), _rounded(ar, self.position)
        token, position = self._stored[ar]
        return ar.add(token[self.kind[positions], tokens], position[positions])

    check = Embedding.check


def _rounded(ar, table: np.ndarray):
    """A table in the format of `ar`; each distinct number is rounded once."""
    levels, index = np.unique(table, return_inverse=True)
    return ar.array(levels.tolist())[index.reshape(table.shape)]
