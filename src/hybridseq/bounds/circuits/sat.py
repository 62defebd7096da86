"""Equality of two circuits on all inputs by a SAT solver: the miter, an OR of XORs of their outputs, has no satisfying input."""

from __future__ import annotations

import time

from hybridseq.bounds.circuits.circuit import Builder, Circuit
from hybridseq.evidence import Check


def miter(a: Circuit, b: Circuit) -> Circuit:
    """One output "differ": some output of the two differs. An output that one of them lacks counts as false there.

    Raises ValueError if the inputs do not have the same names.
    """
    build = Builder(a.inputs, fold=True)
    first, second = build.copy(a), build.copy(b)
    differences = []
    for name in sorted(first.keys() | second.keys()):
        x, y = (found.get(name, build.constant(False)) for found in (first, second))
        if x != y:
            differences += [build.AND([x, build.NOT(y)]), build.AND([build.NOT(x), y])]
    return build.finish({"differ": build.OR(differences)})


def satisfying_input(circuit: Circuit, output: str) -> tuple[int, ...] | None:
    """An input that makes the output true, or None where the solver proves that there is none."""
    import z3  # heavy: only those who solve pay for it

    wires = [z3.Bool(f"w{i}") for i in range(len(circuit.inputs) + circuit.size)]
    solver = z3.SolverFor("QF_FD")
    for number, (kind, args) in enumerate(circuit.gates, start=len(circuit.inputs)):
        below = [wires[w] for w in args]
        gate = z3.Not(below[0]) if kind == "NOT" else z3.And(below) if kind == "AND" else z3.Or(below)
        solver.add(wires[number] == gate)
    solver.add(wires[dict(circuit.outputs)[output]])
    answer = solver.check()
    if answer == z3.unsat:
        return None
    if answer != z3.sat:
        raise RuntimeError(f"the solver gave up: {solver.reason_unknown()}")
    model = solver.model()
    return tuple(int(z3.is_true(model[wires[i]])) for i in range(len(circuit.inputs)))


def check_same_function(a: Circuit, b: Circuit, name: str = "two circuits are the same function") -> Check:
    """The miter of two circuits is unsatisfiable; otherwise the input on which they differ, replayed through both."""
    started = time.perf_counter()
    found = satisfying_input(miter(a, b), "differ")
    count = len(a.inputs)
    return Check.true(
        name, found is None, f"all 2^{count} inputs, by SAT", cases=2**count,
        counterexample=None if found is None else {"input": found, "first": _true(a, found), "second": _true(b, found)},
        value={"seconds": round(time.perf_counter() - started, 1)},
    )  # fmt: skip


def _true(circuit: Circuit, bits: tuple[int, ...]) -> list[str]:
    return [name for name, value in circuit(*bits).items() if value]
