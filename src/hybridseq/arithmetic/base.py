"""The one set of operations that every number system offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

Numbers = Any
"""Stored numbers: integer codes in the exact systems, an array or a tensor in :class:`~hybridseq.arithmetic.Float`."""

SCORE_SCALES = ("raw", "sqrt", "dim")


def check_scale(scale: str) -> str:
    """Return ``scale`` if it is a known score scaling, else raise ``ValueError``."""
    if scale not in SCORE_SCALES:
        raise ValueError(f"scale={scale!r} is not a score scaling; choose one of {', '.join(SCORE_SCALES)}")
    return scale


class Arithmetic(ABC):
    """A number system: how values are stored, and what each operation returns.

    Arrays carry leading batch axes; ``T`` is time, the last axis holds features. No operation works in place, so the floating
    system can run under autograd. An *ordered* sum rounds after every addition, from left to right; a *wide* reduction is
    accumulated exactly and rounded once (paper A, Appendix A).
    """

    name: str
    exact: bool
    wide_affine = False
    """Whether :meth:`affine` accumulates a row exactly and rounds it once, instead of rounding every operation."""

    # storage -----------------------------------------------------------------------------------------------------------
    @abstractmethod
    def array(self, values: Any) -> Numbers:
        """Store real ``values`` (nested ints, floats or Fractions), each rounded once."""

    @abstractmethod
    def values(self, x: Numbers) -> Any:
        """The real values of ``x`` as a float64 numpy array (for display and plots)."""

    @abstractmethod
    def full(self, shape: tuple[int, ...], value: Any) -> Numbers:
        """An array of ``shape`` that holds ``value``, rounded once."""

    def zeros(self, shape: tuple[int, ...]) -> Numbers:
        """An array of zeros of ``shape``."""
        return self.full(shape, 0)

    # elementwise -------------------------------------------------------------------------------------------------------
    @abstractmethod
    def add(self, a: Numbers, b: Numbers) -> Numbers:
        """a ⊕ b, elementwise with broadcasting."""

    @abstractmethod
    def sub(self, a: Numbers, b: Numbers) -> Numbers:
        """a ⊖ b, elementwise with broadcasting."""

    @abstractmethod
    def mul(self, a: Numbers, b: Numbers) -> Numbers:
        """a ⊗ b, elementwise with broadcasting."""

    @abstractmethod
    def neg(self, a: Numbers) -> Numbers:
        """−a."""

    @abstractmethod
    def relu(self, a: Numbers) -> Numbers:
        """max(a, 0)."""

    @abstractmethod
    def exp(self, x: Numbers) -> Numbers:
        """exp(x), elementwise."""

    @abstractmethod
    def sigmoid(self, x: Numbers) -> Numbers:
        """The logistic function 1/(1 + exp(−x)), elementwise."""

    @abstractmethod
    def where(self, condition: Any, a: Numbers, b: Numbers) -> Numbers:
        """``a`` where ``condition`` holds, else ``b``."""

    @abstractmethod
    def stack(self, arrays: list[Numbers], axis: int = 0) -> Numbers:
        """Join along a new axis."""

    @abstractmethod
    def concat(self, arrays: list[Numbers], axis: int = -1) -> Numbers:
        """Join along an existing axis."""

    # reductions --------------------------------------------------------------------------------------------------------
    @abstractmethod
    def sum(self, x: Numbers, axis: int = -1) -> Numbers:
        """Ordered sum along ``axis``."""

    def dot(self, x: Numbers, y: Numbers) -> Numbers:
        """⟨x, y⟩ over the last axis: rounded products, ordered sum."""
        return self.sum(self.mul(x, y), axis=-1)

    @abstractmethod
    def affine(self, weight: Numbers, x: Numbers, bias: Numbers | None = None) -> Numbers:
        """W x + b: ``weight`` (out, in), ``x`` (..., in), ``bias`` (out,) → (..., out); ascending columns, bias last."""

    @abstractmethod
    def wide_dot(self, x: Numbers, y: Numbers, scale: str = "raw") -> Numbers:
        """⟨x, y⟩ over the last axis in a wide accumulator, divided by 1, √d or d (``scale`` raw, sqrt, dim), rounded once."""

    @abstractmethod
    def scores(self, q: Numbers, k: Numbers, scale: str = "sqrt") -> Numbers:
        """All wide scaled products: ``q`` (..., Tq, d), ``k`` (..., Tk, d) → (..., Tq, Tk)."""

    @abstractmethod
    def softmax(self, z: Numbers, mask: Any | None = None) -> Numbers:
        """Attention weights over the last axis; ``mask`` is boolean and broadcastable, True where a key may be seen."""

    @abstractmethod
    def mix(self, p: Numbers, v: Numbers) -> Numbers:
        """Σ_r p_r ⊗ v_r as an ordered sum: ``p`` (..., Tq, Tk), ``v`` (..., Tk, d) → (..., Tq, d)."""

    @abstractmethod
    def rms_norm(self, x: Numbers) -> Numbers:
        """x / √(mean x²) over the last axis, wide reduction; a zero vector stays zero."""

    @abstractmethod
    def l2_norm(self, x: Numbers) -> Numbers:
        """x / √(Σ x²) over the last axis, wide reduction; a zero vector stays zero."""
