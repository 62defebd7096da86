"""Two-sum by one head: thresholds, precision table, both codes, refusals, mutations."""

from itertools import product

import numpy as np
import pytest

from hybridseq.constructions import two_sum as ts
from hybridseq.constructions.two_sum import TwoSumAttention
from hybridseq.tasks.two_sum import TwoSum

# spec C, section 5.2
EXHAUSTIVE = [(3, 3), (4, 4), (5, 4), (6, 4)]
P_MIN = {8: 3, 16: 5, 32: 7, 64: 9, 128: 12, 256: 14, 512: 16}


def test_all_prompts_of_the_specification():
    checks = ts.check_every(EXHAUSTIVE)
    assert all(c.passed for c in checks), checks
    assert sum(c.cases for c in checks) == 3 * 27 + 4 * (256 + 625 + 1296)
    assert sum(m**n for m, n in EXHAUSTIVE) == 2204
    assert all(c.passed for c in ts.check_every(EXHAUSTIVE, "signs"))


def test_precision_table():
    check = ts.check_precision(P_MIN)
    assert check.passed, check
    assert not ts.check_precision({16: 6}).passed and not ts.check_precision({16: 4}).passed


def test_twice_the_logarithm_is_enough(monkeypatch):
    assert ts.check_enough_precision(range(2, 30)).passed
    coarse = ts.circle
    monkeypatch.setattr(ts, "circle", lambda modulus, bits=None: coarse(modulus, max(1, bits - 4)))
    assert not ts.check_enough_precision([16]).passed


def test_many_bits_do_not_overflow():
    assert all(ts.margins(8, bits).fine for bits in (30, 31, 32, 40))


def test_scale_of_the_specification():
    """Section 7, item 14."""
    assert round(ts.scale(16, 256), 3) == 182.118 and round(ts.scale(64, 256), 3) == 2878.953


def test_random_positions_in_all_variants():
    pairs = [(16, 12), (30, 20), (144, 12)]
    for code in ts.CODES:
        check = ts.check_random(pairs, 20, code)
        assert check.passed and check.cases == 4 * 20 * (12 + 20 + 12), check
    rounded = ts.check_random([(8, 8), (64, 64)], 20, bits=True)
    assert rounded.passed, rounded
    assert ts.check_codes_agree(pairs, 20).passed


def test_one_bit_less_is_noticed_somewhere():
    """With p_min - 1 bits some pair of residues no longer keeps its distance; at M = 8 the model then errs."""
    for modulus in (8, 16, 32):
        assert not ts.margins(modulus, P_MIN[modulus] - 1).fine
    task = TwoSum(8, 8)
    model = TwoSumAttention(task, bits=1)
    assert not ts.check_thresholds(model, [task.sample(np.arange(200))], "200 prompts").passed


@pytest.mark.parametrize("code", ts.CODES)
def test_the_decoder_is_the_causal_variant(code):
    task = TwoSum(9, 7, causal=True)
    model, tokens = TwoSumAttention(task, code), task.sample(np.arange(30))
    logits = model.model.forward(model.ar, model.prompt(tokens))[:, 1:]
    names = np.array(model.vocabulary.names(range(len(model.vocabulary))))[np.argmax(logits, -1)]
    assert ((names == "yes") == task.answers(tokens)).all() and set(names.ravel()) == {"yes", "no"}
    seen = model.model.trace(model.ar, model.prompt(tokens))[-1][1][:, 1:, model.stream.slice("seen")][..., 0]
    np.testing.assert_allclose(seen, model.seen(tokens), atol=1e-13)


def test_edge_numbers_cancel_themselves():
    task = TwoSum(8, 2)
    assert TwoSumAttention(task).answers([0, 4]).tolist() == [True, True]
    assert TwoSumAttention(TwoSum(8, 2, itself=False)).answers([0, 4]).tolist() == [False, False]


def test_the_circle_is_the_nearest():
    cos, sin, tau = ts.circle(8)
    np.testing.assert_allclose(cos + 1j * sin, np.exp(2j * np.pi * np.arange(8) / 8), atol=2e-16)
    cos, sin, tau = ts.circle(6, 1)
    assert cos.tolist() == [1, 0.5, -0.5, -1, -0.5, 0.5] and sin[1] == 1 and tau == 1  # 3/4 is a tie and goes up
    for bits in (3, 7):
        exact = np.sin(2 * np.pi * np.arange(7) / 7)
        assert (np.abs(ts.circle(7, bits)[1] - exact) <= 2.0 ** (-bits - 1)).all()


MUTATIONS = {
    "Q": [("q[0]", "cos"), ("q[1]", "sin"), ("q[2]", "one")],
    "K": [("k[0]", "cos"), ("k[1]", "sin"), ("k[2]", "sink")],
    "V": [("v", "token")],
    "O": [("seen", "v")],
}


@pytest.mark.parametrize("name, entry", [(n, e) for n, entries in MUTATIONS.items() for e in entries])
def test_every_weight_is_needed(name, entry):
    task = TwoSum(16, 8)
    batch = [task.sample(np.arange(200))]
    assert ts.check_thresholds(TwoSumAttention(task), batch, "200 prompts").passed
    for weight in (0, 0.5):
        assert not ts.check_thresholds(TwoSumAttention(task).with_weight(name, *entry, weight), batch, "200 prompts").passed


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: TwoSumAttention(TwoSum(8, 2), "square"), "code"),
        (lambda: TwoSumAttention(TwoSum(8, 2), bits=0), "bits"),
        (lambda: TwoSumAttention(TwoSum(8, 2), "signs", 4), "signs are stored exactly"),
        (lambda: TwoSumAttention(TwoSum(8, 2)).answers([1, 9]), "residues"),
        (lambda: ts.circle(1), "modulus"),
        (lambda: ts.scale(8, 0), "length"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_smallest_sizes():
    for modulus, length in product((2, 3), (1, 2)):
        assert all(c.passed for c in ts.check_every([(modulus, length)]))


def test_definition_is_checked_against_loops(monkeypatch):
    check = ts.check_definition([(2, 3), (3, 3), (5, 2)])
    assert check.passed and check.cases == 5 * (8 + 27 + 25)
    monkeypatch.setattr(TwoSum, "solve", lambda self, row: [False] * len(row))
    assert not ts.check_definition([(3, 2)]).passed
