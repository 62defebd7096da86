"""Two tasks, two halves: distributions that are hard for a small state and for short windows (paper B, Theorems 4.2 and 4.5).

Each task gets D = D_S / 2 + D_T / 2. Who is right with probability 0.9 on D is right with probability 0.8 on either half.

*State* (D_S). The payload u of m symbols comes first, then the question which of them is wanted, uniformly. With S = S(u) the
state in between, log2 |S| >= I(u; S) = m log2 |Y| - H(u | S), and Fano's inequality for each symbol gives

    log2 |S| >= m [ log2 |Y| - h2(e) - e log2(|Y| - 1) ]        for an error probability e <= 1 - 1/|Y|.

*Windows* (D_T). The question comes first and out of sight. What is in sight is independent of it, so the best guess is right with
probability E[largest multiplicity among the m candidates] / m, which is at most 3/4 for m >= 2 and two or more symbols.

Probabilities are Fractions. An input on which the task has no answer counts as failure.

Deviates: paper B prints N log M for selective copying, without an Omega; here m = N - 1, and the constant is written out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from math import comb, factorial, log2

import numpy as np

from hybridseq.bounds.payload_information import fano_rate
from hybridseq.bounds.windows import copied, recalled
from hybridseq.evidence import Check

SUCCESS = Fraction(9, 10)
"""The success that Theorems 4.2 and 4.5 speak of."""

HALF_ERROR = Fraction(1, 5)
"""What is left of it as error on one half: 2 (1 - 9/10)."""

MOST_INPUTS = 1 << 20
"""Larger distributions are not listed."""


# the two inequalities ----------------------------------------------------------------------------------------------------


def fano_bits(symbols: int, alphabet: int, error: float) -> float:
    """m [log2 |Y| - h2(e) - e log2(|Y| - 1)]: bits of state that any machine keeps that errs with probability e on D_S.

    T-B of `payload_information` for m symbols, one of which is asked for.

    Raises ValueError for symbols < 0, alphabet < 2 or an error outside [0, 1 - 1/|Y|], where a guess is as good.

    >>> round(fano_bits(3, 4, 0.2), 4), fano_bits(3, 4, 0)
    (2.8832, 6.0)
    """
    if symbols < 0 or alphabet < 2:
        raise ValueError(f"symbols={symbols!r}, alphabet={alphabet!r}: needs symbols >= 0 and alphabet >= 2")
    if not 0 <= error <= 1 - Fraction(1, alphabet):
        raise ValueError(f"error={error!r}: the bound holds for errors in [0, 1 - 1/{alphabet}]; beyond that, guessing is free")
    return symbols * fano_rate(alphabet, float(error))


def expected_largest(balls: int, bins: int) -> Fraction:
    """E[largest multiplicity] of `balls` uniform symbols from an alphabet of `bins`, exactly.

    P(largest <= t) = balls! [z^balls] (sum_{j <= t} z^j / j!)^bins / bins^balls.

    >>> expected_largest(3, 3) / 3, expected_largest(4, 4) / 4
    (Fraction(17, 27), Fraction(17, 32))
    """
    if balls < 1 or bins < 1:
        raise ValueError(f"balls={balls!r}, bins={bins!r}: both must be >= 1")
    at_most = [_words_with_multiplicities_up_to(t, balls, bins) for t in range(balls + 1)]
    words = bins**balls
    return sum((Fraction(words - count, words) for count in at_most[:-1]), Fraction(0))


def _words_with_multiplicities_up_to(t: int, balls: int, bins: int) -> int:
    """How many words of length `balls` use no symbol more than t times."""
    ways = [1] + [0] * balls  # ways[i]: words over the symbols so far that fill i chosen places
    for _ in range(bins):
        ways = [sum(comb(i, j) * ways[i - j] for j in range(min(t, i) + 1)) for i in range(balls + 1)]
    return ways[balls]


def blind_ceiling(candidates: int, alphabet: int) -> Fraction:
    """E[largest multiplicity] / m: the best success of a guess that sees the m candidates but not which one is wanted."""
    return expected_largest(candidates, alphabet) / candidates


# the tasks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copying:
    """Selective copying with N numbers, M words and length L: ids 0..N-1 are #1..#N, then the words (paper B, Definition 4.1).

    D_S: L - 1 uniform words, then #n with n uniform on 2..N (n = 1 would copy #1 itself). D_T: the first half uniform over all
    N + M tokens, the second half uniform words.

    Raises ValueError unless N >= 2, M >= 2 and L is even with L >= 2 N, so that the wanted token lies in the second half.
    """

    numbers: int
    words: int
    length: int

    def __post_init__(self):
        if self.numbers < 2 or self.words < 2:
            raise ValueError(f"numbers={self.numbers}, words={self.words}: both must be >= 2, or there is nothing to choose")
        if self.length % 2 or self.length < 2 * self.numbers:
            raise ValueError(f"length={self.length}: must be even and at least 2 N = {2 * self.numbers}")

    @property
    def vocab_size(self) -> int:
        return self.numbers + self.words

    def state_bits(self, error=HALF_ERROR) -> float:
        """(N - 1) [log2 M - h2(e) - e log2(M - 1)] on D_S."""
        return fano_bits(self.numbers - 1, self.words, error)

    def mixed_state_bits(self, error=HALF_ERROR) -> float:
        """The same with a payload of uniform tokens, numbers among them: M is replaced by N + M. Another D_S, a larger bound."""
        return fano_bits(self.numbers - 1, self.vocab_size, error)

    @property
    def printed_bits(self) -> float:
        """N log2 M, as printed in Theorem 4.2."""
        return self.numbers * log2(self.words)

    @property
    def ceiling(self) -> Fraction:
        """Largest success on D_T, given a number, of a model whose last output sees the second half only."""
        return blind_ceiling(self.numbers, self.words)

    @property
    def hidden(self) -> int:
        """L/2: a model is blind on D_T if sum(W_i - 1) is less."""
        return self.length // 2

    def answer(self, tokens) -> int:
        return copied(tokens, self.numbers)

    def state_inputs(self) -> Iterator[tuple[int, ...]]:
        """All inputs of D_S, equally likely."""
        words = range(self.numbers, self.vocab_size)
        return ((*x, n) for x in product(words, repeat=self.length - 1) for n in range(1, self.numbers))

    def window_inputs(self) -> Iterator[tuple[int, ...]]:
        """All inputs of D_T, equally likely."""
        first, words = range(self.vocab_size), range(self.numbers, self.vocab_size)
        return (x + y for x in product(first, repeat=self.hidden) for y in product(words, repeat=self.hidden))

    @property
    def num_window_inputs(self) -> int:
        return self.vocab_size**self.hidden * self.words**self.hidden


@dataclass(frozen=True)
class Recall:
    """Recall with decoding with W = 2^b words: ids 0..W-1, then the bits 0 and 1 (paper B, Definition 4.4).

    A context is `blocks` blocks of W/2 pairs (alpha, beta): in each block every word of the lower half is alpha once, in random
    order, and every beta is uniform over the upper half. D_S: the context, then b bits that spell a uniform word of the lower
    half. D_T: the bits first. The answer is beta of the word's pair in the last block.

    Raises ValueError unless W is a power of two >= 4 and blocks >= 1.

    Deviates: paper B draws alphas independently; then a word may be absent, see `coverage`. Permuted blocks make the payload
    exactly uniform.
    """

    words: int
    blocks: int = 1

    def __post_init__(self):
        if self.words < 4 or self.words & (self.words - 1):
            raise ValueError(f"words={self.words}: must be a power of two >= 4, since b = log2 W bits spell a word")
        if self.blocks < 1:
            raise ValueError(f"blocks={self.blocks}: must be >= 1")

    @property
    def width(self) -> int:
        """b = log2 W bits spell a word."""
        return self.words.bit_length() - 1

    @property
    def half(self) -> int:
        """h = W/2: as many words can be asked for, and as many can be the answer."""
        return self.words // 2

    @property
    def length(self) -> int:
        return self.width + 2 * self.half * self.blocks

    def state_bits(self, error=HALF_ERROR) -> float:
        """h [log2 h - h2(e) - e log2(h - 1)] on D_S, h = W/2."""
        return fano_bits(self.half, self.half, error)

    @property
    def ceiling(self) -> Fraction:
        """Largest success on D_T of a model whose last output does not see a bit."""
        return blind_ceiling(self.half, self.half)

    @property
    def hidden(self) -> int:
        """L - b: a model is blind on D_T if sum(W_i - 1) is less."""
        return self.length - self.width

    def answer(self, tokens) -> int:
        return recalled(tokens, self.words)

    def code(self, word: int) -> tuple[int, ...]:
        """The bit tokens of a word, most significant first."""
        return tuple(self.words + (word >> (self.width - 1 - i) & 1) for i in range(self.width))

    def contexts(self) -> Iterator[tuple[int, ...]]:
        """All contexts, equally likely."""
        upper = range(self.half, self.words)
        block = [
            tuple(token for pair in zip(order, betas, strict=True) for token in pair)
            for order in permutations(range(self.half)) for betas in product(upper, repeat=self.half)
        ]  # fmt: skip
        return (sum(blocks, ()) for blocks in product(block, repeat=self.blocks))

    def state_inputs(self) -> Iterator[tuple[int, ...]]:
        """All inputs of D_S, equally likely: context, then bits."""
        return (w + self.code(a) for w in self.contexts() for a in range(self.half))

    def window_inputs(self) -> Iterator[tuple[int, ...]]:
        """All inputs of D_T, equally likely: bits, then context."""
        return (self.code(a) + w for w in self.contexts() for a in range(self.half))

    @property
    def num_window_inputs(self) -> int:
        return self.half * (factorial(self.half) * self.half**self.half) ** self.blocks


def coverage(half: int, level: Fraction = Fraction(99, 100)) -> int:
    """The least number of uniform pairs such that all h words have been alpha with probability >= `level`, exactly.

    >>> [coverage(h) for h in (2, 4, 8, 16)]
    [8, 21, 51, 115]
    """
    if half < 1 or not 0 < level < 1:
        raise ValueError(f"half={half!r}, level={level!r}: needs half >= 1 and a level strictly between 0 and 1")
    pairs = half
    while covered(half, pairs) < level:
        pairs += 1
    return pairs


def covered(half: int, pairs: int) -> Fraction:
    """P(all h words occur among so many uniform ones), by inclusion and exclusion."""
    return sum((Fraction((-1) ** j * comb(half, j) * (half - j) ** pairs, half**pairs) for j in range(half + 1)), Fraction(0))


# by brute force ----------------------------------------------------------------------------------------------------------


def best_by_view(inputs: Iterable[tuple[int, ...]], answer: Callable, view: Callable) -> Fraction:
    """The largest success of any function of `view(x)`, x uniform over `inputs`; an input without an answer is a failure."""
    counts: dict[object, Counter] = {}
    total = 0
    for x in inputs:
        total += 1
        try:
            counts.setdefault(view(x), Counter())[answer(list(x))] += 1
        except ValueError:
            continue
    return Fraction(sum(max(c.values()) for c in counts.values() if c), total)


def best_blind(task: Copying | Recall, reach: int | None = None) -> Fraction:
    """The largest success on D_T of any function of the last `reach` + 1 tokens, by listing all inputs (default: still blind)."""
    if task.num_window_inputs > MOST_INPUTS:
        count = task.num_window_inputs
        raise ValueError(f"task={task!r}: D_T has {count} inputs, more than {MOST_INPUTS}; choose a smaller task")
    reach = task.hidden - 1 if reach is None else reach
    return best_by_view(task.window_inputs(), task.answer, lambda x: x[-1 - reach :])


def blind_success(task: Copying | Recall) -> Fraction:
    """What the formula says about `best_blind`: the ceiling times the probability that the question is there at all."""
    if isinstance(task, Recall):
        return task.ceiling
    return (1 - Fraction(task.words, task.vocab_size) ** task.hidden) * task.ceiling


# checks ------------------------------------------------------------------------------------------------------------------


def check_blind_success(tasks: Iterable[Copying | Recall], formula: Callable = blind_success) -> Check:
    """The best blind guess, by listing every input of D_T, is what the formula says."""
    tasks = list(tasks)
    got, expected = [best_blind(t) for t in tasks], [formula(t) for t in tasks]
    listed = sum(t.num_window_inputs for t in tasks)
    scope = f"{len(tasks)} tasks, all {listed:,} inputs, every function of what is in sight"
    return Check.equal("best blind success = E[largest multiplicity] / m", got, expected, scope, tasks)


def check_three_quarters(most: int, alphabets: int) -> Check:
    """The ceiling is at most 3/4 over a grid, and so are the steps of the proof.

    E_2 = 1 + 1/M, E_3 = (M^2 + 3M - 1)/M^2, and E_m <= E_{m-2} + E_2, with E_m the expected largest multiplicity.
    """
    wrong, largest = [], Fraction(0)
    for words in range(2, alphabets + 1):
        e = {m: expected_largest(m, words) for m in range(1, most + 1)}
        if e[2] != 1 + Fraction(1, words) or e[3] != Fraction(words**2 + 3 * words - 1, words**2):
            wrong.append(f"M = {words}: m = 2, 3")
        for m in range(2, most + 1):
            wrong += [f"m = {m}, M = {words}: not subadditive"] * (m > 3 and e[m] > e[m - 2] + e[2])
            largest = max(largest, e[m] / m)
            wrong += [f"m = {m}, M = {words}: {e[m] / m}"] * (e[m] / m > Fraction(3, 4))
    scope = f"m = 2..{most}, M = 2..{alphabets}"
    cases = (most - 1) * (alphabets - 1)
    name = "a blind guess is right with probability at most 3/4"
    return Check.true(name, not wrong, scope, cases, wrong[:1], {"largest": largest})


def check_argument(task: Copying | Recall, success=SUCCESS, share=Fraction(1, 2)) -> Check:
    """The chain of the theorem for one task: success on D leaves an error on each half for which both inequalities bite.

    share: the weight of D_T in D. It fails where the blind guess is good enough for the stated success, or where the bound on the
    state is not positive.
    """
    success, share = Fraction(success), Fraction(share)
    blind = (1 - share) + share * task.ceiling
    error = (1 - success) / (1 - share)
    alphabet = task.words if isinstance(task, Copying) else task.half
    bits = task.state_bits(error) if error <= 1 - Fraction(1, alphabet) else 0.0
    reasons = []
    if blind >= success:
        reasons.append(f"a blind model may reach {blind} on D, which is not below {success}")
    if bits <= 0:
        reasons.append(f"error {error} on D_S leaves {bits} bits")
    value = {"bits of state": bits, "sum(W_i - 1) at least": task.hidden, "blind success on D at most": blind}
    return Check.true("success 0.9 needs state, and windows that reach the question", not reasons, f"{task}", 1, reasons, value)


def check_constant(alphabets: int, constant: float = 0.278) -> Check:
    """log2 M - h2(1/5) - log2(M - 1)/5 >= constant * log2 M for M = 2..alphabets: the Omega with its constant; least at M = 2."""
    sizes = np.arange(2, alphabets + 1)
    shares = np.array([fano_bits(1, int(m), HALF_ERROR) / log2(m) for m in sizes])
    wrong = sizes[shares < constant].tolist() + ([] if np.argmin(shares) == 0 else ["the least is not at M = 2"])
    return Check.true("each symbol costs a fixed share of log2 M", not wrong, f"M = 2..{alphabets}", len(sizes), wrong[:1],
                      {"least share": float(shares.min())})  # fmt: skip
