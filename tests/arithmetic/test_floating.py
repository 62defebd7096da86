"""Float: numpy against torch, formulas against plain loops, gradients, masks and rows that see nothing."""

import math

import numpy as np
import pytest
import torch

from hybridseq.arithmetic import Float

RNG = np.random.default_rng(3)


def both(dtype="float64"):
    return Float(dtype=dtype), Float("torch", dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-5)])
def test_numpy_and_torch_agree_on_every_operation(dtype, tolerance):
    n, t = both(dtype)
    a, b = RNG.normal(size=(2, 3, 5)), RNG.normal(size=(2, 3, 5))
    q, k, v = RNG.normal(size=(2, 4, 5)), RNG.normal(size=(2, 6, 5)), RNG.normal(size=(2, 6, 3))
    weight, bias, mask = RNG.normal(size=(7, 5)), RNG.normal(size=7), np.tril(np.ones((4, 6), dtype=bool))
    calls = [
        lambda f: f.add(f.array(a), f.array(b)),
        lambda f: f.sub(f.array(a), f.array(b)),
        lambda f: f.mul(f.array(a), f.array(b)),
        lambda f: f.neg(f.array(a)),
        lambda f: f.relu(f.array(a)),
        lambda f: f.exp(f.array(a)),
        lambda f: f.sigmoid(f.array(20 * a)),
        lambda f: f.sum(f.array(a)),
        lambda f: f.sum(f.array(a), axis=0),
        lambda f: f.dot(f.array(a), f.array(b)),
        lambda f: f.affine(f.array(weight), f.array(a)),
        lambda f: f.affine(f.array(weight), f.array(a), f.array(bias)),
        lambda f: f.wide_dot(f.array(a), f.array(b), "sqrt"),
        lambda f: f.scores(f.array(q), f.array(k)),
        lambda f: f.scores(f.array(q), f.array(k), "dim"),
        lambda f: f.softmax(f.scores(f.array(q), f.array(k))),
        lambda f: f.softmax(f.scores(f.array(q), f.array(k)), mask),
        lambda f: f.mix(f.softmax(f.scores(f.array(q), f.array(k)), mask), f.array(v)),
        lambda f: f.rms_norm(f.array(a)),
        lambda f: f.l2_norm(f.array(a)),
        lambda f: f.where(a > 0, f.array(a), f.array(b)),
        lambda f: f.stack([f.array(a), f.array(b)], axis=1),
        lambda f: f.concat([f.array(a), f.array(b)]),
        lambda f: f.full((2, 2), 0.1),
        lambda f: f.zeros((3,)),
    ]
    for i, call in enumerate(calls):
        left, right = n.values(call(n)), t.values(call(t))
        assert left.shape == right.shape, i
        assert np.abs(left - right).max() <= tolerance * 10, i
        assert str(call(n).dtype) == dtype and str(call(t).dtype) == f"torch.{dtype}", i


@pytest.mark.parametrize("f", both(), ids=["numpy", "torch"])
def test_against_plain_loops(f):
    z = [0.3, -1.2, 2.0]
    e = [math.exp(x) for x in z]
    assert np.allclose(f.values(f.softmax(f.array(z))), [x / sum(e) for x in e], atol=1e-15)
    masked = f.values(f.softmax(f.array(z), np.array([True, False, True])))
    assert np.allclose(masked, [e[0] / (e[0] + e[2]), 0, e[2] / (e[0] + e[2])], atol=1e-15)
    assert np.allclose(f.values(f.rms_norm(f.array([3.0, 4.0]))), np.array([3, 4]) / math.sqrt(12.5), atol=1e-15)
    assert np.allclose(f.values(f.l2_norm(f.array([3.0, 4.0]))), [0.6, 0.8], atol=1e-15)
    assert np.allclose(f.values(f.sigmoid(f.array([0.5]))), 1 / (1 + math.exp(-0.5)), atol=1e-15)
    assert np.allclose(f.values(f.wide_dot(f.array([1.0, 2.0]), f.array([3.0, 5.0]), "sqrt")), 13 / math.sqrt(2))


@pytest.mark.parametrize("f", both(), ids=["numpy", "torch"])
def test_extreme_scores_and_empty_selection(f):
    assert f.values(f.softmax(f.array([1000.0, 1000.0]))).tolist() == [0.5, 0.5]
    assert f.values(f.softmax(f.array([-1e308, 1000.0]))).tolist() == [0.0, 1.0]
    nothing = np.zeros(2, dtype=bool)
    assert f.values(f.softmax(f.array([3.0, 5.0]), nothing)).tolist() == [0.0, 0.0]
    assert f.values(f.sigmoid(f.array([-1000.0, 1000.0]))).tolist() == [0.0, 1.0]
    assert f.values(f.rms_norm(f.zeros((2, 3)))).tolist() == [[0.0] * 3] * 2
    assert np.isnan(f.values(f.softmax(f.array([float("nan"), 1.0])))).all()  # a NaN is shown, not hidden


def test_gradients():
    """The operations run under autograd, masked rows and zero vectors included, and agree with finite differences."""
    f = Float("torch")
    mask = torch.tril(torch.ones(4, 4, dtype=torch.bool))
    mask[0] = False
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def attend(x):
        p = f.softmax(f.scores(f.rms_norm(x), f.l2_norm(x)), mask)
        return f.mix(p, f.mul(x, f.sigmoid(x)))

    assert torch.autograd.gradcheck(attend, (x,))
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (f.rms_norm(zero).sum() + f.l2_norm(zero).sum()).backward()
    assert torch.isfinite(zero.grad).all()
    y = torch.randn(3, dtype=torch.float64, requires_grad=True)
    f.array(y).sum().backward()
    assert y.grad is not None


@pytest.mark.parametrize(
    ("arguments", "name", "bits"),
    [
        ((), "float64", 64),
        (("numpy", "float32"), "float32", 32),
        (("numpy", np.float16), "float16", 16),
        (("torch", torch.bfloat16), "torch bfloat16", 16),
        (("torch", torch.float32), "torch float32", 32),
    ],
)
def test_names(arguments, name, bits):
    assert Float(*arguments).name == name
    assert Float(*arguments).bits == bits


def test_bad_backends_and_dtypes():
    with pytest.raises(ValueError, match="numpy, torch"):
        Float("jax")
    with pytest.raises(ValueError, match="float32, float64"):
        Float(dtype="int8")
    with pytest.raises(ValueError, match="no float type"):
        Float("numpy", "bfloat16")
    for f in both():
        with pytest.raises(ValueError, match="raw, sqrt, dim"):
            f.scores(f.zeros((2, 3)), f.zeros((2, 3)), "half")
