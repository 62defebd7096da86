"""The named families: parameters by full enumeration, order of the words, and the choice for an address table."""

import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.codes import (
    address_codebook,
    bch,
    binary,
    binary_words,
    extended_bch,
    golay,
    lexicode,
    random_linear,
    reed_muller,
    repetition,
    span,
    verify_distance,
    width_for,
)


@pytest.mark.parametrize(
    ("build", "words", "m", "distance"),
    [(reed_muller, 16, 8, 4), (bch, 128, 15, 5), (golay, 4096, 24, 8), (extended_bch, 65536, 64, 24)],
)
def test_parameters_by_full_enumeration(build, words, m, distance):
    book = build()
    assert (len(book), book.m) == (words, m)
    certificate = verify_distance(book)
    assert certificate.distance == distance
    assert certificate.cases == words - 1
    assert 3 * distance >= m


def test_the_long_bch_polynomial_is_the_product_over_its_cyclotomic_cosets():
    # An independent derivation over GF(64): roots alpha^1 .. alpha^22, alpha a root of x^6 + x + 1.
    powers = [1]
    for _ in range(62):
        doubled = powers[-1] << 1
        powers.append(doubled ^ 0b1000011 if doubled & 64 else doubled)
    log = {value: exponent for exponent, value in enumerate(powers)}
    exponents = {root * 2**twist % 63 for root in range(1, 23) for twist in range(6)}
    polynomial = [1]  # lowest degree first, coefficients in GF(64)
    for exponent in sorted(exponents):
        scaled = [powers[(log[c] + exponent) % 63] if c else 0 for c in polynomial]
        polynomial = [a ^ b for a, b in zip([0, *polynomial], [*scaled, 0], strict=True)]
    assert len(polynomial) == 48 and set(polynomial) <= {0, 1}
    value = sum(bit << degree for degree, bit in enumerate(polynomial))
    first_row = extended_bch().words[1]
    assert [int(x == -1) for x in first_row[:-1]] == [value >> (62 - place) & 1 for place in range(63)]


def test_words_come_in_span_order_most_significant_bit_first():
    book = reed_muller()
    assert book.words[0].tolist() == [1] * 8
    assert book.words[1].tolist() == [-1] * 8
    assert book.words[2].tolist() == [1, 1, 1, 1, -1, -1, -1, -1]
    assert book.words[3].tolist() == [-1, -1, -1, -1, 1, 1, 1, 1]
    assert book.words[8].tolist() == [1, -1] * 4
    assert np.array_equal(book.words[13], book.words[1] * book.words[4] * book.words[8])
    with pytest.raises(ValueError, match="rows contains 4"):
        span([4], 2)


@pytest.mark.parametrize(("d", "size"), [(1, 8), (2, 32), (3, 32), (4, 128), (5, 128)])
def test_lexicodes_of_length_three_d(d, size):
    book = lexicode(3 * d, d)
    assert len(book) == size
    assert verify_distance(book).distance >= d


def test_lexicode_and_repetition_refuse_bad_sizes():
    with pytest.raises(ValueError, match="m = 17"):
        lexicode(17, 3)
    with pytest.raises(ValueError, match="distance = 6"):
        lexicode(5, 6)
    assert len(lexicode(1, 1)) == 2 and len(lexicode(5, 5)) == 2
    assert verify_distance(repetition(9)).distance == 9


@pytest.mark.parametrize(
    ("num_words", "min_length", "m"),
    [
        # n + 3 words against m_0(s): the lengths behind the dimensions 4m + 6 of the hybrid decoder
        (11, 21, 24), (11, 36, 40), (11, 55, 56), (11, 176, 176), (259, 55, 72), (1003, 55, 72), (4096, 21, 24),
        (4096, 176, 192), (11, 6, 8), (128, 6, 15), (129, 6, 24),
    ],
)  # fmt: skip
def test_address_code_lengths(num_words, min_length, m):
    book = address_codebook(num_words, min_length)
    assert book.m == m
    assert verify_distance(book).distance * 3 >= m


@pytest.mark.parametrize(("num_words", "m"), [(16, 8), (17, 15), (128, 15), (129, 24), (4096, 24), (4097, 64), (65536, 64)])
def test_family_borders(num_words, m):
    assert address_codebook(num_words).m == m


def test_beyond_65536_words_a_random_code_is_drawn_and_verified():
    book = address_codebook(65537, 21, seed=5)
    assert len(book) == 131072 and book.m == 209
    assert 3 * verify_distance(book).distance >= book.m
    assert np.array_equal(book.words[-3], address_codebook(65537, 21, seed=5).words[-3])
    assert not np.array_equal(book.words[-3], address_codebook(65537, 21, seed=6).words[-3])


def test_random_codes_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="none of 4 random codes"):
        random_linear(4096, seed=0, m=13, attempts=4)
    with pytest.raises(ValueError, match="too short"):
        random_linear(4096, seed=0, m=11)
    with pytest.raises(ValueError, match="num_words = 2097152"):
        random_linear(2**21, seed=0)


@pytest.mark.parametrize("arguments", [(0, 1), (5, 0), (2.5, 1), (2**20 + 1, 1)])
def test_address_codebook_refuses_bad_counts(arguments):
    with pytest.raises(ValueError, match=r"num_words|min_length"):
        address_codebook(*arguments)


@given(st.integers(1, 12).flatmap(lambda w: st.tuples(st.just(w), st.integers(0, 2**w - 1), st.integers(0, 2**w - 1))))
def test_binary_words_differ_by_two_in_the_dot_product(case):
    width, a, b = case
    for bit_order in ("lsb", "msb"):
        u, v = (binary_words(x, width, bit_order=bit_order, one=1).astype(int) for x in (a, b))
        assert (u @ v == width) == (a == b)
        assert a == b or u @ v <= width - 2


def test_binary_conventions_are_loud():
    assert binary_words(1, 3, bit_order="lsb", one=1).tolist() == [1, -1, -1]
    assert binary_words(1, 3, bit_order="msb", one=-1).tolist() == [1, 1, -1]
    with pytest.raises(TypeError):
        binary_words(1, 3)
    for bad in ({"bit_order": "big", "one": 1}, {"bit_order": "lsb", "one": 0}):
        with pytest.raises(ValueError, match=r"bit_order|one"):
            binary_words(1, 3, **bad)
    with pytest.raises(ValueError, match=r"0\.\.7"):
        binary_words(8, 3, bit_order="lsb", one=1)
    with pytest.raises(ValueError, match="integers"):
        binary_words(0.5, 3, bit_order="lsb", one=1)
    assert verify_distance(binary(13, bit_order="lsb", one=1)).distance == 1
    assert binary(13, bit_order="lsb", one=1).m == width_for(13) == 4
    assert width_for(1) == 1
    with pytest.raises(ValueError, match="count = 0"):
        width_for(0)


@pytest.mark.parametrize("module", ["codebook", "binary", "linear", "address"])
def test_examples_in_the_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(f"hybridseq.codes.{module}")).failed == 0
