"""Colliding states: counts, searches against slow ones, and certificates that survive only if nothing in them is changed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds import state_collisions as sc
from hybridseq.bounds.packed_models import pack
from hybridseq.constructions.hybrid_decoder import HybridDecoder
from hybridseq.constructions.memory_machine import MemoryMachine, fading_number, truncated
from hybridseq.constructions.random_decoder import SHAPES, Shape, random_decoder, random_decoders
from hybridseq.evidence import Certificate
from hybridseq.tasks import pcr

VECTORS = [1, 4, 4, 16, 16, 64, 64, 256, 256, 1024, 1024, 4096]


@pytest.fixture(scope="module")
def six():
    machine = truncated(8, 2, 6)
    return machine, sc.certificate(machine.model, machine.ar, 8)


# counting ---------------------------------------------------------------------------------------------------------------
def test_answer_vectors():
    assert [sc.num_answer_vectors(n) for n in range(1, 13)] == VECTORS
    assert [sc.bits_needed(n) for n in (4, 5)] == [4, 4]
    assert sc.check_counting(12).passed and sc.check_twins(9).passed
    prompts = next(pcr.every(3))
    vectors = sc.answer_vectors(3)[np.arange(24) // 3, np.arange(24) % 3]
    assert (np.where(vectors == 1, pcr.YES, pcr.NO) == prompts.labels).all()


def test_a_wrong_count_is_noticed(monkeypatch):
    monkeypatch.setattr(sc, "num_answer_vectors", lambda n: 2 ** (n - 1))
    assert not sc.check_counting(4).passed


def test_twins_that_are_missing_or_wrong_are_noticed(monkeypatch):
    monkeypatch.setattr(sc, "answer_vectors", lambda n: np.eye(2**n, dtype=np.uint8))
    assert not sc.check_twins(1).passed
    monkeypatch.setattr(sc, "answer_vectors", lambda n: np.zeros((2**n, n), dtype=np.uint8))
    assert not sc.check_twins(2).passed


def test_the_bound_needs_its_premise():
    machine = MemoryMachine(16, 2)
    assert sc.check_bound([(16, machine.state_numbers, machine.ar)]).passed
    assert not sc.check_bound([(16, 3, machine.ar)]).passed  # 31^3 < 2^16: nobody can
    assert sc.solvable(16, 4, 31) and not sc.solvable(16, 3, 31)
    assert sc.solvable(17, 4, 16) and not sc.solvable(18, 4, 16)  # 16^4 = 2^16 is enough for 17, not for 18


# searches ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("s", "counts"), [(2, (1, 2, 3, 3, 3)), (4, (1, 2, 3, 4, 4)), (6, (1, 2, 4, 6, 7, 7))]
)
def test_fading_number(s, counts):
    found = sc.search(fading_number(s), FixedPoint(s), len(counts) - 1)
    assert found.counts == counts and found.complete


def test_fading_number_states():
    frontier = sc.Frontier([fading_number(4)], FixedPoint(4))
    seen = set()
    for block in range(5):
        frontier.rows = np.unique(frontier.children(range(2 * block, 2 * block + 2)), axis=0)
        seen |= set(frontier.rows[:, 1].tolist())
    assert seen == {0, 1, 4, 10}
    merge = sc.search(fading_number(2), FixedPoint(2), 3).merges[0]
    assert (merge.block, merge.first, merge.second) == (2, (0, 1), (1, 1))


def test_memory_machine_with_all_cells_keeps_all_tables_apart():
    machine = truncated(8, 2, 8)
    found = sc.certificate(machine.model, machine.ar, 8)
    assert isinstance(found, sc.Search) and found.counts == tuple(2**i for i in range(9)) and not found.merges
    assert "no collision up to block 8" in str(found)


def test_memory_machine_with_six_cells():
    machine = truncated(8, 2, 6)
    found = sc.search(machine.model, machine.ar, 8)
    assert found.counts == (1, 2, 4, 8, 16, 32, 64, 96, 112)
    assert found.merges[0] == sc.Merge(7, (0, 0, 0, 0, 0, 0, 1), (1, 0, 0, 0, 0, 0, 0))
    assert not sc.check_counts(found, (1, 2, 4, 8, 16, 32, 64, 128, 112), "x").passed


def test_a_cap_is_reported_and_is_not_a_failure():
    machine = MemoryMachine(6, 2)
    found = sc.search(machine.model, machine.ar, 6, max_states=10)
    assert found.counts == (1, 2, 4, 8, 16) and not found.complete and not found.merges
    assert str(found).startswith("no collision up to block 4, where the search stopped")


def slow_search(model, ar, n):
    """Every prefix from the start by the layers' own scan, states in a set."""
    counts = [1]
    for block in range(1, n + 1):
        tables = (np.arange(2**block)[:, None] >> np.arange(block - 1, -1, -1) & 1).tolist()
        counts.append(len({row.tobytes() for row in sc._states_after(model, ar, tables, 2)[1]}))
    return tuple(counts)


@pytest.mark.parametrize("shape", SHAPES)
def test_search_equals_all_prefixes(shape):
    model, ar = random_decoder(shape, 3), FixedPoint(shape.s)
    assert sc.search(model, ar, 6).counts == slow_search(model, ar, 6)


def test_search_equals_all_prefixes_for_a_machine_with_positions_gates_and_mlp():
    machine = truncated(6, 2, 4)
    assert sc.search(machine.model, machine.ar, 6).counts == slow_search(machine.model, machine.ar, 6)


def test_many_at_once_equal_one_by_one():
    decoders = random_decoders(SHAPES[2:], 3)
    machines = [truncated(7, 2, cells) for cells in (5, 6)]
    together = [truncated(7, 2, 6), truncated(7, 2, 6).with_weight("parity.beta", "beta", "f", 0)]
    named = [(m, FixedPoint(shape.s)) for shape, _, m in decoders] + [(m.model, m.ar) for m in machines + together]
    models, formats = zip(*named, strict=True)
    found = sc.search_all(models, formats, 7)
    assert found == [sc.search(model, ar, 7) for model, ar in named]
    assert found[-1] != found[-2]


# certificates -----------------------------------------------------------------------------------------------------------
def test_thirty_random_decoders_err():
    named = [(f"{shape}, seed {seed}", model, FixedPoint(shape.s)) for shape, seed, model in random_decoders()]
    check = sc.check_decoders(named, 8)
    assert check.passed and check.cases == 30
    assert check.value == {"certificates": 30, "first merges at blocks": "1 to 4"}


def test_certificate_of_six_cells(six):
    machine, stored = six
    assert sc.replay(stored.to_json(), machine.model).passed
    assert stored.data["tables"] == [[0, 0, 0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    assert stored.data["outputs"][0]["answer"] == stored.data["outputs"][1]["answer"]
    assert set(stored.data["expected"]) == {"YES", "NO"}
    for table, output, expected in zip(*(stored.data[key] for key in ("tables", "outputs", "expected")), strict=True):
        prompt = pcr.encode(table, stored.data["address"])
        assert pcr.VOCABULARY.tokens[machine.answers(prompt.tokens)[0]] == output["answer"]
        assert pcr.VOCABULARY.tokens[pcr.solve(prompt.tokens[0])] == expected


def changed(stored, *path, value=None):
    data = json.loads(json.dumps(stored.data))
    place = data
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    place[path[-1]] = (1 - old if old in (0, 1) else old + 1) if value is None else value
    return Certificate(stored.kind, data)


@pytest.mark.parametrize("place", [("tables", side, i) for side in (0, 1) for i in range(8)])
def test_one_changed_table_bit_is_rejected_even_under_a_new_hash(six, place):
    assert not sc.replay(changed(six[1], *place).to_json()).passed


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("state", 0), None, "state"), (("state", 10), None, "state"),
        (("outputs", 0, "answer"), "YES", "outputs"), (("expected", 1), "YES", "right answers"),
        (("block",), 6, "block"), (("model hash",), "0" * 64, "hash"), (("s",), 3, ""), (("n",), 9, "n bits"),
        (("address",), 9, "address"), (("budget",), -1, "budget"), (("repeats",), 1, ""), (("ties",), "nearest", "ties"),
    ],
)  # fmt: skip
def test_changed_entries_are_rejected(six, path, value, reason):
    check = sc.replay(changed(six[1], *path, value=value))
    assert not check.passed and reason in str(check.counterexample)


def test_a_text_with_one_bit_changed_is_rejected(six):
    text = six[1].to_json()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(text), 25, replace=False):
        flipped = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        assert flipped.isspace() or not sc.replay(flipped).passed or json.loads(flipped) == json.loads(text)


def test_another_decoder_is_rejected(six):
    other = truncated(8, 2, 6).with_weight("logits", "NO", "1", 2)
    assert not sc.replay(six[1], other.model).passed
    assert "hashes differ" in str(sc.replay(six[1], other.model).counterexample)
    swapped = changed(six[1], "model", value=pack(other.model))
    assert not sc.replay(swapped).passed


def test_equal_right_answers_prove_nothing(six):
    """An honest record of two merging complements, n odd: states and outputs are equal, but nobody need be wrong."""
    model, ar = fading_number(2), FixedPoint(2)
    tables = [[0, 1, 1], [1, 0, 0]]
    stored = sc._write(model, ar, tables, 1, 3, 0, 2)
    assert not sc.replay(stored).passed
    assert not sc.replay(Certificate("another kind", six[1].data)).passed


def test_merging_complements_at_the_last_block_of_an_odd_table_are_no_collision():
    """A decoder of one cell: n = 1 needs no memory at all, and the search says so instead of accusing it."""
    shape = SHAPES[0]
    model = random_decoder(shape, 0)
    found = sc.certificate(model, FixedPoint(shape.s), 1)
    assert isinstance(found, sc.Search) and found.merges


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 9), shape=st.sampled_from(SHAPES[:5]))
def test_every_certificate_replays(seed, n, shape):
    model, ar = random_decoder(shape, seed), FixedPoint(shape.s)
    outcome = sc.certificate(model, ar, n)
    if isinstance(outcome, Certificate):
        assert sc.replay(outcome, model).passed
    else:
        assert not outcome.merges


# scratch ----------------------------------------------------------------------------------------------------------------
def test_scratch_tokens_do_not_help():
    compared = 0
    for seed in range(4):
        shape = Shape(2, 2, 2, 1)
        stored = sc.certificate(random_decoder(shape, seed, scratch=True), FixedPoint(shape.s), 5, budget=6)
        assert sc.replay(stored).passed
        check = sc.check_future(stored, 6)
        assert check.passed
        compared += check.value["scratch tokens compared"]
    assert compared > 0


def test_a_truncated_machine_that_waits_is_as_wrong():
    machine = truncated(5, 2, 4, wait=3)
    stored = sc.certificate(machine.model, machine.ar, 5, budget=3)
    assert sc.replay(stored).passed and stored.data["outputs"][0]["scratch"] == ["WAIT"] * 3
    check = sc.check_future(stored, 3)
    assert check.passed and check.value["scratch tokens compared"] == 2 * 5 * 3


def test_unequal_states_are_told_apart_by_the_future_check(six):
    apart = changed(six[1], "tables", 1, 2)
    assert not sc.check_future(apart, 0).passed


# bad input --------------------------------------------------------------------------------------------------------------
def test_a_hybrid_is_refused():
    with pytest.raises(ValueError, match="L2 has a head of kind Attention"):
        sc.search(HybridDecoder(2, 2).model, FixedPoint(2), 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sc.search(fading_number(2), Float(), 3), "FixedPoint"),
        (lambda: sc.search(fading_number(2), FixedPoint(2), 0), "n must be"),
        (lambda: sc.search(fading_number(2), FixedPoint(2), 3, max_states=0), "max_states"),
        (lambda: sc.search(MemoryMachine(3, 2).model, FixedPoint(2), 9), "max_len = 9"),
        (lambda: sc.answer_vectors(21), "2,097,152 tables"),
        (lambda: sc.num_states(-1, 7), "numbers=-1"),
        (lambda: sc.certificate(fading_number(2), FixedPoint(2), 3, budget=-1), "budget"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
