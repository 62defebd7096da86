"""The exact hybrid decoder against the same sparse named maps in plain Python integers, and its growth with n.

    python benchmarks/hybrid_decoder.py [--quick]

Prints ratios measured in one run; absolute times are of this machine and are printed beside them. Both sides evaluate the
last position only, start from compiled maps, and must return equal logits. The fast side takes the prompts as one batch and so
shares what depends on token and position alone; the plain side takes them one after the other.
"""

from __future__ import annotations

import argparse
import os
import time
from math import isqrt

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread on both sides; read when numpy is imported

import numpy as np

from hybridseq.constructions.hybrid_decoder import HybridDecoder
from hybridseq.rng import Generator
from hybridseq.tasks import pcr


class PlainDecoder:
    """The three layers at the last position, number by number, in Python integers (codes of F_s, ties toward zero).

    Rows of every map are lists of (column, code) pairs with a bias code; zero weights are never touched.
    """

    def __init__(self, decoder: HybridDecoder):
        ar = decoder.ar
        self.s, self.one, self.max = ar.s, ar.one, ar.max_code
        self.maps = {name: self._rows(ar, affine) for name, affine in decoder.maps.items()}
        model = decoder.model
        levels = ar.array(list(model.embedding.levels)).tolist()
        self.table = [[[levels[i] for i in row] for row in positions] for positions in model.embedding.index.tolist()]
        self.start = ar.array(model.blocks[0].layer.heads[0].core.initial_state).tolist()
        self.scale = decoder.scale
        codes = np.arange(-self.max, self.max + 1)
        self.exp = dict(zip(codes.tolist(), ar.exp(codes).tolist(), strict=True))
        self.sigmoid = dict(zip(codes.tolist(), ar.sigmoid(codes).tolist(), strict=True))

    @staticmethod
    def _rows(ar, affine):
        rows = [[[], 0] for _ in range(affine.target.dim)]
        for row, column, weight in affine.weights:
            rows[row][0].append((column, ar.array([weight]).item()))
        for row, value in affine.bias:
            rows[row][1] = ar.array([value]).item()
        return rows

    def clip(self, code: int) -> int:
        return self.max if code > self.max else -self.max if code < -self.max else code

    def add(self, a: int, b: int) -> int:
        return self.clip(a + b)

    def mul(self, a: int, b: int) -> int:
        product, half = a * b, (self.one >> 1) - 1
        return self.clip((product + half) >> self.s if product >= 0 else -((half - product) >> self.s))

    def affine(self, name: str, x: list[int]) -> list[int]:
        result = []
        for terms, bias in self.maps[name]:
            total = 0
            for column, weight in terms:
                total = self.add(total, self.mul(weight, x[column]))
            result.append(self.add(total, bias))
        return result

    def root(self, p: int, q: int) -> int:
        """The integer nearest to sqrt(p / q)."""
        k = isqrt(p // q)
        return k + 1 if 4 * p > (2 * k + 1) ** 2 * q else k

    def norm(self, x: list[int], factor: int) -> list[int]:
        total = sum(v * v for v in x)
        if total == 0:
            return x
        rooted = [self.root((self.one * v) ** 2 * factor, total) for v in x]
        return [self.clip(-r if v < 0 else r) for v, r in zip(x, rooted, strict=True)]

    def parity(self, stream: list[list[int]]) -> list[int]:
        """L1: every token's update of the state, one read at the end."""
        rows = [list(row) for row in self.start]
        for x in stream:
            k, v = self.norm(self.affine("L1.k", x), 1), self.affine("L1.v", x)
            alpha, beta = (self.sigmoid[self.affine(f"L1.{name}", x)[0]] for name in ("alpha", "beta"))
            for r, row in enumerate(rows):
                t = self.add(self.mul(row[0], k[0]), self.mul(row[1], k[1]))
                c, w = self.mul(beta, t), self.mul(beta, v[r])
                rows[r] = [
                    self.add(self.mul(alpha, self.add(x_i, -self.mul(c, k_i))), self.mul(w, k_i))
                    for x_i, k_i in zip(row, k, strict=True)
                ]
        q = self.norm(self.affine("L1.q", stream[-1]), 1)
        return [self.add(self.mul(row[0], q[0]), self.mul(row[1], q[1])) for row in rows]

    def attention(self, layer: str, stream: list[list[int]], last: list[int]) -> list[int]:
        """L2 or L3: one query against the keys of all positions."""
        q = self.affine(f"{layer}.q", last)
        dim = len(q)
        q, exps = self.norm(q, dim), []
        for x in stream:
            k = self.norm(self.affine(f"{layer}.k", x), dim)
            dot = sum(a * b for a, b in zip(q, k, strict=True))
            if self.scale == "raw":
                score = self.mul(dot, 1)  # the exact sum, in units of delta squared
            else:
                rooted = self.root(dot * dot, self.one**2 * dim)
                score = self.clip(-rooted if dot < 0 else rooted)
            exps.append(self.exp[score])
        total, outputs = sum(exps), None
        for e, x in zip(exps, stream, strict=True):
            v = self.affine(f"{layer}.v", x)
            outputs = [0] * len(v) if outputs is None else outputs
            p = (2 * e * self.one + total - 1) // (2 * total) if total else 0
            if p:
                outputs = [self.add(o, self.mul(p, value)) for o, value in zip(outputs, v, strict=True)]
        return outputs

    def write(self, layer: str, u: list[int], last: list[int]) -> list[int]:
        gate = [self.sigmoid[g] for g in self.affine(f"{layer}.gate", last)]
        z = self.affine(f"{layer}.out", [self.mul(g, value) for g, value in zip(gate, u, strict=True)])
        return [self.add(x, d) for x, d in zip(last, z, strict=True)]

    def logits(self, tokens: list[int]) -> list[int]:
        stream = [self.table[token][position] for position, token in enumerate(tokens)]
        last = self.write("L1", self.parity(stream), stream[-1])
        last = self.write("L2", self.attention("L2", stream, last), last)
        last = self.write("L3", self.attention("L3", stream, last), last)
        hidden = [max(h, 0) for h in self.affine("L3.MLP in", last)]
        last = [self.add(x, d) for x, d in zip(last, self.affine("L3.MLP out", hidden), strict=True)]
        return self.affine("logits", last)


def timed(call, repeats: int):
    """The result and the least time of `repeats` calls, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return result, best


def compare(n: int, s: int, scale: str, num: int, num_plain: int, repeats: int = 3):
    """Seconds a prompt of both evaluators, after checking that they agree; num_plain prompts stand for all in the slow one."""
    decoder = HybridDecoder(n, s, scale)
    prompts = pcr.sample(n, num, Generator(0).at(n))
    plain = PlainDecoder(decoder)
    decoder.logits(prompts.tokens[:1])
    fast, fast_time = timed(lambda: decoder.logits(prompts.tokens), repeats)
    rows = prompts.tokens[:num_plain].tolist()
    slow, slow_time = timed(lambda: [plain.logits(row) for row in rows], 1)
    if not np.array_equal(fast[:num_plain], np.array(slow)):
        raise SystemExit(f"n = {n}: the two evaluators disagree; do not read the times")
    return fast_time / num, slow_time / num_plain, decoder.stream.dim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="stop the growth at n = 256")
    quick = parser.parse_args().quick
    print("n = 256, s = 4, last position, 64 prompts (plain Python: 2 prompts, scaled); logits equal")
    for scale in ("sqrt", "raw"):
        fast, slow, dim = compare(256, 4, scale, 64, 2)
        times = f"{1e3 * fast:.2f} ms against {1e3 * slow:.0f} ms a prompt"
        print(f"  {scale:4s} d_M = {dim:3d}: {slow / fast:6.0f} times   ({times})")
    print("growth with n, s = 4, sqrt scores, 16 prompts (plain Python: 1 prompt)")
    first = None
    for n in (16, 32, 64, 128, 256) if quick else (16, 32, 64, 128, 256, 512, 1024):
        fast, slow, dim = compare(n, 4, "sqrt", 16, 1)
        first = fast if first is None else first
        print(
            f"  n = {n:5d}  N = {3 * n:5d}  d_M = {dim:3d}   {fast / first:6.1f} times the time at n = 16   "
            f"{slow / fast:6.0f} times faster than plain   ({1e3 * fast:.2f} ms a prompt)"
        )


if __name__ == "__main__":
    main()
