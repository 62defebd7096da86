"""Two wide layers for two tables: all small instances, larger ones, changed weights."""

from __future__ import annotations

import pytest

from hybridseq.constructions import wide_composition as wc
from hybridseq.constructions.sequential_composition import CoarseHeads
from hybridseq.constructions.wide_composition import WideComposition
from hybridseq.tasks.sequential_composition import SequentialComposition


@pytest.mark.parametrize(("m", "n_1"), [(2, 2), (3, 1), (2, 1)])
def test_all_instances(m, n_1):
    model = WideComposition(SequentialComposition(m, (n_1,)))
    assert [len(block.layer.heads) for block in model.model.blocks] == [n_1 + 1, n_1]
    assert wc.check_every(model).passed and wc.check_every(model, CoarseHeads(step=0.25)).passed


@pytest.mark.parametrize(("m", "n_1"), [(4, 2), (8, 4), (5, 7), (16, 16)])
def test_random_instances(m, n_1):
    assert wc.check_seeds(WideComposition(SequentialComposition(m, (n_1,))), range(20)).passed


@pytest.mark.parametrize(
    "change",
    [
        ("ahead.Q 1", "q[2]", "1", -2.0),
        ("ahead.Q start", "q[0]", "1", 2.0),
        ("choose.Q", "q[3]", "ptr[0]", 0),
        ("choose.V 1", "v[0]", "tab[2]", -1),
        ("choose.MLP hidden", "up[3]", "w", -2),
        ("ahead.MLP out", "ptr[0]", "up_start[0]", 0),
    ],
)
def test_a_changed_weight_is_noticed(change):
    model = WideComposition(SequentialComposition(2, (2,)))
    assert not wc.check_every(model.with_weight(*change)).passed


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="L = 3"):
        WideComposition(SequentialComposition(2, (2, 2)))
    with pytest.raises(ValueError, match="order 'rev'"):
        WideComposition(SequentialComposition(2, (2,), "rev"))
