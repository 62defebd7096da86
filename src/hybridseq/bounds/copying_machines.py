"""Finite machines for selective copying, against the constant in paper B's Theorem 4.2.

A machine is a state space layer in the sense of the paper: a state, an update, an output read from the new state. Tokens are
as in `task_bounds.Copying`: ids 0..N-1 are the numbers #1..#N, the others words.

The theorem prints N log M bits without an Omega. Four machines speak to that. `buffer` keeps some of the last words. `guesser`
has 210 states for N = M = 4, fewer than 4^4, and reaches 0.9 on the distribution of the proof. `merger` confuses a tenth of the
tokens with one of them, `eraser` forgets every tenth token. Either comes as a family of which, on any input with an answer, at
least nine of ten are right; so for any distribution over such inputs one of the family reaches 0.9. Mergers have fewer than
N log2 M bits from M = 9 N + 10 on, erasers from about N^0.9 on if N is large.

Success is computed exactly, by pushing the distribution through pairs of machine state and truth.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import log2

import numpy as np

from hybridseq.bounds.task_bounds import SUCCESS, Copying
from hybridseq.bounds.windows import copied
from hybridseq.evidence import Check
from hybridseq.rng import Generator

State = Hashable


@dataclass(frozen=True)
class Machine:
    """(S, s_0, u, r) of paper B, Section 2: states are hashable values; `output` reads the new state, None is no answer."""

    start: State
    step: Callable[[State, int], State]
    output: Callable[[State], int | None]

    def run(self, tokens: Iterable[int]) -> int | None:
        """The output after the last token."""
        state = self.start
        for token in tokens:
            state = self.step(state, token)
        return self.output(state)


def reachable(machine: Machine, vocab_size: int, limit: int = 1 << 20) -> int:
    """The number of states reachable from the start. Raises ValueError beyond `limit`."""
    known, frontier = {machine.start}, [machine.start]
    while frontier:
        after = {machine.step(state, token) for state in frontier for token in range(vocab_size)} - known
        known |= after
        frontier = list(after)
        if len(known) > limit:
            raise ValueError(f"machine: more than {limit} reachable states; count these by formula")
    return len(known)


# machines ----------------------------------------------------------------------------------------------------------------


def _check_numbers(numbers: int) -> None:
    if numbers < 2:
        raise ValueError(f"numbers={numbers}: must be >= 2; with #1 alone every sequence copies its last token")


def buffer(numbers: int, words: int, kept: int) -> Machine:
    """Keeps the last `kept` words and at #n (n >= 2) says the one that is n - 1 places back; a word it does not have it guesses.

    Made for D_S alone: after a number it keeps the answer only. Raises ValueError for N < 2 or kept < 0.
    """
    _check_numbers(numbers)
    if kept < 0:
        raise ValueError(f"kept={kept}: must be >= 0")

    def step(state, token):
        _, last = state
        if token < numbers:
            return (last[-token] if 0 < token <= len(last) else numbers), ()
        return None, (*last, token)[len(last) + 1 - kept :] if len(last) >= kept else (*last, token)

    return Machine((None, ()), step, lambda state: state[0])


def guesser(numbers: int, words: int) -> Machine:
    """Before any number the last N - 1 words; at #n the answer; then n and the last n words, but for n = N the current word only.

    So at n = N it guesses. 210 states for N = M = 4. Right on all of D_S, and on D_T unless n = N. Raises ValueError for N < 2.
    """
    _check_numbers(numbers)
    first_word = numbers

    def step(state, token):
        kind, n, kept = state
        if token >= numbers:
            if kind == "words":
                return kind, 0, (*kept, token)[-(numbers - 1) :]
            kept = kept if kind == "after" else ()
            return "after", n, (*kept, token)[-n:] if n < numbers else (token,)
        back, known = token, () if kind == "said" else kept  # #n wants the token `back` = n - 1 places before it
        if back == 0:
            return "said", 1, 0
        return "said", token + 1, known[-back] if back <= len(known) else first_word

    def output(state):
        kind, n, kept = state
        if kind == "words":
            return None
        if kind == "said":
            return kept
        if n == numbers:
            return kept[0]
        return kept[0] if len(kept) == n else n - 1 if len(kept) == n - 1 else first_word

    return Machine(("words", 0, ()), step, output)


def merged_tokens(numbers: int, words: int) -> int:
    """g = floor((N + M) / 10): so many tokens may be mistaken for another at success 0.9."""
    return (numbers + words) // 10


def merger(numbers: int, words: int, shift: int, merged: int | None = None) -> Machine:
    """Keeps the last number n and the last N - 1 tokens (N if n = N), where `merged` tokens are stored as if they were `shift`.

    These are shift + 1, .., shift + merged modulo N + M (default: `merged_tokens`). Over all N + M shifts each token is
    mistaken `merged` times. Raises ValueError for N < 2, a shift outside 0..N+M-1 or merged outside 0..N+M-1.
    """
    size = numbers + words
    _check_numbers(numbers)
    merged = merged_tokens(numbers, words) if merged is None else merged
    if not 0 <= shift < size or not 0 <= merged < size:
        raise ValueError(f"shift={shift}, merged={merged}: both must lie in 0..{size - 1}, there are {size} tokens")
    stored = [shift if 0 < (token - shift) % size <= merged else token for token in range(size)]

    def step(state, token):
        n, last = state
        n = token + 1 if token < numbers else n
        return n, (*last, stored[token])[-(numbers if n == numbers else numbers - 1) :]

    def output(state):
        n, last = state
        return last[-n] if n else None

    return Machine((0, (stored[numbers],) * (numbers - 1)), step, output)


def merger_states(numbers: int, words: int, merged: int | None = None) -> int:
    """r^N + N r^(N-1) with r = N + M - g: no shift of `merger` has more states.

    For n = N it holds N of r stored tokens; for n < N, or no number yet, N - 1 of them.

    >>> merger_states(2, 28), 28**2
    (783, 784)
    """
    kept = numbers + words - (merged_tokens(numbers, words) if merged is None else merged)
    return kept**numbers + numbers * kept ** (numbers - 1)


def eraser(numbers: int, period: int, phase: int) -> Machine:
    """Keeps the last number and the last N tokens, but nothing of the tokens at times t = phase (mod period), t = 1, 2, ...

    Every token is erased in one of the `period` phases. So on any input with an answer all phases but one are right.
    Raises ValueError for N < 2, period < 2 or a phase outside 0..period-1.
    """
    _check_numbers(numbers)
    if period < 2 or not 0 <= phase < period:
        raise ValueError(f"period={period}, phase={phase}: needs period >= 2 and a phase in 0..{period - 1}")

    def step(state, token):
        time, n, last = state
        time = (time + 1) % period
        return time, token + 1 if token < numbers else n, (*last[1:], None if time == phase else token)

    def output(state):
        _, n, last = state
        return last[-n] if n else None

    # Times t <= 0 are erased by the same rule, so that the start adds no states to the count of `eraser_bits`.
    start = tuple(None if (j + 1 - numbers) % period == phase else numbers for j in range(numbers))
    return Machine((0, 0, start), step, output)


def eraser_bits(numbers: int, words: int, period: int = 10) -> float:
    """log2 [p (N + 1) (N + M)^(N - floor(N/p))]: no phase of `eraser` has more states.

    Of N tokens in a row at least floor(N/p) are erased; time mod p and the last number (or none) are kept besides.
    """
    return log2(period) + log2(numbers + 1) + (numbers - numbers // period) * log2(numbers + words)


def printed_constant(numbers: int, words: int) -> str:
    """What is known of "N log2 M bits" for success 0.9: "proved", "refuted" or "open".

    proved: by D_S with a payload of all tokens, `Copying.mixed_state_bits`. refuted: for every distribution over inputs
    with an answer, by `merger` (exactly if M >= 9 N + 10) or by `eraser`.
    """
    task = Copying(numbers, words, 2 * numbers)
    if task.mixed_state_bits() >= task.printed_bits:
        return "proved"
    return "refuted" if _refuted(numbers, words) else "open"


def _refuted(numbers: int, words: int) -> bool:
    return merger_states(numbers, words) < words**numbers or eraser_bits(numbers, words) < numbers * log2(words)


def first_refuted(numbers: int) -> int:
    """The least M from which on mergers or erasers have fewer than N log2 M bits; at most 9 N + 10.

    Mergers do so exactly from M = 9 N + 10 on: below, floor((N + M)/10) <= N and they store M tokens or more. For erasers
    N log2 M minus their bits grows with M (its derivative has the sign of floor(N/10) M + N^2). So a bisection finds the place.

    >>> first_refuted(2), first_refuted(10), first_refuted(64)
    (28, 100, 133)
    """
    low, high = 1, 9 * numbers + 10
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _refuted(numbers, middle) else (middle, high)
    return high


# exact success -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """`steps` independent tokens, uniform over `tokens`. Where `remember` is False no answer can be among them."""

    tokens: tuple[int, ...]
    steps: int
    remember: bool = True


def exact_success(machine: Machine, numbers: int, phases: Sequence[Phase]) -> Fraction:
    """P(the output after the last token is right), for independent tokens phase by phase.

    The distribution of (machine state, last number, last N tokens) is pushed through, in exact counts. An input without an
    answer counts as failure.
    """
    table: dict[tuple, int] = {(machine.start, 0, ()): 1}
    total = 1
    for phase in phases:
        for _ in range(phase.steps):
            after: dict[tuple, int] = {}
            for (state, n, tail), count in table.items():
                for token in phase.tokens:
                    tail_now = (*tail, token)[-numbers:] if phase.remember else ()
                    key = machine.step(state, token), token + 1 if token < numbers else n, tail_now
                    after[key] = after.get(key, 0) + count
            table, total = after, total * len(phase.tokens)
    right = sum(c for (state, n, tail), c in table.items() if 0 < n <= len(tail) and machine.output(state) == tail[-n])
    return Fraction(right, total)


def state_phases(task: Copying) -> list[Phase]:
    """D_S as phases."""
    words = tuple(range(task.numbers, task.vocab_size))
    return [Phase(words, task.length - 1), Phase(tuple(range(1, task.numbers)), 1)]


def window_phases(task: Copying) -> list[Phase]:
    """D_T as phases; the answer lies in the second half, since L >= 2 N."""
    everything, words = tuple(range(task.vocab_size)), tuple(range(task.numbers, task.vocab_size))
    return [Phase(everything, task.hidden, remember=False), Phase(words, task.hidden)]


# checks ------------------------------------------------------------------------------------------------------------------


def check_guesser(task: Copying, states: int, machine: Machine | None = None) -> Check:
    """Fewer states than M^N, right on all of D_S, and 0.9 on D, where an input of D_T without a number is a failure."""
    machine = machine or guesser(task.numbers, task.words)
    count = reachable(machine, task.vocab_size)
    on_s = exact_success(machine, task.numbers, state_phases(task))
    on_t = exact_success(machine, task.numbers, window_phases(task))
    exists = 1 - Fraction(task.words, task.vocab_size) ** task.hidden
    reasons = [f"{count} states"] * (count != states) + ["not fewer than M^N states"] * (log2(count) >= task.printed_bits)
    reasons += [f"success {on_s} on D_S"] * (on_s != 1) + [f"success {(on_s + on_t) / 2} on D"] * ((on_s + on_t) / 2 < SUCCESS)
    value = {"states": count, "bits": log2(count), "bits printed": task.printed_bits, "success on D_S": on_s,
             "success on D_T, given a number": on_t / exists, "success on D": (on_s + on_t) / 2}  # fmt: skip
    scope = f"N = {task.numbers}, M = {task.words}, L = {task.length}: all reachable states, all inputs of D by exact counts"
    return Check.true("fewer bits than N log2 M reach 0.9 on the proof's D", not reasons, scope, 1, reasons, value)


def check_buffers(task: Copying) -> Check:
    """Buffers of 0..N-1 words: success (k + (N - 1 - k)/M) / (N - 1) on D_S, with k log2 M bits, never below Fano's bound."""
    m, rows, wrong = task.numbers - 1, [], []
    for kept in range(m + 1):
        success = exact_success(buffer(task.numbers, task.words, kept), task.numbers, state_phases(task))
        rows.append(success)
        if kept * log2(task.words) < task.state_bits(1 - success) - 1e-9:
            wrong.append(f"{kept} words beat the bound")
        if success != (kept + Fraction(m - kept, task.words)) / m:
            wrong.append(f"{kept} words: success {success}")
    scope = f"N = {task.numbers}, M = {task.words}, L = {task.length}, 0..{m} words kept"
    return Check.true("buffers obey the bound, which is tight at both ends", not wrong, scope, m + 1, wrong[:1],
                      {"success on D_S": rows})  # fmt: skip


def check_eraser_exhaustive(numbers: int, words: int, period: int, length: int, make: Callable = eraser) -> Check:
    """Every input of one length: the phase that erased the wanted token is silent, all others are right."""
    machines = [make(numbers, period, phase) for phase in range(period)]
    wrong, cases = [], 0
    for x in product(range(numbers + words), repeat=length):
        try:
            target = copied(x, numbers)
        except ValueError:
            continue
        cases += 1
        said = [machine.run(x) for machine in machines]
        if sorted(s == target for s in said) != [False] + [True] * (period - 1) or said.count(None) != 1:
            wrong.append(f"{x}: said {said}, wanted {target}")
    counts = [reachable(machine, numbers + words) for machine in machines]
    if log2(max(counts)) > eraser_bits(numbers, words, period) + 1e-9:
        wrong.append(f"{counts} states")
    scope = f"N = {numbers}, M = {words}, p = {period}, all inputs of length {length} with an answer, all reachable states"
    return Check.true("all phases but one are right on every input", not wrong, scope, max(cases, 1), wrong[:1],
                      {"states by phase": counts})  # fmt: skip


def check_eraser_sampled(numbers: int, words: int, length: int, num: int, seed: int = 0, period: int = 10) -> Check:
    """Random inputs at full size: of `period` machines all but one are right; and their bits are fewer than N log2 M."""
    machines = [eraser(numbers, period, phase) for phase in range(period)]
    bits, printed = eraser_bits(numbers, words, period), numbers * log2(words)
    wrong = [] if bits < printed else [f"{bits} bits are not fewer than {printed}"]
    draws = Generator(seed)
    for i in range(num):
        x = draws.at(i).integers(numbers + words, (length,))
        x[int(draws.at(i, 1).integers(length - numbers, ()))] = draws.at(i, 2).integers(numbers, ())
        target = copied(x.tolist(), numbers)
        right = sum(machine.run(x.tolist()) == target for machine in machines)
        if right != period - 1:
            wrong.append(f"input {i}: {right} of {period} right")
    scope = f"N = {numbers}, M = {words}, p = {period}, {num} random inputs of length {length}"
    return Check.true("nine of ten erasers are right, with fewer than N log2 M bits", not wrong, scope, num, wrong[:1],
                      {"bits": bits, "bits printed": printed})  # fmt: skip


def check_merger(numbers: int, words: int, merged: int | None = None, make: Callable = merger) -> Check:
    """Every input of every length: of N + M shifts all but g are right; none has more states than `merger_states`.

    What is right depends on the last number and the last N tokens. These and the states of all machines are walked through
    together until nothing new appears, so no length is left out.
    """
    size, merged = numbers + words, merged_tokens(numbers, words) if merged is None else merged
    machines = [make(numbers, words, shift, merged) for shift in range(size)]
    start = (0, (), tuple(machine.start for machine in machines))
    known, frontier, wrong, cases = {start}, [start], [], 0
    while frontier and not wrong:
        after = {
            (token + 1 if token < numbers else n, (*tail, token)[-numbers:],
             tuple(m.step(s, token) for m, s in zip(machines, states, strict=True)))
            for n, tail, states in frontier for token in range(size)
        } - known  # fmt: skip
        known |= after
        frontier = list(after)
        for n, tail, states in frontier:
            if 0 < n <= len(tail):
                cases += 1
                right = sum(m.output(s) == tail[-n] for m, s in zip(machines, states, strict=True))
                wrong += [f"after ..{tail}, last number #{n}: {right} of {size} right"] * (right != size - merged)
    most = max(len({states[i] for _, _, states in known}) for i in range(size))
    bound = merger_states(numbers, words, merged)
    wrong += [f"{most} states, more than {bound}"] * (most > bound)
    scope = f"N = {numbers}, M = {words}, {merged} tokens merged: every input with an answer, of any length, by all joint states"
    return Check.true("all but so many mergers are right on every input", not wrong, scope, max(cases, 1), wrong[:1],
                      {"machines": size, "right": size - merged, "most states": most, "bound": bound,
                       "printed": words**numbers})  # fmt: skip


def check_nine_n_plus_ten(most: int, make: Callable = merger_states) -> Check:
    """In integers: mergers have fewer than M^N states at M = 9 N + 10, .., 9 N + 29, and not at the ten M before."""
    wrong, cases = [], 0
    for numbers in range(2, most + 1):
        first = 9 * numbers + 10
        for words in range(first - 10, first + 20):
            cases += 1
            if (make(numbers, words) < words**numbers) != (words >= first):
                wrong.append(f"N = {numbers}, M = {words}")
    scope = f"N = 2..{most}, M = 9 N to 9 N + 29"
    return Check.true("mergers have fewer than M^N states exactly from M = 9 N + 10 on", not wrong, scope, cases, wrong[:1])


def check_regions(expected: dict[tuple[int, int], str]) -> Check:
    """`printed_constant` at the stated (N, M)."""
    got = [printed_constant(n, m) for n, m in expected]
    sizes = ", ".join(f"({n}, {m})" for n, m in expected)
    name = "where N log2 M is proved, refuted, open"
    return Check.equal(name, got, list(expected.values()), f"(N, M) = {sizes}", list(expected))


def regions(numbers: Sequence[int], words: Sequence[int]) -> np.ndarray:
    """`printed_constant` on a grid, as 1 (proved), -1 (refuted), 0 (open): int (len(words), len(numbers))."""
    code = {"proved": 1, "open": 0, "refuted": -1}
    return np.array([[code[printed_constant(int(n), int(m))] for n in numbers] for m in words])
