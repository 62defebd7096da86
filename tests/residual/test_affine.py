"""Sparse affine maps equal the dense definition, code for code."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float, Integer
from hybridseq.residual import Affine, Stream

X = Stream({"g": 1, "f": 1, "A": 3})
NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.fractions(-5, 5, max_denominator=64),
    st.floats(-8, 8, allow_nan=False),
    st.sampled_from([1, -1]),
)


@st.composite
def affine_maps(draw):
    source, target = Stream({"x": draw(st.integers(1, 6))}), Stream({"y": draw(st.integers(1, 6))})
    cells = st.tuples(st.integers(0, target.dim - 1), st.integers(0, source.dim - 1))
    weights = draw(st.dictionaries(cells, NUMBERS, max_size=20))
    bias = draw(st.dictionaries(st.integers(0, target.dim - 1), NUMBERS, max_size=target.dim))
    return Affine(source, target, tuple((r, c, w) for (r, c), w in weights.items()), tuple(bias.items()))


@settings(max_examples=150, deadline=None)
@given(affine_maps(), st.sampled_from([1, 2, 3, 8, 17]), st.sampled_from(["zero", "even", "away", "up"]), st.data())
def test_sparse_equals_dense_in_fixed_point(affine, s, ties, data):
    ar = FixedPoint(s, ties=ties)
    codes = data.draw(
        st.lists(st.integers(-ar.max_code, ar.max_code), min_size=6 * affine.source.dim, max_size=6 * affine.source.dim)
    )
    x = ar.check(np.array(codes, dtype=object).reshape(2, 3, affine.source.dim))
    matrix, bias = affine.dense()
    expected = ar.affine(ar.array(matrix), x, ar.array(bias))
    got = affine.apply(ar, x)
    assert got.shape == expected.shape and (got == expected).all()
    assert got.dtype == expected.dtype


@settings(max_examples=100, deadline=None)
@given(affine_maps(), st.sampled_from([2, 3, 8, 30]), st.data())
def test_sparse_equals_dense_in_saturating_integers(affine, p, data):
    """Integers accumulate a row exactly and saturate once: Python's own sum, clipped at the end, is the definition."""
    ar = Integer(p)
    numbers = st.lists(st.integers(ar.low, ar.high), min_size=affine.source.dim, max_size=affine.source.dim)
    x = np.array([data.draw(numbers) for _ in range(3)])
    matrix, bias = (ar.array(part) for part in affine.dense())
    got = affine.apply(ar, x)
    assert np.array_equal(got, ar.affine(matrix, x, bias)) and got.dtype == np.int64
    for row, result in zip(x.tolist(), got.tolist(), strict=True):
        lines = zip(matrix.tolist(), bias.tolist(), strict=True)
        sums = [sum(w * v for w, v in zip(line, row, strict=True)) + b for line, b in lines]
        assert result == [min(max(total, ar.low), ar.high) for total in sums]


def test_an_integer_row_saturates_once():
    # 3 + 3 - 4 = 2 fits three bits; saturating after every addition would give 3 - 4 = -1.
    affine = Affine.from_rows(Stream({"x": 3}), Stream({"y": 1}), {"y": {"x": [[1, 1, 1]]}})
    assert affine.apply(Integer(3), np.array([[3, 3, -4], [-4, 3, 3], [3, 3, 3]])).tolist() == [[2], [2], [3]]
    assert affine.with_weight("y", "1", -3).apply(Integer(3), np.array([3, 3, 3])).tolist() == [3]


@settings(max_examples=40, deadline=None)
@given(affine_maps())
def test_numpy_and_torch_floats_agree_with_the_dense_product(affine):
    torch = pytest.importorskip("torch")
    matrix, bias = (part.astype(float) for part in affine.dense())
    x = np.linspace(-2, 2, 4 * affine.source.dim).reshape(4, affine.source.dim)
    expected = x @ matrix.T + bias
    assert np.allclose(affine.apply(Float(), x), expected, rtol=0, atol=1e-9)
    tensor = torch.tensor(x, requires_grad=True)
    result = affine.apply(Float("torch"), tensor)
    assert np.allclose(result.detach().numpy(), expected, rtol=0, atol=1e-9)
    if result.requires_grad:  # a map without weights is a constant
        result.sum().backward()
        assert np.allclose(tensor.grad.numpy(), np.tile(matrix.sum(axis=0), (4, 1)))


def test_rows_read_as_mathematics():
    affine = Affine.from_rows(X, Stream({"k": 2}), {"k[0]": {"1": 1, "f": -2}, "k[1]": {"g": 1, "f": 1}})
    assert str(affine) == "k[0] = -2 f + 1\nk[1] = g + f"
    ar = FixedPoint(2)
    x = ar.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 3, 3, 3]])
    assert affine.apply(ar, x).tolist() == [[4, 4], [-4, 4], [4, 0]]


def test_slices_matrices_and_constants():
    q = Affine.from_rows(X, Stream({"q": 6}), {"q[::2]": {"A": 1}, "q[1::2]": {"1": -1}})
    assert q.apply(Float(), np.array([9.0, 9, 1, 2, 3])).tolist() == [1, -1, 2, -1, 3, -1]
    mixed = Affine.from_rows(X, Stream({"y": 2}), {"y": {"A": [[1, 0, 2], [0, Fraction(1, 2), 0]], "1": [5, 0]}})
    assert mixed.apply(Float(), np.array([0.0, 0, 1, 2, 3])).tolist() == [12, 1]
    assert str(mixed) == "y[0] = A[0] + 2 A[2] + 5\ny[1] = (1/2) A[1]"
    assert str(Affine(X, X)) == "0"


def test_order_of_the_sum_is_ascending_and_bias_comes_last():
    # s = 2, codes (15, 3, -4): 15 + 3 saturates to 15, then 11; the bias then takes it to 15 again and stays there.
    x = Stream({"x": 3})
    affine = Affine.from_rows(x, Stream({"y": 1}), {"y": {"1": 1, "x": [[1, 1, 1]]}})
    ar = FixedPoint(2)
    assert affine.apply(ar, np.array([15, 3, -4])).tolist() == [15]
    assert affine.apply(ar, np.array([-4, 3, 15])).tolist() == [15]
    assert affine.with_weight("y", "1", 0).apply(ar, np.array([15, 3, -4])).tolist() == [11]
    assert affine.with_weight("y", "1", 0).apply(ar, np.array([-4, 3, 15])).tolist() == [14]


def test_a_view_is_never_written_to():
    copy = Affine.from_rows(X, Stream({"y": 5}), {"y[:1]": {"g": 1}, "y[1:2]": {"f": 1}, "y[2:]": {"A": 1}})
    x = np.arange(5)
    before = x.copy()
    copy.apply(FixedPoint(3), x)
    assert np.array_equal(x, before)


def test_changing_one_weight_and_what_it_reads():
    k = Affine.from_rows(X, Stream({"k": 2}), {"k[0]": {"1": 1, "f": -2}, "k[1]": {"g": 1}})
    changed = k.with_weight("k[0]", "f", 3).with_weight("k[1]", "1", 7)
    assert (changed.weight("k[0]", "f"), changed.weight("k[1]", "1"), changed.weight("k[1]", "A[0]")) == (3, 7, 0)
    assert (k.weight("k[0]", "f"), k.weight("k[1]", "1")) == (-2, 0)
    assert k.reads == {0, 1} and k.writes == {0, 1}
    assert k.with_weight("k[1]", "g", 0).writes == {0}


def test_plans_do_not_depend_on_which_arithmetic_came_first():
    k = Affine.from_rows(X, Stream({"y": 1}), {"y": {"g": 0.3}})
    one = np.array([1, 0, 0, 0, 0])
    assert k.apply(FixedPoint(2), 4 * one).tolist() == [1]
    assert k.apply(FixedPoint(4), 16 * one).tolist() == [5]
    assert k.apply(FixedPoint(2), 4 * one).tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"k": {"A": 1}}, "equal lengths"),
        ({"k": {"A": [[1, 2]]}}, "shape"),
        ({"k": {"1": [1, 2, 3]}}, "2 numbers"),
        ({"k": {"z": 1}}, "one of"),
        ({"q": {"g": 1}}, "one of"),
        ({"k[0]": {"g": float("nan")}}, "finite"),
        ({"k[0]": {"g": "1"}}, "finite|shape|real"),
        ({"k[0]": {"g": 1}, "k": {"A[:2]": 1, "g": [[1], [1]]}}, "given twice"),
        ({"k[0]": {"1": 1}, "k": {"1": 1}}, "given twice"),
    ],
)
def test_bad_rows(rows, message):
    with pytest.raises(ValueError, match=message):
        Affine.from_rows(X, Stream({"k": 2}), rows)


def test_bad_entries_and_inputs():
    with pytest.raises(ValueError, match="rows must lie"):
        Affine(X, X, ((5, 0, 1),))
    with pytest.raises(ValueError, match="columns must lie"):
        Affine(X, X, ((0, 5, 1),))
    with pytest.raises(ValueError, match="once"):
        Affine(X, X, ((0, 0, 1), (0, 0, 2)))
    with pytest.raises(ValueError, match="5 coordinates"):
        Affine(X, X).apply(FixedPoint(2), np.zeros((3, 4), dtype=np.int64))
    with pytest.raises(ValueError, match="one coordinate"):
        Affine(X, X).with_weight("A", "g", 1)
