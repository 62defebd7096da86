"""F_s one number at a time, in exact fractions: the definition that :class:`FixedPoint` must equal.

Nothing here is fast and nothing is clever. Values are ``Fraction`` objects, vectors are lists, every operation of the paper is
the exact one followed by one rounding, and the exponential is enclosed between two rational numbers by its own series. It shares
no code with the vectorised format; chapter 1 and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

Vector = Sequence[Fraction]


def exp_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Two rationals ``low <= exp(x) <= high`` at most 2⁻ᵇⁱᵗˢ apart, from the exponential series.

    Once n + 1 >= 2|x| every further term is at most half the one before, so what is left out after the n-th term is at most
    that term's magnitude.

    Examples
    --------
    >>> low, high = exp_enclosure(Fraction(1), 20)
    >>> bool(low < Fraction(27182818, 10**7) < high), high - low <= Fraction(1, 2**20)
    (True, True)
    """
    num, den = x.numerator, x.denominator
    term, total, scale, n = 1, 1, 1, 0  # the n-th term is term/scale, the sum so far total/scale
    while n + 1 < 2 * abs(x) or abs(term) << (bits + 1) > scale:
        n += 1
        term *= num
        total = total * den * n + term
        scale *= den * n
    return Fraction(total - abs(term), scale), Fraction(total + abs(term), scale)


@dataclass(frozen=True)
class Definition:
    """The format F_s and its operations, literally (paper A, Section 3.2 and Appendix A; completions as in chapter 1).

    Parameters
    ----------
    s : int >= 1, bits behind the point.
    ties : where a number halfway between two members goes: zero, even, away, odd, up or down.

    Examples
    --------
    >>> d = Definition(2)
    >>> d.round(Fraction(5, 8)), d.round(Fraction(-10)), d.sum([Fraction(15, 4), Fraction(3, 4), Fraction(-1)])
    (Fraction(1, 2), Fraction(-15, 4), Fraction(11, 4))
    """

    s: int
    ties: str = "zero"

    @property
    def delta(self) -> Fraction:
        """The spacing 2⁻ˢ."""
        return Fraction(1, 2**self.s)

    @property
    def top(self) -> Fraction:
        """The largest member, (2²ˢ − 1)·2⁻ˢ."""
        return (4**self.s - 1) * self.delta

    def members(self) -> list[Fraction]:
        """All members in ascending order."""
        return [k * self.delta for k in range(-(4**self.s) + 1, 4**self.s)]

    def round(self, x: Fraction) -> Fraction:
        """[x]_s: the nearest member, saturating at the ends; ties as ``ties`` says."""
        below = x // self.delta
        rest = x / self.delta - below
        if rest == Fraction(1, 2):
            code = below + int(self._tie_goes_up(below))
        else:
            code = below + int(rest > Fraction(1, 2))
        return min(max(code * self.delta, -self.top), self.top)

    def _tie_goes_up(self, below: int) -> bool:
        """Whether the midpoint of codes ``below`` and ``below + 1`` rounds to the upper one."""
        return {
            "zero": below < 0,
            "away": below >= 0,
            "even": below % 2 == 1,
            "odd": below % 2 == 0,
            "up": True,
            "down": False,
        }[self.ties]

    def round_root(self, x: Fraction, square: Fraction) -> Fraction:
        """[sign(x) √square]_s, by comparing squares."""
        if x == 0:
            return Fraction(0)
        sign = 1 if x > 0 else -1
        scaled = square * 4**self.s
        below = isqrt(scaled.numerator // scaled.denominator)
        midpoint = Fraction(2 * below + 1, 2)
        if midpoint**2 == scaled:
            return self.round(sign * midpoint * self.delta)
        return self.round(sign * (below + int(scaled > midpoint**2)) * self.delta)

    # one rounding after every operation
    def add(self, a: Fraction, b: Fraction) -> Fraction:
        """a ⊕ b = [a + b]_s."""
        return self.round(a + b)

    def sub(self, a: Fraction, b: Fraction) -> Fraction:
        """a ⊖ b = [a − b]_s."""
        return self.round(a - b)

    def mul(self, a: Fraction, b: Fraction) -> Fraction:
        """a ⊗ b = [ab]_s."""
        return self.round(a * b)

    def sum(self, xs: Iterable[Fraction]) -> Fraction:
        """((0 ⊕ x₁) ⊕ x₂) ⊕ …, from left to right."""
        total = Fraction(0)
        for x in xs:
            total = self.add(total, x)
        return total

    def dot(self, x: Vector, y: Vector) -> Fraction:
        """⟨x, y⟩_s: rounded products, rounded sum."""
        return self.sum(self.mul(a, b) for a, b in zip(x, y, strict=True))

    def affine(self, weight: Sequence[Vector], x: Vector, bias: Vector) -> list[Fraction]:
        """Each row: ⟨row, x⟩_s ⊕ bias."""
        return [self.add(self.dot(row, x), b) for row, b in zip(weight, bias, strict=True)]

    # wide accumulators: exact inside, one rounding at the door
    def wide_dot(self, x: Vector, y: Vector, scale: str = "raw") -> Fraction:
        """⟨x, y⟩_acc divided by 1, √d or d (``scale`` raw, sqrt, dim), rounded once."""
        exact = sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))
        if scale == "sqrt":
            return self.round_root(exact, exact**2 / len(x))
        return self.round(exact / {"raw": 1, "dim": len(x)}[scale])

    def rms_norm(self, x: Vector) -> list[Fraction]:
        """x_i / √ρ with ρ = (1/m) Σ x² in a wide accumulator; the zero vector stays zero."""
        rho = sum(a * a for a in x) / len(x)
        return [self.round_root(a, a * a / rho) if rho else Fraction(0) for a in x]

    def l2_norm(self, x: Vector) -> list[Fraction]:
        """x_i / √ρ₂ with ρ₂ = Σ x² in a wide accumulator; the zero vector stays zero."""
        rho = sum(a * a for a in x)
        return [self.round_root(a, a * a / rho) if rho else Fraction(0) for a in x]

    # functions of one argument
    def exp(self, x: Fraction) -> Fraction:
        """[exp x]_s: narrow the enclosure until both ends round to the same member."""
        # Beyond these ends the value is saturated or below half a spacing, since 2 < e.
        x = min(max(x, Fraction(-self.s - 2)), Fraction(self.s + 1))
        bits = self.s + 8
        while True:
            low, high = (self.round(end) for end in exp_enclosure(x, bits))
            if low == high:
                return low
            bits *= 2

    def sigmoid(self, x: Fraction) -> Fraction:
        """[1/(1 + exp(−x))]_s, by the same enclosure."""
        x = min(max(x, Fraction(-self.s - 2)), Fraction(self.s + 2))
        bits = self.s + 8
        while True:
            low, high = exp_enclosure(-x, bits)
            low, high = self.round(1 / (1 + high)), self.round(1 / (1 + low))
            if low == high:
                return low
            bits *= 2

    # attention
    def softmax(self, z: Vector, mask: Sequence[bool] | None = None) -> list[Fraction]:
        """e = [exp z]_s without subtraction of the maximum, Z = Σ e exact, p = [e/Z]_s; Z = 0 gives zeros."""
        seen = mask if mask is not None else [True] * len(z)
        e = [self.exp(x) if visible else Fraction(0) for x, visible in zip(z, seen, strict=True)]
        total = sum(e, Fraction(0))
        return [self.round(x / total) if total else Fraction(0) for x in e]

    def mix(self, p: Vector, values: Sequence[Vector]) -> list[Fraction]:
        """Σ_r p_r ⊗ v_r, coordinate by coordinate, in position order."""
        return [self.dot(p, column) for column in zip(*values, strict=True)]
