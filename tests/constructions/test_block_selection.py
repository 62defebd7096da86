"""Two-sum through block-sparse attention: reads all blocks, chooses by a polynomial, by a Bloom filter; refusals, mutations."""

from itertools import combinations
from math import log2

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.constructions import block_selection as sel
from hybridseq.constructions.block_selection import (
    BloomKey,
    Cancelling,
    RandomMean,
    RandomMLP,
    SparseTwoSum,
    TrigMean,
)
from hybridseq.tasks.two_sum import LastTokenTwoSum

TASK = LastTokenTwoSum(16, 4, 3)
KEYS = [RandomMean(2, 4), TrigMean(4), RandomMLP(2, 5), RandomMLP(2, 5, positioned=True), Cancelling(3), BloomKey(9, 3)]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
def test_all_blocks_are_full_attention_and_right(key):
    model = SparseTwoSum(TASK, key, top_k=4)
    assert sel.check_all_blocks_are_full([model]).passed
    tokens = np.concatenate([TASK.sample(np.arange(60), planted) for planted in (False, True)])
    assert (model.answers(tokens) == TASK.answers(tokens)).all()
    assert model.selected(tokens).all()


def test_all_blocks_are_full_attention_bit_for_bit_in_fixed_point():
    models = [SparseTwoSum(TASK, key, top_k=4) for key in (RandomMean(2, 4), Cancelling(3))]
    for ar in (FixedPoint(10), FixedPoint(20)):
        check = sel.check_all_blocks_are_full(models, num=10, ar=ar)
        assert check.passed, check
    with pytest.raises(ValueError, match="all 4 blocks"):
        sel.check_all_blocks_are_full([SparseTwoSum(TASK, KEYS[0], 3)])


def test_several_heads_read_several_blocks_and_add_up():
    heads = (BloomKey(6, 3, 1), BloomKey(6, 3, 2), BloomKey(6, 3, 3))
    model, tokens = SparseTwoSum(TASK, heads, top_k=1), TASK.sample(np.arange(200), planted=True)
    picked = model.selected(tokens)
    assert picked.shape == (200, 3, 4) and (picked.sum(axis=-1) == 1).all()
    cancels = ((TASK.contents(tokens) + tokens[:, -1, None, None]) % 16 == 0).any(-1)
    assert (model.answers(tokens) == (cancels & picked.any(axis=1)).any(-1)).all()
    seen = model.seen(tokens)
    assert seen[model.answers(tokens)].min() >= 0.8 - 1e-9 and seen[~model.answers(tokens)].max(initial=0) <= 0.25


def test_a_window_sees_the_last_blocks():
    model = SparseTwoSum(TASK, RandomMean(1, 2), top_k=0, window=5)
    assert model.answers(TASK.prompt([[1, 2, 3], [1, 2, 3], [1, 2, 5], [1, 2, 9]], 11))
    assert not model.answers(TASK.prompt([[1, 2, 3], [1, 5, 2], [1, 2, 3], [1, 2, 9]], 11))
    assert not model.answers(TASK.prompt([[1, 2, 3], [1, 2, 3], [1, 5, 2], [1, 2, 9]], 11))


def test_the_branch_of_value_summaries_is_in_the_stream_but_not_in_the_answer():
    plain, both = SparseTwoSum(TASK, KEYS[0], 1), SparseTwoSum(TASK, KEYS[0], 1, values=RandomMean(2, 5, 9))
    tokens = TASK.sample(np.arange(20))
    np.testing.assert_allclose(plain.seen(tokens), both.seen(tokens), atol=1e-14)
    branch = both.stream.read(both.model.last_state(Float(), tokens), "branch")
    assert branch.shape == (20, 3) and (np.abs(branch[:, 1:]).max(axis=0) > 0).all()


# spec C, section 5.5


@pytest.mark.parametrize("modulus, block_size, expected", [(32, 8, -27.52), (256, 8, -75.24)])
def test_least_distance_of_the_specification(modulus, block_size, expected):
    assert round(sel.log2_least_distance(modulus, block_size), 2) == expected


def test_the_neighbours_are_the_worst_block():
    assert sel.check_least_distance([(9, 1), (12, 3), (16, 2), (13, 4), (7, 3), (8, 7)]).passed


def test_repeated_residues_may_come_nearer_than_distinct_ones():
    near = tuple(sorted({1, 7}))  # (1, 7, 1, 7, 1, 7, 1): seven tokens, two residues
    product = np.prod([1 - np.cos(2 * np.pi * x / 8) for x in near])
    assert np.isclose(float(sel.least_distance(8, 7)), product) and product < 0.1


def test_the_polynomial_vanishes_on_the_block_alone():
    """Evaluated from its own coefficients, in float64, against the product."""
    modulus, block = 16, (1, 5, 6)
    a = np.array([float(c) for c in sel._coefficients(block, modulus, 3)])
    for x in range(modulus):
        t = -2 * np.pi * x / modulus
        direct = -np.prod([1 - np.cos(t - 2 * np.pi * s / modulus) for s in block])
        f = np.array([float(v) for v in sel._harmonics(x, modulus, 3)])
        np.testing.assert_allclose(a @ f, direct, atol=1e-14)
        assert (abs(direct) < 1e-12) == (-x % modulus in block)


def test_coefficients_stay_below_their_bound():
    for block in combinations(range(12), 3):
        total = sum(abs(float(c)) for c in sel._coefficients(block, 12, 3))
        assert total <= np.sqrt(2) * 2**3


def test_polynomial_chooses_rightly():
    check = sel.check_polynomial([(32, 1), (32, 2), (64, 4)], 12)
    assert check.passed, check
    assert SparseTwoSum(LastTokenTwoSum(32, 4, 2), Cancelling(2)).answers(
        LastTokenTwoSum(32, 4, 2).sample(np.arange(30), planted=True), FixedPoint(16)
    ).all()


def test_too_few_bits_choose_the_neighbours():
    """Between log2 of the least distance and the proved number of bits lies the number that the worst prompt needs."""
    for modulus, size in ((32, 2), (64, 3)):
        s = sel.worst_prompt_bits(modulus, size)
        assert s <= sel.enough_bits(modulus, size)
        task = LastTokenTwoSum(modulus, 2, size)
        model, tokens = SparseTwoSum(task, Cancelling(size)), sel.worst_prompt(task)
        assert task.answers(tokens)
        assert model.selected(tokens, FixedPoint(s))[0].tolist() == [False, True]
        assert model.selected(tokens, FixedPoint(s - 1))[0].tolist() == [True, False]


def test_repeated_residues_count_once():
    task = LastTokenTwoSum(32, 2, 2)
    model = SparseTwoSum(task, Cancelling(2))
    assert model.selected(task.prompt([[4, 4], [7, 7]], 25), FixedPoint(16))[0].tolist() == [False, True]


def test_bloom_misses_fall_with_the_bits():
    task, shares = LastTokenTwoSum(1024, 32, 4), (2, 4, 8, 16)
    rates = [sel.misses(SparseTwoSum(task, BloomKey(4 * share, 4), top_k=2), 150) / 150 for share in shares]
    assert rates[0] > 0.6 and rates[1] < rates[0] and rates[2] < 0.2 and rates[3] < 0.03, rates
    assert sel.bloom_bits(task) == 68  # 4 ln 3200 / ln^2 2 = 67.2


def test_budgets_grow_like_the_square_of_the_block():
    budgets = {size: sel.polynomial_budget(1024, size) for size in (2, 4, 8, 16)}
    growth = [log2(budgets[2 * size] / budgets[size]) for size in (2, 4, 8)]
    assert all(1.4 < g < 2.1 for g in growth), growth


def test_budget_bound():
    assert sel.check_polynomial_budget([(2**e, b) for e in (4, 6, 10) for b in (1, 2, 3, 5)]).passed
    with pytest.raises(ValueError, match="power of two"):
        sel.check_polynomial_budget([(12, 2)])


def test_bloom_check_can_fail(monkeypatch):
    tasks = [LastTokenTwoSum(1024, 16, 2)]
    assert sel.check_bloom(tasks, 200).passed
    monkeypatch.setattr(sel, "bloom_bits", lambda task, rate: 4)
    assert not sel.check_bloom(tasks, 100).passed
    few = SparseTwoSum(tasks[0], BloomKey(3, 2), top_k=2)
    assert sel.misses(few, 200) > 20


def test_whole_layer_in_fixed_point():
    """Four bits of integer part and of fraction at M = 8; the scale must fit below 2^s."""
    task = LastTokenTwoSum(8, 4, 3)
    s = sel.smallest_format(task, 60)
    assert 3 <= s <= 5 and SparseTwoSum(task, RandomMean(1, 1), 4).scale < 2 ** (s + 1)
    with pytest.raises(ValueError, match="fails"):
        sel.smallest_format(LastTokenTwoSum(64, 4, 3), 30, most=6)


def test_a_changed_weight_is_noticed():
    tokens = np.concatenate([TASK.sample(np.arange(60), planted) for planted in (False, True)])
    model = SparseTwoSum(TASK, Cancelling(3), top_k=4)
    changes = ["K k[1] sin", "K k[2] query", "Q q[0] qcos", "V v[0] token", "O seen u0[0]"]
    for name, target, source in map(str.split, changes):
        changed = model.with_weight(name, target, source, 0.25)
        assert (changed.answers(tokens) != TASK.answers(tokens)).any(), (name, target, source)
    good = SparseTwoSum(TASK, Cancelling(3), top_k=1)
    assert sel.misses(good, 40, ar=FixedPoint(24)) == 0
    assert sel.misses(good.with_weight("selector0", "y[1]", "selector0[1]", -1), 40, ar=FixedPoint(24)) > 0


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: SparseTwoSum(TASK, KEYS[0], top_k=5), "number of blocks, 4"),
        (lambda: SparseTwoSum(TASK, KEYS[0], top_k=-1), "top_k"),
        (lambda: SparseTwoSum(TASK, KEYS[0], top_k=True), "top_k"),
        (lambda: SparseTwoSum(TASK, ()), "keys"),
        (lambda: SparseTwoSum(TASK, Cancelling(2)), "blocks of 2"),
        (lambda: SparseTwoSum(TASK, KEYS[0]).answers(np.arange(13) + 4), "residues"),
        (lambda: SparseTwoSum(TASK, KEYS[0], values=RandomMean(1, 2)).dense, "values"),
        (lambda: sel.least_distance(8, 8), "block_size"),
        (lambda: sel.worst_prompt(LastTokenTwoSum(8, 1, 2)), "two blocks"),
        (lambda: sel.bloom_bits(TASK, 0), "rate"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()
