"""A decoder of delta rules alone: it solves the task, with the numbers it claims, and notices a changed weight."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint
from hybridseq.constructions import memory_machine as mm
from hybridseq.constructions.random_decoder import SHAPES, Shape, random_decoder, random_decoders
from hybridseq.mixers import DeltaRule
from hybridseq.tasks import pcr


def test_all_642_prompts():
    check = mm.check_answers([mm.MemoryMachine(n, 2) for n in range(1, 7)])
    assert check.passed and check.cases == 642


@pytest.mark.parametrize(("n", "num", "size"), [(16, 24, 21), (49, 8, 54)])
def test_random_prompts(n, num, size):
    machine = mm.MemoryMachine(n, 2)
    assert machine.state_numbers == mm.state_size(n) == size
    assert machine.model.state_numbers(3 * n) == size
    assert mm.check_answers([machine], num=num, seed=1).passed


@pytest.mark.parametrize("s", [3, 4, 8])
def test_other_precisions(s):
    assert mm.check_answers([mm.MemoryMachine(4, s)]).passed


def test_against_the_reference_solver():
    machine = mm.MemoryMachine(5, 2)
    prompts = next(pcr.every(5))
    assert machine.answers(prompts.tokens).tolist() == pcr.solve(prompts.tokens).tolist()


def test_one_row_of_n_cells_is_enough():
    assert mm.check_answers([mm.truncated(8, 2, 8)]).passed
    assert mm.truncated(8, 2, 8).state_numbers == 13


def test_fewer_cells_fail():
    check = mm.check_answers([mm.truncated(6, 2, 4)])
    assert not check.passed and check.counterexample["n"] == 6


@pytest.mark.parametrize(
    "change",
    [
        ("memory.v", "v[0]", "WRITE[0]", 0), ("memory.gate", "gate[0]", "OPEN[0]", 0), ("memory.k", "k[1]", "KEY[1]", 0),
        ("memory.beta", "beta", "1", 4), ("parity.beta", "beta", "f", 0), ("L1.out", "BIT", "cells[1]", 0),
        ("L1.out", "PAR", "parity[0]", 0), ("latch.v", "v", "BIT", 0), ("latch.alpha", "alpha", "1", -2),
        ("L2.MLP out", "ANS", "both", 0), ("logits", "NO", "1", 0),
    ],
)  # fmt: skip
def test_a_changed_weight_is_noticed(change):
    assert not mm.check_answers([mm.MemoryMachine(4, 2).with_weight(*change)]).passed


def test_waiting_changes_nothing():
    plain, waiting = mm.MemoryMachine(3, 2), mm.MemoryMachine(3, 2, wait=3)
    prompts = next(pcr.every(3))
    written = waiting.model.generate(waiting.ar, prompts.tokens, budget=3)
    assert {len(scratch) for scratch in written.scratch} == {3}
    assert list(written.answer) == plain.answers(prompts.tokens).tolist() == prompts.labels.tolist()
    assert set(waiting.model.generate(waiting.ar, prompts.tokens, budget=2).answer) == {None}


def test_packing():
    check = mm.check_packing(range(2, 9))
    assert check.passed and check.cases == 2 * sum(2 ** (s - 1) for s in range(2, 9))
    assert [round(mm.packed_ratio(s), 2) for s in (4, 8)] == [3.0, 2.43]


def test_packing_stops_at_half():
    """Code 2^(s-1) is not kept: a tie takes one step off it, so s - 1 bits is what the gates can do."""
    ar = FixedPoint(3)
    kept = [int(DeltaRule(1, 1).step(ar, np.array([[c]]), mm._packing_token(ar, ar.zeros((1,))))[0, 0]) for c in range(6)]
    assert kept == [0, 1, 2, 3, 3, 3]


def test_fading_number_by_hand():
    """s = 2, codes: 0 -1-> 2 (first token of a one: 2, second: 2) and 2 -0-> 1 -> 1."""
    model, ar = mm.fading_number(2), FixedPoint(2)

    def after(bits):
        x = model.embedding.apply(ar, np.repeat(bits, 2))
        return int(model.blocks[0].layer.scan(ar, x)[1][0][0, 0])

    assert [after(bits) for bits in ([0], [1], [0, 1], [1, 1], [1, 0])] == [0, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mm.MemoryMachine(0, 2), "n must be"), (lambda: mm.MemoryMachine(4, 1), "s"),
        (lambda: mm.MemoryMachine(4, 2, (0, 3)), "shape"), (lambda: mm.MemoryMachine(4, 2, wait=-1), "wait"),
        (lambda: mm.MemoryMachine(4, 2).with_weight("x", "y", "z", 1).model, "no map"), (lambda: mm.fading_number(1), "s"),
        (lambda: mm.packed_number(4, [[1, 0]]), "bits"), (lambda: mm.packed_ratio(1), "s="),
    ],
)  # fmt: skip
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_random_decoders_are_thirty_and_reproducible():
    decoders = random_decoders()
    assert len(decoders) == 30 and len({model.content_hash for _, _, model in decoders}) == 30
    assert {shape.state_numbers for shape in SHAPES} == {1, 4, 8, 16}
    for shape, _, model in decoders:
        assert model.state_numbers(0) == shape.state_numbers
    assert random_decoder(SHAPES[3], 2).content_hash == random_decoder(SHAPES[3], 2).content_hash


@pytest.mark.parametrize("shape", [Shape(1, 1, 1, 2), Shape(3, 2, 2, 2)])
def test_random_gates_stay_inside(shape):
    ar, model = FixedPoint(shape.s), random_decoder(shape, 1)
    x = model.embedding.apply(ar, np.arange(6))
    for block in model.blocks:
        for head in block.layer.heads:
            for name in ("alpha", "beta"):
                gate = head.input(ar, x, name)
                assert gate.min() >= 1 and gate.max() <= ar.one - 1
            x = ar.add(x, ar.zeros(x.shape))
    assert all(isinstance(level, int | Fraction) for level in model.embedding.levels)
