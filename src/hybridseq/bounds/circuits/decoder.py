"""A whole Gated Attention decoder as a circuit, layer by layer (paper A, Lemma 6.1 and Appendix C).

Wires stand for predicates "the residual stream at position i after layer l is b". Lemma 6.1 has one for each coordinate and each
number; here there is one for each vector *that can occur*, found by following, position by position, what the layer below can
hand on. A layer then costs three times two levels:

    [e_ij = eta, v_j = nu]  from  [h_i = x], [h_j = y]                   (scores, exponentials, values)
    [u_i = w]               from  the e_ij and v_j, as for a single head (at most K_s positive exponentials)
    [h_i' = b]              from  [h_i = x] and [u_i^1 = w_1], ...       (gates, output map, residual sum, MLP)

Tokens are read off the input bits, the next token is an OR over the vectors that vote for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds.circuits.circuit import Builder, Circuit
from hybridseq.bounds.circuits.simplify import negations_at_inputs
from hybridseq.mixers import Attention
from hybridseq.models import Model

MAX_TERMS = 300_000
"""Most terms of one [u_i = w] family, and most vectors of one position."""


@dataclass(frozen=True)
class Position:
    """Vectors that position i can hold, (count, dim), and the wire of each."""

    vectors: np.ndarray
    wires: tuple[int, ...]


@dataclass(frozen=True)
class CompiledDecoder:
    """A circuit; the alphabet of its free tokens, bits a token; reachable vectors by layer (embedding first), position."""

    circuit: Circuit
    alphabet: tuple[str, ...]
    bits: int
    reachable: tuple[tuple[int, ...], ...]

    @property
    def depth_limit(self) -> int:
        """6L + 2 for L layers: three DNFs a layer, NOT at the inputs, an OR at the end."""
        return 6 * (len(self.reachable) - 1) + 2


def check_compilable(model: Model, ar, alphabet: Sequence[str]) -> None:
    """Raise ValueError for what Lemma 6.1 does not cover or the format cannot hold.

    All layers must be full attention, the format a FixedPoint, the alphabet part of the vocabulary. Its embeddings must lie in
    the range of the format, and tokens that differ as reals must still differ once they are rounded.
    """
    if not isinstance(ar, FixedPoint):
        raise ValueError(f"ar={ar!r}: only a FixedPoint format has finitely many numbers to make predicates of")
    for number, block in enumerate(model.blocks, start=1):
        for head in block.layer.heads:
            if not isinstance(head.core, Attention) or head.core.window is not None:
                raise ValueError(f"block {number}: Lemma 6.1 is about full attention, but a head has the core {head.core!r}")
    if len(set(alphabet)) != len(alphabet) or not alphabet:
        raise ValueError(f"alphabet={tuple(alphabet)!r}: needs one or more distinct tokens")
    _check_precision(model.embedding, ar, alphabet, [model.vocabulary.index(token) for token in alphabet])


def _check_precision(embedding, ar: FixedPoint, alphabet: Sequence[str], tokens: list[int]) -> None:
    index = embedding.index[tokens].reshape(len(tokens), -1, embedding.stream.dim)
    for level in sorted(set(index.ravel().tolist())):
        if abs(embedding.levels[level]) > ar.max_value:
            raise ValueError(
                f"embedding holds {embedding.levels[level]}, outside {ar.name}, whose largest number is {float(ar.max_value)}: "
                "use a larger s or a smaller table"
            )
    stored = ar.array(list(embedding.levels))[index.astype(np.intp)]
    for b in range(len(tokens)):
        for a in range(b):
            same = (stored[a] == stored[b]).all(axis=-1) & (index[a] != index[b]).any(axis=-1)
            if same.any():
                raise ValueError(
                    f"alphabet: tokens {alphabet[a]!r} and {alphabet[b]!r} at position {int(np.argmax(same)) + 1} have different "
                    f"embeddings that round to one vector of {ar.name}; use a larger s"
                )


def compile_decoder(
    model: Model, ar: FixedPoint, seq_len: int, alphabet: Sequence[str], tail: Sequence[str] = (), max_terms: int = MAX_TERMS
) -> CompiledDecoder:
    """Next_M as a circuit: outputs "next=TOKEN" for the tokens that can come next, depth at most 6L + 2.

    seq_len: number of free tokens, each from ``alphabet``, written in ceil(log2 |alphabet|) bits, least significant first.
    tail: fixed tokens behind them (scratch tokens of a scratchpad). NOT stands at inputs only.

    Raises ValueError for layers that are not full attention, tokens outside the vocabulary, an alphabet whose size is no power of
    two, and contexts whose terms exceed ``max_terms`` (the message says how many there are).
    """
    check_compilable(model, ar, alphabet)
    build, bits = _inputs(seq_len, alphabet)
    outputs, reachable = _next_token(build, model, ar, seq_len, alphabet, bits, tail, max_terms)
    circuit = negations_at_inputs(build.finish({f"next={token}": wire for token, wire in outputs.items()}))
    return CompiledDecoder(circuit, tuple(alphabet), bits, reachable)


def compile_scratchpad(
    model: Model, ar: FixedPoint, seq_len: int, alphabet: Sequence[str], budget: int, max_terms: int = MAX_TERMS
) -> CompiledDecoder:
    """Decoding with at most ``budget`` scratch tokens as one circuit: an output "answer=TOKEN" for each answer token.

    answer = OR over tau in Gamma^{<= budget} of AND_i [Next(z tau_{<i}) = tau_i] AND [Next(z tau) = answer]: depth at most
    6L + 4, and (|Gamma| + 1)^(budget + 1) copies of Next at most.

    Raises ValueError for a budget below 0, and as :func:`compile_decoder`.
    """
    check_compilable(model, ar, alphabet)
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise ValueError(f"budget={budget!r}: must be an integer >= 0 (scratch tokens before the answer)")
    build, bits = _inputs(seq_len, alphabet)
    answers: dict[str, list[int]] = {token: [] for token in model.vocabulary.answers}
    reachable: tuple[tuple[int, ...], ...] = ()
    waiting: list[tuple[tuple[str, ...], list[int]]] = [((), [])]
    while waiting:
        tau, so_far = waiting.pop()
        following, seen = _next_token(build, model, ar, seq_len, alphabet, bits, tau, max_terms)
        reachable = max(reachable, seen, key=lambda counts: sum(map(sum, counts)))
        for token, wire in following.items():
            if token in answers:
                answers[token].append(build.AND([*so_far, wire]))
            elif token in model.vocabulary.scratch and len(tau) < budget:
                waiting.append(((*tau, token), [*so_far, wire]))
    circuit = build.finish({f"answer={token}": build.OR(wires) for token, wires in answers.items()})
    return CompiledDecoder(negations_at_inputs(circuit), tuple(alphabet), bits, reachable)


def _inputs(seq_len: int, alphabet: Sequence[str]) -> tuple[Builder, int]:
    """A builder over the bits of the free tokens, and the number of bits a token."""
    if isinstance(seq_len, bool) or not isinstance(seq_len, int | np.integer) or seq_len < 1:
        raise ValueError(f"seq_len={seq_len!r}: needs at least one free token")
    bits = (len(alphabet) - 1).bit_length()
    if len(alphabet) != 1 << bits:
        raise ValueError(f"alphabet has {len(alphabet)} tokens; bits can name exactly a power of two, such as {1 << bits}")
    names = [f"x{i + 1}.{b}" if bits > 1 else f"x{i + 1}" for i in range(seq_len) for b in range(bits)]
    return Builder(names, fold=True), bits


def _next_token(build, model, ar, seq_len, alphabet, bits, tail, max_terms) -> tuple[dict[str, int], tuple[tuple[int, ...], ...]]:
    """Wires of [Next = token] by token, and how many vectors each position can hold, layer by layer."""
    positions = _embedded(build, model, ar, seq_len, alphabet, bits, tail)
    reachable = [tuple(len(p.wires) for p in positions)]
    for number, block in enumerate(model.blocks, start=1):
        needed = range(len(positions)) if number < len(model.blocks) else [len(positions) - 1]
        after = {i: _position_after(build, ar, block, positions, i, max_terms) for i in needed}
        positions = [after.get(i, p) for i, p in enumerate(positions)]
        reachable.append(tuple(len(after[i].wires) for i in needed))
    last = positions[-1]
    winners = np.argmax(ar.values(model.logits.apply(ar, last.vectors)), axis=-1)
    found: dict[str, list[int]] = {}
    for token, wire in zip(model.vocabulary.names(winners), last.wires, strict=True):
        found.setdefault(token, []).append(wire)
    return {token: build.OR(wires) for token, wires in found.items()}, tuple(reachable)


def _embedded(build, model, ar, seq_len, alphabet, bits, tail) -> list[Position]:
    positions = []
    for i in range(seq_len + len(tail)):
        tokens = list(alphabet) if i < seq_len else [tail[i - seq_len]]
        vectors = model.embedding.rows(ar, np.array([model.vocabulary.index(t) for t in tokens]), np.full(len(tokens), i))
        wires: dict[tuple, list[int]] = {}
        for code, vector in enumerate(vectors.tolist()):
            digits = [build.literal(i * bits + b, bool(code >> b & 1)) for b in range(bits)] if i < seq_len else []
            wires.setdefault(tuple(vector), []).append(build.AND(digits))
        positions.append(_gathered(build, wires, ar))
    return positions


def _gathered(build, wires: dict[tuple, list[int]], ar) -> Position:
    order = sorted(wires)
    return Position(np.array(order, dtype=ar.dtype), tuple(build.OR(wires[vector]) for vector in order))


def _position_after(build, ar, block, positions, i: int, max_terms: int) -> Position:
    """Predicates of position i after one block."""
    here = positions[i]
    outcomes = [_head_outputs(build, ar, head, positions, i, max_terms) for head in block.layer.heads]
    rows, conditions = [], []
    for x, wire in enumerate(here.wires):
        for choice in product(*(by_vector[x] for by_vector, _ in outcomes)):
            # an output that is the only one this vector can see needs no condition
            needed = [wires[w] for (by_vector, wires), w in zip(outcomes, choice, strict=True) if len(by_vector[x]) > 1]
            rows.append((x, choice))
            conditions.append(build.AND([wire, *needed]))
    if len(rows) > max_terms:
        raise ValueError(f"position {i + 1}: {len(rows):,} combinations of vector and head outputs, more than {max_terms:,}")
    x = here.vectors[[row for row, _ in rows]]
    mixed = [
        head.gated(ar, np.array([choice[a] for _, choice in rows], dtype=ar.dtype), x) for a, head in enumerate(block.layer.heads)
    ]
    after = ar.add(x, block.layer.out.apply(ar, np.concatenate(mixed, axis=-1)))
    if block.mlp is not None:
        after = ar.add(after, block.mlp.apply(ar, after))
    wires: dict[tuple, list[int]] = {}
    for vector, condition in zip(map(tuple, after.tolist()), conditions, strict=True):
        wires.setdefault(vector, []).append(condition)
    return _gathered(build, wires, ar)


def _head_outputs(build, ar, head, positions, i: int, max_terms: int):
    """(for each vector of position i the outputs it can see, wires of [u_i = w] by w)."""
    here, seen = positions[i], positions[: i + 1]
    q = head.input(ar, here.vectors, "q")
    kinds, pairs = [], []  # kinds[j][x][y]: number of the pair (e, v); pairs[j]: the pairs by number
    wires = []
    for j, there in enumerate(seen):
        k, v = head.input(ar, there.vectors, "k"), head.input(ar, there.vectors, "v")
        e = ar.exp(head.core.partial(ar, q, k, v).scores)
        possible = [(x, y) for x in range(len(here.wires)) for y in range(len(there.wires)) if j < i or x == y]
        number: dict[tuple, int] = {}
        table: dict[int, set[int]] = {}
        reasons: dict[int, list[int]] = {}
        for x, y in possible:
            pair = (int(e[x, y]), tuple(v[y].tolist()) if e[x, y] else (0,) * head.core.value_dim)
            kind = number.setdefault(pair, len(number))
            table.setdefault(x, set()).add(kind)
            reasons.setdefault(kind, []).append(build.AND(sorted({here.wires[x], there.wires[y]})))
        kinds.append(table)
        pairs.append(list(number))
        wires.append({kind: build.OR(parts) for kind, parts in reasons.items()})
    return _mixed_outputs(build, ar, len(here.wires), kinds, pairs, wires, max_terms, i)


def _mixed_outputs(build, ar, vectors: int, kinds, pairs, wires, max_terms: int, i: int):
    """[u_i = w] as an OR over the assignments of pairs that some vector of position i admits."""
    admitted, by_vector = {}, []
    for x in range(vectors):
        count = int(np.prod([len(table[x]) for table in kinds], dtype=object))
        if count > max_terms:
            raise ValueError(
                f"position {i + 1}: a head has {count:,} assignments of exponentials and values, more than max_terms="
                f"{max_terms:,}; shorten the context"
            )
        rows = np.array(list(product(*(sorted(table[x]) for table in kinds))), dtype=np.int64)
        e = np.stack([np.array([pair[0] for pair in pairs[j]])[rows[:, j]] for j in range(len(pairs))], axis=-1)
        v = np.stack([np.array([pair[1] for pair in pairs[j]])[rows[:, j]] for j in range(len(pairs))], axis=1)
        u = ar.mix(ar.normalise(e)[:, None, :], v)[:, 0, :]
        by_vector.append(sorted({tuple(w) for w in u.tolist()}))
        admitted.update(zip(map(tuple, rows.tolist()), map(tuple, u.tolist()), strict=True))
    terms: dict[tuple, list[int]] = {}
    zero = (0,) * len(next(iter(admitted.values())))
    for row, w in admitted.items():
        if w != zero:
            terms.setdefault(w, []).append(build.AND([wires[j][kind] for j, kind in enumerate(row)]))
    found = {w: build.OR(parts) for w, parts in terms.items()}
    return by_vector, found | {zero: build.NOT(build.OR(found.values()))}
