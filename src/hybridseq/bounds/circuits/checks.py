"""Checks of compiled circuits against the heads and decoders that they came from, with zero tolerance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hybridseq.bounds.circuits.attention import uniform_size
from hybridseq.bounds.circuits.circuit import Circuit, require_enumerable
from hybridseq.bounds.circuits.decoder import CompiledDecoder
from hybridseq.bounds.circuits.heads import BitHead
from hybridseq.evidence import Check
from hybridseq.models import Model

DEPTH = 5
"""NOT, AND, OR, OR, NOT."""


def check_all_inputs(circuit: Circuit, head: BitHead) -> Check:
    """On each of the 2^M inputs exactly the output "u=w" of the head's own code w is true. The head runs in its attention core.

    Raises ValueError for more than 20 positions.
    """
    require_enumerable(head.seq_len)
    tables, wrong, example = circuit.tables(), 0, None
    for first, outputs in head.all_outputs():
        cases, bad = len(outputs), 0
        expected = {f"u={w}": _packed(outputs == w) for w in np.unique(outputs).tolist()}
        for name in expected.keys() | tables.keys():
            bad |= (tables.get(name, 0) >> first & ((1 << cases) - 1)) ^ expected.get(name, 0)
        wrong += bad.bit_count()
        if bad and example is None:
            case = first + (bad & -bad).bit_length() - 1
            example = {
                "bits": [case >> r & 1 for r in range(head.seq_len)], "head": int(outputs[case - first]),
                "circuit": [name for name, table in tables.items() if table >> case & 1],
            }  # fmt: skip
    scope = f"all 2^{head.seq_len} inputs, {head.ar.name}, {head.seq_len} positions"
    return Check.true(
        "the circuit outputs the code of the head", not wrong, scope, 2**head.seq_len, example, {"wrong inputs": wrong}
    )


def check_uniform_sizes(circuits: Mapping[tuple[int, int], Circuit]) -> Check:
    """Gates, wires and depth of compiled uniform heads, by (s, M), are those of the closed form, and the depth is 5."""
    places = [(s, m) for s, m in circuits if m > 2 ** (s + 1) - 1]
    got = [(circuits[p].size, circuits[p].wires, circuits[p].depth) for p in places]
    expected = [(uniform_size(*p).gates, uniform_size(*p).wires, DEPTH) for p in places]
    scope = f"{len(places)} uniform heads, s = {places[0][0]} to {places[-1][0]}"
    return Check.equal("gates, wires and depth are as the closed form says", got, expected, scope, places)


def check_depth(circuits: Mapping[str, Circuit], limit: int) -> Check:
    """No circuit is deeper than the limit."""
    depths = {name: circuit.depth for name, circuit in circuits.items()}
    worst = max(depths, key=depths.get)
    return Check.true(
        f"depth at most {limit}", depths[worst] <= limit, f"{len(depths)} circuits", len(depths),
        {"circuit": worst, "depth": depths[worst]}, {"largest depth": depths[worst]},
    )  # fmt: skip


def check_decoder(compiled: CompiledDecoder, model: Model, ar) -> Check:
    """On all contexts over the alphabet the one true output names the token that greedy decoding writes next."""
    tokens = _contexts(compiled, model)
    names = [f"next={t}" for t in model.vocabulary.names(model.greedy(ar, tokens))]
    return _compare("the circuit names the next token", compiled, names, tokens, compiled.depth_limit)


def check_scratchpad(compiled: CompiledDecoder, model: Model, ar, budget: int) -> Check:
    """On all prompts over the alphabet the true output names the answer of ``Model.generate``; without answer none is true."""
    tokens = _contexts(compiled, model)
    answers = model.generate(ar, tokens, budget).answer
    names = [None if a is None else f"answer={model.vocabulary.tokens[a]}" for a in answers]
    name = f"the circuit gives the answer of decoding with budget {budget}"
    return _compare(name, compiled, names, tokens, compiled.depth_limit + 2)


def _contexts(compiled: CompiledDecoder, model: Model) -> np.ndarray:
    """All contexts, context a spelling out the bits of a: (2^inputs, seq_len) token numbers."""
    inputs = len(compiled.circuit.inputs)
    require_enumerable(inputs)
    if not compiled.bits:  # an alphabet of one token
        return np.full((1, max(inputs, 1)), model.vocabulary.index(compiled.alphabet[0]))
    number = np.array([model.vocabulary.index(t) for t in compiled.alphabet])
    shifts = compiled.bits * np.arange(inputs // compiled.bits)
    return number[np.arange(2**inputs)[:, None] >> shifts & len(number) - 1]


def _compare(name: str, compiled: CompiledDecoder, expected: list, tokens: np.ndarray, limit: int) -> Check:
    tables, depth = compiled.circuit.tables(), compiled.circuit.depth
    got = [tuple(output for output, table in tables.items() if table >> a & 1) for a in range(len(expected))]
    wanted = [() if e is None else (e,) for e in expected]
    wrong = [a for a in range(len(got)) if got[a] != wanted[a]]
    example = {"depth": depth, "limit": limit}
    if wrong:
        example = {"tokens": tokens[wrong[0]].tolist(), "circuit": got[wrong[0]], "decoder": expected[wrong[0]]}
    return Check.true(
        f"{name}, at depth at most {limit}", not wrong and depth <= limit,
        f"all {len(tokens)} contexts of {tokens.shape[1]} tokens",
        len(tokens), example, {"depth": depth, "gates": compiled.circuit.size, "wrong contexts": len(wrong)},
    )  # fmt: skip


def _packed(truth: np.ndarray) -> int:
    """Bit a of the integer is entry a."""
    return int.from_bytes(np.packbits(truth, bitorder="little").tobytes(), "little")
