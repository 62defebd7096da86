"""Two-sum: bits from the definition, edge cases, prompts and refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.tasks.two_sum import LastTokenTwoSum, TwoSum, free_residues, num_free

VARIANTS = [(causal, itself) for causal in (False, True) for itself in (False, True)]


@pytest.mark.parametrize("causal, itself", VARIANTS)
@pytest.mark.parametrize("modulus, length", [(2, 4), (3, 3), (4, 3), (5, 4)])
def test_answers_are_those_of_the_definition(modulus, length, causal, itself):
    task, seen = TwoSum(modulus, length, causal, itself), 0
    for tokens in task.every(50):
        seen += len(tokens)
        assert task.answers(tokens).tolist() == [task.solve(row) for row in tokens]
    assert seen == task.count == modulus**length


def test_the_drawing_of_the_docstring():
    row = [3, 7, 5, 4, 0, 1]
    assert TwoSum(8, 6).solve(row) == [True] * 6
    assert TwoSum(8, 6, causal=True).solve(row) == [False, False, True, True, True, True]
    assert TwoSum(8, 6, itself=False).solve(row) == [True, True, True, False, False, True]


@pytest.mark.parametrize("modulus, own", [(8, {0, 4}), (7, {0}), (2, {0, 1})])
def test_residues_that_cancel_themselves(modulus, own):
    assert set(range(modulus)) - set(free_residues(modulus).tolist()) == own
    assert num_free(modulus) == len(free_residues(modulus))
    alone = TwoSum(modulus, 1)
    assert {x for x in range(modulus) if alone.answers([x])[0]} == own
    assert not TwoSum(modulus, 1, itself=False).answers(np.arange(modulus)[:, None]).any()


def test_large_moduli_do_not_overflow():
    modulus = 2**63 - 1
    assert TwoSum(modulus, 2).answers([modulus - 1, 3]).tolist() == [False, False]
    assert LastTokenTwoSum(modulus, 1, 2).answers([[modulus - 1, 5, 3], [modulus - 3, 5, 3]]).tolist() == [False, True]


def test_the_query_of_the_last_token_version_is_no_content():
    """x_q = 0 and x_q = M/2 cancel themselves, which must not count."""
    task = LastTokenTwoSum(8, 2, 2)
    assert not task.answers([1, 2, 3, 5, 0]) and not task.answers([1, 2, 3, 5, 4])
    assert task.answers([0, 2, 3, 5, 0]) and task.answers([1, 4, 3, 5, 4])


@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_last_token_against_loops(modulus, blocks, block_size, seed):
    task = LastTokenTwoSum(modulus, blocks, block_size)
    for planted in (False, True):
        tokens = task.sample(np.array([seed, seed + 1]), planted)
        assert task.answers(tokens).tolist() == [task.solve(row) for row in tokens]
        assert task.prompt(task.contents(tokens), tokens[:, -1]).tolist() == tokens.tolist()
        assert not planted or task.answers(tokens).all()


def test_samples_do_not_depend_on_the_batch():
    task = TwoSum.squared(7)
    assert task.modulus == 49
    np.testing.assert_array_equal(task.sample(np.arange(5))[3], task.sample(3))


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: TwoSum(1, 3), "modulus"),
        (lambda: TwoSum(8, 0), "length"),
        (lambda: TwoSum(8, 2).answers([1, 8]), "residues modulo 8"),
        (lambda: TwoSum(8, 2).answers([1, -1]), "residues modulo 8"),
        (lambda: TwoSum(8, 2).answers([1, 2, 3]), "must be integers"),
        (lambda: TwoSum(8, 2).answers([0.5, 1]), "must be integers"),
        (lambda: TwoSum(100, 6).every().__next__(), "too many"),
        (lambda: TwoSum(8, 2).sample(0.5), "seed"),
        (lambda: LastTokenTwoSum(8, 0, 2), "blocks"),
        (lambda: LastTokenTwoSum(8, 2, True), "block_size"),
        (lambda: LastTokenTwoSum.from_length(10, 4), "multiple of block_size"),
        (lambda: LastTokenTwoSum(8, 3, 2).prompt([[1, 2, 3]], 0), "contents"),
        (lambda: LastTokenTwoSum(8, 1, 2).answers([1, 2, 9]), "residues modulo 8"),
        (lambda: free_residues(1), "modulus"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()
