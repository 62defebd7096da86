"""How much faster the vectorised operations of F_s are than the same arithmetic in plain Python integers.

Run it by hand: ``python benchmarks/arithmetic.py [--s 4]``. Each line times both on the same codes, in the same process, and
checks that the results are equal; the ratio is what to read, the absolute times belong to the machine. Attention sees 16 keys a
query, so that weights survive, and both sides skip weights of zero when they mix.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from math import isqrt

import numpy as np

from hybridseq.arithmetic import FixedPoint


class Plain:
    """F_s with ties toward zero on Python integers, one code at a time."""

    def __init__(self, s: int, exp_codes: dict[int, int]):
        self.s, self.one, self.top = s, 2**s, 4**s - 1
        self.exp_codes = exp_codes

    def clip(self, code):
        return self.top if code > self.top else -self.top if code < -self.top else code

    def mul(self, a, b):
        product = a * b
        magnitude = (abs(product) + (self.one >> 1) - 1) >> self.s
        return self.clip(-magnitude if product < 0 else magnitude)

    def sum(self, xs):
        total = 0
        for x in xs:
            total = self.clip(total + x)
        return total

    def affine(self, weight, xs):
        return [[self.sum(self.mul(w, x) for w, x in zip(row, vector, strict=True)) for row in weight] for vector in xs]

    def root(self, value, p, q):
        k = isqrt(p // q)
        magnitude = min(k + (4 * p > (2 * k + 1) ** 2 * q), self.top)
        return -magnitude if value < 0 else magnitude

    def scores(self, queries, keys):
        den = self.one**2 * len(queries[0])
        totals = [[sum(a * b for a, b in zip(q, k, strict=True)) for k in keys] for q in queries]
        return [[self.root(t, t * t, den) for t in row] for row in totals]

    def softmax(self, rows, mask):
        out = []
        for row, seen in zip(rows, mask, strict=True):
            e = [self.exp_codes[z] if visible else 0 for z, visible in zip(row, seen, strict=True)]
            total = sum(e)
            out.append([-((-2 * x * self.one + total) // (2 * total)) if total else 0 for x in e])
        return out

    def mix(self, weights, values):
        out = []
        for row in weights:
            live = [(p, value) for p, value in zip(row, values, strict=True) if p]
            out.append([self.sum(self.mul(p, value[c]) for p, value in live) for c in range(len(values[0]))])
        return out

    def rms_norm(self, rows):
        out = []
        for row in rows:
            rho = sum(x * x for x in row)
            out.append([self.root(x, (self.one * x) ** 2 * len(row), rho) if rho else 0 for x in row])
        return out


def timed(call, repeat):
    """(result, fewest seconds of processor time of ``repeat`` calls)."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        result = call()
        best = min(best, time.process_time() - start)
    return result, best


def cases(ar: FixedPoint, rng):
    """(name, cases, vectorised call, plain call) for each operation."""
    plain = Plain(ar.s, dict(zip(ar.codes().tolist(), ar.exp_table().tolist(), strict=True)))
    span = min(ar.max_code, 4 * ar.one)
    x = rng.integers(-span, span + 1, size=(256, 64))
    weight = rng.integers(-ar.one, ar.one + 1, size=(64, 64))
    q, k = ar.rms_norm(x[:, :32]), ar.rms_norm(x[:, 32:])
    z = ar.scores(q, k)
    place = np.arange(256)
    mask = (place[:, None] - place) % 256 < 16
    p = ar.softmax(z, mask)
    arrays = {"x": x, "w": weight, "q": q, "k": k, "z": z, "p": p, "mask": mask}
    lists = {name: array.tolist() for name, array in arrays.items()}
    return [
        ("product", x.size, lambda: ar.mul(x, x[::-1]), lambda: [
            [plain.mul(a, b) for a, b in zip(u, v, strict=True)] for u, v in zip(lists["x"], lists["x"][::-1], strict=True)
        ]),
        ("ordered sum", x.size, lambda: ar.sum(x), lambda: [plain.sum(row) for row in lists["x"]]),
        ("affine map", x.size * 64, lambda: ar.affine(weight, x), lambda: plain.affine(lists["w"], lists["x"])),
        ("RMS norm", x.size, lambda: ar.rms_norm(x), lambda: plain.rms_norm(lists["x"])),
        ("scores, 1/√d", z.size * 32, lambda: ar.scores(q, k), lambda: plain.scores(lists["q"], lists["k"])),
        ("softmax", z.size, lambda: ar.softmax(z, mask), lambda: plain.softmax(lists["z"], lists["mask"])),
        ("mixing", int(np.count_nonzero(p)) * 64, lambda: ar.mix(p, x), lambda: plain.mix(lists["p"], lists["x"])),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--s", type=int, default=4, help="bits behind the point, 1 to 11 (default 4)")
    parser.add_argument("--repeat", type=int, default=5, help="the fastest of this many vectorised calls counts (default 5)")
    arguments = parser.parse_args()
    if not 1 <= arguments.s <= 11 or arguments.repeat < 1:
        parser.error("--s must lie in 1..11 and --repeat must be at least 1")
    ar = FixedPoint(arguments.s)
    print(f"{ar.name}, numpy {np.__version__}; processor time in milliseconds, one process\n")
    print(f"{'operation':14} {'scalar steps':>12} {'plain':>10} {'vectorised':>11} {'ratio':>8}")
    for name, steps, fast, slow in cases(ar, np.random.default_rng(0)):
        got, fast_seconds = timed(fast, arguments.repeat)
        expected, slow_seconds = timed(slow, 1)
        if got.tolist() != expected:
            print(f"{name}: the two disagree", file=sys.stderr)
            return 1
        ratio = slow_seconds / fast_seconds
        print(f"{name:14} {steps:12,} {1e3 * slow_seconds:10.1f} {1e3 * fast_seconds:11.2f} {ratio:7.0f}x")
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
