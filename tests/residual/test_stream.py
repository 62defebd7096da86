"""Named subspaces of a residual stream."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.residual import Stream

STREAM = Stream({"g": 1, "A": 3, "R": 2})


def test_coordinates_follow_the_order_of_the_names():
    assert STREAM.dim == 6 and STREAM.names == ("g", "A", "R")
    assert STREAM.slice("A") == slice(1, 4)
    assert STREAM.labels() == ["g", "A[0]", "A[1]", "A[2]", "R[0]", "R[1]"]
    assert [STREAM.label(i) for i in range(6)] == STREAM.labels()
    assert Stream((("g", 1), ("A", 3), ("R", 2))) == STREAM


def test_read_takes_one_subspace_of_a_batch():
    x = np.arange(24).reshape(2, 2, 6)
    assert np.array_equal(STREAM.read(x, "A"), x[..., 1:4])


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("g", [0]),
        ("A", [1, 2, 3]),
        ("A[0]", [1]),
        ("A[-1]", [3]),
        ("A[1:]", [2, 3]),
        ("A[::2]", [1, 3]),
        ("R[:1]", [4]),
    ],
)
def test_references(reference, expected):
    assert list(STREAM.coordinates(reference)) == expected


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d_1", "E"]), st.integers(1, 5), min_size=1))
def test_slices_partition_the_stream(spaces):
    stream = Stream(spaces)
    covered = [i for name in stream.names for i in range(stream.dim)[stream.slice(name)]]
    assert covered == list(range(stream.dim))
    assert all(stream.coordinates(label)[0] == i for i, label in enumerate(stream.labels()))


@pytest.mark.parametrize("spaces", [{"1": 1}, {"a b": 1}, {"a": 0}, {"a": -1}, {"a": 1.5}, {"a": True}])
def test_bad_spaces(spaces):
    with pytest.raises(ValueError, match="spaces"):
        Stream(spaces)
    with pytest.raises(ValueError, match="differ"):
        Stream((("a", 1), ("a", 2)))


@pytest.mark.parametrize("reference", ["B", "A[3]", "A[-4]", "A[", "A[x]", "A[1:2:0]", "", "1"])
def test_bad_references(reference):
    with pytest.raises(ValueError):
        STREAM.coordinates(reference)


def test_wrong_width_and_coordinate():
    with pytest.raises(ValueError, match="6 coordinates"):
        STREAM.read(np.zeros((2, 5)), "A")
    with pytest.raises(ValueError, match=r"0\.\.5"):
        STREAM.label(6)
