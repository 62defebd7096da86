"""One query of a rounded attention head, seen as a function of bits: position r holds one of two (key, value) pairs.

This is the object that Lemma 6.1 of paper A turns into a circuit. What the head outputs is left to the package's attention core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds.circuits.circuit import require_enumerable
from hybridseq.mixers import Attention
from hybridseq.mixers.attention import AttentionInputs
from hybridseq.rng import Generator

_ROWS = 1 << 14  # settings of the bits that attention sees at once


@dataclass(frozen=True, eq=False)
class BitHead:
    """A query 1 over seq_len keys of one coordinate; bit b at position r puts the codes keys[r, b] and values[r, b] there.

    ar: the format. keys, values: integer codes, shape (seq_len, 2). The query is 1, so a key *is* its score.

    Raises ValueError for another shape or codes outside the format.

    >>> BitHead(FixedPoint(1), [[-3, 0]] * 3, [[0, 2]] * 3).outputs([[1, 0, 1], [1, 1, 1]]).tolist()
    [2, 3]
    """

    ar: FixedPoint
    keys: np.ndarray
    values: np.ndarray

    def __post_init__(self):
        if not isinstance(self.ar, FixedPoint):
            raise ValueError(f"ar={self.ar!r}: a rounded head needs a FixedPoint format")
        for name in ("keys", "values"):
            codes = self.ar.check(getattr(self, name))
            if codes.ndim != 2 or codes.shape[1] != 2 or not len(codes):
                raise ValueError(f"{name} must have shape (seq_len, 2), one code for each bit, got {codes.shape}")
            codes.setflags(write=False)
            object.__setattr__(self, name, codes)
        if self.keys.shape != self.values.shape:
            raise ValueError(f"keys {self.keys.shape} and values {self.values.shape} must have one shape")

    @property
    def seq_len(self) -> int:
        """M, the number of positions."""
        return len(self.keys)

    def outputs(self, bits) -> np.ndarray:
        """Output codes (...,) for bits (..., seq_len), from `Attention.last_only`."""
        bits = np.asarray(bits)
        if bits.shape[-1] != self.seq_len:
            raise ValueError(f"bits must have {self.seq_len} entries in the last axis, got {bits.shape}")
        place = np.arange(self.seq_len)
        q = self.ar.full((*bits.shape[:-1], 1, 1), 1)
        k, v = self.keys[place, bits][..., None], self.values[place, bits][..., None]
        return Attention(1, 1, scale="raw").last_only(self.ar, AttentionInputs(q, k, v))[..., 0]

    def all_outputs(self) -> Iterator[tuple[int, np.ndarray]]:
        """(first case, output codes) in blocks, case a having bit r of a at position r. At most 20 positions."""
        require_enumerable(self.seq_len)
        rows = min(_ROWS, 1 << self.seq_len)
        for first in range(0, 1 << self.seq_len, rows):
            cases = np.arange(first, first + rows)
            yield first, self.outputs((cases[:, None] >> np.arange(self.seq_len)) & 1)

    def options(self) -> list[list[tuple[int, int, tuple[int, ...]]]]:
        """For each position the distinct (exponential, value, bits that give it); without an exponential the value is 0."""
        exponentials = self.ar.exp(self.keys)
        found = []
        for e, v in zip(exponentials.tolist(), self.values.tolist(), strict=True):
            pairs = [(e[b], v[b] if e[b] else 0) for b in (0, 1)]
            found.append([(*pairs[0], (0, 1))] if pairs[0] == pairs[1] else [(*pairs[b], (b,)) for b in (0, 1)])
        return found


def uniform_head(s: int, seq_len: int) -> BitHead:
    """Uniform attention over the ones: bit 1 has score 0 and value 1; bit 0 has a score whose exponential is 0."""
    ar = FixedPoint(s)
    _check_length(seq_len)
    return BitHead(ar, [[-ar.max_code, 0]] * seq_len, [[0, ar.one]] * seq_len)


def random_head(s: int, seq_len: int, seed: int = 0, silent_zeros: bool = False) -> BitHead:
    """For each position and bit an exponential drawn uniformly from those that exist, with a key that has it, and any value.

    With ``silent_zeros`` bit 0 has exponential 0 and bit 1 a positive one everywhere: then few ones leave the head something to
    say at any length, where otherwise most rows of more than a dozen positions are silent.
    """
    ar = FixedPoint(s)
    _check_length(seq_len)
    draw = Generator(seed).at(s, seq_len)
    _, first = np.unique(ar.exp_table(), return_index=True)
    number = draw.at(0).integers(len(first), (seq_len, 2))
    if silent_zeros:
        number = np.stack([np.zeros(seq_len, dtype=int), 1 + draw.at(0).integers(len(first) - 1, seq_len)], axis=1)
    return BitHead(ar, ar.codes()[first[number]], draw.at(1).integers(ar.size, (seq_len, 2)) - ar.max_code)


def _check_length(seq_len: int) -> None:
    if isinstance(seq_len, bool) or not isinstance(seq_len, int | np.integer) or seq_len < 1:
        raise ValueError(f"seq_len={seq_len!r}: the context needs an integer length >= 1")
