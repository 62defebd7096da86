"""L + 1 one-head layers compose L functions: all small instances, large ones, relatives, and what a changed weight does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.constructions import pointer_doubling as doubling
from hybridseq.constructions import sequential_composition as sc
from hybridseq.constructions.sequential_composition import ComposingTransformer
from hybridseq.tasks.sequential_composition import SequentialComposition

SHAPES = [(2, (), 8), (3, (), 81), (4, (), 1024), (2, (2,), 4096), (3, (1,), 2187), (2, (1, 2), 16384), (2, (1, 1, 1), 512)]
LARGE = [(16,), (8, (4,)), (4, (4, 4)), (16, (4, 16)), (4, (2,) * 3), (4, (2,) * 4), (3, (2,) * 5), (64, (2,) * 5)]


def assert_passed(check):
    assert check.passed, str(check)
    return check


def task_of(*shape):
    return SequentialComposition(*shape)


# the theorem ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "ns", "count"), SHAPES)
@pytest.mark.parametrize("numbers", sc.NUMBERS)
@pytest.mark.parametrize("start", sc.STARTS)
def test_all_instances_of_seven_shapes(m, ns, count, numbers, start):
    model = ComposingTransformer(task_of(m, ns), start, numbers)
    assert_passed(sc.check_every(model, cases=count))


@pytest.mark.parametrize(("m", "ns", "count"), SHAPES[:5])
def test_heads_rounded_to_quarters(m, ns, count):
    check = sc.check_every(ComposingTransformer(task_of(m, ns)), sc.CoarseHeads(step=0.25), count)
    assert assert_passed(check).value["pointer error"] == 0


@pytest.mark.parametrize("shape", LARGE)
def test_random_instances(shape):
    for model in (ComposingTransformer(task_of(*shape)), ComposingTransformer(task_of(*shape), "linear", "integer")):
        assert_passed(sc.check_seeds(model, [3, 5]))
    assert_passed(sc.check_seeds(ComposingTransformer(task_of(*shape)), [3], sc.CoarseHeads(step=1 / 16)))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 6),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.sampled_from(sorted(sc.STARTS)),
    st.sampled_from(sc.NUMBERS),
    st.integers(0, 2**32),
)
def test_any_shape(m, ns, start, numbers, seed):
    assert_passed(sc.check_seeds(ComposingTransformer(task_of(m, ns), start, numbers), [seed, seed + 1]))


def test_the_word_counts_layers():
    task = task_of(4, (2, 2))
    words = {start: ComposingTransformer(task, start).word for start in sc.STARTS}
    expected = {"full": "FFFF", "linear": "RFFF", "carried": "FRFF", "memory": "RRFF", "convolution": "CFFF", "merged": "FFF"}
    assert words == expected and ComposingTransformer(task, layers=2).word == "FF"


# numbers of the specification -------------------------------------------------------------------------------------------


def test_sizes():
    expected = {
        (8, (4,)): {"n": 42, "D": 26, "d": 9},
        (64, (2,) * 5): {"n": 4034, "D": 53, "d": 15, "p": 27, "hdp": 405},
        (2, (2,)): {"n": 8, "d": 5, "p": 10, "hdp": 50},
    }
    assert_passed(sc.check_sizes(expected))
    assert sc.sizes(task_of(8, (4,))).gain == pytest.approx(2.908556, abs=5e-7)
    wrong = {key: {**row, "d": row["d"] + 1} for key, row in expected.items()}
    assert not sc.check_sizes(wrong).passed


def test_margins_of_the_two_by_two_task():
    task = task_of(2, (2,))
    assert sc.check_every(ComposingTransformer(task)).value["least |y|"] == pytest.approx(0.881482, abs=5e-7)
    assert sc.least_ratio(ComposingTransformer(task, numbers="integer")) == Fraction(25, 39)  # 0.6410, above 3/5
    with pytest.raises(ValueError, match="integers"):
        sc.least_ratio(ComposingTransformer(task))


def test_the_last_token_looks_at_the_argument():
    task = task_of(4, (2,))  # seed 0 of the specification: w = 1, trace 1, 0, 7
    weights = ComposingTransformer(task).looks(task.sample([0]))[0]
    places = [task.position(0), task.position(1, 1), task.position(2, 4 + 0)]
    assert weights.argmax(axis=-1).tolist() == places and weights.sum(axis=-1) == pytest.approx(1)
    assert weights.max(axis=-1).min() > 8 / 9 and sc.proved_margin(14) == Fraction(99, 125)
    with pytest.raises(ValueError, match="letter F"):
        ComposingTransformer(task, "linear").looks(task.sample([0]))


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 300), st.lists(st.integers(1, 40), max_size=6).map(tuple))
def test_hdp_is_at_most_its_bound(m, ns):
    assert_passed(sc.check_bound([task_of(m, ns)]))


# controls ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", sc.STARTS)
def test_one_layer_fewer_is_at_chance(start):
    whole = ComposingTransformer(task_of(2, (2,)), start, "integer")
    check = assert_passed(sc.check_chance(ComposingTransformer(whole.task, start, "integer", len(whole.word) - 1)))
    assert check.value["wrong"] == 3072 and check.value["best read-out"] == 1024
    assert not sc.check_chance(whole).passed


@pytest.mark.parametrize("numbers", sc.NUMBERS)
@pytest.mark.parametrize("start", sc.STARTS)
def test_the_last_row_alone(start, numbers):
    task = task_of(4, (2, 2))
    assert_passed(sc.check_last_row(ComposingTransformer(task, start, numbers), task.sample(np.arange(4))))


def test_no_row_divides_zero_by_zero():
    assert assert_passed(sc.check_empty_denominators(task_of(4, (2,)))).value["rows"] == 12
    plain = ComposingTransformer(task_of(2, (2,)), "linear", normalise=False)
    assert_passed(sc.check_every(plain))


def test_the_easy_order_needs_a_small_state_only():
    for shape in [(4,), (2, (2,)), (3, (1,)), (2, (1, 2))]:
        task = SequentialComposition(*shape, order="rev") if len(shape) > 1 else SequentialComposition(*shape, (), "rev")
        reader = sc.ReverseReader(task)
        tokens = np.concatenate(list(task.every()))
        assert (reader.answers(tokens) == task.answers(tokens)).all()
    assert reader.state_bits == 1 + 2 + 1
    large = SequentialComposition(64, (2,) * 5, "rev")
    tokens = large.sample(np.arange(4))
    assert (sc.ReverseReader(large).answers(tokens) == large.answers(tokens)).all()
    assert sc.ReverseReader(large).state_bits == 5 + 11 + 1


# mutations --------------------------------------------------------------------------------------------------------------


def test_every_weight_is_noticed_but_those_that_clear_the_top_digit():
    removals = sc.removals(ComposingTransformer(task_of(4, (2, 2)), numbers="integer"), range(150))
    unnoticed = {(r.name, r.target, r.source) for r in removals if not r.noticed}
    clearing = {("MLP hidden", "old[3]", "ptr[3]"), ("MLP hidden", "read[3]", "scr[3]")}
    assert len(removals) == 113
    assert unnoticed == clearing | {("MLP out", "ptr[3]", "old[3]"), ("MLP out", "scr[3]", "read[3]")}


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("full", ("Q1", "q[3]", "ptr[0]", -2.0)),
        ("full", ("Q2", "q[2]", "w", 0)),
        ("full", ("V", "v[1]", "val[1]", 0.6)),
        ("full", ("MLP out", "ptr[0]", "1", 0)),
        ("linear", ("R.k", "k", "lev[0]", 1)),
        ("linear", ("R.v", "v[0]", "val[0]", -1)),
        ("carried", ("Q1 at z_0", "q[3]", "val[0]", 0)),
        ("memory", ("M.k", "k[1]", "ai[0]", -1)),
        ("convolution", ("C.x", "x[0]", "val[0]", 0)),
    ],
)
def test_a_changed_weight_is_noticed(start, change):
    model = ComposingTransformer(task_of(2, (2,)), start)
    assert sc.check_every(model).passed and not sc.check_every(model.with_weight(*change)).passed


def test_a_gain_that_is_too_small_is_noticed():
    model = ComposingTransformer(task_of(2, (2,)))
    for row in range(5):
        model = model.with_weight("Q0", f"q[{row}]", "1", -0.2 * model.sizes.gain)
    assert not sc.check_every(model).passed


# bad input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: ComposingTransformer(SequentialComposition(2, (2,), "rev")), "order 'std'"),
        (lambda: ComposingTransformer(task_of(2), "slow"), "start='slow'"),
        (lambda: ComposingTransformer(task_of(2), numbers="int"), "numbers='int'"),
        (lambda: ComposingTransformer(task_of(2), layers=3), "layers=3"),
        (lambda: ComposingTransformer(task_of(2), layers=True), "layers=True"),
        (lambda: ComposingTransformer(task_of(2)).with_weight("W", "q", "1", 0).maps, "'W' is no map"),
        (lambda: sc.ReverseReader(task_of(2)), "order 'rev'"),
        (lambda: sc.CoarseHeads(step=0), "step=0"),
        (lambda: doubling.depth(0), "L=0"),
    ],
)
def test_bad_input_is_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()
