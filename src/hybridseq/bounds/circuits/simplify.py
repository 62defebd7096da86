"""Smaller circuits for the same function, and circuits with negations at the inputs alone."""

from __future__ import annotations

from collections import Counter, defaultdict

from hybridseq.bounds.circuits.circuit import Builder, Circuit

MAX_ROUNDS = 50


def simplify(circuit: Circuit) -> Circuit:
    """Repeat until nothing shrinks: constants, repeated or complementary wires, equal gates, nested gates, subsumption.

    An OR of ANDs drops a term that contains another term, and replaces (x AND A) OR (NOT x AND A) by A; an AND of ORs likewise.

    >>> build = Builder(["x", "y"])
    >>> x, y = build.inputs
    >>> both, only = build.AND([x, y]), build.AND([x, build.NOT(y)])
    >>> simplify(build.finish({"f": build.OR([both, only])})).size
    0
    """
    for _ in range(MAX_ROUNDS):
        smaller = _pass(circuit)
        if (smaller.size, smaller.wires) >= (circuit.size, circuit.wires):
            return smaller if smaller.size <= circuit.size else circuit
        circuit = smaller
    return circuit


def negations_at_inputs(circuit: Circuit) -> Circuit:
    """The same function with NOT on inputs only (De Morgan), nested gates of a kind merged: depth counts alternations.

    At most twice the gates; the lemma's "negation is free".
    """
    build = Builder(circuit.inputs, fold=True)
    made: dict[tuple[int, bool], int] = {}
    first = len(circuit.inputs)

    def wire(w: int, positive: bool) -> int:  # gates come in order, so the recursion is one step deep once inputs are made
        if (w, positive) not in made:
            if w < first:
                made[w, positive] = build.literal(w, positive)
            else:
                kind, wires = circuit.gates[w - first]
                if kind == "NOT":
                    made[w, positive] = wire(wires[0], not positive)
                else:
                    make = build.AND if (kind == "AND") == positive else build.OR
                    made[w, positive] = make(_flat(build, make, [wire(x, positive) for x in wires]))
        return made[w, positive]

    for number in range(first, first + circuit.size):
        wire(number, True), wire(number, False)
    return build.finish({name: wire(w, True) for name, w in circuit.outputs})


def _flat(build: Builder, make, wires: list[int]) -> list[int]:
    """Wires with gates of the same kind replaced by what they read."""
    kind = "AND" if make == build.AND else "OR"
    found: list[int] = []
    for w in wires:
        below = build.gate(w)
        found += below[1] if below is not None and below[0] == kind and below[1] else [w]
    return found


def _pass(circuit: Circuit) -> Circuit:
    build = Builder(circuit.inputs, fold=True)
    readers = Counter(w for _, wires in circuit.gates for w in set(wires)) + Counter({w for _, w in circuit.outputs})
    at = list(build.inputs)
    single = {w: readers[w] <= 1 for w in range(len(circuit.inputs) + circuit.size)}
    once: dict[int, bool] = {}
    for number, (kind, wires) in enumerate(circuit.gates, start=len(circuit.inputs)):
        new = [at[w] for w in wires]
        if kind == "NOT":
            made = build.NOT(new[0])
        else:
            made = _reduced(build, kind, _absorb(build, kind, new, once))
        at.append(made)
        once[made] = single[number] and once.get(made, True)
    return build.finish({name: at[w] for name, w in circuit.outputs})


def _absorb(build: Builder, kind: str, wires: list[int], once: dict[int, bool]) -> list[int]:
    """Take in the wires of gates of the same kind that nobody else reads."""
    found: list[int] = []
    for w in wires:
        below = build.gate(w)
        same = below is not None and below[0] == kind and below[1] and once.get(w, False)
        found += below[1] if same else [w]
    return found


def _reduced(build: Builder, kind: str, wires: list[int]) -> int:
    """The gate over its terms after merging and subsumption; a term is the set of wires of a gate of the other kind."""
    outer, inner = (build.OR, build.AND) if kind == "OR" else (build.AND, build.OR)
    other = "AND" if kind == "OR" else "OR"
    terms = set()
    for w in wires:
        below = build.gate(w)
        terms.add(frozenset(below[1]) if below is not None and below[0] == other else frozenset((w,)))
    return outer([inner(sorted(term)) for term in sorted(_minimal(_merged(build, terms)), key=sorted)])


def _merged(build: Builder, terms: set[frozenset[int]]) -> set[frozenset[int]]:
    """Replace pairs A + {x}, A + {NOT x} by A, each term used once, until no pair is left."""
    while True:
        left, gained = set(terms), set()
        for term in sorted(terms, key=sorted):
            if term not in left:
                continue
            for x in sorted(term):
                partner = (term - {x}) | {_complement(build, x)}
                if partner in left and partner != term:
                    left -= {term, partner}
                    gained.add(term - {x})
                    break
        if not gained:
            return terms
        terms = left | gained


def _complement(build: Builder, x: int) -> int:
    below = build.gate(x)
    return below[1][0] if below is not None and below[0] == "NOT" else build.NOT(x)


def _minimal(terms: set[frozenset[int]]) -> set[frozenset[int]]:
    """Drop each term that contains another one."""
    kept: set[frozenset[int]] = set()
    holders: dict[int, list[frozenset[int]]] = defaultdict(list)  # by one element of each kept term
    for term in sorted(terms, key=len):
        if frozenset() in kept or any(small <= term for x in term for small in holders[x]):
            continue
        kept.add(term)
        if term:
            holders[min(term)].append(term)
    return kept
