"""What block-sparse attention knows of a block unread: phi(block), a few numbers of a few bits (paper C, Theorem 1.2).

A summary is an object with `apply(ar, blocks, numbers)`: features of whole blocks (..., num_blocks, block_size, features) and the
numbers t of these blocks, (num_blocks,), to (..., num_blocks, width). Only `PositionedSummary` looks at the numbers.

Reconstructed: the mean is that of mixtures of block attention, the MLP with positions inside the block that of natively sparse
attention; the text of the paper that we have names neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.mixers.recurrence import check_dimension


@dataclass(frozen=True)
class SummaryFormat:
    """Numbers of `bits` bits: low + i step with i = 0..2^bits - 1. A real is rounded down to one of them, and saturates.

    Raises ValueError unless bits is an integer from 1 to 52 and step a power of two of which low is a multiple.

    >>> from hybridseq.arithmetic import Float
    >>> SummaryFormat(2).round(Float(), np.array([-1.0, 0.9, 2.5, 9.0])).tolist()
    [0.0, 0.0, 2.0, 3.0]
    """

    bits: int
    step: float = 1.0
    low: float = 0.0

    def __post_init__(self):
        check_dimension("bits", self.bits)
        step, low = Fraction(self.step), Fraction(self.low)
        if self.bits > 52:
            raise ValueError(f"bits={self.bits}: must be an integer from 1 to 52")
        if step <= 0 or (step.numerator * step.denominator) & (step.numerator * step.denominator - 1):
            raise ValueError(f"step={self.step!r}: must be a positive power of two")
        if (low / step).denominator != 1:
            raise ValueError(f"low={self.low!r}: must be a multiple of the step {self.step!r}")

    def round(self, ar, x):
        """The format's number at or below x, elementwise."""
        step, low = ar.array([self.step, self.low])
        if isinstance(ar, FixedPoint):
            if (Fraction(self.step) * ar.one).denominator != 1:
                raise ValueError(f"step={self.step!r}: is no number of {ar.name}, whose own step is {ar.delta}")
            return low + np.clip((x - low) // step, 0, (1 << self.bits) - 1) * step
        steps = x / step  # exact, and so is what follows
        steps = (steps.floor() if hasattr(steps, "floor") else np.floor(steps)) - low / step
        return low + steps.clip(0, (1 << self.bits) - 1) * step


class Summary(ABC):
    """A function of a block. Subclasses give `_raw`, the numbers before they are rounded to `format`, and `width`."""

    format: SummaryFormat | None

    @abstractmethod
    def width(self, features: int, block_size: int) -> int:
        """How many numbers the summary of a block has. Raises ValueError for blocks that it was not made for."""

    @abstractmethod
    def _raw(self, ar, blocks): ...

    def apply(self, ar, blocks, numbers):
        """(..., num_blocks, block_size, features) -> (..., num_blocks, width)."""
        raw = self._raw(ar, blocks)
        return raw if self.format is None else self.format.round(ar, raw)


@dataclass(frozen=True)
class MeanSummary(Summary):
    """The mean over the block's tokens: exact, rounded once by the arithmetic, then to the format."""

    format: SummaryFormat | None = None

    def width(self, features: int, block_size: int) -> int:
        return features

    def _raw(self, ar, blocks):
        return ar.wide_dot(blocks.swapaxes(-1, -2), ar.full((blocks.shape[-2],), 1), "dim")


@dataclass(frozen=True)
class MaxSummary(Summary):
    """The largest value of each feature over the block's tokens; with features 0 and 1 the union of sets, a Bloom filter."""

    format: SummaryFormat | None = None

    def width(self, features: int, block_size: int) -> int:
        return features

    def _raw(self, ar, blocks):
        return blocks.amax(dim=-2) if hasattr(blocks, "amax") else blocks.max(axis=-2)


@dataclass(frozen=True, eq=False)
class MLPSummary(Summary):
    """sigmoid(W_2 relu(W_1 (x_1; ...; x_B) + b)): the tokens side by side, so that their places inside the block count.

    hidden: reals (units, block_size * features). bias: reals (units,). out: reals (width, units). Raises ValueError where these
    do not meet.
    """

    hidden: np.ndarray
    bias: np.ndarray
    out: np.ndarray
    format: SummaryFormat | None = None

    def __post_init__(self):
        for name, axes in (("hidden", 2), ("bias", 1), ("out", 2)):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.ndim != axes:
                raise ValueError(f"{name}: must have {axes} axes, got shape {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        units = len(self.hidden)
        if self.bias.shape != (units,) or self.out.shape[1] != units:
            raise ValueError(f"bias, out: must have the {units} units of hidden, got shapes {self.bias.shape}, {self.out.shape}")

    def width(self, features: int, block_size: int) -> int:
        if self.hidden.shape[1] != features * block_size:
            raise ValueError(f"hidden: reads {self.hidden.shape[1]} numbers; a block has {block_size} tokens of {features}")
        return len(self.out)

    def _raw(self, ar, blocks):
        flat = blocks.reshape((*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1]))
        hidden, bias, out = (ar.array(part.copy()) for part in (self.hidden, self.bias, self.out))  # torch wants its own
        return ar.sigmoid(ar.affine(out, ar.relu(ar.affine(hidden, flat, bias))))


@dataclass(frozen=True)
class PositionedSummary(Summary):
    """phi_t: block t is summarised by `functions[t]`. Raises ValueError for no function, or widths that differ."""

    functions: tuple[Summary, ...]
    format: SummaryFormat | None = None

    def __post_init__(self):
        object.__setattr__(self, "functions", tuple(self.functions))
        if not self.functions:
            raise ValueError("functions: give one for each block")

    def width(self, features: int, block_size: int) -> int:
        widths = {function.width(features, block_size) for function in self.functions}
        if len(widths) > 1:
            raise ValueError(f"functions: their widths must be equal, got {sorted(widths)}")
        return widths.pop()

    def _raw(self, ar, blocks):
        raise ValueError("functions: which of them applies depends on the block; use apply with the numbers of the blocks")

    def apply(self, ar, blocks, numbers):
        """As for every summary; raises ValueError for a block without a function."""
        if len(numbers) and max(numbers) >= len(self.functions):
            raise ValueError(f"functions: {len(self.functions)} given, but there is a block {int(max(numbers))}")
        if not len(numbers):
            return self.functions[0].apply(ar, blocks, numbers)
        parts = [self.functions[t].apply(ar, blocks[..., i : i + 1, :, :], [t]) for i, t in enumerate(numbers)]
        joined = ar.concat(parts, axis=-2)
        return joined if self.format is None else self.format.round(ar, joined)
