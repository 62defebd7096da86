"""One head as a permutation: every state and token, random words, and controls that must fail."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.constructions import reflection as rf
from hybridseq.constructions.parity_cell import SMALLEST_SUBNORMAL, FlushingFloat
from hybridseq.constructions.reflection import PermutationHead


@pytest.mark.parametrize("order", "AQ")
@pytest.mark.parametrize("s", range(2, 25))
def test_cayley_table_of_s5(s, order):
    check = rf.check_swaps(5, FixedPoint(s), order)
    assert check.passed and check.cases == 1200, check


@pytest.mark.parametrize("order", "AQ")
def test_every_reachable_state_of_s5(order):
    states = rf.reachable_signed(5)
    assert len(states) == 2**4 * 120
    check = rf.check_swaps(5, FixedPoint(2), order, matrices=states)
    assert check.passed and check.cases == 19200, check


@pytest.mark.parametrize("n", (2, 3, 5))
@pytest.mark.parametrize("s, order", ((2, "A"), (4, "Q"), (24, "A")))
def test_four_hundred_tokens(n, s, order):
    assert rf.check_random_words(n, FixedPoint(s), order, length=400, words=2, seed=3).passed


@given(st.integers(2, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.sampled_from(rf.pairs(n)), max_size=30))))
def test_any_word(case):
    n, word = case
    place = list(range(n))
    for i, j in word:  # the content at place i goes to j and back
        place = [j if p == i else i if p == j else p for p in place]
    head = PermutationHead(n, FixedPoint(2))
    state = head.run(word)
    assert head.permutation(state).tolist() == place
    assert [head.query(state, p).argmax() for p in place] == list(range(n))


def test_reachable_states_of_small_groups():
    assert len(rf.reachable_signed(2)) == 2
    assert len(rf.reachable_signed(3)) == 24


@pytest.mark.parametrize("name", sorted(rf.controls()))
def test_controls_fail_at_once(name):
    assert rf.tokens_survived(rf.controls()[name], rf.random_letters(5, 400, seed=0)) == 0


@pytest.mark.parametrize("dtype", sorted(SMALLEST_SUBNORMAL))
def test_subnormal_numbers_carry_permutations_until_they_are_flushed(dtype):
    unit, letters = SMALLEST_SUBNORMAL[dtype], rf.random_letters(5, 60, seed=0)
    assert rf.tokens_survived(PermutationHead(5, Float("torch", dtype), unit=unit), letters) == 60
    flushed = rf.tokens_survived(PermutationHead(5, FlushingFloat("torch", dtype), unit=unit), letters)
    assert flushed == (60 if dtype == "float16" else 0)


def test_a_changed_key_is_noticed():
    check = rf.check_swaps(3, FixedPoint(4), kappa=Fraction(1, 2))
    assert not check.passed and check.counterexample["token"] == (0, 1)
    assert not rf.check_swaps(3, FixedPoint(4), "W").passed


def test_a_wrong_state_is_no_permutation():
    head = PermutationHead(3, FixedPoint(2))
    with pytest.raises(ValueError, match="no permutation"):
        head.permutation(head.state(np.ones((3, 3), dtype=int)))


@pytest.mark.parametrize("make, words", (
    (lambda: PermutationHead(1, FixedPoint(2)), "n=1"),
    (lambda: PermutationHead(3, FixedPoint(1)), "s >= 2"),
    (lambda: PermutationHead(3, Float()), "unit"),
    (lambda: rf.transposition(3, 1, 1), "transposition"),
    (lambda: rf.transposition(3, 0, 3), "transposition"),
))  # fmt: skip
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
