"""Pointer doubling: depth table, all small instances, the control with one round fewer, changed weights."""

from __future__ import annotations

import numpy as np
import pytest

from hybridseq.constructions import pointer_doubling as pd
from hybridseq.constructions.pointer_doubling import PointerDoubling
from hybridseq.constructions.sequential_composition import CoarseHeads
from hybridseq.tasks.sequential_composition import SequentialComposition

SMALL = [(2, ()), (3, ()), (2, (2,)), (3, (1,))]
FORMS = [("decoder", "wfirst"), ("encoder", "std"), ("encoder", "rev"), ("encoder", "wfirst")]


def build(shape, form, order, rounds=None) -> PointerDoubling:
    return PointerDoubling(SequentialComposition(*shape, order=order), form, rounds)


def test_depths_of_the_specification():
    assert [pd.depth(L, "encoder") for L in range(1, 8)] == [3, 4, 4, 5, 5, 5, 5]
    assert [pd.depth(L) for L in range(1, 8)] == [2, 3, 3, 4, 4, 4, 4]


@pytest.mark.parametrize(("form", "order"), FORMS)
@pytest.mark.parametrize("L", range(1, 8))
def test_random_instances_to_seven_tables(L, form, order):
    model = build((2 if L > 4 else 3, (2,) * (L - 1)), form, order)
    assert model.depth == pd.depth(L, form) == len(model.model.blocks)
    assert pd.check_seeds(model, range(6)).passed
    assert pd.check_seeds(model, range(6), CoarseHeads(step=0.25)).value["pointer error"] == 0


@pytest.mark.parametrize(("form", "order"), FORMS)
@pytest.mark.parametrize("shape", SMALL)
def test_all_instances_and_one_round_fewer(shape, form, order):
    model = build(shape, form, order)
    assert pd.check_every(model).passed
    right, num = pd.share_right(build(shape, form, order, model.num_rounds - 1))
    assert right * model.task.num_answers == num == model.task.count


def test_uneven_digits():
    for shape in [(3, (3, 1, 2)), (2, (1, 4, 2, 1, 2)), (5, (1, 1))]:
        assert pd.check_seeds(build(shape, "decoder", "wfirst"), range(20)).passed
        assert pd.check_seeds(build(shape, "encoder", "std"), range(20)).passed


@pytest.mark.parametrize(
    "change",
    [
        ("read w.Q", "q[0]", "1", -2.0),
        ("read w.MLP hidden", "up_need_1[0]", "need_1[0]", 0),
        ("round 0.Q", "q[3]", "ptr[0]", 0),
        ("round 1.Q", "q[2]", "dig_1", 0),
        ("round 1.MLP hidden", "up[0]", "go_1", 0),
        ("K", "k[0]", "lev[0]", -1),
        ("logits", "token[1]", "ptr[0]", -2),
    ],
)
def test_a_changed_weight_is_noticed(change):
    model = build((2, (2,)), "decoder", "wfirst")
    assert pd.check_every(model).passed and not pd.check_every(model.with_weight(*change)).passed


def test_the_selected_digit_is_exact():
    from hybridseq.arithmetic import Float
    from hybridseq.models import MLP
    from hybridseq.residual import Stream

    stream, ar = Stream({"got": 4, "mark": 2, "digit": 2}), Float()
    mlp = MLP(*pd.digit_selection(stream, 2, {"mark": "digit"}))
    got = np.array([0.75, -0.75, -1, 1])
    rows = [np.concatenate([got, mark, [0, 0]]) for mark in ([1, 0], [0, 1], [0, 0])]
    assert mlp.apply(ar, np.stack(rows))[:, -2:].tolist() == [[1, -1], [-1, 1], [-1, -1]]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: build((2, (2,)), "decoder", "std"), "order 'wfirst'"),
        (lambda: build((2, (2,)), "both", "std"), "form='both'"),
        (lambda: build((2, (2,)), "encoder", "std", 3), "rounds=3"),
        (lambda: build((2, (2,)), "encoder", "std", True), "rounds=True"),
        (lambda: pd.depth(3, "none"), "form='none'"),
    ],
)
def test_bad_input_is_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()
