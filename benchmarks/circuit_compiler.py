"""Compiler of a rounded attention head plus its check on all inputs, against plain Python loops.

    python benchmarks/circuit_compiler.py [--plain-inputs 256]

For M = 16 at s = 1 and M = 14 at s = 2: compile the uniform head, then compare circuit and head on all 2^M inputs. The plain
version lists the same terms with itertools, then evaluates circuit and head gate by gate and key by key, on a sample of the
inputs, scaled up. Prints both times of the same run, their ratio and the peak memory. Nothing is asserted but that both find the
same circuit.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from itertools import combinations

from hybridseq.bounds.circuits.attention import compile_head
from hybridseq.bounds.circuits.checks import check_all_inputs
from hybridseq.bounds.circuits.heads import uniform_head
from hybridseq.rng import Generator

CASES = ((1, 16), (2, 14))


def plain_mix(s: int, count: int) -> int:
    """Output code of the uniform head over `count` ones, by the definition."""
    one, most, total = 1 << s, (1 << 2 * s) - 1, 0
    z = count * one
    for _ in range(count):
        quotient, rest = divmod(one * one, z)
        p = quotient + (2 * rest > z)
        total = min(most, total + (p * one + (one // 2 - 1) >> s))
    return total


def plain_compile(s: int, seq_len: int) -> tuple[list[tuple[str, tuple[int, ...]]], dict[str, int]]:
    """Gates and outputs: a NOT for each input, an AND for each set, an OR for each value, an OR over those, a NOT."""
    gates: list[tuple[str, tuple[int, ...]]] = [("NOT", (r,)) for r in range(seq_len)]
    by_value: dict[int, list[int]] = {}
    for size in range(1, 2 ** (s + 1)):
        for ones in combinations(range(seq_len), size):
            value = plain_mix(s, size)
            gates.append(("AND", tuple(r if r in ones else seq_len + r for r in range(seq_len))))
            by_value.setdefault(value, []).append(seq_len + len(gates) - 1)
    outputs = {}
    for value in sorted(by_value):
        gates.append(("OR", tuple(by_value[value])))
        outputs[f"u={value}"] = seq_len + len(gates) - 1
    gates.append(("OR", tuple(outputs.values())))
    gates.append(("NOT", (seq_len + len(gates) - 1,)))
    outputs["u=0"] = seq_len + len(gates) - 1
    return gates, outputs


def plain_agrees(gates, outputs, s: int, bits: list[bool]) -> bool:
    """Whether circuit and head agree on one input; `all` and `any` stop at the first wire that decides."""
    value = list(bits)
    for kind, wires in gates:
        if kind == "NOT":
            value.append(not value[wires[0]])
        elif kind == "AND":
            value.append(all(value[w] for w in wires))
        else:
            value.append(any(value[w] for w in wires))
    u = plain_mix(s, sum(bits))
    return all(value[w] == (name == f"u={u}") for name, w in outputs.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain-inputs", type=int, default=256, help="inputs that the plain loop looks at (default 256)")
    options = parser.parse_args()
    check_all_inputs(compile_head(uniform_head(2, 8)), uniform_head(2, 8))  # tables are built outside the measurement
    for s, seq_len in CASES:
        head = uniform_head(s, seq_len)
        start = time.perf_counter()
        circuit = compile_head(head)
        check = check_all_inputs(circuit, head)
        fast = time.perf_counter() - start
        start = time.perf_counter()
        gates, outputs = plain_compile(s, seq_len)
        compiled = time.perf_counter() - start
        sample = Generator(0).integers(2**seq_len, options.plain_inputs).tolist()
        start = time.perf_counter()
        agree = all(plain_agrees(gates, outputs, s, [bool(a >> r & 1) for r in range(seq_len)]) for a in sample)
        plain = compiled + (time.perf_counter() - start) * 2**seq_len / len(sample)
        if not (check.passed and agree and len(gates) == circuit.size and sum(len(w) for _, w in gates) == circuit.wires):
            raise SystemExit("the two compilers disagree")
        print(f"s = {s}, M = {seq_len}: {circuit.size} gates, {circuit.wires} wires, 2^{seq_len} inputs")
        print(f"  package {fast:.2f} s; plain loops {plain:.0f} s (from {len(sample)} inputs); ratio {plain / fast:.0f} times")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    print(f"peak memory of the process: {peak:.2f} GB (aim: at most 2)")


if __name__ == "__main__":
    main()
