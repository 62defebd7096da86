"""Attention with a scratchpad: lengths from the specification, all small prompts, and weights that are missed when changed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.constructions import scratchpad_decoder as sd
from hybridseq.constructions.scratchpad_decoder import ScratchpadDecoder, scratch_tokens
from hybridseq.mixers import Attention
from hybridseq.tasks import pcr


def test_lengths():
    assert [scratch_tokens(8, b) for b in (1, 2, 3)] == [7, 3, 2]
    assert [scratch_tokens(24, b) for b in (1, 4)] == [23, 5]
    assert [ScratchpadDecoder(n, 4).budget for n in (1, 2, 9)] == [0, 1, 8]
    assert [sd.most_bits(s) for s in (2, 3, 4)] == [1, 3, 7]


def test_all_tables_with_one_offset_each():
    assert sd.check_answers([ScratchpadDecoder(n, 4) for n in range(1, 6)], "tables").passed
    assert sd.check_answers([ScratchpadDecoder(n, 4, b) for n, b in ((4, 2), (5, 2), (5, 3), (2, 7))], "tables").passed


def test_random_prompts_of_longer_tables():
    done = sd.check_answers([ScratchpadDecoder(n, 4, b) for n, b in ((8, 1), (8, 2), (8, 3), (24, 1), (24, 4))], num=20)
    assert done.passed and done.cases == 100
    assert "(24, 4, 5)" in done.scope


@pytest.mark.parametrize(
    "decoder",
    [
        ScratchpadDecoder(4, 2, scale="raw"),
        ScratchpadDecoder(3, 2, gated=False),
        ScratchpadDecoder(4, 3, 3, "raw", gated=False),
        ScratchpadDecoder(3, 8, 2, "raw"),
    ],
    ids=lambda d: d.describe(),
)
def test_every_prompt_in_other_settings(decoder):
    assert sd.check_answers([decoder], "every").passed


def test_gates_change_nothing():
    """Standard attention: without its gates the decoder has the same logits on every context it meets."""
    gated, plain = ScratchpadDecoder(4, 2, scale="raw"), ScratchpadDecoder(4, 2, scale="raw", gated=False)
    assert all(head.gate is None for block in plain.model.blocks for head in block.layer.heads)
    for prompts in pcr.every(4):
        context = np.concatenate([prompts.tokens, gated.running_parities(prompts.table)], axis=1)
        one, other = (d.model.forward(d.ar, context)[:, 11:] for d in (gated, plain))
        assert np.array_equal(one, other)


def test_the_answer_is_the_first_answer_token_and_scratch_comes_before():
    decoder = ScratchpadDecoder(3, 2, scale="raw")
    done = decoder.run(pcr.encode([[1, 0, 1], [0, 1, 0]], [3, 2]).tokens)
    assert done.scratch == ((pcr.ONE, pcr.ONE), (pcr.ZERO, pcr.ONE))
    assert done.answer == (pcr.YES, pcr.NO)  # R_3 = 1 + 0, R_2 = 1 + 1


def test_too_small_a_budget():
    found = sd.check_budget(ScratchpadDecoder(4, 2, scale="raw"))
    assert found.passed and found.value == {f"answers with budget {budget}": 0 for budget in range(3)}
    with pytest.raises(ValueError, match="no smaller budget"):
        sd.check_budget(ScratchpadDecoder(1, 2))
    with pytest.raises(ValueError, match=r"budget must be an integer >= 0 .*, got -1"):
        ScratchpadDecoder(2, 2).run(pcr.encode([1, 0], 1).tokens, -1)


def test_no_tie_is_ever_broken():
    assert sd.check_margin(ScratchpadDecoder(4, 2, scale="raw")).passed
    # YES and NO at 1/2 each would be a tie, and the first in the vocabulary would win
    tied = ScratchpadDecoder(2, 2, scale="raw").with_weight("logits", "NO", "1", 0)
    assert not sd.check_margin(tied).passed


def test_sizes():
    assert sd.check_sizes([ScratchpadDecoder(4, 4, b, gated=g) for b in (1, 2) for g in (True, False)]).passed
    decoder = ScratchpadDecoder(8, 2, scale="raw")
    assert decoder.stream.dim == 5 * 8 + 7
    assert {type(head.core) for block in decoder.model.blocks for head in block.layer.heads} == {Attention}


@pytest.mark.parametrize(
    "change",
    [
        ("L1.MLP out", "PAR", "above1", 0),
        ("L2.MLP out", "ANS", "above1", -1),
        ("L1.MLP in", "above0", "RUN", 0),
        ("L1.out", "X[0]", "bits[0]", 0),
        ("L2.out", "BIT", "u", 0),
        ("row.v", "v", "V", -1),
        ("logits", "YES", "FINAL", 0),
    ],
    ids=lambda change: f"{change[0]} {change[1]}",
)
def test_a_changed_weight_is_noticed(change):
    done = sd.check_answers([ScratchpadDecoder(4, 2, scale="raw").with_weight(*change)], "every")
    assert not done.passed and {"written", "promised", "prompt"} <= set(done.counterexample)


@given(n=st.integers(1, 12), b=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_drawn_sizes(n, b, seed):
    assert sd.check_answers([ScratchpadDecoder(n, 4, b, "raw")], num=4, seed=seed).passed


def test_where_the_heads_look():
    decoder = ScratchpadDecoder(4, 2, scale="raw")
    weights, names = sd.looks(decoder, pcr.encode([1, 0, 1, 1], 3).tokens[0])
    assert weights.shape == (4, 3, 15) and names[-3:] == ["1", "1", "0"]
    assert weights[:, 1].argmax(axis=-1).tolist() == [0, 2, 4, 6]  # Y_1 .. Y_4
    assert weights[3].argmax(axis=-1).tolist() == [10, 6, 4]  # MARK, Y_4, Y_3
    assert weights.sum(axis=-1).tolist() == [[0, 1, 0]] * 3 + [[1, 1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "s": 4}, "n must be an integer >= 1"),
        ({"n": 4, "s": 1}, "s"),
        ({"n": 4, "s": 2, "bits": 2}, r"bits=2: .* use at most 1, or a larger s"),
        ({"n": 4, "s": 4, "bits": 0}, "bits must be an integer >= 1"),
        ({"n": 4, "s": 4, "scale": "dim"}, "scale='dim'"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        ScratchpadDecoder(**arguments)


def test_bad_input_elsewhere():
    decoder = ScratchpadDecoder(2, 2, scale="raw")
    with pytest.raises(ValueError, match="is no map of this construction"):
        _ = decoder.with_weight("L9", "x", "1", 0).maps
    with pytest.raises(ValueError, match="step"):
        decoder.addresses(2)
    with pytest.raises(ValueError, match="address from 1 to 2"):
        decoder.word(3)
    with pytest.raises(ValueError, match="which="):
        sd.check_answers([decoder], "some")
