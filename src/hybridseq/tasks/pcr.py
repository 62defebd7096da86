"""Parity-conditioned retrieval PCR_n (paper A, Section 4.1): report a table bit, flipped if the table has odd parity.

A table Y of n bits is read first, then n query tokens of which one is MARK and the others BLANK. With MARK at offset j the
answer is YES iff

    R_j(Y) = Y_j xor (Y_1 xor ... xor Y_n) = 1.

The prompt for n = 3, Y = (1, 0, 1), j = 3, with every bit doubled (B(b) = bb, so N = 3 n):

    position   1  2   3  4   5  6   7      8      9
    token      1  1   0  0   1  1   BLANK  BLANK  MARK
    label      .  .   .  .   .  .   .      .      YES        R_3 = 1 xor (1 xor 0 xor 1) = 1

Only the last position carries a label: the answer is the token that follows the prompt.

Deviates: the paper's text does not fix B; bb is our choice. The encoding "one-token" writes each bit once (N = 2 n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = [
    "BLANK",
    "ENCODINGS",
    "MARK",
    "NO",
    "ONE",
    "VOCABULARY",
    "YES",
    "ZERO",
    "Prompts",
    "answers",
    "count",
    "encode",
    "every",
    "parse",
    "prompt_length",
    "sample",
    "solve",
]

VOCABULARY = Vocabulary(("0", "1", "MARK", "BLANK", "YES", "NO"), answers=("YES", "NO"))
ZERO, ONE, MARK, BLANK, YES, NO = range(len(VOCABULARY))

ENCODINGS = {"doubled": 2, "one-token": 1}
"""Tokens for each table bit."""

_MOST_EXHAUSTIVE = 24


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts of one n.

    table: bits (num, n), int64. address: MARK's offset j in 1..n (num,), int64. tokens: (num, N) token numbers, int64.
    """

    n: int
    encoding: str
    table: np.ndarray
    address: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.address)

    @property
    def labels(self) -> np.ndarray:
        """The right answer tokens, (num,): YES or NO."""
        return answers(self.table, self.address)

    @property
    def mask(self) -> np.ndarray:
        """Which positions carry a label, (num, N) bool: the last one."""
        mask = np.zeros(self.tokens.shape, dtype=bool)
        mask[:, -1] = True
        return mask

    def text(self, row: int) -> str:
        """One prompt as token names."""
        return " ".join(VOCABULARY.names(self.tokens[row]))


def prompt_length(n: int, encoding: str = "doubled") -> int:
    """N: 3 n for doubled bits, 2 n for one token a bit."""
    return (_repeats(encoding) + 1) * _table_length(n)


def count(n: int) -> int:
    """The number of prompts of PCR_n: n 2^n.

    >>> sum(count(n) for n in range(1, 9))
    3586
    """
    return _table_length(n) << n


def answers(table, address) -> np.ndarray:
    """R_j(Y) as answer tokens: bits (..., n) and offsets (...) in 1..n -> YES or NO (...)."""
    table, address = np.asarray(table), np.asarray(address)
    chosen = np.take_along_axis(table, np.expand_dims(address - 1, -1), axis=-1)[..., 0]
    return np.where((chosen + table.sum(axis=-1)) % 2 == 1, YES, NO)


def encode(table, address, encoding: str = "doubled") -> Prompts:
    """Write prompts: bits (num, n) or (n,), offsets of MARK (num,) or a single one, counted from 1.

    Raises ValueError for entries other than 0 and 1, an offset outside 1..n, unequal numbers of tables and offsets,
    or an unknown encoding.

    >>> encode([1, 0, 1], 3).text(0)
    '1 1 0 0 1 1 BLANK BLANK MARK'
    """
    repeats = _repeats(encoding)
    table, address = np.atleast_2d(np.asarray(table)), np.atleast_1d(np.asarray(address))
    if table.ndim != 2 or not np.isin(table, (0, 1)).all():
        raise ValueError("table must hold bits 0 and 1, of shape (num, n)")
    n = _table_length(table.shape[1])
    if address.shape != (len(table),):
        raise ValueError(f"address: needs one offset for each of the {len(table)} tables, got shape {address.shape}")
    if address.dtype.kind not in "iu" or not ((address >= 1) & (address <= n)).all():
        raise ValueError(f"address: offsets of MARK are integers from 1 to n = {n}, got {address}")
    table, address = table.astype(np.int64), address.astype(np.int64)
    query = np.where(np.arange(1, n + 1) == address[:, None], MARK, BLANK)
    return Prompts(n, encoding, table, address, np.concatenate([np.repeat(table, repeats, axis=1), query], axis=1))


def parse(tokens, encoding: str = "doubled") -> Prompts:
    """Read prompts (num, N) or (N,) back; the inverse of `encode`.

    Raises ValueError when the length is no prompt length, a table cell is not a (doubled) bit, a query token is neither
    MARK nor BLANK, or a prompt has no MARK or more than one.
    """
    repeats = _repeats(encoding)
    tokens = np.atleast_2d(np.asarray(tokens))
    length = tokens.shape[-1]
    if tokens.ndim != 2 or length == 0 or length % (repeats + 1):
        raise ValueError(
            f"tokens: a prompt in the encoding {encoding!r} has {repeats + 1} n tokens (n >= 1), got shape {tokens.shape}"
        )
    n = length // (repeats + 1)
    cells, query = tokens[:, : repeats * n].reshape(-1, n, repeats), tokens[:, repeats * n :]
    _require(np.isin(cells, (ZERO, ONE)).all(axis=(1, 2)), tokens, f"the first {repeats * n} tokens must be 0 or 1")
    _require((cells == cells[..., :1]).all(axis=(1, 2)), tokens, "each table bit must be written twice, as 00 or 11")
    _require(np.isin(query, (MARK, BLANK)).all(axis=1), tokens, f"the last {n} tokens must be MARK or BLANK")
    marks = (query == MARK).sum(axis=1)
    _require(marks > 0, tokens, "no MARK; exactly one query token must be MARK")
    _require(marks < 2, tokens, "more than one MARK; exactly one query token must be MARK")
    table = np.where(cells[..., 0] == ONE, 1, 0)
    return Prompts(n, encoding, table, (query == MARK).argmax(axis=1) + 1, tokens.astype(np.int64))


def solve(tokens, encoding: str = "doubled") -> np.ndarray:
    """Reference solver: reads one prompt (N,) or several (num, N) token by token in plain Python; returns YES or NO.

    It shares nothing with `answers`: a running parity and a list of bits stand for the two halves of the task.
    Raises ValueError for tokens that are no prompt (see `parse`).
    """
    prompts = parse(tokens, encoding)
    result = [_solve_one([VOCABULARY.tokens[t] for t in row], ENCODINGS[encoding]) for row in prompts.tokens]
    return np.array(result) if np.ndim(tokens) == 2 else result[0]


def _solve_one(names: list[str], repeats: int) -> int:
    odd, bits, offset = False, [], 0
    for position, name in enumerate(names):
        if name in ("0", "1"):
            if position % repeats == 0:
                bits.append(name == "1")
                odd = odd != bits[-1]
        elif name == "MARK":
            return YES if bits[offset] != odd else NO
        else:
            offset += 1
    raise ValueError("tokens: a prompt without MARK")


def every(n: int, encoding: str = "doubled", block: int = 4096) -> Iterator[Prompts]:
    """All n 2^n prompts, in blocks of at most `block`: tables in counting order (Y_1 most significant), then j = 1..n.

    Raises ValueError for n outside 1..24.

    >>> sum(len(prompts) for prompts in every(8))
    2048
    """
    if not 1 <= _table_length(n) <= _MOST_EXHAUSTIVE:
        raise ValueError(f"n must lie in 1..{_MOST_EXHAUSTIVE} to list all n 2^n prompts, got {n}; use sample instead")
    if block < 1:
        raise ValueError(f"block must be >= 1, got {block}")
    for start in range(0, count(n), block):
        number = np.arange(start, min(start + block, count(n)))
        table = (number // n)[:, None] >> np.arange(n - 1, -1, -1) & 1
        yield encode(table, number % n + 1, encoding)


def sample(n: int, num: int, generator: Generator, encoding: str = "doubled") -> Prompts:
    """`num` prompts with uniform tables and uniform offsets. Raises ValueError for n < 1 or num < 1."""
    _table_length(n)
    if num < 1:
        raise ValueError(f"num must be >= 1, got {num}")
    return encode(generator.at(0).bits((num, n)), generator.at(1).integers(n, (num,)) + 1, encoding)


def _repeats(encoding: str) -> int:
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding must be one of {', '.join(map(repr, ENCODINGS))}, got {encoding!r}")
    return ENCODINGS[encoding]


def _table_length(n) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be an integer >= 1 (bits in the table), got {n!r}")
    return int(n)


def _require(good: np.ndarray, tokens: np.ndarray, reason: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        shown = [VOCABULARY.tokens[t] if 0 <= t < len(VOCABULARY) else str(t) for t in tokens[row][:24]]
        raise ValueError(f"tokens: {reason}; prompt {row} reads {' '.join(shown)}{' ...' if tokens.shape[1] > 24 else ''}")
