"""A hybrid architecture as a word over F (full attention) and R (a recurrent layer): paper C, Definition 2.3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hybridseq.mixers.layer import Layer

LETTERS = "FR"


@dataclass(frozen=True)
class HybridWord:
    """The order of full-attention and recurrent layers, bottom layer first, as runs of equal letters.

    Runs keep astronomical words small: paper C's lower bound speaks of 2^(3 L^2) recurrent layers in a row.

    Attributes:
        runs: pairs (letter, count >= 1), neighbours with different letters.

    Raises:
        ValueError: a letter other than F and R, a count < 1, an empty word.

    Example:
        >>> word = HybridWord.parse("R^3 F RR F")
        >>> print(word), word.full, word.recurrent, word.gaps
        R^3 F R^2 F
        (None, 2, 5, (3, 2, 0))
    """

    runs: tuple[tuple[str, int], ...]

    def __post_init__(self):
        for letter, count in self.runs:
            if letter not in LETTERS or len(letter) != 1:
                raise ValueError(f"letter {letter!r}: a word has the letters F (full attention) and R (recurrent)")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"count={count!r} of {letter}: must be an integer >= 1")
        merged = []
        for letter, group in groupby(self.runs, key=lambda run: run[0]):
            merged.append((letter, sum(count for _, count in group)))
        if not merged:
            raise ValueError("word: needs at least one layer")
        object.__setattr__(self, "runs", tuple(merged))

    @classmethod
    def parse(cls, text: str) -> HybridWord:
        """Read "RFF", "R^3 F R^2" or a mixture; spaces are ignored."""
        compact = re.sub(r"\s+", "", text)
        if not re.fullmatch(r"([FR](\^\d+)?)+", compact):
            raise ValueError(f"word={text!r}: write letters F and R, each with an optional power, such as R^3 F R^2")
        return cls(tuple((letter, int(power or 1)) for letter, power in re.findall(r"([FR])(?:\^(\d+))?", compact)))

    @classmethod
    def from_gaps(cls, gaps: Sequence[int]) -> HybridWord:
        """gaps[0] recurrent layers, a full layer, gaps[1] recurrent layers, a full layer, ..., gaps[-1] recurrent layers.

        The paper's tuple (L-1, a_1, ..., a_L) is read as L-1 full layers with these gaps.
        """
        runs = []
        for i, gap in enumerate(gaps):
            runs += ([("F", 1)] if i else []) + ([("R", gap)] if gap else [])
        return cls(tuple(runs))

    def __str__(self) -> str:
        return " ".join(letter if count == 1 else f"{letter}^{count}" for letter, count in self.runs)

    @property
    def letters(self) -> str:
        """The word written out, bottom layer first."""
        return "".join(letter * count for letter, count in self.runs)

    def _count(self, letter: str) -> int:
        return sum(count for a, count in self.runs if a == letter)

    @property
    def full(self) -> int:
        """Number of full-attention layers."""
        return self._count("F")

    @property
    def recurrent(self) -> int:
        """Number of recurrent layers."""
        return self._count("R")

    @property
    def gaps(self) -> tuple[int, ...]:
        """Recurrent layers before the first F, between neighbouring Fs, and after the last: full + 1 numbers."""
        gaps = [0]
        for letter, count in self.runs:
            if letter == "R":
                gaps[-1] += count
            else:
                gaps += [0] * count
        return tuple(gaps)

    def state_numbers(self, cache: int, state: int, seq_len: int) -> int:
        """Numbers carried after `seq_len` tokens, for `cache` numbers a token in each F and `state` numbers in each R."""
        return self.full * cache * seq_len + self.recurrent * state

    def state_bits(self, cache: int, state: int, seq_len: int, bits_per_number: int) -> int:
        """The same in bits."""
        return self.state_numbers(cache, state, seq_len) * bits_per_number


@dataclass(frozen=True)
class HybridStack:
    """The layers of a word, each added to its input: x <- x + layer(x), then x <- x + mlp(x) where there is one.

    Args:
        word: the order. layers: letter to `Layer`, or a sequence with one `Layer` a letter. mlp: token-wise map with
            `.apply(ar, x)`, or None.
    """

    word: HybridWord
    layers: Any
    mlp: Any = None

    def _layer(self, i: int, letter: str) -> Layer:
        return self.layers[letter] if isinstance(self.layers, dict) else self.layers[i]

    def _after(self, ar, x, z):
        x = ar.add(x, z)
        return x if self.mlp is None else ar.add(x, self.mlp.apply(ar, x))

    def forward(self, ar, x):
        """Residual stream (..., seq_len, d_model) after the last layer."""
        for i, letter in enumerate(self.word.letters):
            x = self._after(ar, x, self._layer(i, letter).forward(ar, x))
        return x

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> tuple:
        """One state a layer: the concatenation is the state of the stack."""
        return tuple(self._layer(i, letter).init_state(ar, batch_shape) for i, letter in enumerate(self.word.letters))

    def step(self, ar, states: tuple, x_t):
        """(states, x_t after the last layer) for one token (..., d_model)."""
        after = []
        for i, (letter, state) in enumerate(zip(self.word.letters, states, strict=True)):
            state, z = self._layer(i, letter).step(ar, state, x_t)
            after.append(state)
            x_t = self._after(ar, x_t, z)
        return tuple(after), x_t

    def scan(self, ar, x, states: tuple | None = None):
        """(outputs (..., seq_len, d_model), states): the loop of `step` over the tokens."""
        states = self.init_state(ar, tuple(x.shape[:-2])) if states is None else states
        outputs = []
        for t in range(x.shape[-2]):
            states, y = self.step(ar, states, x[..., t, :])
            outputs.append(y)
        return ar.stack(outputs, axis=-2), states
