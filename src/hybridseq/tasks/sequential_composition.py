"""L-sequential function composition (paper C, Definition 2.5): follow a pointer through L tables of growing length.

Sizes N_0 = m and N_l = m n_1 ... n_l. Tables z_l : [N_{l-1}] -> [N_{l-1}] for l = 1..L, a start z_0 in [m], digits w_l in [n_l]:

    i_0 = z_0,    i_1 = z_1(i_0),    i_{l+1} = z_{l+1}(w_l N_{l-1} + i_l),    the answer is i_L.

The prompt for m = 2, n_1 = 2 (L = 2, N_0 = 2, N_1 = 4), every token a value, its position says which entry it is:

    order std   z_2(0) z_2(1) z_2(2) z_2(3) | z_1(0) z_1(1) | z_0 | w
    tokens        2      0      3      1    |   1      0    |  1  | 1     label at the last token:
    level         2      2      2      2    |   1      1    |  0  | 3     i_0 = 1, i_1 = z_1(1) = 0,
    arg_w         0      0      1      1    |   0      0    |  0  | 0     i_2 = z_2(1*2 + 0) = 3
    arg_i         0      1      0      1    |   0      1    |  0  | 0

The other orders are `rev` = w, z_0, z_1, ..., z_L and `wfirst` = w, z_L, ..., z_1, z_0; a table always lists its arguments in
ascending order. The token of w is W = sum_l w_l n_1 ... n_{l-1}, so w_1 is the lowest digit. For L = 1 it is 0, a dummy.

Deviates: indices start at 0 and w is the high digit of an argument; the paper's text does not fix either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Self

import numpy as np

from hybridseq import rng
from hybridseq.tasks.exhaustive import MOST_EXHAUSTIVE

__all__ = ["ORDERS", "Instances", "SequentialComposition"]

ORDERS = {
    "std": "z_L, ..., z_1, z_0, w: the hard order, tables in descending order and w last",
    "rev": "w, z_0, z_1, ..., z_L: everything is known when its table comes",
    "wfirst": "w, z_L, ..., z_1, z_0: tables in descending order, but w comes first",
}

_W_LEVEL = 1000  # counters of w_l in the portable generator: (1000 + l, 0)


@dataclass(frozen=True, eq=False)
class Instances:
    """A batch of instances, int64: z_0 (num,), tables z_1..z_L of shapes (num, N_{l-1}), w (num, L - 1). No prompt order."""

    start: np.ndarray
    tables: tuple[np.ndarray, ...]
    w: np.ndarray

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class SequentialComposition:
    """The task of m and (n_1, ..., n_{L-1}) in one prompt order. Batches of prompts are integer arrays (num, seq_len).

    m: at least 2. ns: integers >= 1, one for each digit of w; L = len(ns) + 1. order: see `ORDERS`.
    Raises ValueError for anything else.

    >>> task = SequentialComposition(4, (2,))
    >>> task.L, task.sizes, task.seq_len
    (2, (4, 8), 14)
    >>> tokens = task.sample(0)
    >>> task.text(tokens)
    '7 3 6 4 7 4 6 1 | 1 0 0 1 | 1 | w=1'
    >>> task.trace(tokens).tolist()
    [1, 0, 7]
    """

    m: int
    ns: tuple[int, ...] = ()
    order: str = "std"

    def __post_init__(self):
        if not isinstance(self.ns, Sequence) or isinstance(self.ns, str):
            raise ValueError(f"ns={self.ns!r}: must be a tuple of integers n_1, ..., n_(L-1), empty for L = 1")
        for name, value, least in (("m", self.m, 2), *((f"n_{l}", n, 1) for l, n in enumerate(self.ns, start=1))):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
        object.__setattr__(self, "m", int(self.m))
        object.__setattr__(self, "ns", tuple(map(int, self.ns)))
        if self.order not in ORDERS:
            raise ValueError(f"order={self.order!r}: must be one of {', '.join(map(repr, ORDERS))}")

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], order: str = "std") -> Self:
        """The task with tables of lengths N_0, ..., N_{L-1}. Raises ValueError unless each divides the next.

        >>> SequentialComposition.from_sizes((2, 2, 4))
        SequentialComposition(m=2, ns=(1, 2), order='std')
        """
        if not isinstance(sizes, Sequence):
            raise ValueError(f"sizes={sizes!r}: must be the lengths N_0, ..., N_(L-1)")
        for before, after in pairwise(sizes):
            if before < 1 or after % before:
                raise ValueError(f"sizes={tuple(sizes)!r}: {after} is no multiple of {before}; N_l = n_l N_(l-1)")
        if not len(sizes):
            raise ValueError("sizes=(): needs N_0, ..., N_(L-1), one length for each table")
        return cls(sizes[0], tuple(b // a for a, b in pairwise(sizes)), order)

    def with_order(self, order: str) -> Self:
        """The same task in another prompt order."""
        return replace(self, order=order)

    # ------------------------------------------------------------------------------------------------------ sizes

    @property
    def name(self) -> str:
        """The shape in words, for example "(4; 2,2)"."""
        return f"({self.m}; {','.join(map(str, self.ns))})" if self.ns else f"({self.m})"

    @property
    def L(self) -> int:
        """The number of tables."""
        return len(self.ns) + 1

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """N_0, ..., N_{L-1}: the table z_l has N_{l-1} entries, each in [N_{l-1}]."""
        return tuple(self.m * prod(self.ns[:l]) for l in range(self.L))

    @property
    def seq_len(self) -> int:
        """n = 2 + N_0 + ... + N_{L-1}."""
        return 2 + sum(self.sizes)

    @property
    def num_answers(self) -> int:
        """N_{L-1}."""
        return self.sizes[-1]

    @property
    def vocab_size(self) -> int:
        """Tokens are 0..N_{L-1} - 1; W < n_1 ... n_{L-1} is among them."""
        return self.sizes[-1]

    @property
    def players(self) -> tuple[int, ...]:
        """Owners of the segments in prompt order: l for z_l, 0 for z_0, -1 for w."""
        tables = tuple(range(1, self.L + 1))
        return {"std": (*tables[::-1], 0, -1), "rev": (-1, 0, *tables), "wfirst": (-1, *tables[::-1], 0)}[self.order]

    @cached_property
    def segments(self) -> dict[int, slice]:
        """The positions (from 0) that each player owns, players in prompt order.

        >>> SequentialComposition(2, (2,)).segments
        {2: slice(0, 4, None), 1: slice(4, 6, None), 0: slice(6, 7, None), -1: slice(7, 8, None)}
        """
        found, start = {}, 0
        for player in self.players:
            stop = start + (self.sizes[player - 1] if player > 0 else 1)
            found[player], start = slice(start, stop), stop
        return found

    # -------------------------------------------------------------------------------------- what a position says

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of each position (seq_len,): l for z_l, 0 for z_0, L + 1 for w."""
        return self._by_position(lambda player, size: np.full(size, player if player >= 0 else self.L + 1))

    @cached_property
    def arg_w(self) -> np.ndarray:
        """The high digit of the argument at each position (seq_len,): a div N_{l-2} for z_l with l >= 2, else 0."""
        return self._by_position(lambda l, size: np.arange(size) // self.sizes[l - 2] if l >= 2 else np.zeros(size, np.int64))

    @cached_property
    def arg_i(self) -> np.ndarray:
        """The low part of the argument at each position (seq_len,): a mod N_{l-2} for l >= 2, a for z_1, else 0."""
        return self._by_position(lambda l, size: np.arange(size) % self.sizes[l - 2] if l >= 2 else np.arange(size))

    @cached_property
    def alphabet(self) -> np.ndarray:
        """How many values the token of each position may take (seq_len,)."""
        return self._by_position(lambda l, size: np.full(size, size if l > 0 else (self.m if l == 0 else prod(self.ns))))

    def _by_position(self, of_player) -> np.ndarray:
        parts = [of_player(player, place.stop - place.start) for player, place in self.segments.items()]
        result = np.concatenate(parts).astype(np.int64)
        result.setflags(write=False)
        return result

    def position(self, level: int, argument: int = 0) -> int:
        """Where z_level(argument) stands; level 0 is z_0, level L + 1 is w. Raises ValueError for an entry that is not there."""
        for name, value in (("level", level), ("argument", argument)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{name}={value!r}: must be an integer")
        player = -1 if level == self.L + 1 else level
        if player not in self.segments or level < 0:
            raise ValueError(f"level={level!r}: must be an integer from 0 to L + 1 = {self.L + 1}")
        place = self.segments[player]
        if not 0 <= argument < place.stop - place.start:
            raise ValueError(f"argument={argument!r}: level {level} has the arguments 0..{place.stop - place.start - 1}")
        return place.start + argument

    # ------------------------------------------------------------------------------------- prompts and instances

    def check(self, tokens) -> np.ndarray:
        """Tokens (..., seq_len) as int64. Raises ValueError for another length or a token beyond the alphabet of its position."""
        tokens = np.asarray(tokens)
        if tokens.dtype.kind not in "iu" or tokens.ndim < 1 or tokens.shape[-1] != self.seq_len:
            raise ValueError(f"tokens: must be integers (..., {self.seq_len}), got {tokens.dtype} of shape {tokens.shape}")
        bad = (tokens < 0) | (tokens >= self.alphabet)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            most = int(self.alphabet[where[-1]]) - 1
            raise ValueError(f"tokens: position {where[-1]} takes values 0..{most}, got {int(tokens[where])}")
        return tokens.astype(np.int64)

    def _one(self, tokens) -> np.ndarray:
        tokens = self.check(tokens)
        if tokens.ndim != 1:
            raise ValueError(f"tokens: must be one prompt ({self.seq_len},), got shape {tokens.shape}")
        return tokens

    def encode(self, instances: Instances) -> np.ndarray:
        """Prompts (num, seq_len) in this task's order. Raises ValueError for shapes or entries that are not those of the task."""
        expected = {"start": (len(instances),), "w": (len(instances), self.L - 1)}
        expected |= {f"tables[{l}]": (len(instances), size) for l, size in enumerate(self.sizes)}
        given = {"start": instances.start, "w": instances.w} | {f"tables[{l}]": z for l, z in enumerate(instances.tables)}
        shapes = {name: np.shape(part) for name, part in given.items()}
        if shapes != expected:
            raise ValueError(f"instances: need shapes {expected}, got {shapes}")
        if ((instances.w < 0) | (instances.w >= np.array(self.ns, dtype=np.int64))).any():
            raise ValueError(f"instances.w: each digit w_l must lie in [n_l], n = {self.ns}, got {instances.w.tolist()}")
        weights = np.array([prod(self.ns[:l]) for l in range(self.L - 1)], dtype=np.int64)
        parts = {-1: (instances.w @ weights)[:, None], 0: instances.start[:, None]}
        parts |= dict(enumerate(instances.tables, start=1))
        return self.check(np.concatenate([parts[player] for player in self.players], axis=1))

    def parse(self, tokens) -> Instances:
        """The inverse of `encode`, for prompts (num, seq_len) or (seq_len,)."""
        tokens = np.atleast_2d(self.check(tokens))
        tables = tuple(tokens[:, self.segments[l]] for l in range(1, self.L + 1))
        return Instances(tokens[:, self.segments[0].start], tables, self.digits(tokens[:, self.segments[-1].start]))

    def digits(self, number) -> np.ndarray:
        """w_1, ..., w_{L-1} of a token W, counted modulo n_1 ... n_{L-1}: integers (...) -> (..., L - 1)."""
        number = np.asarray(number)
        if number.dtype.kind not in "iu":
            raise ValueError(f"number: must be integers, got {number.dtype}")
        below = [prod(self.ns[:l]) for l in range(self.L - 1)]
        found = [number // b % n for b, n in zip(below, self.ns, strict=True)]
        return np.stack(found, axis=-1) if found else np.zeros((*number.shape, 0), np.int64)

    def trace(self, tokens) -> np.ndarray:
        """i_0, ..., i_L for prompts (..., seq_len): (..., L + 1)."""
        tokens = self.check(tokens)
        rows = tokens.reshape(-1, self.seq_len)
        digits = self.digits(rows[:, self.segments[-1].start])
        steps = [rows[:, self.segments[0].start]]
        for l in range(1, self.L + 1):
            argument = steps[-1] + (digits[:, l - 2] * self.sizes[l - 2] if l >= 2 else 0)
            steps.append(rows[np.arange(len(rows)), self.segments[l].start + argument])
        return np.stack(steps, axis=-1).reshape(*tokens.shape[:-1], self.L + 1)

    def answers(self, tokens) -> np.ndarray:
        """i_L for prompts (..., seq_len): (...)."""
        return self.trace(tokens)[..., -1]

    def solve(self, tokens) -> tuple[int, ...]:
        """Reference solver: i_0, ..., i_L of one prompt (seq_len,), in plain Python from the definition."""
        values = iter(self._one(tokens).tolist())
        read = {player: [next(values) for _ in range(self.sizes[player - 1] if player > 0 else 1)] for player in self.players}
        pointer, number, below, steps = read[0][0], read[-1][0], self.m, [read[0][0]]
        for l in range(1, self.L + 1):
            if l >= 2:
                number, digit = divmod(number, self.ns[l - 2])
                pointer += digit * below
                below *= self.ns[l - 2]
            pointer = read[l][pointer]
            steps.append(pointer)
        return tuple(steps)

    def text(self, tokens) -> str:
        """One prompt (seq_len,) with bars between the players and the digits of w."""
        tokens = self._one(tokens)
        parts = []
        for player, place in self.segments.items():
            digits = ",".join(map(str, self.digits(tokens[place.start]).tolist())) or "-"
            parts.append(" ".join(map(str, tokens[place].tolist())) if player >= 0 else f"w={digits}")
        return " | ".join(parts)

    # --------------------------------------------------------------------------------------------------- batches

    def sample(self, seed) -> np.ndarray:
        """The prompt of a seed: integers (...) -> (..., seq_len). The same instance in every order, in every language.

        With rnd(s, level, idx, mod) = mix(mix(mix(s) + level) + idx) mod mod: z_0 = rnd(s, 0, 0, m),
        z_l(a) = rnd(s, l, a, N_{l-1}), w_l = rnd(s, 1000 + l, 0, n_l).
        """
        seed = np.asarray(seed)
        if seed.dtype.kind not in "iu":
            raise ValueError(f"seed: must be an integer or integers, got {seed.dtype}")
        flat = seed.reshape(-1)
        start = rng.integers(self.m, flat, 0, 0)
        tables = [rng.integers(size, flat[:, None], l, np.arange(size)) for l, size in enumerate(self.sizes, start=1)]
        w = [rng.integers(n, flat, _W_LEVEL + l, 0) for l, n in enumerate(self.ns, start=1)]
        digits = np.stack(w, axis=-1) if w else np.zeros((len(flat), 0), np.int64)
        return self.encode(Instances(start, tuple(tables), digits)).reshape(*seed.shape, self.seq_len)

    @property
    def count(self) -> int:
        """The number of instances, m (n_1 ... n_{L-1}) prod_l N_{l-1}^(N_{l-1}).

        >>> [SequentialComposition(*args).count for args in ((4,), (2, (2,)), (3, (1,)), (2, (1, 2)))]
        [1024, 4096, 2187, 16384]
        """
        return self.m * prod(self.ns) * prod(size**size for size in self.sizes)

    def every(self, block: int = 1 << 14) -> Iterator[np.ndarray]:
        """All prompts in counting order, first token most significant, in blocks (num, seq_len) of at most `block` rows.

        Raises ValueError beyond 2^24 instances, or for a block below 1.
        """
        if self.count > MOST_EXHAUSTIVE:
            raise ValueError(f"m={self.m}, ns={self.ns}: {self.count} instances are too many to list; use sample instead")
        if block < 1:
            raise ValueError(f"block must be >= 1, got {block}")
        return _mixed_radix(self.alphabet, self.count, block)

    def functions(self, level: int) -> np.ndarray:
        """All tables z_level in counting order: (N^N, N) with N = N_{level-1}. Raises ValueError beyond 2^24 entries."""
        if not 1 <= level <= self.L:
            raise ValueError(f"level={level!r}: must be an integer from 1 to L = {self.L}")
        size = self.sizes[level - 1]
        if size ** (size + 1) > MOST_EXHAUSTIVE:
            raise ValueError(f"level={level}: {size}^{size} functions are too many to list")
        return np.concatenate(list(_mixed_radix(np.full(size, size), size**size, 1 << 14)))


def _mixed_radix(radices: np.ndarray, count: int, block: int) -> Iterator[np.ndarray]:
    """0, 1, ..., count - 1 in mixed radix, most significant digit first."""
    below = np.concatenate([np.cumprod(radices[::-1])[::-1][1:], [1]])
    for start in range(0, count, block):
        yield np.arange(start, min(start + block, count))[:, None] // below % radices
