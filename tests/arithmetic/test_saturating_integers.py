"""Integer(p, g) against plain Python integers, one operation at a time, and its merging of partial sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import Integer

FORMATS = st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16, 30]), st.sampled_from([0, 1, 2, 4, 8, 20, 60]))


def clip(x, p):
    return max(-(2 ** (p - 1)), min(2 ** (p - 1) - 1, x))


def half_up(num, den):
    return (2 * num + den) // (2 * den) if den else 0


def weight(z, g):
    return 2 ** max(0, min(g, z + g // 2))


@st.composite
def formats_and_rows(draw, rows=3, max_length=7):
    p, g = draw(FORMATS)
    low, high = -(2 ** (p - 1)), 2 ** (p - 1) - 1
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high]))
    length = draw(st.integers(1, max_length))
    return Integer(p, g), [draw(st.lists(number, min_size=length, max_size=length)) for _ in range(rows)]


@settings(deadline=None)
@given(formats_and_rows())
def test_every_operation(case):
    z, (a, b, c) = case
    p, g = z.p, z.g
    A, B, C = (np.array(row) for row in (a, b, c))
    assert z.add(A, B).tolist() == [clip(x + y, p) for x, y in zip(a, b, strict=True)]
    assert z.sub(A, B).tolist() == [clip(x - y, p) for x, y in zip(a, b, strict=True)]
    assert z.mul(A, B).tolist() == [clip(x * y, p) for x, y in zip(a, b, strict=True)]
    assert z.neg(A).tolist() == [clip(-x, p) for x in a]
    assert z.relu(A).tolist() == [max(x, 0) for x in a]
    assert z.sum(A) == clip(sum(a), p)
    product = sum(x * y for x, y in zip(a, b, strict=True))
    assert z.dot(A, B) == z.wide_dot(A, B) == clip(product, p)
    assert z.affine(np.stack([A, B]), C).tolist() == [clip(sum(x * y for x, y in zip(row, c, strict=True)), p) for row in (a, b)]
    biased = z.affine(np.stack([A]), B, np.array([c[0]]))
    assert biased.tolist() == [clip(product + c[0], p)]
    scores = z.scores(np.stack([A]), np.stack([B, C]))
    assert scores.tolist() == [[product, sum(x * y for x, y in zip(a, c, strict=True))]]
    seen = [x % 2 == 0 for x in b]
    weights = z.softmax(C, np.array(seen))
    expected = [weight(x, g) if visible else 0 for x, visible in zip(c, seen, strict=True)]
    assert weights.tolist() == expected
    mixed = z.mix(weights[None], A[:, None])
    num, den = sum(w * x for w, x in zip(expected, a, strict=True)), sum(expected)
    assert mixed.tolist() == [[clip(half_up(num, den), p)]]


@given(st.lists(st.integers(-300, 300), min_size=1), st.sampled_from([1, 4, 8]))
def test_real_values_are_rounded_half_up(values, p):
    z = Integer(p)
    halves = [v / 2 for v in values]
    assert z.array(halves).tolist() == [clip((v + 1) // 2, p) for v in values]
    assert z.values(z.array(halves)).dtype == np.float64


def test_full_accumulators_do_not_wrap():
    z = Integer(30, 60)
    low, n = z.low, 4096
    row = np.full(n, low)
    assert z.wide_dot(row, row) == z.high
    assert int(z.scores(row[None], row[None])[0, 0]) == n * low * low
    assert z.affine(row[None], row).tolist() == [z.high]
    weights = z.softmax(np.full((1, n), 100))
    assert int(weights[0, 0]) == 2**60
    assert z.mix(weights, row[:, None]).tolist() == [[low]]


def test_partial_sums_of_disjoint_ranges_add_up():
    """What lets a protocol replay a layer: numerators and denominators of two halves give the whole, bit for bit."""
    z, rng = Integer(8, 6), np.random.default_rng(0)
    q, k, v = (rng.integers(z.low, z.high + 1, size=shape) // 16 for shape in ((5, 3), (12, 3), (12, 2)))
    w = z.softmax(z.scores(q, k))
    whole = z.mix(w, v)
    num = w[:, :7] @ v[:7] + w[:, 7:] @ v[7:]
    den = w[:, :7].sum(-1, keepdims=True) + w[:, 7:].sum(-1, keepdims=True)
    assert (z.fraction(num, den) == whole).all()
    assert z.fraction(np.array([[3]]), np.array([[0]])).tolist() == [[0]]


@pytest.mark.parametrize("arguments", [(0,), (31,), (2.0,), (True,), ("4",), (4, -1), (4, 61), (4, 2.0), (4, True)])
def test_bad_formats(arguments):
    with pytest.raises(ValueError, match=r"must be an integer from \d+ to \d+"):
        Integer(*arguments)


def test_what_the_format_lacks():
    z = Integer(8, 2)
    for operation in ("exp", "sigmoid", "rms_norm", "l2_norm"):
        with pytest.raises(ValueError, match=operation):
            getattr(z, operation)(np.array([1]))
    with pytest.raises(ValueError, match="raw"):
        z.scores(np.ones((1, 2), dtype=int), np.ones((1, 2), dtype=int), "sqrt")
    for value in (float("nan"), float("inf"), "one", None):
        with pytest.raises(ValueError, match="finite real"):
            z.array([value])
    assert z.name == "Z_8 (g = 2)" and z.bits == 8
