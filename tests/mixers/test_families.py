"""Every mixer: step against parallel and chunk, state counts, causality, autograd, other arithmetics."""

import dataclasses

import numpy as np
import pytest
import torch

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import Attention, BlockSparseAttention, LinearAttention, Recurrence
from hybridseq.mixers.catalogue import catalogue, check_forms_agree, check_state_count, companions, gap
from hybridseq.mixers.linear_attention import ratio

ENTRIES = catalogue() + companions()
RECURRENCES = [e for e in ENTRIES if isinstance(e.build(Float()), Recurrence)]
by_name = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
recurrences = pytest.mark.parametrize("entry", RECURRENCES, ids=lambda e: e.name)


@by_name
def test_step_equals_parallel_in_float64(entry):
    check = check_forms_agree(Float(), entry)
    assert check.passed, check


@by_name
def test_state_counts(entry):
    check = check_state_count(Float(), entry)
    assert check.passed, check


def test_the_counts_of_the_specification():
    """Spec C, section 7, item 17."""
    taylor = next(e for e in catalogue(5) if "Taylor" in e.name).build(Float())
    assert (taylor.rank, taylor.state_numbers(0)) == (31, 186)
    head = LinearAttention(32)
    assert 2 * head.state_numbers(0) == 2112
    assert 2 * head.state_bits(16, 0) == 33792


def random_state(ar, mixer, rng, batch):
    """A state of the right shape with random positive entries."""
    zero = mixer.init_state(ar, batch)
    if hasattr(zero, "shape"):
        return ar.array(rng.uniform(0.1, 1, zero.shape))
    return dataclasses.replace(
        zero, **{k: None if a is None else ar.array(rng.uniform(0.1, 1, a.shape)) for k, a in vars(zero).items()}
    )


def flat(ar, state):
    arrays = [state] if hasattr(state, "shape") else [a for a in vars(state).values() if a is not None]
    return np.concatenate([ar.values(a).ravel() for a in arrays])


@recurrences
@pytest.mark.parametrize("seq_len", [1, 37, 65])
def test_chunks_continue_from_any_state(entry, seq_len):
    rng, ar = np.random.default_rng(seq_len), Float()
    mixer, inputs = entry.build(ar), entry.inputs(ar, rng, seq_len, (2,))
    start = random_state(ar, mixer, rng, (2,))
    u, last = mixer.scan(ar, inputs, start)
    for size in (1, 16, 64):
        u2, last2 = mixer.chunked(ar, inputs, size, start)
        np.testing.assert_allclose(u2, u, atol=1e-12, rtol=1e-12)
        np.testing.assert_allclose(flat(ar, last2), flat(ar, last), atol=1e-12, rtol=1e-12)
    np.testing.assert_allclose(mixer.parallel(ar, inputs, start), u, atol=1e-12, rtol=1e-12)


def poisoned(inputs, start, value):
    """The same inputs with everything from token `start` on replaced."""

    def spoil(name, a):
        a = np.array(a)
        a[(..., slice(start, None)) if name in inputs.scalars else (..., slice(start, None), slice(None))] = value
        return a

    return dataclasses.replace(inputs, **{name: spoil(name, a) for name, a in inputs.items()})


@by_name
def test_the_future_cannot_reach_the_past(entry):
    rng, ar = np.random.default_rng(1), Float()
    mixer, inputs = entry.build(ar), entry.inputs(ar, rng, 24, (2,))
    with np.errstate(invalid="ignore"):
        u = mixer.scan(ar, poisoned(inputs, 12, np.nan))[0]
    clean = mixer.scan(ar, inputs)[0]
    np.testing.assert_array_equal(u[..., :12, :], clean[..., :12, :])
    whole = mixer.parallel(ar, poisoned(inputs, 12, 0.75))
    np.testing.assert_allclose(whole[..., :12, :], clean[..., :12, :], atol=1e-12)
    if isinstance(mixer, Recurrence):
        with np.errstate(invalid="ignore"):
            chunks = mixer.chunked(ar, poisoned(inputs, 12, np.nan), 12)[0]
        np.testing.assert_allclose(chunks[..., :12, :], clean[..., :12, :], atol=1e-12)


def test_a_window_forgets_what_left_it():
    rng, ar = np.random.default_rng(2), Float()
    entry = next(e for e in ENTRIES if e.name == "attention, window")
    inputs = entry.inputs(ar, rng, 24)
    spoiled = type(inputs)(**{name: np.concatenate([np.full((4, 5), np.nan), a[4:]]) for name, a in inputs.items()})
    with np.errstate(invalid="ignore"):
        u = entry.build(ar).scan(ar, spoiled)[0]
    np.testing.assert_array_equal(u[11:], entry.build(ar).scan(ar, inputs)[0][11:])
    assert np.isnan(u[4:11]).any()


@by_name
def test_autograd_agrees_between_the_forms(entry):
    ar = Float("torch")
    mixer = entry.build(ar)
    inputs = entry.inputs(ar, np.random.default_rng(3), 9, (2,))
    for _, a in inputs.items():
        a.requires_grad_(True)
    tensors = [a for _, a in inputs.items()]
    target = torch.linspace(-1, 1, 9)[:, None]
    grads = [torch.autograd.grad((f(ar, inputs) * target).sum(), tensors) for f in (lambda *a: mixer.scan(*a)[0], mixer.parallel)]
    for g1, g2 in zip(*grads, strict=True):
        assert torch.isfinite(g1).all() and g1.abs().max() > 0
        torch.testing.assert_close(g2, g1, atol=1e-10, rtol=1e-10)


@by_name
def test_numpy_and_torch_agree(entry):
    values = []
    for ar in (Float(), Float("torch")):
        inputs = entry.inputs(ar, np.random.default_rng(4), 15, (2, 3))
        values.append(ar.values(entry.build(ar).scan(ar, inputs)[0]))
    assert values[0].shape[:3] == (2, 3, 15)
    np.testing.assert_allclose(*values, atol=1e-13)


@by_name
@pytest.mark.parametrize("s", [2, 4, 16])
def test_every_mixer_runs_in_fixed_point(entry, s):
    ar = FixedPoint(s)
    inputs = entry.inputs(ar, np.random.default_rng(5), 11, (2,))
    mixer = entry.build(ar)
    u, _ = mixer.scan(ar, inputs)
    ar.check(u)
    ar.check(mixer.parallel(ar, inputs))
    assert (mixer.last_only(ar, inputs) == u[..., -1, :]).all()


def test_which_parallel_forms_survive_rounding():
    """Caveat (ii): attention and the convolution do, no recurrence of the table does."""
    ar = FixedPoint(4)
    gaps = {e.name: max(gap(ar, e, 32, (4,), seed) for seed in range(3)) for e in ENTRIES}
    exact = {name for name, g in gaps.items() if g == 0}
    assert exact == {"attention, full", "attention, window", "attention, block-sparse", "short convolution"}


@pytest.mark.parametrize("top_k, block_size", [(50, 1), (9, 4), (1, 64)])
def test_enough_blocks_are_full_attention(top_k, block_size):
    ar, rng = Float(), np.random.default_rng(6)
    entry = ENTRIES[0]
    inputs = entry.inputs(ar, rng, 37, (2,))
    sparse = BlockSparseAttention(5, block_size=block_size, top_k=top_k)
    np.testing.assert_allclose(sparse.parallel(ar, inputs), Attention(5).parallel(ar, inputs), atol=1e-13)


def test_sparse_attention_without_blocks_is_a_window_of_blocks():
    ar, rng = FixedPoint(4), np.random.default_rng(7)
    inputs = ENTRIES[0].inputs(ar, rng, 30)
    one = BlockSparseAttention(5, block_size=1, top_k=0, window=6).parallel(ar, inputs)
    assert (one == Attention(5, window=6).parallel(ar, inputs)).all()


def test_selection_takes_the_best_blocks_and_the_lowest_index_on_ties():
    ar = Float()
    k = np.array([[1.0], [1.0], [3.0], [3.0], [3.0], [3.0], [0.0]])
    mixer = BlockSparseAttention(1, block_size=2, top_k=1)
    mask = mixer.mask(ar, np.array([[1.0]]), k, np.array([6]))
    assert mask.tolist() == [[False, False, True, True, False, False, True]]
    mask = mixer.mask(ar, np.array([[-1.0]]), k, np.array([6]))
    assert mask.tolist() == [[True, True, False, False, False, False, True]]


def test_ratio_in_fixed_point():
    ar = FixedPoint(2)
    num, den = np.array([3, -3, 15, 5, 2]), np.array([4, 4, 1, 0, -4])
    assert ratio(ar, num, den).tolist() == [3, -3, 15, 0, -2]


def test_the_checks_reject_a_mixer_whose_parallel_form_is_wrong():
    good = next(e for e in ENTRIES if e.name == "retention")

    class Wrong(LinearAttention):
        def chunk(self, ar, inputs, state):
            return LinearAttention(self.head_dim, normalise=False, decay=0.75).chunk(ar, inputs, state)

    bad = dataclasses.replace(good, build=lambda ar: Wrong(5, normalise=False, decay=0.875))
    check = check_forms_agree(Float(), bad)
    assert not check.passed and check.counterexample["difference"] > 1e-3
    assert not check_state_count(Float(), dataclasses.replace(good, count=lambda t: 24)).passed


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: LinearAttention(3, feature_map="cosine"), "feature_map"),
        (lambda: LinearAttention(3, decay=1.5), "decay"),
        (lambda: BlockSparseAttention(3, block_size=0), "block_size"),
        (lambda: BlockSparseAttention(3, top_k=-1), "top_k"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_chunked_is_refused_where_weighted_sums_are_means():
    from hybridseq.arithmetic import Integer

    ar = Integer(8, 4)
    entry = next(e for e in ENTRIES if e.name == "linear attention, plain")
    inputs = type(entry.inputs(Float(), np.random.default_rng(0), 3))(*(np.ones((3, 5), np.int64),) * 3)
    assert entry.build(ar).scan(ar, inputs)[0].shape == (3, 5)
    with pytest.raises(ValueError, match="use scan"):
        entry.build(ar).parallel(ar, inputs)
