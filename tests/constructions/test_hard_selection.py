"""Lemma 5.1: thresholds, the head, its checks, and that each check notices a broken construction."""

import doctest
from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint
from hybridseq.codes import Codebook, address_codebook, bch, binary, golay, lexicode, reed_muller, repetition
from hybridseq.constructions import hard_selection
from hybridseq.constructions.hard_selection import (
    HardSelection,
    check_all_pairs,
    check_causal,
    check_no_match,
    check_norm_is_identity,
    check_selection,
    leak,
    m0,
    over,
    raw_gain,
    score_code,
    selects,
    soft_errors,
    zero_score,
)

LARGEST_GAIN = Fraction(15, 4)  # B_2


def test_zero_scores():
    assert [zero_score(s) for s in (2, 3, 4, 5, 6)] == [-9, -23, -56, -134, -311]


def test_thresholds_of_both_readings():
    assert [m0(s, "raw") for s in range(2, 9)] == [4, 5, 6, 7, 8, 9, 10]
    assert [m0(s, "raw") for s in range(2, 13)] == [s + 2 for s in range(2, 13)]
    assert [m0(s, "sqrt") for s in range(2, 9)] == [21, 36, 55, 79, 106, 139, 176]
    assert [m0(s, "sqrt", "integer") for s in (2, 3, 4)] == [19, 34, 55]


@pytest.mark.parametrize("scaling", ["raw", "sqrt"])
@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_thresholds_against_a_scan_of_the_definition(s, scaling):
    ar = FixedPoint(s)

    def zero(score):
        return int(ar.exp(ar.array(score))) == 0

    horizon = 200
    by_scan = {}
    for distance in ("real", "integer"):
        good = []
        for m in range(1, horizon):
            h = m / 3 if distance == "real" else -(-m // 3)
            good.append(zero(-2 * h if scaling == "raw" else -2 * h / sqrt(2 * m)))
        by_scan[distance] = horizon - next(i for i, ok in enumerate([*reversed(good), False]) if not ok)
    assert {d: m0(s, scaling, d) for d in by_scan} == by_scan


def test_the_printed_scaling_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no m is long enough"):
        m0(2, "dim")
    with pytest.raises(ValueError, match="scaling = 'dim'"):
        HardSelection(golay(), 2, "dim")
    assert not any(selects(s, m, "dim", h=m) for s in range(1, 9) for m in (1, 8, 1000))


@given(st.integers(1, 9), st.integers(1, 300), st.data())
def test_scores_agree_with_the_accumulator_of_the_head(s, m, data):
    h = data.draw(st.integers(0, m))
    scaling = data.draw(st.sampled_from(["raw", "sqrt", "dim"]))
    ar = FixedPoint(s)
    q = np.ones(2 * m, dtype=np.int64) * ar.one
    k = np.stack([np.where(np.arange(m) < h, -ar.one, ar.one), np.full(m, -ar.one)], axis=-1).ravel()
    assert score_code(s, m, h, scaling) == int(ar.wide_dot(q, k, scaling))


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 60))
def test_scores_fall_with_the_distance(s, m, h):
    assert score_code(s, m, h + 1, "sqrt") <= score_code(s, m, h, "sqrt") <= 0


def test_gains_that_stand_in_for_the_raw_reading():
    limit = Fraction(15, 4) ** 4 / 2
    assert round(float(limit), 1) == 98.9
    with pytest.raises(ValueError, match=r"m = 99: .* m <= B_s\^4 / 2 = 98\.9"):
        raw_gain(2, 99)
    for m in (4, 24, 64, 98):
        g = raw_gain(2, m)
        assert g**4 >= 2 * m > (g - Fraction(1, 4)) ** 4
        assert all(score_code(2, m, h, "sqrt", g) <= score_code(2, m, h, "raw") for h in range(m + 1))
    assert check_all_pairs(HardSelection(golay(), 2, "sqrt", gain=raw_gain(2, 24))).passed


def test_the_largest_gain_needs_no_threshold():
    assert all(selects(2, m, "sqrt", gain=LARGEST_GAIN) for m in range(1, 2000))
    assert check_selection(HardSelection(reed_muller(), 2, "sqrt", gain=LARGEST_GAIN, value_dim=3)).passed
    plain_numbers = HardSelection(binary(256, bit_order="msb", one=-1), 2, "sqrt", gain=LARGEST_GAIN, strict=False)
    assert check_all_pairs(plain_numbers).passed


@pytest.mark.parametrize("s", [2, 4, 8])
@pytest.mark.parametrize("scaling", ["raw", "sqrt"])
def test_4096_queries_over_4096_keys_are_exact(s, scaling):
    selection = HardSelection(address_codebook(4096, m0(s, scaling)), s, scaling)
    check = check_selection(selection, seed=11)
    assert check.passed, check
    assert check.cases == 4096**2


@pytest.mark.parametrize("build", [reed_muller, bch])
def test_every_check_passes_on_the_smaller_families(build):
    selection = HardSelection(build().repeat(7), 3, "sqrt", value_dim=2)
    for check in (check_norm_is_identity, check_all_pairs, check_selection, check_no_match, check_causal):
        assert check(selection).passed, check.__name__


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 128), st.sampled_from([2, 3, 4]))
def test_causal_sequences_of_any_length(seed, seq_len, s):
    selection = HardSelection(address_codebook(128, m0(s, "raw")), s, "raw", value_dim=2)
    assert check_causal(selection, seed=seed, seq_len=seq_len).passed


def test_the_scan_agrees_with_the_parallel_head():
    selection = HardSelection(reed_muller(), 2, "raw", value_dim=2)
    ar, words = selection.ar, selection.codebook.words
    x = selection.tokens(ar, words[::-1], words, ar.array(np.arange(32).reshape(16, 2) / 8))
    inputs = selection.head.inputs(ar, x)
    assert np.array_equal(selection.head.core.scan(ar, inputs)[0], selection.head.forward(ar, x))


# every check must notice ---------------------------------------------------------------------------------------------------


def test_one_flipped_weight_is_noticed():
    wrong = HardSelection(golay(), 2).with_weight("q", "q[0]", "query[0]", -1)
    for check in (check_all_pairs, check_selection, check_causal):
        outcome = check(wrong)
        assert not outcome.passed and outcome.counterexample is not None, check.__name__
    uneven = HardSelection(golay(), 2).with_weight("k", "k[1]", "1", -3)
    assert not check_norm_is_identity(uneven).passed


def test_one_flipped_bit_of_one_address_is_noticed():
    words = golay().words.copy()
    words[4095] = words[1] * np.where(np.arange(24) < 4, -1, 1)  # a key four places from another
    close = HardSelection(Codebook("spoiled", words, distance=4), 2, strict=False)
    assert not check_all_pairs(close).passed
    assert not check_selection(close).passed


def test_one_broken_head_among_several_is_noticed():
    heads = [HardSelection(reed_muller(), s, "raw") for s in (2, 3)]
    merged = over(check_all_pairs, heads)
    assert merged.passed and merged.cases == 512 and "s = 3 raw (m = 8)" in merged.scope
    merged = over(check_all_pairs, [*heads, HardSelection(reed_muller(), 2, "sqrt", strict=False)])
    assert not merged.passed and merged.counterexample["distance"] == 4


def test_a_code_below_the_threshold_is_noticed():
    short = HardSelection(bch(), 2, "sqrt", strict=False)
    assert short.m < m0(2, "sqrt")
    assert not check_all_pairs(short).passed
    assert not check_no_match(short).passed


def test_a_padding_sign_shifts_every_score_alike():
    shifted = HardSelection(golay(), 2, "raw").with_weight("k", "k[1]", "1", 1)
    assert not check_all_pairs(shifted).passed  # the matching exponential is exp(2), not 1
    assert check_selection(shifted).passed  # but the weight is still 1: a common factor cancels


# soft --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "scaling", "max_error", "wrong"),
    [(2, "raw", 3.4e-4, 0), (4, "raw", 1.4e-3, 0), (8, "raw", 2.2e-2, 3705),
     (2, "sqrt", None, 3975), (4, "sqrt", None, 4088), (8, "sqrt", None, 4096)],
)  # fmt: skip
def test_the_soft_head_by_scaling(s, scaling, max_error, wrong):
    errors = soft_errors(HardSelection(address_codebook(4096, m0(s, scaling)), s, scaling))
    assert errors.exactly_right == 0
    assert abs(errors.wrong - wrong) <= 60  # another draw of values than the one behind the expected count
    assert max_error is None or errors.max_error == pytest.approx(max_error, rel=0.05)
    assert errors.max_error <= errors.bound
    assert errors.repaired == (wrong == 0)


def test_the_leak_is_the_weight_enumerator_at_the_score():
    golay_words = {8: 759, 12: 2576, 16: 759, 24: 1}
    expected = sum(count * exp(-2 * h / sqrt(48)) for h, count in golay_words.items())
    selection = HardSelection(golay(), 2, "sqrt")
    assert leak(selection) == pytest.approx(expected)
    assert leak(selection, "rounded") == 0
    with pytest.raises(ValueError, match="not linear"):
        leak(HardSelection(Codebook("pair", [[1] * 24, [-1] * 24], 24), 2))
    with pytest.raises(ValueError, match="arithmetic"):
        leak(selection, "exact")


# bad input ---------------------------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"m = 15 is below m_0\(2\) = 21"):
        HardSelection(bch(), 2, "sqrt")
    with pytest.raises(ValueError, match="distance = 1 of the code"):
        HardSelection(binary(16, bit_order="lsb", one=1, width=24), 2)
    with pytest.raises(ValueError, match="scaling = 'soft'"):
        HardSelection(golay(), 2, "soft")
    for gain in (Fraction(1, 3), -1, 4):
        with pytest.raises(ValueError, match="gain ="):
            HardSelection(golay(), 2, gain=gain)
    with pytest.raises(ValueError, match="integer s >= 1"):
        HardSelection(golay(), 0)
    with pytest.raises(ValueError, match="distance = 'ceil'"):
        m0(2, "sqrt", "ceil")
    with pytest.raises(ValueError, match="seq_len = 17"):
        check_causal(HardSelection(reed_muller(), 2, "raw"), seq_len=17)


def test_short_codes_serve_the_raw_reading():
    assert check_all_pairs(HardSelection(lexicode(6, 2), 2, "raw")).passed
    assert check_all_pairs(HardSelection(repetition(5), 2, "raw")).passed


def test_examples_in_the_docstrings_run():
    assert doctest.testmod(hard_selection).failed == 0
