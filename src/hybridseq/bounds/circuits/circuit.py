"""Boolean circuits of unbounded fan-in (paper A, Section 3.3): NOT of one wire, AND and OR of any number of wires.

An AND without wires is the constant true, an OR without wires the constant false. Wires are numbers: 0 to n − 1 are the inputs,
the gates follow in an order in which every gate reads earlier wires only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_

MAX_INPUTS = 20
"""Most inputs whose 2ⁿ settings are walked through; one table is then 128 KiB a wire, in blocks."""
BLOCK = 16
"""Inputs that vary within one block of settings: a wire's column has 2¹⁶ bits."""

KINDS = ("NOT", "AND", "OR")


@dataclass(frozen=True)
class Circuit:
    """inputs: names. gates: (kind, wires) with kind in NOT, AND, OR. outputs: (name, wire) pairs.

    Raises ValueError for an unknown kind, a NOT without exactly one wire, or a wire that is not earlier than its gate.

    >>> xor = Circuit(("a", "b"), (("OR", (0, 1)), ("AND", (0, 1)), ("NOT", (3,)), ("AND", (2, 4))), (("a xor b", 5),))
    >>> xor.size, xor.wires, xor.depth, f"{xor.tables()['a xor b']:04b}"
    (4, 7, 3, '0110')
    """

    inputs: tuple[str, ...]
    gates: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, int], ...]

    def __post_init__(self):
        for number, (kind, wires) in enumerate(self.gates, start=len(self.inputs)):
            if kind not in KINDS or (kind == "NOT" and len(wires) != 1):
                raise ValueError(f"gates: wire {number} is {kind} of {len(wires)}; allowed: NOT of one wire, AND or OR of any")
            if any(not 0 <= w < number for w in wires):
                raise ValueError(f"gates: wire {number} reads {wires}; a gate may read earlier wires, 0 to {number - 1}")
        last = len(self.inputs) + len(self.gates) - 1
        if any(not 0 <= w <= last for _, w in self.outputs):
            raise ValueError(f"outputs must name wires 0 to {last}, got {self.outputs}")

    # size ---------------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of gates, NOT included."""
        return len(self.gates)

    @property
    def wires(self) -> int:
        """Sum of the fan-ins."""
        return sum(len(wires) for _, wires in self.gates)

    @property
    def kinds(self) -> Counter:
        """Number of gates of each kind."""
        return Counter(kind for kind, _ in self.gates)

    def levels(self) -> list[int]:
        """For each wire the most gates on a path to it from an input; inputs have 0."""
        level = [0] * len(self.inputs)
        for _, wires in self.gates:
            level.append(1 + max((level[w] for w in wires), default=0))
        return level

    @property
    def depth(self) -> int:
        """The most gates on a path to an output, NOT included."""
        level = self.levels()
        return max((level[w] for _, w in self.outputs), default=0)

    # evaluation ---------------------------------------------------------------------------------------------------------

    def run(self, columns: Sequence[int], cases: int) -> dict[str, int]:
        """Evaluate many settings at once. Bit a of ``columns[i]`` is input i in case a; bit a of the result is the output."""
        every = (1 << cases) - 1
        value = list(columns)
        for kind, wires in self.gates:
            if kind == "NOT":
                value.append(value[wires[0]] ^ every)
            elif kind == "AND":
                value.append(reduce(and_, [value[w] for w in wires], every))
            else:
                value.append(reduce(or_, [value[w] for w in wires], 0))
        return {name: value[w] for name, w in self.outputs}

    def tables(self) -> dict[str, int]:
        """Truth tables as integers: bit a is the output when input i is bit i of a. Needs at most 20 inputs."""
        found = dict.fromkeys((name for name, _ in self.outputs), 0)
        for start, cases, columns in settings(len(self.inputs)):
            for name, column in self.run(columns, cases).items():
                found[name] |= column << start
        return found

    def __call__(self, *bits: int) -> dict[str, bool]:
        """One setting of the inputs."""
        return {name: bool(value) for name, value in self.run([int(bool(b)) for b in bits], 1).items()}

    # damage, for tests of the checkers ------------------------------------------------------------------------------------

    def without_wire(self, gate: int, place: int = 0) -> Circuit:
        """A copy in which one gate (counted from 0) lost one of its wires."""
        kind, wires = self.gates[gate]
        return self._with(gate, (kind, wires[:place] + wires[place + 1 :]))

    def without_gate(self, gate: int) -> Circuit:
        """A copy in which a gate is gone: an AND that read it no longer does, elsewhere false stands in; a NOT becomes a wire."""
        kind, wires = self.gates[gate]
        gone = len(self.inputs) + gate
        if kind == "NOT":
            return self._rewired(gone, wires[0])
        gates = tuple((k, tuple(x for x in w if x != gone) if k == "AND" else w) for k, w in self.gates)
        return replace(self, gates=gates)._with(gate, ("OR", ()))

    def negated(self, gate: int) -> Circuit:
        """A copy in which whoever reads the gate reads its negation."""
        kind, wires = self.gates[gate]
        here = len(self.inputs) + gate
        if kind == "NOT":
            return self._rewired(here, wires[0])

        def moved(w):
            return w + 1 if w >= here else w

        after = tuple((k, tuple(map(moved, ws))) for k, ws in self.gates[gate + 1 :])
        gates = (*self.gates[: gate + 1], ("NOT", (here,)), *after)
        return Circuit(self.inputs, gates, tuple((name, moved(w)) for name, w in self.outputs))

    def _with(self, gate: int, new: tuple[str, tuple[int, ...]]) -> Circuit:
        return replace(self, gates=(*self.gates[:gate], new, *self.gates[gate + 1 :]))

    def _rewired(self, old: int, new: int) -> Circuit:
        gates = tuple((kind, tuple(new if w == old else w for w in wires)) for kind, wires in self.gates)
        return replace(self, gates=gates, outputs=tuple((name, new if w == old else w) for name, w in self.outputs))


class Builder:
    """Gates one after the other. Equal gates are made once, and a gate with a single wire is that wire.

    With ``fold`` constants are propagated, repeated wires dropped, double negations removed, and x AND NOT x is false.

    >>> build = Builder(["x", "y"])
    >>> x, y = build.inputs
    >>> build.finish({"both": build.AND([x, y]), "none": build.NOT(build.OR([x, y]))}).size
    3
    """

    def __init__(self, inputs: Sequence[str], fold: bool = False):
        self.names = tuple(inputs)
        self.inputs = tuple(range(len(self.names)))
        self.gates: list[tuple[str, tuple[int, ...]]] = []
        self.fold = fold
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}

    def gate(self, wire: int) -> tuple[str, tuple[int, ...]] | None:
        """Kind and wires of a gate, None for an input."""
        return None if wire < len(self.names) else self.gates[wire - len(self.names)]

    def NOT(self, x: int) -> int:
        below = self.gate(x)
        if self.fold and below is not None:
            kind, wires = below
            if kind == "NOT":
                return wires[0]
            if not wires:
                return self._make("OR" if kind == "AND" else "AND", ())
        return self._make("NOT", (x,))

    def AND(self, wires) -> int:
        return self._many("AND", wires)

    def OR(self, wires) -> int:
        return self._many("OR", wires)

    def constant(self, value: bool) -> int:
        """True or false as a gate without wires."""
        return self._make("AND" if value else "OR", ())

    def literal(self, x: int, value: bool) -> int:
        """The predicate "input x has this value"."""
        return x if value else self.NOT(x)

    def _many(self, kind: str, wires) -> int:
        wires = tuple(wires)
        if self.fold:
            wires = self._folded(kind, wires)
            if wires is None:
                return self._make("OR" if kind == "AND" else "AND", ())
        return wires[0] if len(wires) == 1 else self._make(kind, wires)

    def _folded(self, kind: str, wires) -> tuple[int, ...] | None:
        """Wires without repetitions and neutral constants, or None where the gate is constant against its own neutral value."""
        neutral, absorbing = (("AND", ()), ("OR", ())) if kind == "AND" else (("OR", ()), ("AND", ()))
        kept = sorted({w for w in wires if self.gate(w) != neutral})
        present = set(kept)
        for w in kept:
            below = self.gate(w)
            if below == absorbing or (below is not None and below[0] == "NOT" and below[1][0] in present):
                return None
        return tuple(kept)

    def _make(self, kind: str, wires: tuple[int, ...]) -> int:
        key = (kind, wires)
        if key not in self._known:
            self.gates.append(key)
            self._known[key] = len(self.names) + len(self.gates) - 1
        return self._known[key]

    def copy(self, circuit: Circuit) -> dict[str, int]:
        """Add another circuit over the same inputs; returns the wires of its outputs by name."""
        if circuit.inputs != self.names:
            raise ValueError(f"circuit has the inputs {circuit.inputs}, the builder {self.names}; they must agree")
        at = list(self.inputs)
        for kind, wires in circuit.gates:
            new = [at[w] for w in wires]
            at.append(self.NOT(new[0]) if kind == "NOT" else self._many(kind, new))
        return {name: at[w] for name, w in circuit.outputs}

    def finish(self, outputs: Mapping[str, int]) -> Circuit:
        """The circuit of the gates that some output depends on, renumbered."""
        first = len(self.names)
        live = {w for w in outputs.values() if w >= first}
        for number in range(first + len(self.gates) - 1, first - 1, -1):
            if number in live:
                live.update(w for w in self.gates[number - first][1] if w >= first)
        at = dict.fromkeys(self.inputs) | {w: w for w in self.inputs}
        for place, wire in enumerate(sorted(live)):
            at[wire] = first + place
        gates = tuple((self.gates[w - first][0], tuple(at[x] for x in self.gates[w - first][1])) for w in sorted(live))
        return Circuit(self.names, gates, tuple((name, at[w]) for name, w in outputs.items()))


def require_enumerable(inputs: int, limit: int = MAX_INPUTS) -> None:
    """Raise ValueError, with the size it would need, where 2^inputs settings are too many to walk through."""
    if inputs > limit:
        raise ValueError(
            f"inputs={inputs}: all settings would be 2^{inputs} = {2**inputs:,} cases, {2**inputs // 8:,} bytes for each wire; "
            f"at most {limit} inputs are enumerated; use check_same_function (a SAT solver) instead"
        )


def settings(inputs: int) -> Iterator[tuple[int, int, list[int]]]:
    """All 2ⁿ settings in blocks: (number of the first case, cases, one column an input), case a being the bits of a."""
    require_enumerable(inputs)
    low = min(inputs, BLOCK)
    cases = 1 << low
    every = (1 << cases) - 1
    fast = []
    for i in range(low):
        period = 1 << (i + 1)
        fast.append((((1 << (1 << i)) - 1) << (1 << i)) * (every // ((1 << period) - 1)))
    for block in range(1 << (inputs - low)):
        yield block << low, cases, fast + [every * (block >> i & 1) for i in range(inputs - low)]
