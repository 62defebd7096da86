"""Block-sparse attention: summaries, their formats, the branch of summaries, separate selection; step and parallel form agree."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import (
    Attention,
    AttentionInputs,
    BlockSparseAttention,
    BlockSparseInputs,
    MaxSummary,
    MeanSummary,
    MLPSummary,
    PositionedSummary,
    SummaryFormat,
)

RNG = np.random.default_rng(3)
MLP = MLPSummary(RNG.standard_normal((6, 6)), RNG.standard_normal(6), RNG.standard_normal((4, 6)), SummaryFormat(3, 2.0**-3))
EACH = PositionedSummary((MeanSummary(), MaxSummary(), MeanSummary(SummaryFormat(4, 0.25, -2)), MaxSummary()))


def draw(ar, seq_len, batch=(), select=3, content=None, seed=0):
    rng = np.random.default_rng(seed)

    def array(dim):
        return ar.array(rng.standard_normal((*batch, seq_len, dim)))

    parts = {"q": array(3), "k": array(3), "v": array(2), "selector": array(select)}
    return BlockSparseInputs(**parts, content=None if content is None else array(content))


@pytest.mark.parametrize("ar", [Float(), FixedPoint(6)], ids=lambda ar: ar.name)
@pytest.mark.parametrize(
    "mixer, shape",
    [
        (BlockSparseAttention(3, 2, block_size=3, summary=MaxSummary()), {}),
        (BlockSparseAttention(3, 2, block_size=3, content_dim=2, summary=MLP), {"select": 4, "content": 2}),
        (BlockSparseAttention(3, 2, block_size=3, value_summary=MeanSummary(SummaryFormat(3, 0.5, -2))), {}),
        (BlockSparseAttention(3, 2, block_size=3, window=2, summary=EACH, value_summary=MaxSummary()), {}),
        (BlockSparseAttention(3, 2, block_size=3, top_k=0, content_dim=5), {"select": 5, "content": 5}),
        (BlockSparseAttention(3, 2, block_size=3, top_k=2, qk_norm=True), {}),
    ],
)
def test_step_equals_parallel_and_the_state_is_counted(ar, mixer, shape):
    for seq_len in (1, 3, 4, 11, 12):
        inputs = draw(ar, seq_len, (2,), **shape)
        steps, state = mixer.scan(ar, inputs)
        whole = mixer.parallel(ar, inputs)
        assert whole.shape == (2, seq_len, mixer.output_dim)
        np.testing.assert_allclose(ar.values(steps), ar.values(whole), atol=0 if ar.exact else 1e-13)
        np.testing.assert_allclose(ar.values(mixer.last_only(ar, inputs)), ar.values(whole[:, -1]), atol=0 if ar.exact else 1e-13)
        carried = sum(a.size for a in vars(state).values() if a is not None) // 2
        assert carried == mixer.state_numbers(seq_len)


def test_torch_gives_what_numpy_gives():
    import torch

    mixer = BlockSparseAttention(3, 2, block_size=3, content_dim=2, summary=MLP, value_summary=MaxSummary())
    inputs = draw(Float(), 11, (2,), 4, 2)
    as_torch = BlockSparseInputs(*(torch.tensor(getattr(inputs, n)) for n in ("q", "k", "v", "selector", "content")))
    got = mixer.parallel(Float("torch"), as_torch)
    np.testing.assert_allclose(got.numpy(), mixer.parallel(Float(), inputs), atol=1e-13)


def test_the_branch_of_summaries_by_hand():
    """Query 4 sees its own token, and blocks 0 and 1 by their means alone."""
    ar = Float()
    q, k, v = np.ones((5, 1)), np.array([[0.0], [2], [1], [1], [0]]), np.array([[1.0], [3], [10], [20], [7]])
    mixer = BlockSparseAttention(1, block_size=2, top_k=0, scale="raw", value_summary=MeanSummary())
    got = mixer.parallel(ar, AttentionInputs(q, k, v))[4]
    np.testing.assert_allclose(got, [7, (2 + 15) / 2])  # both block keys are 1
    first = mixer.parallel(ar, AttentionInputs(q, k, v))[1]
    np.testing.assert_allclose(first, [(1 + 3 * np.exp(2)) / (1 + np.exp(2)), 0])  # no block before: nothing


@given(st.integers(1, 8), st.sampled_from([0.25, 1.0, 2.0]), st.integers(-4, 4), st.floats(-40, 40))
@settings(max_examples=60, deadline=None)
def test_a_format_rounds_down_to_a_number_of_its_own(bits, step, low, x):
    form = SummaryFormat(bits, step, low * step)
    (got,) = form.round(Float(), np.array([x]))
    i = Fraction(got - low * step) / Fraction(step)
    assert i.denominator == 1 and 0 <= i < 2**bits
    top = low * step + (2**bits - 1) * step
    assert got == top if x >= top else got == low * step if x < low * step else got <= x < got + step
    ar = FixedPoint(6)
    assert ar.values(form.round(ar, ar.array([x])))[0] == form.round(Float(), ar.values(ar.array([x])))[0]


def test_positioned_summaries_use_the_number_of_the_block():
    ar, x = Float(), np.array([[1.0], [4], [1], [4]])
    each = PositionedSummary((MeanSummary(), MaxSummary()))
    mixer = BlockSparseAttention(1, block_size=2, summary=each)
    assert mixer.summaries(ar, x).tolist() == [[2.5], [4.0]]
    assert mixer.summaries(ar, x[:2], first=1).tolist() == [[4.0]]
    with pytest.raises(ValueError, match="there is a block 2"):
        mixer.summaries(ar, np.ones((6, 1)))


def test_selection_is_exact_where_floats_are_not():
    """Two scores that differ in the 60th binary place."""
    ar = FixedPoint(70)
    keys = ar.array([[Fraction(1)], [1 + Fraction(1, 2**60)]])
    mixer = BlockSparseAttention(1, block_size=1)
    assert mixer.selected(ar, ar.array([[1]]), keys, np.array([2])).tolist() == [[False, True]]


@pytest.mark.parametrize("top_k, block_size", [(4, 3), (7, 2)])
def test_all_blocks_are_full_attention_with_any_summary(top_k, block_size):
    for ar in (Float(), FixedPoint(5)):
        inputs = draw(ar, 12)
        full = Attention(3, 2).parallel(ar, AttentionInputs(inputs.q, inputs.k, inputs.v))
        sparse = BlockSparseAttention(3, 2, block_size=block_size, top_k=top_k, summary=MaxSummary()).parallel(ar, inputs)
        np.testing.assert_allclose(ar.values(sparse), ar.values(full), atol=0 if ar.exact else 1e-13)


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: SummaryFormat(0), "bits"),
        (lambda: SummaryFormat(53), "bits"),
        (lambda: SummaryFormat(4, 0.3), "power of two"),
        (lambda: SummaryFormat(4, 1.0, 0.5), "multiple"),
        (lambda: SummaryFormat(4, 2.0**-9).round(FixedPoint(3), np.array([1])), "no number"),
        (lambda: MLPSummary(np.ones((2, 3)), np.ones(3), np.ones((1, 2))), "units"),
        (lambda: BlockSparseAttention(2, block_size=2, summary=MLP), "hidden"),
        (lambda: PositionedSummary(()), "functions"),
        (lambda: BlockSparseAttention(2, block_size=3, summary=PositionedSummary((MLP, MeanSummary()))), "widths"),
        (lambda: BlockSparseAttention(2, content_dim=0), "content_dim"),
        (lambda: BlockSparseAttention(3, 2, content_dim=2).parallel(Float(), draw(Float(), 3, select=2)), "content"),
        (lambda: BlockSparseAttention(3, 2).parallel(Float(), draw(Float(), 3, select=2)), "selector"),
        (
            lambda: BlockSparseAttention(3, 2, content_dim=2).parallel(
                Float(), BlockSparseInputs(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 2)), None, np.ones((2, 2)))
            ),
            "selector",
        ),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()
