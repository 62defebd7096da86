"""The pointwise MLP with ReLU that follows a token mixer (paper A, Section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from hybridseq.residual import Affine

__all__ = ["MLP"]


@dataclass(frozen=True)
class MLP:
    """x -> out(relu(hidden(x))), both affine maps rounded operation by operation; the caller adds it to the stream.

    hidden: Affine from the stream to the hidden units. out: Affine from the hidden units to the stream.
    Raises ValueError when the two do not meet.
    """

    hidden: Affine
    out: Affine

    def __post_init__(self):
        if self.hidden.target != self.out.source:
            raise ValueError(f"out must read the units {self.hidden.target.names}, got {self.out.source.names}")

    def apply(self, ar, x):
        """x (..., dim of the stream) -> what is added to it, of the same shape."""
        return self.out.apply(ar, ar.relu(self.hidden.apply(ar, x)))

    @property
    def reads(self) -> frozenset[int]:
        """Coordinates of the stream that the hidden units depend on."""
        return self.hidden.reads

    @property
    def writes(self) -> frozenset[int]:
        """Coordinates of the stream that may change."""
        return self.out.writes
