"""The whole Mamba block, rotary attention, softplus, and heads that hold state space cores."""

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import (
    AttentionInputs,
    EulerScan,
    GateScan,
    Head,
    Layer,
    MambaBlock,
    RotaryAttention,
    SelectiveScan,
    StateSpaceDual,
    softplus,
)
from hybridseq.mixers.mamba_block import WEIGHTS, RandomMambaBlock
from hybridseq.residual import Affine, Stream

FLOATS = [Float(), Float("torch")]


def block(ar, seed=0):
    arrays = RandomMambaBlock().arrays(np.random.default_rng(seed), 9, (2,))
    return MambaBlock(ar, {name: arrays[name] for name in WEIGHTS}), ar.array(arrays["x"])


@pytest.mark.parametrize("ar", FLOATS, ids=lambda a: a.name)
def test_block_steps_equal_its_forward_pass(ar):
    layer, x = block(ar)
    z, state = ar.values(layer.forward(ar, x)), layer.init_state(ar, (2,))
    for t in range(9):
        state, z_t = layer.step(ar, state, x[:, t])
        np.testing.assert_allclose(ar.values(z_t), z[:, t], atol=1e-12)
    np.testing.assert_allclose(ar.values(layer.last_only(ar, x)), z[:, -1], atol=1e-12)
    assert layer.state_numbers() == 10 * 3 + 3 * 10
    assert layer.state_bits(32, 9) == 60 * 32


def test_block_refuses_what_does_not_fit():
    layer, _ = block(Float())
    with pytest.raises(ValueError, match="Float"):
        MambaBlock(FixedPoint(4), layer.weights)
    with pytest.raises(ValueError, match="weights"):
        MambaBlock(Float(), {"in_x": np.ones((2, 2))})
    with pytest.raises(ValueError, match="dt_bias"):
        MambaBlock(Float(), dict(layer.weights) | {"dt_bias": np.ones(3)})


@pytest.mark.parametrize("ar", [*FLOATS, Float(dtype="float32")], ids=lambda a: a.name)
def test_softplus_keeps_small_values_and_does_not_overflow(ar):
    got = ar.values(softplus(ar, ar.array([-64.0, -1.0, 0.0, 800.0])))
    np.testing.assert_allclose(got, [np.exp(-64), np.log1p(np.exp(-1)), np.log(2), 800], rtol=1e-6)
    with pytest.raises(ValueError, match="softplus"):
        softplus(FixedPoint(4), FixedPoint(4).array([1.0]))


def rotary_inputs(ar, rng, core, length=11):
    shapes = {"q": core.head_dim, "k": core.head_dim, "v": core.value_dim}
    return AttentionInputs(**{name: ar.array(rng.normal(size=(2, length, dim))) for name, dim in shapes.items()})


@pytest.mark.parametrize("ar", FLOATS, ids=lambda a: a.name)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_rotary_scan_equals_parallel(ar, window):
    core = RotaryAttention((2, 5.5, 64), 4, window=window)
    inputs = rotary_inputs(ar, np.random.default_rng(0), core)
    stepped, _ = core.scan(ar, inputs)
    np.testing.assert_allclose(ar.values(stepped), ar.values(core.parallel(ar, inputs)), atol=1e-12)
    np.testing.assert_allclose(ar.values(core.last_only(ar, inputs)), ar.values(stepped)[:, -1], atol=1e-12)


def test_rotary_scores_depend_on_the_distance_alone():
    ar, core = Float(), RotaryAttention((2, 7), 1)
    q, k = np.random.default_rng(0).normal(size=(2, 1, 4))
    scores = [core.turned(ar, q, [i + 9]) @ core.turned(ar, k, [i + 4]).T for i in (0, 3, 10**6)]
    np.testing.assert_allclose(scores, [scores[0]] * 3, atol=1e-12)
    angles = 2 * np.pi * 5 / np.array([2, 7])
    pairs = [complex(a, b) * complex(c, -d) for (a, b), (c, d) in zip(q.reshape(2, 2).T, k.reshape(2, 2).T, strict=True)]
    expected = sum((p * np.exp(1j * angle)).real for p, angle in zip(pairs, angles, strict=True))
    np.testing.assert_allclose(scores[0], [[expected]], atol=1e-12)


def test_rotary_refuses_bad_periods():
    for periods in ((), (0,), (4, -1)):
        with pytest.raises(ValueError, match="periods"):
            RotaryAttention(periods, 1)


STREAM = Stream({"w": 2, "i": 1})


def rows(name, dim, table):
    return Affine.from_rows(STREAM, Stream({name: dim}), table)


def cores(ar):
    x = rows("x", 2, {"x": {"w": 1}})
    full = Affine.from_rows(STREAM, STREAM, {"w": {"w": 1}, "i": {"i": 1}})
    eye, pick = ar.array(np.eye(2)), ar.array(np.eye(2, 3))
    constant = {n: rows(n, 1, {n: {"1": 1}}) for n in ("b", "c")}
    delta = rows("delta", 2, {f"delta[{k}]": {"i": 3, "1": -1} for k in (0, 1)})
    return {
        "P": Head(EulerScan(eye, pick, ar.array(np.eye(3, 2))), {"x": full, "delta": rows("delta", 1, {"delta": {"i": 1}})}),
        "G": Head(GateScan(2), {"x": x, "gate": rows("gate", 1, {"gate": {"i": 3, "1": -1}})}),
        "S": Head(SelectiveScan(2, 1, ar.full((2, 1), -1)), {"x": x, "delta": delta} | constant),
    }


@pytest.mark.parametrize("ar", FLOATS, ids=lambda a: a.name)
@pytest.mark.parametrize("form", ["P", "G", "S"])
def test_a_head_holds_a_state_space_core(ar, form):
    head = cores(ar)[form]
    width = 3 if form == "P" else 2
    layer = Layer((head,), Affine.from_rows(Stream({"u": width}), Stream({"z": width}), {"z": {"u": 1}}))
    x = ar.array(np.random.default_rng(0).normal(size=(3, 7, 3)))
    z = ar.values(layer.forward(ar, x))
    np.testing.assert_allclose(ar.values(layer.scan(ar, x)[0]), z, atol=1e-12)
    np.testing.assert_allclose(ar.values(layer.last_only(ar, x)), z[:, -1], atol=1e-12)


def test_the_activation_of_the_step_is_that_of_the_form():
    ar, x = Float(), Float().array([[5.0, 6.0, 0.5]])
    head = cores(ar)
    assert head["P"].inputs(ar, x).delta.tolist() == [0.5]
    np.testing.assert_allclose(head["G"].inputs(ar, x).gate, 1 / (1 + np.exp(-0.5)))
    np.testing.assert_allclose(head["S"].inputs(ar, x).delta, np.full((1, 2), np.log1p(np.exp(0.5))))


def test_other_cores_are_still_refused():
    with pytest.raises(ValueError, match="core"):
        Head(StateSpaceDual(2, 1), {})
    with pytest.raises(ValueError, match="maps"):
        Head(GateScan(2), {"x": rows("x", 2, {"x": {"w": 1}})})
