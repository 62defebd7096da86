"""Compiled attention heads: sizes of the specification, all inputs, SAT beyond, and damage that must be seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds.circuits import attention
from hybridseq.bounds.circuits.attention import (
    compile_head,
    count_terms,
    exponent,
    live_terms,
    streamed_head,
    uniform_size,
)  # fmt: skip
from hybridseq.bounds.circuits.checks import check_all_inputs, check_uniform_sizes
from hybridseq.bounds.circuits.hashing import hashed_uniform_head, perfect_family
from hybridseq.bounds.circuits.heads import BitHead, random_head, uniform_head
from hybridseq.bounds.circuits.sat import check_same_function

PRINTED = {(1, 4): (22, 77), (1, 8): (104, 839), (1, 16): (716, 11851),
           (2, 8): (269, 2300), (2, 10): (984, 10653), (2, 14): (9928, 148625)}  # fmt: skip


@pytest.mark.parametrize(("place", "size"), PRINTED.items())
def test_sizes_and_depth(place, size):
    circuit = compile_head(uniform_head(*place))
    assert (circuit.size, circuit.wires, circuit.depth) == (*size, 5)
    if place[1] > 2 ** (place[0] + 1) - 1:
        closed = uniform_size(*place)
        assert (closed.gates, closed.wires) == size


@pytest.mark.parametrize("s,m", [(1, m) for m in range(4, 17, 2)] + [(2, m) for m in range(4, 15, 2)])
def test_uniform_heads_on_all_inputs(s, m):
    head = uniform_head(s, m)
    check = check_all_inputs(compile_head(head), head)
    assert check.passed and check.cases == 2**m


@pytest.mark.parametrize("m", range(3, 11))
def test_general_heads_on_all_inputs(m):
    for seed in range(6):
        head = random_head(1, m, seed)
        circuit = compile_head(head)
        assert check_all_inputs(circuit, head).passed
        assert circuit.depth <= 5 and circuit.size <= 124
        assert check_all_inputs(streamed_head(head), head).passed


def test_random_heads_have_every_exponential():
    seen = {e for seed in range(6) for o in random_head(1, 10, seed).options() for e, _, _ in o}
    assert seen == {0, 1, 2, 3}  # 0, 1/2, 1, 3/2


@given(st.integers(1, 2), st.integers(1, 7), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_two_compilers_agree_with_the_head(s, m, seed):
    head = random_head(s, m, seed)
    assert check_all_inputs(compile_head(head), head).passed
    assert check_all_inputs(streamed_head(head), head).passed


@pytest.mark.parametrize("ties", ["even", "away", "odd", "up", "down"])
def test_other_tie_rules(ties):
    base = random_head(1, 6, 3)
    for head in (BitHead(FixedPoint(1, ties), base.keys, base.values), BitHead(FixedPoint(1, ties), [[-3, 0]] * 7, [[0, 2]] * 7)):
        assert check_all_inputs(compile_head(head), head).passed


def test_exponents_of_the_specification():
    gates = {place: compile_head(uniform_head(*place)).size for place in ((1, 8), (1, 15), (1, 16), (2, 8), (2, 13), (2, 14))}
    assert round(exponent((8, gates[1, 8]), (16, gates[1, 16])), 2) == 2.78
    assert round(exponent((15, gates[1, 15]), (16, gates[1, 16])), 2) == 2.89
    assert round(exponent((8, gates[2, 8]), (14, gates[2, 14])), 2) == 6.45
    assert round(exponent((13, gates[2, 13]), (14, gates[2, 14])), 2) == 7.18
    for s, k in ((1, 3.00), (2, 7.08)):
        far = [(m, uniform_size(s, m).gates) for m in (128, 256)]
        assert round(exponent(*far), 2) == k
    wires = [(m, uniform_size(1, m).wires) for m in (8, 16)]
    assert round(exponent(*wires), 2) == 3.82


def test_what_the_uniform_head_says():
    u = [int(uniform_head(1, 6).outputs([1] * c + [0] * (6 - c))) for c in range(7)]
    assert u == [0, 2, 2, 3, 0, 0, 0]
    u = [int(uniform_head(2, 10).outputs([1] * c + [0] * (10 - c))) for c in range(11)]
    assert u == [0, 4, 4, 3, 4, 5, 6, 7, 0, 0, 0]


def test_terms_are_counted_before_they_are_listed():
    for head in (uniform_head(1, 9), uniform_head(2, 9), random_head(1, 9, 4)):
        assert count_terms(head) >= len(live_terms(head)[0])
    assert count_terms(uniform_head(1, 9)) == 9 + 36 + 84


def test_sat_agrees_where_all_inputs_can_be_seen_and_beyond():
    for m in (6, 22):
        head = uniform_head(1, m)
        assert check_same_function(compile_head(head), streamed_head(head)).passed
    head = random_head(1, 9, 1, silent_zeros=True)
    assert check_all_inputs(compile_head(head), head).passed and compile_head(head).size > 100
    assert check_same_function(compile_head(head), streamed_head(head)).passed


def test_counting_by_hashing():
    for m in (3, 8, 12):
        assert check_all_inputs(hashed_uniform_head(1, m), uniform_head(1, m)).passed
    for m, seed in ((8, 1), (8, 2), (9, 0), (10, 1)):  # many of the functions drawn for eight buckets miss one
        assert check_all_inputs(hashed_uniform_head(2, m, seed), uniform_head(2, m)).passed
    assert all(set(h) == set(range(8)) for seed in range(3) for h in perfect_family(10, 8, seed).tolist())
    family = perfect_family(9, 3)
    assert all(any(len(set(h[[a, b, c]])) == 3 for h in family) for a in range(9) for b in range(a) for c in range(b))
    assert hashed_uniform_head(1, 16).size < compile_head(uniform_head(1, 16)).size
    with pytest.raises(ValueError, match="sets to serve"):
        perfect_family(100, 5)


# damage -------------------------------------------------------------------------------------------------------------------


def test_every_single_damage_is_seen():
    head = uniform_head(1, 5)
    circuit, reference = compile_head(head), streamed_head(head)
    for gate in range(circuit.size):
        assert not check_all_inputs(circuit.without_gate(gate), head).passed
        assert not check_all_inputs(circuit.negated(gate), head).passed
    for gate in (0, 7, 20, circuit.size - 1):
        for broken in (circuit.without_gate(gate), circuit.negated(gate)):
            check = check_same_function(broken, reference)
            assert not check.passed
            example = check.counterexample
            assert example["first"] != example["second"]
    check = check_all_inputs(circuit.without_wire(10), head)
    assert not check.passed and set(check.counterexample) == {"bits", "head", "circuit"}


def test_a_circuit_of_another_length_precision_or_value_is_rejected():
    assert not check_all_inputs(compile_head(uniform_head(1, 5)), BitHead(FixedPoint(1), [[-3, 0]] * 5, [[0, 1]] * 5)).passed
    assert not check_all_inputs(compile_head(uniform_head(2, 5)), uniform_head(1, 5)).passed
    sizes = {(1, 6): compile_head(uniform_head(1, 6)), (1, 8): compile_head(uniform_head(1, 8)).without_wire(20)}
    assert not check_uniform_sizes(sizes).passed


@pytest.mark.parametrize("head", [uniform_head(1, 6), uniform_head(2, 9), random_head(1, 8, 0, silent_zeros=True)])
def test_a_cut_off_that_comes_too_early_is_rejected(monkeypatch, head):
    right = attention._dead(head)
    assert check_all_inputs(compile_head(head), head).passed
    monkeypatch.setattr(attention, "_dead", lambda _: right - head.ar.one)  # the premise of the proof, weakened
    assert not check_all_inputs(compile_head(head), head).passed


def test_the_cut_off_is_the_least_one():
    for ties in ("zero", "even", "down"):
        assert attention._dead(BitHead(FixedPoint(2, ties), [[-15, 0]], [[0, 4]])) >= 8 * 4
    head = BitHead(FixedPoint(1), [[3, 3]] + [[-2, -2]] * 8, [[2, 2]] * 9)  # nine positive exponentials, K_1 = 9
    assert count_terms(head) == 1 and compile_head(head)(*[0] * 9)["u=1"]
    more = BitHead(FixedPoint(1), [[3, 3]] + [[-2, -2]] * 9, [[2, 2]] * 10)
    assert count_terms(more) == 0 and compile_head(more)(*[0] * 10) == {"u=0": True}


# bad input ----------------------------------------------------------------------------------------------------------------


def test_contexts_too_large_are_refused_with_their_size():
    head = uniform_head(1, 24)
    with pytest.raises(ValueError, match="16,777,216 cases"):
        check_all_inputs(compile_head(head), head)
    with pytest.raises(ValueError, match="needs 4,514,872 AND gates") as refusal:
        compile_head(uniform_head(2, 32))
    assert "max_terms" in str(refusal.value)
    k = [count_terms(uniform_head(2, m)) for m in (32, 64)]
    assert np.log2(k[1] / k[0]) > 6


def test_codes_outside_the_format_and_wrong_shapes():
    with pytest.raises(ValueError, match=r"allowed codes are -3\.\.3"):
        BitHead(FixedPoint(1), [[-3, 5]], [[0, 2]])
    with pytest.raises(ValueError, match="shape"):
        BitHead(FixedPoint(1), [[-3, 0, 1]], [[0, 2, 1]])
    with pytest.raises(ValueError, match="one shape"):
        BitHead(FixedPoint(1), [[-3, 0]], [[0, 2]] * 2)
    with pytest.raises(ValueError, match="seq_len"):
        uniform_head(1, 0)
    with pytest.raises(ValueError, match="closed form"):
        uniform_size(1, 3)
    with pytest.raises(ValueError, match="bits"):
        uniform_head(1, 3).outputs([[0, 1]])
