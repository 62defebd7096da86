"""Attention: cache against matrix, windows, ranges of keys, causality."""

import itertools

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float, Integer
from hybridseq.mixers import Attention, AttentionInputs, causal_mask


def random_inputs(rng, ar, batch=(), seq_len=9, d=4, dv=3):
    shape = lambda width: (*batch, seq_len, width)  # noqa: E731
    return AttentionInputs(*(ar.array(rng.standard_normal(shape(w))) for w in (d, d, dv)))


def integer_inputs(rng, ar, seq_len=9, d=4, dv=3):
    return AttentionInputs(*(rng.integers(-5, 6, (2, seq_len, w)) for w in (d, d, dv)))


@pytest.mark.parametrize("seq_len", [1, 37, 63, 65])
@pytest.mark.parametrize("window", [None, 1, 5, 64])
def test_parallel_equals_scan_in_float64(seq_len, window):
    rng, ar = np.random.default_rng(seq_len), Float()
    inputs, mixer = random_inputs(rng, ar, (2,), seq_len), Attention(4, 3, window=window, qk_norm=True)
    u, cache = mixer.scan(ar, inputs)
    np.testing.assert_allclose(mixer.parallel(ar, inputs), u, atol=1e-12, rtol=0)
    np.testing.assert_allclose(mixer.last_only(ar, inputs), u[..., -1, :], atol=1e-12, rtol=0)
    assert cache.k.shape[-2] == min(seq_len, window or seq_len)
    assert mixer.state_numbers(seq_len) == cache.k[0].size + cache.v[0].size


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("scale", ["raw", "sqrt", "dim"])
def test_parallel_equals_scan_bit_for_bit_in_fixed_point(window, scale):
    for s in (1, 2, 4, 6, 16):
        rng, ar = np.random.default_rng(s), FixedPoint(s)
        inputs, mixer = random_inputs(rng, ar, (3,), 21), Attention(4, 3, scale=scale, window=window, qk_norm=True)
        u, _ = mixer.scan(ar, inputs)
        assert (mixer.parallel(ar, inputs) == u).all()
        assert (mixer.last_only(ar, inputs) == u[..., -1, :]).all()


def test_blocks_of_queries_do_not_change_the_result(monkeypatch):
    rng, ar = np.random.default_rng(5), FixedPoint(3)
    for window in (None, 7):
        inputs, mixer = random_inputs(rng, ar, (), 50), Attention(4, 3, window=window)
        whole = mixer.parallel(ar, inputs)
        monkeypatch.setattr("hybridseq.mixers.attention._BLOCK_BYTES", 1)
        assert (mixer.parallel(ar, inputs) == whole).all()
        monkeypatch.undo()


def test_fixed_point_softmax_by_hand():
    """s = 2, equal scores of three tokens: weights of one quarter each, so they need not sum to one (spec A 1.6)."""
    ar = FixedPoint(2)
    x = AttentionInputs(ar.zeros((3, 2)), ar.zeros((3, 2)), ar.array([[1.0], [1.0], [1.0]]))
    mixer = Attention(2, 1, scale="raw")
    assert mixer.weights(ar, x)[2].tolist() == [1, 1, 1]
    assert mixer.parallel(ar, x)[:, 0].tolist() == [4, 4, 3]


def test_weights_of_a_row_are_a_distribution_in_floats():
    ar = Float()
    inputs, mixer = random_inputs(np.random.default_rng(0), ar, (), 12), Attention(4, 3, window=5)
    p = mixer.weights(ar, inputs)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-14)
    assert (p[~causal_mask(np.arange(12), np.arange(12), 5)] == 0).all()
    np.testing.assert_allclose(mixer.weights(ar, inputs, (3, 6)), p[3:6], atol=1e-15)


@pytest.mark.parametrize("kind", ["float", "torch", "fixed", "integer"])
def test_ranges_of_keys_merge_to_the_whole(kind):
    rng = np.random.default_rng(7)
    ar = {"float": Float(), "torch": Float("torch"), "fixed": FixedPoint(3), "integer": Integer(12, 6)}[kind]
    mixer = Attention(4, 3, scale="raw")
    inputs = integer_inputs(rng, ar) if kind == "integer" else random_inputs(rng, ar, (2,))
    whole = mixer.parallel(ar, inputs)
    mask = causal_mask(np.arange(9), np.arange(9))
    for cuts in ([3], [1, 5], [2, 4, 8]):
        edges = [0, *cuts, 9]
        parts = [
            mixer.partial(ar, inputs.q, inputs.k[..., a:b, :], inputs.v[..., a:b, :], mask[:, a:b])
            for a, b in itertools.pairwise(edges)
        ]
        merged = parts[0]
        for part in parts[1:]:
            merged = mixer.merge(ar, merged, part)
        result = mixer.finish(ar, merged)
        if ar.exact:
            assert (result == whole).all()
        else:
            np.testing.assert_allclose(ar.values(result), ar.values(whole), atol=1e-12)


def test_a_query_that_sees_nothing_outputs_zero():
    rng, ar = np.random.default_rng(8), Float()
    inputs, mixer = random_inputs(rng, ar), Attention(4, 3)
    nothing = mixer.partial(ar, inputs.q, inputs.k, inputs.v, np.zeros((9, 9), bool))
    assert (mixer.finish(ar, nothing) == 0).all()
    something = mixer.partial(ar, inputs.q, inputs.k, inputs.v, np.ones((9, 9), bool))
    merged = mixer.finish(ar, mixer.merge(ar, nothing, something))
    np.testing.assert_allclose(merged, mixer.finish(ar, something), atol=1e-15)


def test_integers_agree_between_scan_and_parallel():
    rng, ar = np.random.default_rng(9), Integer(12, 6)
    inputs, mixer = integer_inputs(rng, ar), Attention(4, 3, scale="raw", window=5)
    assert (mixer.scan(ar, inputs)[0] == mixer.parallel(ar, inputs)).all()


@pytest.mark.parametrize("bad", [{"scale": "half"}, {"window": 0}, {"head_dim": 2.5}, {"value_dim": 0}])
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Attention(**{"head_dim": 2, **bad})
