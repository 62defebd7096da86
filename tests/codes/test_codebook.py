"""Codebooks: what they accept, what they refuse, and that the distance check notices a wrong claim."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.codes import Codebook, reed_muller, repetition, verify_distance

signs = st.sampled_from([-1, 1])


@given(st.integers(1, 9).flatmap(lambda m: st.lists(st.tuples(*[signs] * m), min_size=2, max_size=12, unique=True)))
def test_all_pairs_distance_equals_the_definition(words):
    expected = min(sum(a != b for a, b in zip(u, v, strict=True)) for u, v in combinations(words, 2))
    certificate = verify_distance(Codebook("drawn", words, expected))
    assert certificate.distance == expected
    first, second = certificate.witness
    assert sum(a != b for a, b in zip(words[first], words[second], strict=True)) == expected
    assert certificate.cases == len(words) * (len(words) - 1) // 2


@pytest.mark.parametrize("claim", [3, 5])
def test_a_wrong_claim_is_refused_with_a_pair_of_words(claim):
    book = reed_muller()
    with pytest.raises(ValueError, match=f"distance = {claim} is claimed .* differ in 4 places"):
        verify_distance(Codebook(book.name, book.words, claim, linear=True))


def test_one_flipped_sign_is_noticed_in_a_linear_code_and_in_a_list():
    book = reed_muller()
    words = book.words.copy()
    words[11, 6] *= -1
    with pytest.raises(ValueError, match="declared linear, but word 11"):
        verify_distance(Codebook(book.name, words, 4, linear=True))
    with pytest.raises(ValueError, match="differ in 3 places"):
        verify_distance(Codebook(book.name, words, 4, linear=False))


def test_a_linear_code_without_the_zero_word_is_refused():
    book = reed_muller()
    with pytest.raises(ValueError, match="word 0 is not all"):
        verify_distance(Codebook(book.name, book.words[::-1], 4, linear=True))


def test_a_duplicate_word_is_noticed():
    with pytest.raises(ValueError, match="words 0 and 2 differ in 0 places"):
        verify_distance(Codebook("twice", [[1, 1], [1, -1], [1, 1]], 1))


@pytest.mark.parametrize("entry", [0, 2, 0.5, -3])
def test_entries_other_than_signs_are_refused(entry):
    with pytest.raises(ValueError, match=r"words\[1\]\[0\] = .* must be \+1 or -1"):
        Codebook("bad", [[1, 1], [entry, 1]], 1)


@pytest.mark.parametrize("words", [[1, -1], [[]], np.ones((2, 2, 2))])
def test_shapes_other_than_a_table_are_refused(words):
    with pytest.raises(ValueError, match="shape"):
        Codebook("bad", words, 1)


@pytest.mark.parametrize("distance", [0, 4, 1.5])
def test_impossible_claims_are_refused(distance):
    with pytest.raises(ValueError, match="distance ="):
        Codebook("bad", [[1, 1, 1]], distance)


def test_repeating_keeps_the_ratio_and_the_certificate():
    book = reed_muller().repeat(7)
    assert (book.m, book.distance) == (56, 28)
    assert verify_distance(book).distance == 28
    assert reed_muller().repeat(1).m == 8
    with pytest.raises(ValueError, match="times = 0"):
        book.repeat(0)


def test_require_names_what_is_missing():
    with pytest.raises(ValueError, match=r"num_words = 17, but .* has 16 words"):
        reed_muller().require(17)
    short = Codebook("short", [[1, 1, 1, 1], [1, 1, 1, -1]], 1)
    with pytest.raises(ValueError, match=r"distance = 1 .* it must be at least 2"):
        short.require(2)
    assert short.require(2, ratio=Fraction(1, 4)) is short
    assert repetition(3).require(2).distance == 3


def test_words_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="read-only"):
        reed_muller().words[0, 0] = -1
