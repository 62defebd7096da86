"""The finder that follows Lemma E2's proof, on (3; 2), against the same steps in plain Python loops.

    python benchmarks/decompositions.py [--tables 3000]

Integer hybrids with one full layer, words F, RF, FR and RFR. Both sides fix the commonest state after z_2, choose z_1, and group
the functions z_2 by all that they can still tell the players 0 and -1; both must return the same counts. The plain side takes
token by token and number by number, in Python integers, and runs the segment of z_2 once for each table. It sees a sample of the
46,656 tables (all of them with --tables 46656); the package also does all of them, and its time a table is compared as well.
Ratios of processor time, one thread, one run; absolute times belong to the machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter, defaultdict

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread on both sides; read when numpy is imported

import numpy as np

from hybridseq.bounds.decompositions import proof_shaped
from hybridseq.bounds.hybrid_protocols import HybridProtocol
from hybridseq.models.integer_hybrid import IntegerHybrid
from hybridseq.tasks.sequential_composition import SequentialComposition


class PlainHybrid:
    """An integer hybrid with one head a layer, on Python integers, one token at a time."""

    def __init__(self, model: IntegerHybrid):
        self.model, self.word, self.g = model, model.word, model.g
        self.low, self.high = model.ar.low, model.ar.high
        self.embedding = model.embedding.tolist()
        self.layers = [self._layer(layer) for layer in model.layers]

    def _layer(self, layer) -> dict:
        named = {"q": layer.q[0], "k": layer.k[0], "v": layer.v[0], "out": layer.out, "in": layer.mlp_in, "up": layer.mlp_out}
        parts = {name: [[(i, w) for i, w in enumerate(row) if w] for row in m.tolist()] for name, m in named.items()}
        if layer.letter == "R":
            most = (1 << (layer.state_bits - 1)) - 1
            parts |= {"least": layer.feature_low, "features": (1 << layer.feature_bits) - 1, "most": most}
        return parts

    def sat(self, x):
        return self.low if x < self.low else self.high if x > self.high else x

    def affine(self, rows, x):
        return [self.sat(sum(w * x[i] for i, w in row)) for row in rows]

    def fraction(self, num, den):
        return 0 if den == 0 else self.sat((2 * num + den) // (2 * den))

    def after(self, layer, x, u):
        x = [self.sat(a + b) for a, b in zip(x, self.affine(layer["out"], u), strict=True)]
        hidden = [max(h, 0) for h in self.affine(layer["in"], x)]
        return [self.sat(a + b) for a, b in zip(x, self.affine(layer["up"], hidden), strict=True)]

    def recur(self, layer, x, state):
        """One token of a recurrent layer: (stream after it, state)."""
        most, s, z = layer["most"], *state

        def clip(y):
            return -most - 1 if y < -most - 1 else most if y > most else y

        def features(name):
            return [max(0, min(layer["features"], y - layer["least"])) for y in self.affine(layer[name], x)]

        q, k, v = features("q"), features("k"), self.affine(layer["v"], x)
        s = tuple(tuple(clip(y + clip(v_r * k_i)) for y, k_i in zip(row, k, strict=True)) for row, v_r in zip(s, v, strict=True))
        z = tuple(clip(y + k_i) for y, k_i in zip(z, k, strict=True))
        den = clip(sum(y * q_i for y, q_i in zip(z, q, strict=True)))
        u = [self.fraction(clip(sum(y * q_i for y, q_i in zip(row, q, strict=True))), den) for row in s]
        return self.after(layer, x, u), (s, z)

    def empty(self, layer):
        return tuple((0,) * len(layer["k"]) for _ in layer["v"]), (0,) * len(layer["k"])

    def through(self, layers, x, states):
        """One token through recurrent layers."""
        after = []
        for layer, state in zip(layers, states, strict=True):
            x, state = self.recur(layer, x, state)
            after.append(state)
        return x, after

    def weight(self, q, k):
        return 1 << max(0, min(self.g, sum(a * b for a, b in zip(q, k, strict=True)) + self.g // 2))

    def sums(self, q, keys):
        """(num, den) of one query over (k, v) pairs."""
        num, den = [0] * len(self.layers[self.word.index("F")]["v"]), 0
        for k, v in keys:
            weight = self.weight(q, k)
            den += weight
            for r, value in enumerate(v):
                num[r] += weight * value
        return num, den


class PlainFinder:
    """`proof_shaped` in loops."""

    def __init__(self, model: IntegerHybrid, task: SequentialComposition):
        self.net, self.task = PlainHybrid(model), task
        place = model.word.index("F")
        self.before, self.full, self.later = self.net.layers[:place], self.net.layers[place], self.net.layers[place + 1 :]

    def first_part(self, tokens, start, states):
        """Streams before the full layer and the states of the layers there."""
        streams = []
        for position, token in enumerate(tokens, start=start):
            x, states = self.net.through(self.before, self.net.embedding[position][token], states)
            streams.append(x)
        return streams, states

    def own_states(self, streams, keys):
        """States of the later layers after z_2."""
        states = [self.net.empty(layer) for layer in self.later]
        for i, x in enumerate(streams):
            num, den = self.net.sums(self.net.affine(self.full["q"], x), keys[: i + 1])
            x = self.net.after(self.full, x, [self.net.fraction(y, den) for y in num])
            _, states = self.net.through(self.later, x, states)
        return states

    def keys(self, streams):
        return [(self.net.affine(self.full["k"], x), self.net.affine(self.full["v"], x)) for x in streams]

    def find(self, tables):
        """(|R_1|, |C|, x_1, |R|)."""
        task, empty = self.task, [self.net.empty(layer) for layer in self.before]
        ran = [(table, *self.first_part(table, 0, empty)) for table in tables]
        by_state = Counter(str_key(states) for *_, states in ran)
        sigma = min(by_state, key=lambda state: (-by_state[state], state))
        ran = [(table, streams, states) for table, streams, states in ran if str_key(states) == sigma]
        begin, m = task.segments[1].start, task.m
        seconds = task.functions(1).tolist()
        by_tau = defaultdict(list)
        for second in seconds:
            by_tau[str_key(self.first_part(second, begin, ran[0][2])[1])].append(second)
        tau = min(by_tau, key=lambda state: (-len(by_tau[state]), state))
        start = max(range(m), key=lambda a: len({second[a] for second in by_tau[tau]}))
        chosen = {second[start]: second for second in reversed(by_tau[tau])}
        early = [
            (self.first_part([*chosen[v], start, w], begin, ran[0][2])[0], w) for v in sorted(chosen) for w in range(task.ns[0])
        ]
        cells = defaultdict(list)
        for table, streams, _ in ran:
            keys = self.keys(streams)
            states = self.own_states(streams, keys) if self.later else []
            cells[str(tuple(self.message(x, w, keys, states) for x, w in early))].append(table)
        asked = [w * m + v for v in chosen for w in range(task.ns[0])]
        told = [cell for cell in cells.values() if len({tuple(table[a] for a in asked) for table in cell}) > 1]
        return len(ran), len(by_tau[tau]), len(chosen), max(map(len, told or cells.values()))

    def message(self, early, w, keys, states):
        """Sums at z_0 and w, and the states of later layers after z_1."""
        m, sent = self.task.m, []
        for i in (m, m + 1) if w == 0 else (m + 1,):
            sent.append(self.net.sums(self.net.affine(self.full["q"], early[i]), keys))
        if self.later and w == 0:
            seen = list(keys)
            for x in early[:m]:
                seen += self.keys([x])
                num, den = self.net.sums(self.net.affine(self.full["q"], x), seen)
                y = self.net.after(self.full, x, [self.net.fraction(value, den) for value in num])
                _, states = self.net.through(self.later, y, states)
            sent.append(states)
        return sent


def str_key(states) -> tuple:
    """States in the order in which the package numbers them: layer by layer, S before z."""
    return tuple(y for s, z in states for part in (*s, z) for y in part)


def timed(call):
    """The result and the processor time of one call, in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def counts(found) -> tuple[int, int, int, int]:
    return found.same_state, found.same_second, len(found.seconds), found.left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=3000, help="functions z_2 of the plain side (default 3000 of 46,656)")
    options = parser.parse_args()
    task = SequentialComposition(3, (2,))
    every = task.functions(2)
    some = every[np.linspace(0, len(every) - 1, options.tables).astype(int)]
    print(f"(3; 2), d = H = 1, p = 2; {len(some):,} tables on both sides, then all {len(every):,} on ours, by time a table")
    for word in ("F", "RF", "FR", "RFR"):
        model = IntegerHybrid.random(word, 1, 1, 2, 1, task, seed=0)
        protocol = HybridProtocol(model, task)
        finder = PlainFinder(model, task)
        proof_shaped(protocol, some[:50])
        slow, slow_time = timed(lambda finder=finder: finder.find(some.tolist()))
        fast, fast_time = timed(lambda protocol=protocol: counts(proof_shaped(protocol, some)))
        if slow != fast:
            raise SystemExit(f"{word}: the two sides disagree, {slow} and {fast}; do not read the times")
        whole, whole_time = timed(lambda protocol=protocol: counts(proof_shaped(protocol)))
        ratio = slow_time / len(some) / (whole_time / len(every))
        print(
            f"  {word:4s} {slow_time / fast_time:6.1f} times on the sample ({fast_time:.3f} s against {slow_time:.3f} s), "
            f"{ratio:6.1f} times on all ({whole_time:.2f} s), |R_1|, |C|, x_1, |R| = {', '.join(map(str, whole))}"
        )


if __name__ == "__main__":
    main()
