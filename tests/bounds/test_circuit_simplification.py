"""Circuits as data: evaluation, builders, simplification, negation normal form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds.circuits import Builder, Circuit
from hybridseq.bounds.circuits.attention import compile_head
from hybridseq.bounds.circuits.heads import random_head, uniform_head
from hybridseq.bounds.circuits.sat import check_same_function, miter, satisfying_input
from hybridseq.bounds.circuits.simplify import negations_at_inputs, simplify


@st.composite
def circuits(draw, inputs=4, most=14):
    gates = []
    for number in range(inputs, inputs + draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["NOT", "AND", "OR"]))
        wire = st.integers(0, number - 1)
        gates.append((kind, (draw(wire),) if kind == "NOT" else tuple(draw(st.lists(wire, max_size=4)))))
    last = inputs + len(gates) - 1
    return Circuit(tuple("abcd"[:inputs]), tuple(gates), (("f", last), ("g", draw(st.integers(0, last)))))


def plainly(circuit, bits):
    value = list(bits)
    for kind, wires in circuit.gates:
        below = [value[w] for w in wires]
        value.append(not below[0] if kind == "NOT" else all(below) if kind == "AND" else any(below))
    return {name: bool(value[w]) for name, w in circuit.outputs}


@given(circuits())
def test_tables_are_the_plain_evaluation(circuit):
    tables = circuit.tables()
    for a in range(16):
        bits = [a >> i & 1 for i in range(4)]
        assert plainly(circuit, bits) == circuit(*bits) == {name: bool(t >> a & 1) for name, t in tables.items()}


@given(circuits())
@settings(max_examples=150)
def test_simplification_keeps_the_function(circuit):
    smaller = simplify(circuit)
    assert smaller.tables() == circuit.tables()
    assert smaller.size <= circuit.size


@given(circuits())
def test_negations_move_to_the_inputs(circuit):
    normal = negations_at_inputs(circuit)
    assert normal.tables() == circuit.tables()
    assert all(wires[0] < 4 for kind, wires in normal.gates if kind == "NOT")


@given(circuits(), circuits())
@settings(max_examples=30, deadline=None)
def test_the_miter_decides_equality(a, b):
    check = check_same_function(a, b)
    assert check.passed == (a.tables() == b.tables())
    if not check.passed:
        assert a(*check.counterexample["input"]) != b(*check.counterexample["input"])


def test_known_simplifications():
    build = Builder("xyz")
    x, y, z = build.inputs
    absorbed = build.OR([x, build.AND([x, y])])
    merged = build.OR([build.AND([x, y, z]), build.AND([x, build.NOT(y), z])])
    constant = build.AND([x, build.NOT(x)])
    nested = build.AND([x, build.AND([y, build.AND([z, build.constant(True)])])])
    found = {name: simplify(build.finish({"f": w})) for name, w in
             {"absorbed": absorbed, "merged": merged, "constant": constant, "nested": nested}.items()}  # fmt: skip
    assert found["absorbed"].size == 0
    assert (found["merged"].size, found["merged"].wires) == (1, 2)
    assert found["constant"].gates == (("OR", ()),)
    assert (found["nested"].size, found["nested"].wires) == (1, 3)


def test_heads_get_smaller_and_stay_the_same():
    for head in (uniform_head(1, 6), uniform_head(2, 8), random_head(1, 8, 5)):
        circuit = compile_head(head)
        smaller = simplify(circuit)
        assert smaller.size < circuit.size and smaller.wires < circuit.wires and smaller.depth <= circuit.depth
        assert smaller.tables() == circuit.tables() == negations_at_inputs(circuit).tables()


def test_a_simplifier_that_drops_a_term_is_caught():
    circuit = compile_head(uniform_head(1, 6))
    smaller = simplify(circuit)
    for gate in range(0, smaller.size, 7):
        assert not check_same_function(circuit, smaller.without_gate(gate)).passed


def test_tables_in_blocks():
    build = Builder([f"x{i}" for i in range(18)])
    every = build.AND(build.inputs)
    some = build.OR(build.inputs[16:])
    tables = build.finish({"every": every, "some": some}).tables()
    assert tables["every"] == 1 << (2**18 - 1)
    assert tables["some"].bit_count() == 3 * 2**16


def test_bad_circuits_are_refused():
    with pytest.raises(ValueError, match="earlier wires"):
        Circuit(("a",), (("AND", (0, 2)),), (("f", 1),))
    with pytest.raises(ValueError, match="NOT of 2"):
        Circuit(("a",), (("NOT", (0, 0)),), (("f", 1),))
    with pytest.raises(ValueError, match="XOR"):
        Circuit(("a",), (("XOR", (0,)),), (("f", 1),))
    with pytest.raises(ValueError, match="outputs"):
        Circuit(("a",), (), (("f", 1),))
    with pytest.raises(ValueError, match="must agree"):
        miter(Circuit(("a",), (), (("f", 0),)), Circuit(("b",), (), (("f", 0),)))
    with pytest.raises(ValueError, match=r"2\^21 = 2,097,152"):
        Circuit(tuple(f"x{i}" for i in range(21)), (), (("f", 0),)).tables()


def test_solver_finds_the_only_input():
    build = Builder("abc")
    a, b, c = build.inputs
    assert satisfying_input(build.finish({"f": build.AND([a, build.NOT(b), c])}), "f") == (1, 0, 1)
    assert satisfying_input(build.finish({"f": build.AND([a, build.NOT(a)])}), "f") is None
