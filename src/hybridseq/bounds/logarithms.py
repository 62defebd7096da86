"""Sums of logarithms of integers against a rational number, decided exactly.

A counting argument ends in an inequality such as  n_1 x_1 log2 N_1 > S_pre + x_1 S_post + b (1 + n_1):  whole multiples of
logarithms of whole numbers on the one side, a rational number of bits on the other. Floats propose; whether it holds is decided
with balls that are proved to contain the true value (Arb, through python-flint), at twice the precision until zero is outside.
Equality is possible only where the odd parts of the bases cancel, which integers decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import prod

MOST_BITS = 1 << 14
"""Working precision at which a comparison gives up."""

MOST_PRODUCT_BITS = 1 << 20
"""Products of odd parts are compared up to this size."""

Terms = Iterable[tuple[int, int]]


def log_sum(terms: Terms, constant: int | Fraction = 0, precision: int = 64):
    """A ball (flint.arb) around  sum_i c_i log2 b_i - constant,  for the terms (c_i, b_i).

    Raises ValueError for a base below 1.
    """
    from flint import arb, ctx, fmpq

    before, constant = ctx.prec, Fraction(constant)
    try:
        ctx.prec = precision
        total = arb(fmpq(-constant.numerator, constant.denominator))
        log_two = arb(2).log()
        for coefficient, base in terms:
            if base < 1:
                raise ValueError(f"base={base!r}: logarithms are taken of integers >= 1")
            total += coefficient * (arb(base).log() / log_two)
        return total
    finally:
        ctx.prec = before


def exceeds(terms: Terms, constant: int | Fraction = 0) -> bool:
    """Whether  sum_i c_i log2 b_i > constant.  Exact: at equality the answer is False.

    Raises ArithmeticError if 16,384 bits do not separate the two (equality with odd bases that cancel is recognised first).

    >>> exceeds([(4, 6)], 10), exceeds([(3, 4)], 6), exceeds([(2, 3), (-1, 9)])
    (True, False, False)
    """
    terms, precision = list(terms), 64
    while precision <= MOST_BITS:
        total = log_sum(terms, constant, precision)
        if total > 0:
            return True
        if total <= 0 or _is_zero(terms, constant):
            return False
        precision *= 2
    raise ArithmeticError(f"{terms} against {constant}: not separated at {MOST_BITS} bits")


def as_float(terms: Terms, constant: int | Fraction = 0) -> float:
    """sum_i c_i log2 b_i - constant, to the nearest float or so (computed with 128 bits)."""
    return float(log_sum(terms, constant, 128).mid())


def ceil_scaled(number: int, bits: int | Fraction) -> int:
    """ceil(number * 2^-bits), exactly: the least size of a class of density 2^-bits among `number` members.

    Raises ValueError unless number >= 1 and bits >= 0.

    >>> ceil_scaled(10, Fraction(8, 10)), ceil_scaled(10, 1), ceil_scaled(10, 40)
    (6, 5, 1)
    """
    bits = Fraction(bits)
    if number < 1 or bits < 0:
        raise ValueError(f"number={number!r}, bits={bits!r}: needs number >= 1 and bits >= 0")
    if bits.denominator == 1:
        return -(-number >> bits.numerator)
    least, most = 1, number  # 2^bits is irrational, so a product is never a whole number
    while least < most:
        middle = (least + most) // 2
        if exceeds([(1, middle), (-1, number)], -bits):
            most = middle
        else:
            least = middle + 1
    return least


def _is_zero(terms: list[tuple[int, int]], constant: int | Fraction) -> bool:
    """Whether prod b_i^c_i = 2^constant: the powers of two add up to it and the odd parts cancel.

    Odd parts are multiplied out up to a million bits; beyond that the answer is False, which costs time and never correctness.
    """
    twos, above, below = Fraction(0), [], []
    for coefficient, base in terms:
        power = (base & -base).bit_length() - 1
        twos += coefficient * power
        if base >> power > 1:
            (above if coefficient > 0 else below).append((base >> power, abs(coefficient)))
    if twos != constant or sum(c * b.bit_length() for b, c in above + below) > MOST_PRODUCT_BITS:
        return False
    return prod(b**c for b, c in above) == prod(b**c for b, c in below)
