"""The vectorised format against the definition: all pairs at s = 1, 2; drawn cases to s = 24 and at the int64 boundary."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import TIE_RULES, FixedPoint
from hybridseq.arithmetic.definition import Definition

SCALES = ("raw", "sqrt", "dim")
FORMATS = st.sampled_from([1, 2, 3, 4, 7, 8, 12, 13, 14, 15, 16, 17, 20, 23, 24])


def fractions(codes, s):
    return [Fraction(int(c), 2**s) for c in np.asarray(codes).ravel()]


def codes_of(values, s):
    return [int(v * 2**s) for v in values]


def same(got, expected, s):
    assert np.asarray(got).ravel().tolist() == codes_of(expected, s)


@st.composite
def vectors(draw, count=2, max_length=9, extreme=True):
    """(format, definition, ``count`` code lists of equal length): small codes, codes at the ends, and anything between."""
    s = draw(FORMATS)
    ties = draw(st.sampled_from(TIE_RULES))
    ar = FixedPoint(s, ties)
    top = ar.max_code
    code = st.one_of(
        st.integers(-12, 12), st.integers(-top, top), st.sampled_from([top, -top, top - 1, 1 - top, ar.one, -ar.one, ar.one // 2])
    )
    code = code.map(lambda c: max(-top, min(top, c)))
    length = draw(st.integers(1, max_length))
    rows = [draw(st.lists(code, min_size=length, max_size=length)) for _ in range(count)]
    return ar, Definition(s, ties), [np.array(row, dtype=ar.dtype) for row in rows]


@pytest.mark.parametrize("ties", TIE_RULES)
@pytest.mark.parametrize("s", [1, 2])
def test_every_pair_of_members(s, ties):
    ar, d = FixedPoint(s, ties), Definition(s, ties)
    codes = ar.codes()
    a, b = (m.ravel() for m in np.meshgrid(codes, codes, indexing="ij"))
    xs, ys = fractions(a, s), fractions(b, s)
    for name in ("add", "sub", "mul"):
        same(getattr(ar, name)(a, b), [getattr(d, name)(x, y) for x, y in zip(xs, ys, strict=True)], s)
    pairs = np.stack([a, b], axis=-1)
    for name in ("rms_norm", "l2_norm"):
        expected = [v for x, y in zip(xs, ys, strict=True) for v in getattr(d, name)([x, y])]
        same(getattr(ar, name)(pairs), expected, s)
    same(ar.softmax(pairs), [v for x, y in zip(xs, ys, strict=True) for v in d.softmax([x, y])], s)
    for scale in SCALES:
        expected = [d.wide_dot([x, y], [y, x], scale) for x, y in zip(xs, ys, strict=True)]
        same(ar.wide_dot(pairs, pairs[:, ::-1], scale), expected, s)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_every_member_alone(s):
    ar, d = FixedPoint(s), Definition(s)
    codes = ar.codes()
    xs = fractions(codes, s)
    same(ar.exp(codes), [d.exp(x) for x in xs], s)
    same(ar.exp_table(), [d.exp(x) for x in xs], s)
    same(ar.sigmoid(codes), [d.sigmoid(x) for x in xs], s)
    same(ar.neg(codes), [-x for x in xs], s)
    same(ar.relu(codes), [max(x, Fraction(0)) for x in xs], s)
    for scale in SCALES:  # 1, 2, 3 and 4 terms: square roots of 2 and 3, and of 4, where ties exist
        for length in (1, 2, 3, 4):
            rows = np.zeros((len(codes), length), dtype=ar.dtype)
            rows[:, 0] = codes
            half = np.full((1, length), max(1, ar.one // 2), dtype=ar.dtype)
            expected = [d.wide_dot(fractions(row, s), fractions(half, s), scale) for row in rows]
            same(ar.wide_dot(rows, half, scale), expected, s)


@pytest.mark.parametrize("ties", TIE_RULES)
def test_every_triple_sum_at_s_1(ties):
    ar, d = FixedPoint(1, ties), Definition(1, ties)
    grid = np.stack(np.meshgrid(*[ar.codes()] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    same(ar.sum(grid), [d.sum(fractions(row, 1)) for row in grid], 1)


@settings(deadline=None)
@given(vectors())
def test_elementwise(case):
    ar, d, (a, b) = case
    xs, ys = fractions(a, ar.s), fractions(b, ar.s)
    for name in ("add", "sub", "mul"):
        same(getattr(ar, name)(a, b), [getattr(d, name)(x, y) for x, y in zip(xs, ys, strict=True)], ar.s)


@settings(deadline=None)
@given(vectors())
def test_sums_and_products(case):
    ar, d, (a, b) = case
    xs, ys = fractions(a, ar.s), fractions(b, ar.s)
    same(ar.sum(a), [d.sum(xs)], ar.s)
    same(ar.sum(np.stack([a, b])), [d.sum(xs), d.sum(ys)], ar.s)
    same(ar.sum(np.stack([a, b], axis=-1), axis=0), [d.sum(xs), d.sum(ys)], ar.s)
    same(ar.dot(a, b), [d.dot(xs, ys)], ar.s)
    for scale in SCALES:
        same(ar.wide_dot(a, b, scale), [d.wide_dot(xs, ys, scale)], ar.s)
        both = np.stack([a, b])
        expected = [d.wide_dot(u, v, scale) for u in (xs, ys) for v in (xs, ys)]
        same(ar.scores(both, both, scale), expected, ar.s)


@settings(deadline=None)
@given(vectors(count=1))
def test_norms(case):
    ar, d, (a,) = case
    xs = fractions(a, ar.s)
    same(ar.rms_norm(a), d.rms_norm(xs), ar.s)
    same(ar.l2_norm(a), d.l2_norm(xs), ar.s)


@settings(deadline=None, max_examples=60)
@given(vectors(count=4, max_length=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_affine_softmax_and_mix(case, seen):
    ar, d, rows = case
    length = len(rows[0])
    weight, x, bias = np.stack(rows[:2]), rows[2], rows[3][:1].repeat(2)
    rows_of_weight = [fractions(w, ar.s) for w in weight]
    same(ar.affine(weight, x, bias), d.affine(rows_of_weight, fractions(x, ar.s), fractions(bias, ar.s)), ar.s)
    same(ar.affine(weight, np.stack([x, rows[3]]))[0], d.affine(rows_of_weight, fractions(x, ar.s), [0, 0]), ar.s)
    mask = np.array(seen[:length])
    z = fractions(x, ar.s)
    same(ar.softmax(x), d.softmax(z), ar.s)
    p = ar.softmax(x, mask)
    same(p, d.softmax(z, seen[:length]), ar.s)
    values = np.stack([rows[0], rows[3]], axis=-1)
    columns = [fractions(v, ar.s) for v in values]
    same(ar.mix(p[None], values), d.mix(fractions(p, ar.s), columns), ar.s)
    same(ar.mix(rows[0][None], values), d.mix(fractions(rows[0], ar.s), columns), ar.s)


@pytest.mark.parametrize("ties", TIE_RULES)
@pytest.mark.parametrize("s", [1, 2, 5, 15, 16])
def test_exact_ties_of_roots(s, ties):
    """√ of 4 terms halves: an odd accumulator in units of δ² ends exactly between two codes, on both sides of zero."""
    ar, d = FixedPoint(s, ties), Definition(s, ties)
    for k in (1, 3, 5, -1, -3, -5, 2 * ar.one - 1, 1 - 2 * ar.one):
        x = np.array([k, 0, 0, 0], dtype=ar.dtype)
        y = np.array([ar.one, 0, 0, 0], dtype=ar.dtype)
        if abs(k) <= ar.max_code:
            same(ar.wide_dot(x, y, "sqrt"), [d.wide_dot(fractions(x, s), fractions(y, s), "sqrt")], s)
    # (1, 1, 1, 1)/2: every entry is one half of δ·2ˢ, a tie only where one is odd, which needs s = 0; (3, 4) is exact instead.
    x = np.array([3, 4], dtype=ar.dtype)
    if ar.max_code >= 4:
        same(ar.l2_norm(x), d.l2_norm(fractions(x, s)), s)
    if s == 1:
        x = np.array([1, 1, 1, 1] * 4, dtype=ar.dtype)  # l2: 1/4 = half of δ
        same(ar.l2_norm(x), d.l2_norm(fractions(x, s)), s)


@pytest.mark.parametrize("ties", TIE_RULES)
@pytest.mark.parametrize("s", [1, 3, 12, 15, 16])
def test_real_values_are_rounded_once(s, ties):
    ar, d = FixedPoint(s, ties), Definition(s, ties)
    half = Fraction(1, 2 ** (s + 1))
    reals = [0, 1, -1, half, -half, 3 * half, -3 * half, 5 * half, 10.3, -10.3, 1e-300, -1e-300, 1e300, -1e300]
    reals += [float(ar.max_value), float(ar.max_value) + float(half), 2.0**s, -(2.0**s), 0.1, 1 / 3, 5e-324]
    expected = [d.round(Fraction(r)) for r in reals]
    same(ar.array(reals), expected, s)
    same(ar.array(np.array([float(r) for r in reals])), expected, s)
    same(ar.array(np.array(reals, dtype=object).reshape(3, 7)), expected, s)
    same(ar.array(np.array([-(2**63), -3, 0, 1, 2**62])), [d.round(Fraction(v)) for v in (-(2**63), -3, 0, 1, 2**62)], s)
    same(ar.array(np.float32(0.1)), [d.round(Fraction(float(np.float32(0.1))))], s)
    same(ar.full((2,), Fraction(1, 3)), [d.round(Fraction(1, 3))] * 2, s)


@pytest.mark.parametrize("ties", TIE_RULES)
def test_large_tables_round_like_small_ones(ties):
    """From 2^14 accumulators on, each distinct value is rounded once: both paths must agree, shared factors included."""
    ar, rng = FixedPoint(4, ties), np.random.default_rng(5)
    for unit in (1, ar.one):
        q = unit * rng.integers(-3, 4, size=(160, 6))
        k = unit * rng.integers(-3, 4, size=(130, 6))
        for scale in SCALES:
            whole = ar.scores(q, k, scale)
            assert (whole == np.stack([ar.wide_dot(row, k, scale) for row in q])).all()
    assert (ar.scores(np.zeros((160, 2), dtype=int), np.zeros((160, 2), dtype=int)) == 0).all()
    # A range of values as wide as the table keeps the direct path.
    wide = ar.scores(rng.integers(-255, 256, size=(160, 6)), rng.integers(-255, 256, size=(160, 6)))
    assert wide.shape == (160, 160)


@pytest.mark.parametrize("s", [8, 15, 16])
def test_long_rows_at_the_ends_of_the_format(s):
    """Long rows of numbers at ±max: nothing wraps around, whatever the operation."""
    ar, d = FixedPoint(s), Definition(s)
    top, length = ar.max_code, 1024 if s < 16 else 256
    full = np.full(length, top, dtype=ar.dtype)
    signs = np.where(np.arange(length) % 3 == 0, -1, 1)
    mixed = (full * signs).astype(ar.dtype)
    assert ar.sum(full) == top
    assert ar.sum(-full) == -top
    same(ar.sum(mixed), [d.sum(fractions(mixed, s))], s)
    same(ar.dot(mixed, full), [d.dot(fractions(mixed, s), fractions(full, s))], s)
    for scale in SCALES:
        same(ar.wide_dot(mixed, mixed, scale), [d.wide_dot(fractions(mixed, s), fractions(mixed, s), scale)], s)
        same(ar.scores(mixed[None], full[None], scale), [d.wide_dot(fractions(mixed, s), fractions(full, s), scale)], s)
    assert (ar.rms_norm(full) == ar.one).all()
    assert set(ar.l2_norm(full).tolist()) == {int(d.l2_norm(fractions(full, s))[0] * 2**s)}
    p = ar.softmax(full)
    assert (p == ar.round_ratio(ar.one, length)).all()
    same(ar.mix(full[None], mixed[:, None]), d.mix(fractions(full, s), [[v] for v in fractions(mixed, s)]), s)


def test_int64_and_object_storage_meet():
    """The same computation at s = 15 (int64) and on Python ints gives the same codes."""
    ar, rng = FixedPoint(15), np.random.default_rng(1)
    a = rng.integers(-ar.max_code, ar.max_code + 1, size=(20, 7))
    b = rng.integers(-ar.max_code, ar.max_code + 1, size=(20, 7))
    for name in ("add", "sub", "mul", "dot", "wide_dot", "scores"):
        operation = getattr(ar, name)
        assert np.asarray(operation(a.astype(object), b.astype(object))).tolist() == operation(a, b).tolist(), name
    assert FixedPoint(15).dtype == np.int64
    assert FixedPoint(16).dtype == object


def test_mix_in_blocks_equals_mix_row_by_row(monkeypatch):
    from hybridseq.arithmetic import fixed_point

    ar, rng = FixedPoint(3), np.random.default_rng(2)
    p = rng.integers(0, 9, size=(2, 11, 13)) * rng.integers(0, 2, size=(2, 11, 13))
    v = rng.integers(-ar.max_code, ar.max_code + 1, size=(2, 13, 4))
    whole = ar.mix(p, v)
    monkeypatch.setattr(fixed_point, "MIXED", 13 * 2 * 3)
    assert (ar.mix(p, v) == whole).all()
    monkeypatch.setattr(fixed_point, "CACHED", 8)
    weight, x = rng.integers(-9, 9, size=(4, 13)), rng.integers(-9, 9, size=(2, 5, 13))
    assert (ar.affine(weight, x) == np.stack([[ar.dot(weight, row) for row in batch] for batch in x])).all()


def test_shapes_and_broadcasting():
    ar = FixedPoint(2)
    v = np.ones((5, 3), dtype=int)
    assert ar.mix(np.zeros((2, 4, 5), dtype=int), v).shape == (2, 4, 3)
    assert ar.mix(np.zeros((0, 5), dtype=int), v).shape == (0, 3)
    assert ar.mix(np.zeros((4, 0), dtype=int), np.zeros((0, 3), dtype=int)).tolist() == [[0] * 3] * 4
    assert ar.softmax(np.zeros((3, 0), dtype=int)).shape == (3, 0)
    assert ar.sum(np.zeros((3, 0), dtype=int)).tolist() == [0, 0, 0]
    assert ar.affine(np.zeros((4, 3), dtype=int), np.zeros((2, 6, 3), dtype=int)).shape == (2, 6, 4)
    assert ar.scores(np.ones((2, 1, 4, 3), dtype=int), np.ones((7, 5, 3), dtype=int)).shape == (2, 7, 4, 5)


def test_operands_are_left_alone():
    ar = FixedPoint(2)
    a, b = np.array([3, -5, 15]), np.array([15, 2, -15])
    for name in ("add", "sub", "mul", "dot", "wide_dot"):
        getattr(ar, name)(a, b)
    ar.softmax(a), ar.sum(a), ar.rms_norm(a), ar.relu(a), ar.scores(a[None], b[None])
    assert a.tolist() == [3, -5, 15] and b.tolist() == [15, 2, -15]
