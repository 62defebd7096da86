"""Binary numbers as ±1 vectors, with the two conventions that papers differ in as arguments.

Paper B writes position and token numbers least significant bit first with bit 1 as +1; the address codes of paper A map
bit 0 to +1 and read most significant bit first. Both are here, and neither is a default.
"""

from __future__ import annotations

import numpy as np

from hybridseq.codes.codebook import Codebook


def width_for(count: int) -> int:
    """Bits that number `count` things: max(1, ceil(log2 count)) (w(c) of paper B).

    >>> [width_for(c) for c in (1, 2, 3, 8, 9)]
    [1, 1, 2, 3, 4]
    """
    if not isinstance(count, (int, np.integer)) or count < 1:
        raise ValueError(f"count = {count!r}; it must be an integer of at least 1")
    return max(1, int(count - 1).bit_length())


def binary_words(values, width: int, *, bit_order: str, one: int) -> np.ndarray:
    """The binary digits of `values` as ±1 vectors (code(v, k) of paper B).

    Two different numbers below 2^width give words whose dot product is at most width - 2; equal ones give width.

    Args:
        values: integers from 0 to 2^width - 1, any shape.
        width: number of digits, at least 1.
        bit_order: ``"lsb"`` (least significant digit first) or ``"msb"``.
        one: what digit 1 becomes, +1 or -1; digit 0 becomes the other.

    Returns:
        int8 array of shape (*values.shape, width).

    Example:
        >>> binary_words(6, 3, bit_order="lsb", one=+1).tolist()
        [-1, 1, 1]
    """
    if not isinstance(width, (int, np.integer)) or not 1 <= width <= 62:
        raise ValueError(f"width = {width!r}; it must be an integer from 1 to 62")
    if bit_order not in ("lsb", "msb"):
        raise ValueError(f"bit_order = {bit_order!r}; it must be 'lsb' or 'msb'")
    if one not in (1, -1):
        raise ValueError(f"one = {one!r}; digit 1 must become +1 or -1")
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"values has dtype {numbers.dtype}; it must hold integers")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < 2**width):
        raise ValueError(
            f"values reach from {numbers.min()} to {numbers.max()}; with width = {width} they must lie in 0..{2**width - 1}"
        )
    places = np.arange(width) if bit_order == "lsb" else np.arange(width)[::-1]
    digits = (numbers[..., None] >> places) & 1
    return np.where(digits == 1, one, -one).astype(np.int8)


def binary(num_words: int, *, bit_order: str, one: int, width: int | None = None) -> Codebook:
    """The numbers 0 .. num_words - 1 in binary as a codebook of distance 1 (or the width, for one word).

    >>> binary(4, bit_order="msb", one=-1).words.tolist()
    [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    """
    width = width_for(num_words) if width is None else width
    words = binary_words(np.arange(num_words), width, bit_order=bit_order, one=one)
    return Codebook(f"binary, {bit_order} first [{width}]", words, distance=1 if num_words > 1 else width)
