"""A rounded attention head as a circuit of constant depth (paper A, Lemma 6.1 and Appendix C).

The output of a head is decided by which positions have a positive exponential, if these are at most K_s, and is 0 otherwise. So

    [u = w]  =  OR over sets T of positions, and over (e_r, v_r) for r in T with mix(e, v) = w, of
                AND_{r in T} [e_r, v_r]  and  AND_{r not in T} [e_r = 0],           [u = 0] = NOT OR_{w != 0} [u = w].

A set T is dead as soon as the sum of its exponentials reaches 2^(s+1) times the largest one: no weight survives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from hybridseq.bounds import attention_cutoff
from hybridseq.bounds.circuits.circuit import Builder, Circuit
from hybridseq.bounds.circuits.heads import BitHead, uniform_head

MAX_TERMS = 400_000
"""Most AND gates that the compiler writes down."""


@dataclass(frozen=True)
class Size:
    """Gates and wires of a circuit; kept as exact integers."""

    gates: int
    wires: int


def input_names(seq_len: int) -> tuple[str, ...]:
    """x_1, ..., x_M."""
    return tuple(f"x{r}" for r in range(1, seq_len + 1))


def count_terms(head: BitHead) -> int:
    """Sets with assignments that leave a weight alive, counted without listing them (dynamic programming over the sum)."""
    dead = _dead(head)
    counts = {0: 1}
    for options in head.options():
        following: dict[int, int] = {}
        for z, number in counts.items():
            for e, _, _ in options:
                if z + e < dead:
                    following[z + e] = following.get(z + e, 0) + number
        counts = following
    return sum(number for z, number in counts.items() if z)


def compile_head(head: BitHead, max_terms: int = MAX_TERMS) -> Circuit:
    """The circuit of one head: one output "u=w" for each code w that can occur, "u=0" always among them.

    Depth at most 5 (NOT, AND, OR, OR, NOT) whatever the length. Size: one AND a live term, so at most of order M^K.

    Raises ValueError, with the number of AND gates it would take, where that exceeds ``max_terms``.

    >>> circuit = compile_head(uniform_head(1, 8))
    >>> circuit.size, circuit.wires, circuit.depth
    (104, 839, 5)
    """
    terms = count_terms(head)
    if terms > max_terms:
        raise ValueError(
            f"head over {head.seq_len} positions at s={head.ar.s}: its circuit needs {terms:,} AND gates, more than "
            f"max_terms={max_terms:,}; shorten the context or raise max_terms"
        )
    chosen, outputs = live_terms(head)
    build = Builder(input_names(head.seq_len))
    literals = _literals(build, head)
    by_value: dict[int, list[int]] = {}
    for row, w in zip(chosen.tolist(), outputs.tolist(), strict=True):
        wires = [literals[r][c] for r, c in enumerate(row)]
        by_value.setdefault(w, []).append(build.AND([x for x in wires if x is not None]))
    found = {f"u={w}": build.OR(by_value[w]) for w in sorted(by_value)}
    return build.finish(found | {"u=0": build.NOT(build.OR(found.values()))})


def live_terms(head: BitHead) -> tuple[np.ndarray, np.ndarray]:
    """(choices, outputs): for each live term the option at each position, (terms, seq_len), and its output code, never 0."""
    ar, dead = head.ar, _dead(head)
    options = head.options()
    chosen, z = np.zeros((1, 0), dtype=np.int8), np.zeros(1, dtype=np.int64)
    for here in options:
        parts = []
        for c, (e, _, _) in enumerate(here):
            alive = z + e < dead
            parts.append((np.pad(chosen[alive], ((0, 0), (0, 1)), constant_values=c), z[alive] + e))
        chosen, z = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    place = np.arange(len(options))
    e, v = (np.array([[o[i] for o in (here * 2)[:2]] for here in options])[place, chosen] for i in (0, 1))
    u = _mixed(ar, e, v)
    return chosen[u != 0], u[u != 0]


def uniform_size(s: int, seq_len: int) -> Size:
    """Closed form for the uniform head over M > K = 2^(s+1) − 1 positions: sum_{t=1..K} C(M, t) + M + #values + 2 gates.

    >>> uniform_size(2, 14)
    Size(gates=9928, wires=148625)
    """
    k = 2 ** (s + 1) - 1
    if seq_len <= k:
        raise ValueError(f"seq_len={seq_len}: the closed form is for more than 2^(s+1) - 1 = {k} positions")
    values = len(set(attention_cutoff.uniform_head(uniform_head(s, 1).ar, range(1, k + 1))[1].tolist()))
    terms = sum(comb(seq_len, t) for t in range(1, k + 1))
    return Size(terms + seq_len + values + 2, terms * (seq_len + 1) + seq_len + values + 1)


def exponent(small: tuple[int, int], large: tuple[int, int]) -> float:
    """log(size ratio) / log(length ratio) of two (length, size) points."""
    (m, a), (n, b) = small, large
    return float(np.log(b / a) / np.log(n / m))


def streamed_head(head: BitHead) -> Circuit:
    """The same head a second way, as a circuit of depth proportional to M: guess the denominator, then walk through the sum.

    For each value Z of the denominator at which a weight survives, one wire for each (sum of exponentials so far, output so far);
    the guess counts where the sum ends at Z. Its size is of order M, so it can stand on the other side of a SAT check at lengths
    whose inputs cannot be listed.
    """
    build = Builder(input_names(head.seq_len), fold=True)
    literals = _literals(build, head)
    by_value: dict[int, list[int]] = {}
    for z in range(1, _dead(head)):
        for w, wire in _walk(build, head, literals, z).items():
            by_value.setdefault(w, []).append(wire)
    found = {f"u={w}": build.OR(by_value[w]) for w in sorted(by_value) if w}
    return build.finish(found | {"u=0": build.NOT(build.OR(found.values()))})


def _walk(build: Builder, head: BitHead, literals, total: int) -> dict[int, int]:
    """Wires "the exponentials add up to total, and the output is w", by w."""
    ar = head.ar
    states = {(0, 0): build.constant(True)}
    for here, wires in zip(head.options(), literals, strict=True):
        arriving: dict[tuple[int, int], list[int]] = {}
        for (e, v, _), wire in zip(here, wires, strict=True):
            step = int(ar.mul(ar.round_ratio(e * ar.one, total), v))
            for (z, u), state in states.items():
                if z + e <= total:
                    to = (z + e, int(ar.add(u, step)))
                    arriving.setdefault(to, []).append(state if wire is None else build.AND([state, wire]))
        states = {to: build.OR(wires) for to, wires in arriving.items()}
    return {u: wire for (z, u), wire in states.items() if z == total}


def _dead(head: BitHead) -> int:
    """The least sum of exponentials at which every weight is 0: e/Z <= 2^-(s+1) for the largest e (ties toward zero)."""
    ar = head.ar
    largest = int(ar.exp(head.keys).max())
    limit = 2 * ar.one * largest
    return limit if ar.ties in ("zero", "even") else limit + 1


def _literals(build: Builder, head: BitHead) -> list[list[int | None]]:
    """For each position and option the wire that says so; None where there is one option only."""
    return [
        [None if len(bits) == 2 else build.literal(r, bits[0] == 1) for _, _, bits in here]
        for r, here in enumerate(head.options())
    ]


def _mixed(ar, e: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Output codes from exponentials and values (terms, seq_len): the exact denominator, then the ordered rounded sum."""
    if not len(e):
        return np.zeros(0, dtype=np.int64)
    return ar.mix(ar.normalise(e)[:, None, :], v[:, :, None])[:, 0, 0]
