"""rng: counter-based splitmix64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq import rng

MASK = (1 << 64) - 1


def mix_by_hand(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_published_values():
    assert int(rng.mix(0)) == 16294208416658607535
    assert int(rng.integers(1000, 7, 0, 0)) == 336


@given(st.integers(0, MASK))
def test_mix_equals_python_integers(x):
    assert int(rng.mix(x)) == mix_by_hand(x)


@given(st.integers(-(1 << 40), 1 << 40), st.lists(st.integers(0, 1 << 62), max_size=4))
def test_key_chains(seed, counters):
    word = mix_by_hand(seed & MASK)
    for c in counters:
        word = mix_by_hand((word + c) & MASK)
    assert int(rng.key(seed, *counters)) == word


def test_vectorised_equals_one_by_one():
    grid = rng.key(5, np.arange(7)[:, None], np.arange(3))
    assert grid.shape == (7, 3) and grid.dtype == np.uint64
    assert all(int(grid[i, j]) == int(rng.key(5, i, j)) for i in range(7) for j in range(3))
    assert np.array_equal(rng.key(5, np.arange(4, dtype=np.int32)), rng.key(5, np.arange(4, dtype=np.uint64)))


def test_generator_is_a_pure_function_of_its_place():
    g = rng.Generator(11)
    assert np.array_equal(g.at(2, 3).words((4, 5)), rng.key(11, 2, 3, np.arange(20)).reshape(4, 5))
    assert np.array_equal(g.at(2).at(3).bits((9,)), g.at(2, 3).bits((9,)))
    assert not np.array_equal(g.at(1).words((8,)), g.at(2).words((8,)))
    assert np.array_equal(g.integers(10, (6,)), g.integers(10, (6,)))
    assert g.words(()).shape == () and g.bits((0, 3)).shape == (0, 3)


def test_ranges_and_balance():
    g = rng.Generator(1)
    draws = g.integers(7, (70_000,))
    counts = np.bincount(draws, minlength=7)
    assert counts.size == 7 and abs(counts - 10_000).max() < 500
    assert abs(g.bits((40_000,)).mean() - 0.5) < 0.02
    u = g.uniform((40_000,))
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert np.array_equal(u, rng.uniform(1, np.arange(40_000)))


@given(st.integers(0, 200), st.integers(0, 1000))
def test_permutation(size, seed):
    assert np.array_equal(np.sort(rng.Generator(seed).permutation(size)), np.arange(size))


@pytest.mark.parametrize("high", [0, -1, (1 << 63) + 1])
def test_bad_ranges(high):
    with pytest.raises(ValueError, match="high"):
        rng.integers(high, 0)
    with pytest.raises(ValueError, match="high"):
        rng.Generator(0).integers(high, (2,))


def test_counters_must_be_integers():
    with pytest.raises(ValueError, match="counter"):
        rng.key(0, np.array([0.5]))
    with pytest.raises(ValueError, match="x must"):
        rng.mix(np.array([1.0]))
