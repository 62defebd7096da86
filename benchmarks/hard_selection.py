"""One hard-selection head over 4096 keys and 4096 queries in F_s, against the same head in plain Python integers.

    python benchmarks/hard_selection.py [--s 4] [--scaling sqrt] [--plain-queries 4]

Prints the seconds of both in one run (the plain one on a few queries, scaled up), their ratio, and the peak memory of the
process. Nothing here is asserted but that both give the same codes.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from math import isqrt

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.codes import address_codebook
from hybridseq.constructions.hard_selection import HardSelection, m0, random_values
from hybridseq.rng import Generator


def plain_head(s: int, scaling: str, query: list[int], keys: list[list[int]], values: list[int], exp: dict[int, int]) -> int:
    """Output code of one query of signs, by the definition: no arrays, no batching."""
    one, most, width = 1 << s, (1 << 2 * s) - 1, 2 * len(query)
    padded = [x for c in query for x in (c, 1)]
    exponentials = []
    for key in keys:
        total = 0
        for a, b in zip(padded, [x for c in key for x in (c, -1)], strict=True):
            total += a * b
        square = (total * one) ** 2
        divisor = width if scaling == "sqrt" else 1
        root = isqrt(square // divisor)
        root += 4 * square > (2 * root + 1) ** 2 * divisor
        exponentials.append(exp[-min(root, most)])
    denominator, output = sum(exponentials), 0
    for e, value in zip(exponentials, values, strict=True):
        if not e:
            continue
        quotient, rest = divmod(e * one, denominator)
        p = quotient + (2 * rest > denominator)
        product = (abs(p * value) + (one // 2 - 1)) >> s
        output = max(-most, min(most, output + (product if value >= 0 else -product)))
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--s", type=int, default=4, help="bits behind the point (default 4)")
    parser.add_argument("--scaling", choices=("sqrt", "raw"), default="sqrt")
    parser.add_argument("--words", type=int, default=4096, help="keys and queries (default 4096)")
    parser.add_argument("--plain-queries", type=int, default=4, help="queries that the plain loop answers (default 4)")
    options = parser.parse_args()

    ar = FixedPoint(options.s)
    book = address_codebook(options.words, m0(options.s, options.scaling))
    selection = HardSelection(book, options.s, options.scaling)
    words = book.words[: options.words]
    order = Generator(0).permutation(len(words))
    values = random_values(options.s, len(words), 1, seed=0)

    ar.exp(np.zeros(1, dtype=int))  # build the table outside the measurement
    start = time.perf_counter()
    fast = selection.respond(ar, words, words[order], values)
    fast_seconds = time.perf_counter() - start

    exp = {code: int(ar.exp(np.array(code))) for code in range(-ar.max_code, 1)}
    keys = words[order].tolist()
    start = time.perf_counter()
    plain = [
        plain_head(options.s, options.scaling, words[i].tolist(), keys, values[:, 0].tolist(), exp)
        for i in range(options.plain_queries)
    ]
    plain_seconds = (time.perf_counter() - start) * len(words) / options.plain_queries
    if plain != fast[: options.plain_queries, 0].tolist():
        raise SystemExit("the two heads disagree")

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    print(f"head: {len(words)} queries x {len(words)} keys, d_h = {selection.head_dim}, s = {options.s}, {options.scaling}")
    print(f"package: {fast_seconds:.2f} s")
    print(f"plain Python: {plain_seconds:.0f} s (from {options.plain_queries} queries)")
    print(f"ratio: {plain_seconds / fast_seconds:.0f} times")
    print(f"peak memory of the process: {peak:.2f} GB (aim: at most 2)")


if __name__ == "__main__":
    main()
