"""Heads and layers: gates, norms, the last position alone, the step."""

from dataclasses import dataclass

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import Attention, DeltaRule, Head, Layer, ShortConvolution


@dataclass(frozen=True)
class Dense:
    """An affine map with real weights."""

    weight: np.ndarray
    bias: np.ndarray

    def apply(self, ar, x):
        return ar.affine(ar.array(self.weight), x, ar.array(self.bias))


def dense(rng, out, width):
    return Dense(rng.normal(size=(out, width)) / 2, rng.normal(size=out) / 2)


def small_layer(rng, width=6, window=None):
    qkv = {"q": dense(rng, 4, width), "k": dense(rng, 4, width), "v": dense(rng, 3, width)}
    gates = {"alpha": dense(rng, 1, width), "beta": dense(rng, 1, width)}
    heads = (
        Head(Attention(4, 3, window=window), qkv, gate=dense(rng, 3, width), qk_norm="rms"),
        Head(DeltaRule(4, 3), qkv | gates, qk_norm="l2"),
        Head(DeltaRule(4, 3, order="Q"), qkv | {"beta": gates["beta"]}, gate=dense(rng, 3, width)),
    )
    return Layer(heads, dense(rng, width, 9))


@pytest.mark.parametrize("ar", [Float(), Float("torch"), FixedPoint(2), FixedPoint(5), FixedPoint(16)], ids=lambda a: a.name)
@pytest.mark.parametrize("window", [None, 3])
def test_forward_step_and_last_position_agree(ar, window):
    rng = np.random.default_rng(0)
    layer, x = small_layer(rng, window=window), ar.array(rng.normal(size=(2, 11, 6)))
    z = ar.values(layer.forward(ar, x))
    tolerance = 0 if ar.exact else 1e-12
    np.testing.assert_allclose(ar.values(layer.scan(ar, x)[0]), z, atol=tolerance, rtol=0)
    np.testing.assert_allclose(ar.values(layer.last_only(ar, x)), z[:, -1], atol=tolerance, rtol=0)


def test_scan_continues_from_its_states():
    rng, ar = np.random.default_rng(1), FixedPoint(4)
    layer, x = small_layer(rng), ar.array(rng.normal(size=(8, 6)))
    whole, _ = layer.scan(ar, x)
    first, states = layer.scan(ar, x[:5])
    second, _ = layer.scan(ar, x[5:], states)
    assert (np.concatenate([first, second]) == whole).all()


def test_state_counts_add_over_heads():
    layer = small_layer(np.random.default_rng(2), window=3)
    assert [layer.state_numbers(n) for n in (1, 2, 3, 50)] == [7 + 24, 14 + 24, 21 + 24, 21 + 24]
    assert layer.state_bits(5, 50) == 5 * 45


def test_a_saturated_gate_is_the_identity_and_its_negative_is_zero():
    """sigma(B_s) = 1 and sigma(-B_s) = 0 in F_s (spec A 1.8)."""
    rng, ar = np.random.default_rng(3), FixedPoint(3)
    maps = {"q": dense(rng, 2, 4), "k": dense(rng, 2, 4), "v": dense(rng, 2, 4)}
    x = ar.array(rng.normal(size=(5, 4)))
    plain = Head(Attention(2), maps).forward(ar, x)
    for sign, expected in ((1, plain), (-1, 0 * plain)):
        gate = Dense(np.zeros((2, 4)), np.full(2, sign * 100.0))
        assert (Head(Attention(2), maps, gate=gate).forward(ar, x) == expected).all()


def test_bad_heads():
    rng = np.random.default_rng(4)
    maps = {"q": dense(rng, 2, 4), "k": dense(rng, 2, 4)}
    with pytest.raises(ValueError, match="missing"):
        Head(Attention(2), maps)
    with pytest.raises(ValueError, match="surplus"):
        Head(Attention(2), maps | {"v": maps["q"], "beta": maps["q"]})
    with pytest.raises(ValueError, match="qk_norm"):
        Head(Attention(2), maps | {"v": maps["q"]}, qk_norm="layer")
    with pytest.raises(ValueError, match="core"):
        Head(object(), maps)
    with pytest.raises(ValueError, match="heads"):
        Layer((), maps["q"])


def test_a_convolution_is_a_head_with_one_map():
    ar, x = Float(), np.arange(12.0).reshape(1, 4, 3)
    core = ShortConvolution(np.array([[1.0, 0.0], [10.0, 1.0]]))
    layer = Layer((Head(core, {"x": Dense(np.eye(2, 3), np.zeros(2))}),), Dense(np.eye(3, 2), np.zeros(3)))
    expected = np.stack([[0, 0, 3, 6], [1, 14, 47, 80], [0, 0, 0, 0]], axis=-1)[None]
    assert np.array_equal(layer.forward(ar, x), expected) and np.array_equal(layer.last_only(ar, x), expected[:, -1])
    with pytest.raises(ValueError, match="missing"):
        Head(ShortConvolution(np.eye(2)), {"q": Dense(np.eye(2, 3), np.zeros(2))})
