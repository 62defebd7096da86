"""One layer and L thoughts: every thought, every answer, a budget that is too small, changed weights."""

from __future__ import annotations

import numpy as np
import pytest

from hybridseq.constructions import composition_scratchpad as cs
from hybridseq.constructions.composition_scratchpad import CompositionScratchpad
from hybridseq.tasks.sequential_composition import SequentialComposition

SMALL = [(2, ()), (3, ()), (4, ()), (2, (2,)), (3, (1,)), (2, (1, 1, 1))]


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("shape", SMALL)
def test_all_instances(shape, carry):
    model = CompositionScratchpad(SequentialComposition(*shape), carry)
    assert cs.check_every(model).passed and cs.check_budget(model).passed
    assert len(model.model.blocks) == model.num_layers == (1 if carry else 2)


@pytest.mark.parametrize(("L", "carry"), [*((L, True) for L in range(1, 7)), *((L, False) for L in range(1, 8))])
def test_traces_to_seven_tables(L, carry):
    model = CompositionScratchpad(SequentialComposition(2 if L > 4 else 3, (2,) * (L - 1)), carry)
    check = cs.check_seeds(model, range(20))
    assert check.passed and check.value["thoughts"] == L


def test_symbols_reach_long_prompts():
    task = SequentialComposition(64, (2,) * 5)  # seed 3 of the specification
    written, answers = CompositionScratchpad(task, carry=False).generate(task.sample([3]))
    assert written.tolist() == [[19, 62, 46, 122, 201, 1018]] and answers.tolist() == [223]


def test_what_is_written():
    task = SequentialComposition(4, (2,))  # seed 0 of the specification: w = 1, trace 1, 0, 7
    assert CompositionScratchpad(task).text(task.sample(0)) == "0:1:1 1:1:0 =7"
    assert CompositionScratchpad(task, carry=False).text(task.sample(0)) == "1 0 =7"


@pytest.mark.parametrize(
    ("carry", "change"),
    [
        (True, ("hop.Q", "q[0]", "hop[0]", -2.0)),
        (True, ("hop.Q", "q[3]", "dig", 0)),
        (True, ("hop.Q", "q[4]", "ptr[0]", 0)),
        (True, ("hop.V", "v[0]", "val[0]", -1)),
        (True, ("logits", "token[4]", "w", 2)),
        (False, ("fetch w.V", "v", "w", 0)),
        (False, ("fetch w.MLP hidden", "up_need", "need", 0)),
        (False, ("logits", "token[4]", "hop[0]", 0)),
    ],
)
def test_a_changed_weight_is_noticed(carry, change):
    model = CompositionScratchpad(SequentialComposition(2, (2,)), carry)
    assert cs.check_every(model).passed and not cs.check_every(model.with_weight(*change)).passed


def test_a_thought_with_another_w_does_not_count():
    model = CompositionScratchpad(SequentialComposition(2, (2,)))
    first = model.task.vocab_size
    assert model.thoughts[0].tolist() == [0, 0, 0]
    assert model._symbol(0, first, 0) == 0 and model._symbol(0, first, 1) == -1 and model._symbol(1, first, 0) == -1


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="order 'std'"):
        CompositionScratchpad(SequentialComposition(2, (2,), "rev"))
    with pytest.raises(ValueError, match="carry=False"):
        CompositionScratchpad(SequentialComposition(64, (2,) * 5))
    with pytest.raises(ValueError, match="budget"):
        model = CompositionScratchpad(SequentialComposition(2))
        model.generate(model.task.sample(np.arange(2)), -1)
