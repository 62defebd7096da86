"""The three trainers side by side: milliseconds a step and replica, share of the core's peak, two threads, memory.

    OMP_NUM_THREADS=1 python benchmarks/trainer.py

Multi-key recall, eight sequences of 100 tokens, float32. A step is everything: batch, dropout, forward, backward, clipping, and
AdamW.
One process, one thread (processor time of that thread), ten rounds in which each trainer has its turn, and of each the fastest
round. The native trainer is a call of many steps; what a call costs beside them (initial values, held-out data) is measured by
calls of two lengths and subtracted.

Useful operations of a step are counted by hand (`operations`): a multiply-add is two, an exponential 20, and what the backward
pass computes again counts once. The peak is that of independent multiply-adds on eight lanes, in C, on the same core.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from os import getloadavg
from pathlib import Path
from time import perf_counter, thread_time

import torch

from hybridseq.learning import ensemble, native, plain
from hybridseq.learning.batches import Framed
from hybridseq.learning.native.source import flags
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.learning.torch_settings import one_quiet_thread
from hybridseq.tasks.multi_key_recall import MultiKeyRecall

TASK = Framed(MultiKeyRecall(8, 2, skip_first=True))
STACKS = [(name, width) for width in (12, 24) for name in ("SSM-TF", "SSM-SSM", "TF-TF")]
REQUIRED = {12: {"SSM-TF": 30, "SSM-SSM": 40, "TF-TF": 8}, 24: {"SSM-TF": 22, "SSM-SSM": 32, "TF-TF": 5}}
"""How many times faster than the plain module the native step has to be."""

REPLICAS = 11
GRID = [(name, width) for name in ("SSM-TF", "TF-SSM", "TF-TF", "SSM-SSM") for width in (4, 8, 12, 16, 20, 24)]
AUDIT_STEPS = 11 * 4000 + 8 * 1000
"""Steps a point under the audit's protocol: 11 seeds, and 8 calibrations of 1,000 steps."""

PEAK = """
typedef float v8 __attribute__((vector_size(32)));
float run(long rounds, float a, float b) {
    v8 x[10], m = {a, a, a, a, a, a, a, a}, c = {b, b, b, b, b, b, b, b}, sum = c;
    for (int i = 0; i < 10; i++) x[i] = c * (float)i;
    for (long n = 0; n < rounds; n++)
        for (int i = 0; i < 10; i++) x[i] = x[i] * m + c;
    for (int i = 0; i < 10; i++) sum += x[i];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}
"""


def a_run(name: str, width: int, seed: int = 0) -> Run:
    return Run(Stack.parse(name, width=width, vocab_size=TASK.vocab_size), TASK, Recipe(), seed, 0.001)


def timed(function, *arguments) -> float:
    """Processor seconds of this thread."""
    start = thread_time()
    function(*arguments)
    return thread_time() - start


# ------------------------------------------------------------------------------------------------------- one step a trainer


class Plain:
    """One step of the plain module, as in `plain.train`."""

    def __init__(self, run: Run):
        self.run, self.step = run, 0
        self.flat = run.stack.initial(0).astype("float32")
        self.optimiser = plain.AdamW.start(run.recipe, self.flat)

    def seconds(self) -> float:
        return timed(self._step)

    def _step(self):
        run, i = self.run, self.step
        tokens, labels = TASK.training_batch(run.seed, i)
        _, gradient = plain.loss_and_gradient(run.stack, self.flat, tokens, labels, plain.dropout_factors(run, i))
        self.flat = self.optimiser.step(self.flat, gradient.astype("float32"), run.recipe.learning_rate(run.learning_rate, i))
        self.step += 1


class Together:
    """One step of eleven stacked replicas, a replica's share."""

    def __init__(self, run: Run):
        self.runs = [a_run(run.stack.name, run.stack.width, seed) for seed in range(REPLICAS)]
        self.decoder = ensemble.StackedDecoder(run.stack, TASK.seq_len, "float32")
        start = [torch.tensor(one.stack.initial(one.seed), dtype=torch.float32) for one in self.runs]
        self.optimiser, self.step = ensemble.AdamW(run.recipe, torch.stack(start)), 0

    def seconds(self) -> float:
        self.step += 1
        return timed(ensemble.train_step, self.decoder, self.optimiser, self.runs, self.step) / REPLICAS


class Native:
    """Many steps of C; the least of each length is kept, so that the difference is one of quiet calls."""

    short, long = 5, 55

    def __init__(self, run: Run):
        self.run, self.least = run, {self.short: float("inf"), self.long: float("inf")}

    def seconds(self) -> float:
        for steps in self.least:
            self.least[steps] = min(self.least[steps], timed(native.train, self.run, None, steps))
        return (self.least[self.long] - self.least[self.short]) / (self.long - self.short)


def fastest(rounds: int = 10) -> dict[tuple[str, int], list[float]]:
    """Milliseconds a step and replica of plain, ensemble, native for each stack."""
    trainers = {point: [kind(a_run(*point)) for kind in (Plain, Together, Native)] for point in STACKS}
    for kinds in trainers.values():
        for trainer in kinds:
            trainer.seconds()
    best = {point: [float("inf")] * 3 for point in STACKS}
    for _ in range(rounds):
        for point, kinds in trainers.items():
            for k, trainer in enumerate(kinds):
                seconds = trainer.seconds()
                best[point][k] = seconds if trainer.__class__ is Native else min(best[point][k], seconds)
    return {point: [1e3 * seconds for seconds in row] for point, row in best.items()}


# ------------------------------------------------------------------------------------------------------------- operations, peak


def operations(stack: Stack) -> float:
    """Useful operations of a step of 8 x 100 tokens."""
    d, n, r, heads, length = stack.width, stack.state_dim, stack.dt_rank, stack.heads, TASK.seq_len
    tokens, pairs = 8 * length, 8 * length * (length + 1) / 2
    exponential, silu = 20, 30
    weights, other = stack.vocab_size * d, stack.vocab_size * tokens * (exponential + 5)
    for kind in stack.layers:
        if kind == "TF":
            weights += 3 * d * heads * stack.head_dim + d * d + 4 * d * d
            other += pairs * heads * (12 * stack.head_dim + exponential + 6) + 2 * d * tokens * silu
        else:
            weights += 4 * d * d + 2 * d * (r + 2 * n) + 2 * d * r + 2 * d * d
            other += 2 * d * tokens * (n * (exponential + 5 + 14) + 2 * silu + 50 + 3 * 8)  # scan; SiLUs; softplus; convolution
    return 6 * weights * tokens + other


def peak() -> float | None:
    """Multiply-add peak of one core in operations a second; None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    rounds, operations_a_round = 1_000_000, 10 * 16
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.c"), Path(folder, "peak.so")
        source.write_text(PEAK, encoding="utf-8")
        subprocess.run([compiler, *flags(), "-fvisibility=default", "-shared", "-fPIC", "-o", library, source], check=True)
        run = ctypes.CDLL(str(library)).run
    run.argtypes, run.restype = [ctypes.c_long, ctypes.c_float, ctypes.c_float], ctypes.c_float
    return rounds * operations_a_round / min(timed(run, rounds, 0.5, 0.25) for _ in range(20))


# --------------------------------------------------------------------------------------------------- threads, memory, the grid


def two_threads(rounds: int = 10) -> tuple[float, float]:
    """Steps of two threads over those of one in the same time: by the wall clock, and by the threads' processor time.

    The second does not mind other programs that take their share of the cores; it sees what the threads take from each other.
    """
    runs, steps = [a_run("SSM-TF", 24, seed) for seed in (0, 1)], 200
    wall, processor = ([float("inf")] * 3 for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            for number in (1, 2):
                start = perf_counter()
                spent = list(pool.map(lambda run: timed(native.train, run, None, steps), runs[:number]))
                wall[number] = min(wall[number], perf_counter() - start)
                processor[number] = min(processor[number], max(spent))
    return 2 * wall[1] / wall[2], 2 * processor[1] / processor[2]


def grid_seconds(rounds: int = 5) -> float:
    """Core-seconds of Figure 6's 24 points under the audit's protocol, from some dozen steps of each."""
    points = [Native(a_run(*point)) for point in GRID]
    for _ in range(rounds - 1):
        for point in points:
            point.seconds()
    return AUDIT_STEPS * sum(point.seconds() for point in points)


def said(passed: bool) -> str:
    return "yes" if passed else "NO"


def main() -> None:
    if not native.available():
        raise SystemExit(f"the native trainer is not available: {native.why_not()}")
    with one_quiet_thread():
        best, core = fastest(), peak()
    print("milliseconds a step and replica     plain  ensemble  native   ensemble x   native x  required        share of peak")
    for (name, width), (slow, stacked, fast) in best.items():
        required = REQUIRED[width][name]
        work = operations(a_run(name, width).stack)
        share = f"{work / (fast * 1e-3) / core:5.0%} {said(work / (fast * 1e-3) >= 0.25 * core)}" if core else "no compiler"
        print(
            f"  width {width}, {name:8} {slow:23.1f} {stacked:9.2f} {fast:7.3f} {slow / stacked:12.1f} {slow / fast:10.1f}"
            f"  {required:3} {said(slow / fast >= required):3}      {share} ({work / 1e6:.0f} million operations)"
        )
    if core:
        print(f"multiply-add peak of a core: {core / 1e9:.0f} thousand million operations a second")
    wall, processor = two_threads()
    by = f"(by processor time {processor:.2f})"
    print(f"two threads do {wall:.2f} times the steps of one {by}: required 1.8 {said(wall >= 1.8)}")
    if wall < 1.8 <= processor:
        print(f"  other programs had the cores meanwhile (load average {getloadavg()[0]:.1f}): again on a quiet machine")
    for width, vocab_size in ((4, 11), (12, 11), (24, 11), (24, 34), (32, 34), (96, 34)):
        stacks = [Stack.parse(name, width=width, vocab_size=vocab_size) for name in ("SSM-TF", "SSM-SSM", "TF-TF")]
        sizes = [native.work_bytes(stack, TASK.seq_len) / 2**20 for stack in stacks]
        limit = f"  required 6 {said(max(sizes) <= 6)}" if width <= 24 else ""
        print(f"MiB a replica, width {width}, {vocab_size} tokens: " + ", ".join(
            f"{stack.name} {size:.1f}" for stack, size in zip(stacks, sizes, strict=True)) + limit)
    seconds = grid_seconds()
    print(f"Figure 6's grid under the audit's protocol: {seconds:.0f} core-seconds; required 2200 {said(seconds <= 2200)}")


if __name__ == "__main__":
    main()
