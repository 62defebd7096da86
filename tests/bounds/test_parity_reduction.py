"""From parity to a bound on scratch tokens: values of the specification, and arguments that lack a premise."""

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds import parity_reduction as pr
from hybridseq.bounds.parity_reduction import Hastad, Literal, ScratchBound, SmallCircuits
from hybridseq.constructions.scratchpad_decoder import ScratchpadDecoder
from hybridseq.tasks import pcr

FIRST = {(4, 4): 37, (6, 4): 62, (8, 110): 125, (14, 110): 239, (14, 950): 283}


# the reduction ----------------------------------------------------------------------------------------------------------
def test_the_answer_is_the_parity():
    assert pr.check_reduction(10).passed
    assert pr.prompts([1, 1]).text(0) == "0 0 1 1 1 1 MARK BLANK BLANK"


def test_another_address_is_no_reduction():
    assert not pr.check_reduction(4, address=2).passed


def test_each_prompt_bit_is_a_constant_or_a_literal():
    assert pr.check_prompt_bits(6).passed
    literals = pr.reduction(3)
    assert len(literals) == 4 * 12
    assert {literal.bit for literal in literals} == {None, 1, 2, 3}
    assert sum(literal.bit is not None for literal in literals) == 3 * 2 * 2


def test_a_wrong_literal_is_noticed():
    def wrong(r):
        bits = list(pr.reduction(r))
        place = next(i for i, bit in enumerate(bits) if bit.bit == 1)
        bits[place] = Literal(bits[place].position, bits[place].token, 1, not bits[place].value)
        return tuple(bits)

    assert not pr.check_prompt_bits(3, bits=wrong).passed
    assert not pr.check_prompt_bits(3, bits=lambda r: pr.reduction(r)[:-1]).passed


def test_a_wrong_solver_is_noticed():
    assert not pr.check_reduction(3, solve=lambda tokens: np.full(len(tokens), pcr.NO)).passed


# the bound --------------------------------------------------------------------------------------------------------------
def test_first_lengths():
    assert pr.check_first_lengths(FIRST).passed
    for (d, c), ell in FIRST.items():
        bound = ScratchBound.of(d, c)
        assert bound.least_budget(ell - 1) == 0 < bound.least_budget(ell)


def test_a_wrong_first_length_is_noticed():
    assert not pr.check_first_lengths({(4, 4): 36}).passed
    assert not pr.check_first_lengths(FIRST, constant=0.5).passed


@pytest.mark.parametrize("premise", ["small circuits", "Hastad"])
def test_without_a_premise_there_is_no_bound(premise):
    bound = ScratchBound.of(4, 4).without(premise)
    assert bound.missing == (premise,)
    done = pr.check_argument(bound, [40])
    assert not done.passed and premise in done.counterexample[0]
    with pytest.raises(ValueError, match=f"does not follow without '{premise}'"):
        bound.least_budget(40)


def test_the_argument_holds_and_other_budgets_do_not(monkeypatch):
    for d, c in FIRST:
        assert pr.check_argument(ScratchBound.of(d, c), range(2, 500, 17)).passed
    right = ScratchBound.least_budget
    for shift in (1, -1):
        monkeypatch.setattr(ScratchBound, "least_budget", lambda self, ell, shift=shift: right(self, ell) + shift)
        assert not pr.check_argument(ScratchBound.of(4, 4), [60]).passed


@given(depth=st.integers(2, 20), exponent=st.floats(0.5, 1000), alphabet=st.integers(1, 8), share=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_least_budget_is_the_least(depth, exponent, alphabet, share):
    bound = ScratchBound.of(depth, exponent, alphabet)
    ell = 2 + share * 40 * depth
    assert pr.check_argument(bound, [ell]).passed
    assert bound.least_budget(ell) >= bound.closed_form(ell) - 1e-6 * abs(bound.closed_form(ell)) - 200 * exponent
    assert bound.least_budget(ell) <= bound.least_budget(ell + 1)


def test_more_is_asked_with_a_larger_constant_and_less_with_more_depth():
    budgets = [ScratchBound.of(4, 4, constant=h).least_budget(60) for h in (0.05, 0.1, 0.5, 1)]
    assert budgets == sorted(budgets) and budgets[0] < budgets[-1]
    assert ScratchBound.of(6, 4).least_budget(100) < ScratchBound.of(4, 4).least_budget(100)


def test_growth():
    assert pr.check_growth([ScratchBound.of(d, c) for d, c in FIRST], 1e-6).passed
    assert not pr.check_growth([ScratchBound.of(4, 4)], -1.0).passed
    assert ScratchBound.for_layers(2, 4).depth == 16


def test_short_prompts_ask_for_nothing():
    assert [ScratchBound.of(4, 4).least_budget(log2(3 * n)) for n in (1, 2, 100, 10**6)] == [0, 0, 0, 0]


def test_vectors_bind():
    assert round(pr.vector_exponent(2)) == 243  # 49 log2 31


# the scratchpad as a disjunction ----------------------------------------------------------------------------------------
def test_one_word_is_accepted():
    decoder = ScratchpadDecoder(3, 2, scale="raw")
    done = pr.check_disjunction(decoder.model, decoder.ar, pcr.every(3), 2)
    assert done.passed and done.value == {"words": 7, "allowed by the lemma": 27} and done.cases == 24


def test_below_the_budget_no_word_is_accepted():
    decoder = ScratchpadDecoder(3, 2, scale="raw")
    tokens = pcr.encode([1, 0, 1], 3).tokens
    assert pr.accepting_words(decoder.model, decoder.ar, tokens, 1) == [[]]
    assert pr.accepting_words(decoder.model, decoder.ar, tokens, 2) == [[(1, 1)]]


def test_a_wrong_word_is_noticed(monkeypatch):
    decoder = ScratchpadDecoder(2, 2, scale="raw")
    monkeypatch.setattr(pr, "accepting_words", lambda model, ar, tokens, budget: [[(0,)]] * len(tokens))
    assert not pr.check_disjunction(decoder.model, decoder.ar, pcr.every(2), 1).passed


# input ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pr.reduction(0), "r=0"),
        (lambda: pr.check_reduction(17), r"r=17: .*r = 1\.\.16"),
        (lambda: SmallCircuits(0), "exponent=0"),
        (lambda: Hastad(0), "constant=0"),
        (lambda: Hastad(1.5), "constant=1.5"),
        (lambda: ScratchBound.of(1, 4), "depth=1"),
        (lambda: ScratchBound.of(4, 4, alphabet=0), "alphabet=0"),
        (lambda: ScratchBound.for_layers(0, 4), "layers=0"),
        (lambda: ScratchBound.of(4, 4).without("choice"), "premise='choice'"),
        (lambda: pr.vector_exponent(2, 0), "coordinates_per_log=0"),
        (lambda: ScratchBound.of(2, 1e308).first_log2_length(), "exponent is too large"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_negative_budget():
    decoder = ScratchpadDecoder(2, 2, scale="raw")
    with pytest.raises(ValueError, match="budget must be an integer >= 0"):
        pr.accepting_words(decoder.model, decoder.ar, pcr.encode([1, 0], 1).tokens, -1)
