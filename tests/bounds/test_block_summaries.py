"""Block summaries: the bounds, the finder, certificates and what the replayer refuses; models that must not be fooled."""

from itertools import combinations
from math import comb, log2

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds import block_summaries as bs
from hybridseq.constructions.block_selection import (
    BloomKey,
    Cancelling,
    RandomMean,
    RandomMLP,
    SparseTwoSum,
    TrigMean,
)
from hybridseq.constructions.two_sum import TwoSumAttention
from hybridseq.evidence import Certificate
from hybridseq.tasks.two_sum import LastTokenTwoSum, TwoSum

AR = Float()
TASK = LastTokenTwoSum(32, 6, 2)


def mean(task, bits, seed, **rest):
    return SparseTwoSum(task, RandomMean(1, bits, seed), 2, **rest).model


def mlps(task, bits, seed):
    return SparseTwoSum(task, RandomMLP(1, bits, seed, positioned=True), 2).model


# spec C, section 7, items 15 and 16


@pytest.mark.parametrize(
    "modulus, block_size, dims, bits, expected",
    [(16, 2, 1, 4, (120, 13, 118, 19)), (16, 3, 2, 4, (560, 105, 541, 19)), (16, 4, 2, 8, (1820, 1745, 149, 3))],
)
def test_census_of_the_specification(modulus, block_size, dims, bits, expected):
    model = SparseTwoSum(LastTokenTwoSum(modulus, 2, block_size), RandomMean(dims, bits, 7)).model
    every = np.array(list(combinations(range(modulus), block_size)))
    found = bs.census(bs.summaries(model, AR, every))
    assert (found.contents, found.summaries, found.colliding, found.largest) == expected
    assert bs.summary_bits(model) == dims * bits


def test_census_check_can_fail():
    task = LastTokenTwoSum(16, 2, 2)
    model = SparseTwoSum(task, RandomMean(1, 4, 7)).model
    assert bs.check_census([(model, task, (120, 13, 118, 19))]).passed
    assert not bs.check_census([(model, task, (120, 13, 118, 18))]).passed
    assert bs.check_all_fooled([bs.Success(1, 2, 3, 3)], "x").passed
    assert not bs.check_all_fooled([bs.Success(1, 2, 3, 3), bs.Success(1, 4, 2, 3)], "x").passed
    assert not bs.check_all_fooled([], "x").passed


def test_existence_and_half_of_it():
    sizes = (1, 2, 4, 8, 16)
    assert [round(bs.existence(256, b), 1) for b in sizes] == [8.0, 15.0, 27.3, 48.4, 82.9]
    assert [round(bs.least_budget(256, b), 4) for b in sizes] == [3.9943, 7.4858, 13.6678, 24.2248, 41.4365]
    assert bs.least_budget(256, 4, value_summary=False) == bs.existence(256, 4)
    assert bs.collides(256, 1, 7) and not bs.collides(256, 1, 8)
    assert not bs.collides(4, 1, 1)  # two free residues, one bit: no two need to share it
    assert bs.check_growth([(n, b) for n in (2, 3, 8, 33) for b in range(1, n // 2 + 1)]).passed


def test_positioned_budget():
    assert round(bs.positioned_budget(257**2, 4, 64, 2), 1) == 19.5
    assert bs.positioned_budget(32, 2, 8, 2) == pytest.approx(log2(comb(30, 2) / comb(15, 2)))
    assert bs.positioned_budget(9, 3, 4, 3) == 0
    assert bs.positioned_budget(257**2, 4, 64, 60) < bs.positioned_budget(257**2, 4, 64, 2) < bs.existence(257**2, 4)


def test_blocks_seen_counts_heads_and_windows():
    assert bs.blocks_seen(2, 3, 4) == 6 and bs.blocks_seen(1, 2, 4, window=1) == 2
    assert bs.blocks_seen(1, 2, 4, window=2) == 3 and bs.blocks_seen(1, 2, 4, window=6) == 4
    model = SparseTwoSum(TASK, (RandomMean(1, 2), RandomMean(1, 3, 1)), 2, window=4).model
    assert bs.seen_by(model, TASK) == 2 * 2 + 2
    assert bs.summary_bits(model) == 5


def test_subsets():
    every = bs.subsets(8, 2, 100)
    assert sorted(map(tuple, every)) == list(combinations([1, 2, 3, 5, 6, 7], 2))
    drawn = bs.subsets(64, 3, 500, 1)
    assert len({tuple(row) for row in drawn}) == len(drawn) > 480
    assert (np.diff(drawn, axis=1) > 0).all() and not np.isin(drawn, [0, 32]).any()
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=64)[1:32].mean(), 3 * len(drawn) / 62, rtol=0.1)


def test_summaries_are_those_that_the_layer_uses():
    """From the whole prompt, block by block, keys and values of two heads."""
    built = SparseTwoSum(TASK, (RandomMean(2, 3), RandomMLP(1, 4, positioned=True)), 1, values=RandomMean(1, 3, 5))
    tokens = TASK.sample(np.arange(5))
    x = built.model.embedding.apply(AR, tokens)
    whole = []
    for head in built.model.blocks[0].layer.heads:
        whole.append(head.core.summaries(AR, head.input(AR, x, "content")))
        whole.append(head.core.summaries(AR, head.input(AR, x, "v"), value=True))
    whole = np.concatenate(whole, axis=-1)
    for t in range(TASK.blocks):
        np.testing.assert_array_equal(bs.summaries(built.model, AR, TASK.contents(tokens)[:, t], t), whole[:, t])
    assert bs.summary_bits(built.model) == 2 * 3 + 4 + 2 * (2 * 3)


@pytest.mark.parametrize(
    "model",
    [
        mean(TASK, 5, 0),
        mean(TASK, 5, 1, window=3),
        mean(TASK, 3, 2, values=RandomMean(1, 3, 4)),
        SparseTwoSum(TASK, (RandomMean(1, 3), RandomMLP(1, 3)), 2).model,
        SparseTwoSum(TASK, RandomMLP(2, 3), 2).model,
        SparseTwoSum(TASK, BloomKey(8, 2), 1).model,
        SparseTwoSum(TASK, TrigMean(4), 3).model,
        mlps(TASK, 5, 0),
    ],
)
def test_small_summaries_are_fooled_and_certified(model):
    pair = bs.search(model, TASK)
    assert pair is not None and bs.objections(model, AR, TASK, pair) == []
    assert TASK.answers(pair.prompts).tolist() == [False, True]
    stored = bs.certificate(model, TASK, pair)
    assert bs.replay(stored.to_json(), model).passed
    assert bs.check_certificates([stored], "one").passed


def test_in_fixed_point_too():
    model = mean(TASK, 4, 0)
    for ar in (FixedPoint(9), FixedPoint(20)):
        pair = bs.search(model, TASK, ar=ar)
        assert bs.objections(model, ar, TASK, pair) == [] and bs.replay(bs.certificate(model, TASK, pair, ar)).passed


def test_below_the_bound_the_search_always_succeeds():
    tasks = [LastTokenTwoSum(16, 4, b) for b in (1, 2, 3)]
    check = bs.check_always_below(mean, tasks, range(1, 9), 3)
    assert check.passed and check.cases == 3 * (3 + 6 + 8), check
    assert not bs.check_always_below(lambda task, bits, seed: mean(task, 20, seed), tasks[:1], [1], 3).passed


def test_success_table_in_shape():
    found = bs.successes(mlps, [LastTokenTwoSum(32, 8, 2)], (4, 6, 8), 3, 1 << 14)
    assert [s.fooled for s in found] == [3, 3, 3]
    task = LastTokenTwoSum(256, 8, 1)
    assert [s.fooled for s in bs.successes(mean, [task], (6, 30), 3, 300)] == [3, 0]


def test_exact_collision_of_mean_pooled_angles():
    """{x, x + M/2}: the mean of (cos, sin) is zero, without any rounding of the summary."""
    model = SparseTwoSum(TASK, TrigMean(), 1).model
    known = bs.summaries(model, AR, [[x, x + 16] for x in range(16)])
    assert np.abs(known).max() == 0
    pair = bs.shared_pair(model, AR, TASK, [3, 19], [5, 21])
    assert bs.objections(model, AR, TASK, pair) == []
    assert bs.replay(bs.certificate(model, TASK, pair)).passed


# who must not be fooled


def test_a_layer_that_reads_all_blocks_has_no_pair():
    model = SparseTwoSum(TASK, RandomMean(1, 2), 6).model
    assert bs.search(model, TASK) is None
    assert bs.search(SparseTwoSum(TASK, RandomMean(1, 2), 0, window=13).model, TASK) is None


def test_a_summary_that_is_the_content_has_no_pair():
    assert bs.search(SparseTwoSum(TASK, RandomMean(3, 16), 1).model, TASK) is None
    assert bs.search(SparseTwoSum(TASK, Cancelling(2), 1).model, TASK) is None


def test_objections_see_each_fault():
    model = mean(TASK, 4, 0)
    pair = bs.search(model, TASK)
    free = SparseTwoSum(TASK, RandomMean(3, 16, 1), 2).model
    assert "some block has two summaries" in bs.objections(free, AR, TASK, pair)
    reads = SparseTwoSum(TASK, RandomMean(1, 4, 0), 6).model
    found = bs.objections(reads, AR, TASK, pair)
    assert "the block that differs is read" in found and "the outputs differ" in found
    other = bs.FoolingPair(pair.first, pair.first, pair.block, pair.residue)
    assert {"the prompts do not differ in the stated block alone", "the right answers do not differ"} <= set(
        bs.objections(model, AR, TASK, other)
    )
    with pytest.raises(ValueError, match="fool"):
        bs.certificate(free, TASK, pair)


def test_the_replayer_refuses_forgeries():
    model = mean(TASK, 4, 0)
    stored = bs.certificate(model, TASK, bs.search(model, TASK))
    data, other = stored.data, mean(TASK, 4, 1)
    changed = [list(row) for row in data["prompts"]]
    changed[1][-1] = (changed[1][-1] + 1) % 32
    forgeries = {
        "another block": {"block": (data["block"] + 1) % 6},
        "another modulus": {"modulus": 64},
        "another size": {"blocks": 4, "block size": 3},
        "another answer": {"answers": [1, 1]},
        "another output": {"output": "yes" if data["output"] == "no" else "no"},
        "another query": {"prompts": changed},
        "equal prompts": {"prompts": [data["prompts"][0]] * 2},
        "another model": {"model": bs.pack(other)},
        "another model and its hash": {"model": bs.pack(SparseTwoSum(TASK, RandomMean(3, 16), 2).model)},
        "not a model": {"model": {}},
    }
    forgeries["another model and its hash"]["model hash"] = SparseTwoSum(TASK, RandomMean(3, 16), 2).model.content_hash
    for name, change in forgeries.items():
        assert not bs.replay(Certificate(stored.kind, {**data, **change})).passed, name
    assert not bs.replay(Certificate("something else", data)).passed
    assert not bs.replay(stored, other).passed
    assert not bs.replay(stored.to_json().replace(data["output"], "x", 1)).passed
    assert not bs.check_certificates([], "none").passed


def test_the_replayer_refuses_tokens_that_are_no_residues():
    good, wider = SparseTwoSum(TASK, RandomMean(3, 16), 2).model, LastTokenTwoSum(34, TASK.blocks, 2)
    pair = bs.shared_pair(good, AR, wider, [1, 32], [1, 33])  # 32 and 33 are the answers "no" and "yes": no features at all
    verdict = bs.replay(bs.certificate(good, wider, pair))
    assert not verdict.passed and "residues of the task" in verdict.counterexample[0]


def test_the_replayer_refuses_damaged_files():
    stored = bs.certificate(mean(TASK, 4, 0), TASK, bs.search(mean(TASK, 4, 0), TASK))
    for name in stored.data["model"]:
        damaged = {**stored.data["model"], name: "anVuaw=="}
        assert not bs.replay(Certificate(stored.kind, {**stored.data, "model": damaged})).passed


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: bs.summaries(mean(TASK, 4, 0), AR, [[1, -2]]), "contents"),
        (lambda: bs.summaries(mean(TASK, 4, 0), AR, [[1, 2, 3]]), "whole blocks"),
        (lambda: bs.existence(8, 7), "block_size"),
        (lambda: bs.existence(8, 0), "block_size"),
        (lambda: bs.positioned_budget(64, 2, 4, 4), "nothing is hidden"),
        (lambda: bs.summary_bits(SparseTwoSum(TASK, Cancelling(2)).model), "no format"),
        (lambda: bs.heads_of(TwoSumAttention(TwoSum(8, 3)).model), "block-sparse"),
        (lambda: bs.subsets(8, 9, 10), "block_size"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()
