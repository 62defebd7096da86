"""Windowed transformers: determinism, shapes, and that the rumour is what its docstring says."""

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.constructions.windowed_transformer import random_transformer, random_windows, rumour


def test_random_models_are_functions_of_their_seed():
    one, again, other = (random_transformer((3, 2), 4, 8, seed=seed).content_hash for seed in (0, 0, 1))
    assert one == again != other


def test_windows_are_those_asked_for():
    model = random_transformer((3, 5, 1), 4, 8, heads=2)
    assert [[head.core.window for head in block.layer.heads] for block in model.blocks] == [[3, 3], [5, 5], [1, 1]]
    lists = random_windows(40, largest=7)
    assert [len(w) for w in lists[:5]] == [1, 2, 3, 4, 1]
    assert {w for windows in lists for w in windows} == set(range(1, 8))


def test_the_rumour_in_several_arithmetics_and_at_every_position():
    """Position i says 1 exactly if the token 1 at `at` lies in i - 4 .. i, the reach of (4, 2) being 4."""
    for ar in (Float(), Float(dtype="float32"), FixedPoint(2), FixedPoint(6)):
        for at in range(12):
            tokens = np.zeros(12, dtype=int)
            tokens[at] = 1
            said = np.argmax(ar.values(rumour((4, 2)).forward(ar, tokens)), axis=-1)
            assert said.tolist() == [int(0 <= i - at <= 4) for i in range(12)]


def test_a_window_too_wide_for_the_format_silences_the_rumour():
    """F_2 keeps equal weights up to 7 keys."""
    tokens = np.array([1] + [0] * 9)
    assert rumour((7,)).greedy(FixedPoint(2), tokens[None, :7]).tolist() == [1]
    assert rumour((8,)).greedy(FixedPoint(2), tokens[None, :8]).tolist() == [0]


@pytest.mark.parametrize("windows", [(), (0,), (3, -1), (2.5,), (True,)])
def test_bad_windows(windows):
    for build in (rumour, lambda w: random_transformer(w, 4, 8)):
        with pytest.raises(ValueError, match="windows="):
            build(windows)


def test_bad_width():
    with pytest.raises(ValueError, match="width=5"):
        random_transformer((2,), 4, 8, width=5)
