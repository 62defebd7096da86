"""The search for colliding states against the same search in plain Python loops, on thirty random decoders.

    python benchmarks/state_collisions.py [--n 64]

Both sides list the distinct states block by block, drop duplicates, find the first merge, and must return the same counts and the
same pair. The plain side takes state by state and number by number, in Python integers. Ratios of processor time, one thread,
one run; absolute times belong to the machine.
"""

from __future__ import annotations

import argparse
import os
import time
from math import isqrt

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread on both sides; read when numpy is imported

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds.state_collisions import search_all
from hybridseq.constructions.memory_machine import truncated
from hybridseq.constructions.random_decoder import random_decoders


class PlainDecoder:
    """A decoder of delta rules (order A, no output gate or a sigmoid one) on Python integers, one state at a time."""

    def __init__(self, model, ar):
        self.s, self.max, self.half = ar.s, ar.max_code, (ar.one >> 1) - 1
        self.one, self.ar, self.model = ar.one, ar, model
        codes = np.arange(-ar.max_code, ar.max_code + 1)
        self.sigmoid = dict(zip(codes.tolist(), ar.sigmoid(codes).tolist(), strict=True))
        self.layers = [
            ([self._head(head) for head in block.layer.heads], self._rows(block.layer.out), block.mlp and self._mlp(block.mlp))
            for block in model.blocks
        ]
        self.start = tuple(
            tuple(head.core.init_state(ar).reshape(-1).tolist()) for block in model.blocks for head in block.layer.heads
        )

    def _head(self, head):
        maps = {name: self._rows(affine) for name, affine in head.maps.items()}
        gate = None if head.gate is None else self._rows(head.gate)
        return maps, gate, head.qk_norm, head.core.value_dim, head.core.head_dim

    def _mlp(self, mlp):
        return self._rows(mlp.hidden), self._rows(mlp.out)

    def _rows(self, affine):
        rows = [[[], 0] for _ in range(affine.target.dim)]
        for row, column, weight in affine.weights:
            rows[row][0].append((column, self.ar.array([weight]).item()))
        for row, value in affine.bias:
            rows[row][1] = self.ar.array([value]).item()
        return rows

    def add(self, a, b):
        total = a + b
        return self.max if total > self.max else -self.max if total < -self.max else total

    def mul(self, a, b):
        product = a * b
        code = (product + self.half) >> self.s if product >= 0 else -((self.half - product) >> self.s)
        return self.max if code > self.max else -self.max if code < -self.max else code

    def affine(self, rows, x):
        result = []
        for terms, bias in rows:
            total = 0
            for column, weight in terms:
                total = self.add(total, self.mul(weight, x[column]))
            result.append(self.add(total, bias))
        return result

    def norm(self, x):
        total = sum(v * v for v in x)
        if total == 0:
            return x
        result = []
        for v in x:
            p = (self.one * v) ** 2
            k = isqrt(p // total)
            k += 4 * p > (2 * k + 1) ** 2 * total
            result.append(min(k, self.max) if v >= 0 else -min(k, self.max))
        return result

    def head(self, parts, state, x, read):
        maps, gate, norm, rows, columns = parts
        k = self.affine(maps["k"], x)
        k = self.norm(k) if norm == "l2" else k
        v = self.affine(maps["v"], x)
        alpha, beta = (self.sigmoid[self.affine(maps[name], x)[0]] for name in ("alpha", "beta"))
        after = []
        for r in range(rows):
            row, t = state[r * columns : (r + 1) * columns], 0
            for y, k_i in zip(row, k, strict=True):
                t = self.add(t, self.mul(y, k_i))
            c, w = self.mul(beta, t), self.mul(beta, v[r])
            for y, k_i in zip(row, k, strict=True):
                after.append(self.add(self.mul(alpha, self.add(y, -self.mul(c, k_i))), self.mul(w, k_i)))
        if not read:
            return tuple(after), []
        q = self.affine(maps["q"], x)
        q = self.norm(q) if norm == "l2" else q
        u = []
        for r in range(rows):
            total = 0
            for y, q_i in zip(after[r * columns : (r + 1) * columns], q, strict=True):
                total = self.add(total, self.mul(y, q_i))
            u.append(total)
        if gate is not None:
            u = [self.mul(self.sigmoid[g], value) for g, value in zip(self.affine(gate, x), u, strict=True)]
        return tuple(after), u

    def step(self, state, x):
        """The state after one token whose embedding is x; nobody reads the last layer."""
        after, place = [], 0
        for number, (heads, out, mlp) in enumerate(self.layers):
            read, outputs = number < len(self.layers) - 1, []
            for parts in heads:
                one, u = self.head(parts, state[place], x, read)
                after.append(one)
                outputs += u
                place += 1
            if read:
                x = [self.add(a, b) for a, b in zip(x, self.affine(out, outputs), strict=True)]
                if mlp:
                    hidden = [max(h, 0) for h in self.affine(mlp[0], x)]
                    x = [self.add(a, b) for a, b in zip(x, self.affine(mlp[1], hidden), strict=True)]
        return tuple(after)

    def search(self, n):
        """(counts, first merge): the states in a dictionary from state to prefix."""
        frontier, counts, merge = {self.start: ()}, [1], None
        for block in range(1, n + 1):
            following = {}
            for state, prefix in frontier.items():
                for bit in (0, 1):
                    after = state
                    for position in (2 * block - 2, 2 * block - 1):
                        after = self.step(after, self.model.embedding.rows(self.ar, bit, position).tolist())
                    if after not in following:
                        following[after] = (*prefix, bit)
                    elif merge is None:
                        merge = following[after], (*prefix, bit)
            frontier = following
            counts.append(len(frontier))
        return tuple(counts), merge


def timed(call):
    """The result and the processor time of one call, in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def compare(name, named, n):
    """Print the ratio for decoders (model, format), after checking that both sides agree."""
    plain = [PlainDecoder(model, ar) for model, ar in named]
    fast, fast_time = timed(lambda: search_all([model for model, _ in named], [ar for _, ar in named], n))
    slow, slow_time = timed(lambda: [decoder.search(n) for decoder in plain])
    for found, (counts, merge) in zip(fast, slow, strict=True):
        first = (found.merges[0].first, found.merges[0].second) if found.merges else None
        if (found.counts, first) != (counts, merge):
            raise SystemExit(f"{name}: the two searches disagree; do not read the times")
    print(f"  {name:44s} {slow_time / fast_time:6.1f} times   ({fast_time:.3f} s against {slow_time:.3f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="blocks of the long search")
    n = parser.parse_args().n
    decoders = [(model, FixedPoint(shape.s)) for shape, _, model in random_decoders()]
    search_all(*zip(*decoders, strict=True), 2)
    print("counts and first merge equal on both sides")
    for blocks in (8, 14, n):
        compare(f"30 random decoders, all of {blocks} blocks", decoders, blocks)
    for n, cells in ((10, 6), (12, 12)):
        machine = truncated(n, 2, cells)
        compare(f"memory machine with {cells} of {n} cells, {n} blocks", [(machine.model, machine.ar)], n)


if __name__ == "__main__":
    main()
