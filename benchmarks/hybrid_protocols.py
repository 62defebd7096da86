"""The protocol simulator over all 4,096 inputs of (2;2) against the same protocol in plain Python loops, prompt by prompt.

    python benchmarks/hybrid_protocols.py [--rounds 3]

Both sides play every message of every prompt and must end with the same messages and the same vectors. The plain side works in
Python integers, one number at a time, and hands numbers over as they are; the simulator also writes them out as bits and reads
them back. Ratios of processor time, one thread: each side's least time over rounds taken in turn, so that a disturbance hits
both; absolute times belong to the machine.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread on both sides; read when numpy is imported

import numpy as np

from hybridseq.bounds.hybrid_protocols import HybridProtocol
from hybridseq.constructions.integer_composition import composition_hybrid
from hybridseq.models.integer_hybrid import IntegerHybrid
from hybridseq.tasks.sequential_composition import SequentialComposition


def inner(a, b):
    """The dot product of two lists."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def clip(x, low, high):
    return low if x < low else high if x > high else x


class PlainProtocol:
    """The players of one model, on Python integers, one prompt at a time."""

    def __init__(self, protocol: HybridProtocol):
        model = protocol.model
        self.model, self.g = model, model.g
        self.low, self.high = model.ar.low, model.ar.high
        self.segments = [(player, range(place.start, place.stop)) for player, place in protocol.segments.items()]
        self.embedding = model.embedding.tolist()
        self.layers = [(layer, {name: getattr(layer, name).tolist() for name in layer.MATRICES}) for layer in model.layers]

    def times(self, matrix, x):
        """sat(W x)."""
        return [clip(inner(row, x), self.low, self.high) for row in matrix]

    def after(self, weights, x, u):
        """The stream of one token after the layer."""
        x = [clip(a + b, self.low, self.high) for a, b in zip(x, self.times(weights["out"], u), strict=True)]
        if not weights["mlp_in"]:
            return x
        hidden = [max(h, 0) for h in self.times(weights["mlp_in"], x)]
        return [clip(a + b, self.low, self.high) for a, b in zip(x, self.times(weights["mlp_out"], hidden), strict=True)]

    def share(self, queries, keys, values, offset, causal):
        """(num, den) of one player's keys for each query of one head."""
        nums, dens = [], []
        for i, q in enumerate(queries):
            num, den = [0] * len(values[0]), 0
            for j in range(i + 1 if causal else len(keys)):
                weight = 1 << clip(inner(q, keys[j]) + offset, 0, self.g)
                den += weight
                num = [a + weight * v for a, v in zip(num, values[j], strict=True)]
            nums.append(num)
            dens.append(den)
        return nums, dens

    def round(self, layer, weights, x, sent):
        offset = self.g // 2 if layer.offset is None else layer.offset
        heads = range(layer.heads)
        maps = {
            player: {name: [[self.times(weights[name][h], t) for t in part] for h in heads] for name in "qkv"}
            for player, part in x.items()
        }
        result, before = {}, []
        for player, part in x.items():
            q, k, v = (maps[player][name] for name in "qkv")
            sums = [self.share(q[h], k[h], v[h], offset, True) for h in heads]
            for other in before:
                message = [self.share(q[h], maps[other]["k"][h], maps[other]["v"][h], offset, False) for h in heads]
                sent.append([n for nums, _ in message for num in nums for n in num] + [d for _, dens in message for d in dens])
                for (nums, dens), (more, extra) in zip(sums, message, strict=True):
                    for i in range(len(part)):
                        nums[i] = [a + b for a, b in zip(nums[i], more[i], strict=True)]
                        dens[i] += extra[i]
            outputs = [[(2 * n + dens[i]) // (2 * dens[i]) for nums, dens in sums for n in nums[i]] for i in range(len(part))]
            result[player] = [self.after(weights, t, u) for t, u in zip(part, outputs, strict=True)]
            before.append(player)
        return result

    def chain(self, layer, weights, x, sent):
        most, top = (1 << layer.feature_bits) - 1, (1 << (layer.state_bits - 1)) - 1
        bottom, result = -top - 1, {}
        s = [[[0] * layer.head_dim for _ in range(layer.value_dim)] for _ in range(layer.heads)]
        z = [[0] * layer.head_dim for _ in range(layer.heads)]
        for place, (player, part) in enumerate(x.items()):
            result[player] = []
            for t in part:
                u = []
                for h in range(layer.heads):
                    q, k = ([clip(y - layer.feature_low, 0, most) for y in self.times(weights[m][h], t)] for m in "qk")
                    for row, value in zip(s[h], self.times(weights["v"][h], t), strict=True):
                        row[:] = [clip(a + clip(value * f, bottom, top), bottom, top) for a, f in zip(row, k, strict=True)]
                    z[h] = [clip(a + f, bottom, top) for a, f in zip(z[h], k, strict=True)]
                    nums = [clip(inner(row, q), bottom, top) for row in s[h]]
                    if layer.normalise:
                        den = clip(inner(z[h], q), bottom, top)
                        nums = [clip((2 * n + den) // (2 * den), bottom, top) if den else 0 for n in nums]
                    u += [clip(n, self.low, self.high) for n in nums]
                result[player].append(self.after(weights, t, u))
            if place + 1 < len(x):
                state = [a for head in s for row in head for a in row]
                sent.append(state + ([a for head in z for a in head] if layer.normalise else []))
        return result

    def play(self, prompt):
        """(messages, final vectors) of one prompt."""
        x = {player: [self.embedding[i][prompt[i]] for i in places] for player, places in self.segments}
        sent = []
        for layer, weights in self.layers:
            x = (self.round if layer.letter == "F" else self.chain)(layer, weights, x, sent)
        return sent, [t for part in x.values() for t in part]


def timed(call):
    """The result and the processor time of one call, in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def compare(name, protocol, tokens, rounds):
    """Print the ratio for one protocol, after checking that both sides agree on every message and every vector."""
    plain, prompts = PlainProtocol(protocol), tokens.tolist()
    fast_times, slow_times = [], []
    for _ in range(rounds):
        run, seconds = timed(lambda: protocol.run(tokens))
        fast_times.append(seconds)
        slow, seconds = timed(lambda: [plain.play(prompt) for prompt in prompts])
        slow_times.append(seconds)
    messages = np.array([[n for message in sent for n in message] for sent, _ in slow])
    if not np.array_equal(messages, run.rows()) or not np.array_equal(np.array([x for _, x in slow]), run.stream):
        raise SystemExit(f"{name}: the two simulators disagree; do not read the times")
    fast, slow = min(fast_times), min(slow_times)
    print(f"  {name:32s} {slow / fast:6.1f} times   ({fast:.3f} s against {slow:.3f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the least time of each side counts")
    rounds = parser.parse_args().rounds
    if rounds < 1:
        parser.error(f"--rounds {rounds}: at least one is needed")
    task = SequentialComposition(2, (2,))
    tokens = next(task.every())
    named = [
        (f"{word}, d = {d}, H = {heads}", IntegerHybrid.random(word, d, heads, p, g, task, seed=0))
        for word, (d, heads, p, g) in (("F", (1, 1, 2, 1)), ("RFR", (1, 1, 2, 1)), ("RFF", (2, 2, 4, 2)), ("RRRR", (1, 1, 2, 1)))
    ]
    named += [(f"{'RFF' if linear else 'FFF'} that composes", composition_hybrid(task, linear)) for linear in (False, True)]
    print("all 4,096 inputs of (2;2); messages and final vectors equal on both sides")
    for name, model in named:
        compare(name, HybridProtocol(model, task), tokens, rounds)


if __name__ == "__main__":
    main()
