"""Attention alone needs a scratchpad: from parity to a lower bound on the budget (paper A, Theorem 6.2).

Put Y_1 = 0, Y_{i+1} = x_i and ask for j = 1: the right answer is the parity of x, and every bit of the prompt is a constant, an
x_i or its negation. A decoder of L attention layers with budget S is a circuit of depth d = 6 L + 4 and size at most
(N + S)^c (|Gamma| + 1)^(S+1) (Lemma 6.1). So parity of r = n - 1 bits has circuits of that size and depth, while Hastad's theorem
says that they have at least 2^(h^(d/(d-1)) r^(1/(d-1))) gates. What remains is arithmetic:

    c log2(N + S) + (S + 1) log2(|Gamma| + 1)  >=  h^(d/(d-1)) r^(1/(d-1)),        N = 3 n = 3 (r + 1).

Lengths are given by log2 N, since the bound begins to speak where N itself is beyond use. The two theorems are *premises*: named
objects that the argument must be handed, and without which it is rejected.

Deviates: h = 1/10 is the constant as it is usually quoted from Hastad's 1986 paper; it is a parameter. The theorem speaks for all
r beyond a constant that depends on d; the curve is drawn as if it did so everywhere. The scratch tokens in N + S are kept on the
left; `ScratchBound.closed_form` leaves them out, which changes little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from itertools import product
from math import inf, log, log1p, log2

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.evidence import Check
from hybridseq.models import Model
from hybridseq.tasks import pcr

MOST_BITS = 16
"""Longer inputs of the reduction are not enumerated."""

# the reduction -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Literal:
    """One prompt bit [token at `position` is `token`] as a function of x: a constant, x_i (i from 1), or its negation."""

    position: int
    token: str
    bit: int | None
    value: bool

    def __str__(self):
        return str(int(self.value)) if self.bit is None else f"{'' if self.value else 'not '}x_{self.bit}"

    def evaluate(self, x) -> np.ndarray:
        """Truth values (num,) for inputs x (num, r)."""
        x = np.asarray(x)
        return np.full(len(x), self.value) if self.bit is None else (x[:, self.bit - 1] == 1) == self.value


def reduction(r: int) -> tuple[Literal, ...]:
    """Every prompt bit of the reduction for r input bits, position by position: [token = t] for the four prompt tokens.

    >>> [str(b) for b in reduction(1) if b.position in (1, 3)]
    ['1', '0', '0', '0', 'not x_1', 'x_1', '0', '0']
    """
    _check_inputs(r)
    n, bits = r + 1, []
    for position in range(1, 3 * n + 1):
        cell = (position + 1) // 2
        for token in ("0", "1", "MARK", "BLANK"):
            if position <= 2 * n and cell > 1 and token in "01":
                bits.append(Literal(position, token, cell - 1, token == "1"))
            else:
                fixed = "0" if position <= 2 * n else "MARK" if position == 2 * n + 1 else "BLANK"
                bits.append(Literal(position, token, None, token == fixed))
    return tuple(bits)


def prompts(x, address: int = 1) -> pcr.Prompts:
    """The prompts of the reduction for inputs x (num, r): the table (0, x), MARK at `address` (1 in the reduction)."""
    x = np.atleast_2d(np.asarray(x))
    return pcr.encode(np.concatenate([np.zeros((len(x), 1), dtype=np.int64), x], axis=1), np.full(len(x), address))


def _inputs(r: int) -> np.ndarray:
    return np.arange(2**r)[:, None] >> np.arange(r - 1, -1, -1) & 1


def _check_inputs(r) -> None:
    if isinstance(r, bool) or not isinstance(r, int | np.integer) or not 1 <= r <= MOST_BITS:
        raise ValueError(f"r={r!r}: the reduction is listed for r = 1..{MOST_BITS} bits (2^r inputs)")


# premises ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallCircuits:
    """Lemma 6.1: L attention layers with budget S are a circuit of depth 6 L + 4 and size (N + S)^c (|Gamma| + 1)^(S+1).

    exponent: c > 0. It depends on precision, width, heads and number of layers, not on N and S, and is a parameter here.
    """

    exponent: float

    def __post_init__(self):
        if not (0 < self.exponent < inf):
            raise ValueError(f"exponent={self.exponent!r}: the size is a power of the length, so it must be positive and finite")

    def log2_size(self, log2_length: float, budget: float, alphabet: int) -> float:
        """log2 of the largest size that the lemma allows."""
        shift = log1p(2.0 ** (log2(budget) - log2_length)) / log(2) if budget > 0 else 0.0
        return self.exponent * (log2_length + shift) + (budget + 1) * log2(alphabet + 1)


@dataclass(frozen=True)
class Hastad:
    """Hastad's theorem, quoted: circuits of depth d for the parity of r bits have at least 2^(h^(d/(d-1)) r^(1/(d-1))) gates,
    for all r beyond a constant that depends on d.

    constant: h, 1/10 as usually quoted; anything in (0, 1].
    """

    constant: float = 0.1

    def __post_init__(self):
        if not 0 < self.constant <= 1:
            raise ValueError(f"constant={self.constant!r}: must lie in (0, 1]; 0.1 is the value usually quoted")

    def log2_size(self, log2_bits: float, depth: int) -> float:
        """log2 of the least number of gates, for r = 2^log2_bits."""
        return self.constant ** (depth / (depth - 1)) * 2.0 ** (log2_bits / (depth - 1))


PREMISES = {"small circuits": SmallCircuits, "Hastad": Hastad}


def vector_exponent(s: int, coordinates_per_log: float = 49) -> float:
    """Degree of the number of vectors, |F_s|^d = n^(a log2 |F_s|), for d = a log2 n coordinates.

    This, not the cut-off K_s, is what binds: the default a = 49 = 4 * 12.25 is the stream of the hybrid decoder over a code on
    the Gilbert bound.

    >>> round(vector_exponent(2))
    243
    """
    if not coordinates_per_log > 0:
        raise ValueError(f"coordinates_per_log={coordinates_per_log!r}: must be positive (width over log2 of the length)")
    return coordinates_per_log * log2(FixedPoint(s).size)


# the bound ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScratchBound:
    """The lower bound on the scratch budget that its premises imply.

    depth: d of the circuits, scratchpad included (6 L + 4 by our count). alphabet: |Gamma|. premises: SmallCircuits and Hastad.

    Raises ValueError for depth < 2 or alphabet < 1. Without both premises every number is refused, with the name of what lacks.

    >>> bound = ScratchBound.of(depth=4, exponent=4)
    >>> bound.first_log2_length(), bound.least_budget(20), bound.least_budget(40)
    (37, 0, 108)
    """

    depth: int
    alphabet: int
    premises: tuple[SmallCircuits | Hastad, ...]

    def __post_init__(self):
        object.__setattr__(self, "premises", tuple(self.premises))
        if isinstance(self.depth, bool) or not isinstance(self.depth, int | np.integer) or self.depth < 2:
            raise ValueError(f"depth={self.depth!r}: must be an integer >= 2 (6 L + 4 for L attention layers)")
        if isinstance(self.alphabet, bool) or not isinstance(self.alphabet, int | np.integer) or self.alphabet < 1:
            raise ValueError(f"alphabet={self.alphabet!r}: |Gamma| must be an integer >= 1")

    @classmethod
    def of(cls, depth: int, exponent: float, alphabet: int = 2, constant: float = 0.1) -> ScratchBound:
        """With both premises."""
        return cls(depth, alphabet, (SmallCircuits(exponent), Hastad(constant)))

    @classmethod
    def for_layers(cls, layers: int, exponent: float, alphabet: int = 2, constant: float = 0.1) -> ScratchBound:
        """For a decoder of so many attention layers: depth 6 L + 4."""
        if isinstance(layers, bool) or not isinstance(layers, int | np.integer) or layers < 1:
            raise ValueError(f"layers={layers!r}: must be an integer >= 1")
        return cls.of(6 * layers + 4, exponent, alphabet, constant)

    def without(self, premise: str) -> ScratchBound:
        """The argument with one premise dropped, by name."""
        if premise not in PREMISES:
            raise ValueError(f"premise={premise!r}: must be one of {', '.join(PREMISES)}")
        return replace(self, premises=tuple(p for p in self.premises if not isinstance(p, PREMISES[premise])))

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the premises that the argument needs and was not given."""
        return tuple(name for name, kind in PREMISES.items() if not any(isinstance(p, kind) for p in self.premises))

    def _premise(self, name: str):
        for premise in self.premises:
            if isinstance(premise, PREMISES[name]):
                return premise
        raise ValueError(f"premises: the bound does not follow without {name!r} ({PREMISES[name].__name__})")

    def allowed(self, log2_length: float, budget: float) -> float:
        """log2 of the size that a decoder with this budget may have: the left side of the inequality."""
        return self._premise("small circuits").log2_size(log2_length, budget, self.alphabet)

    def needed(self, log2_length: float) -> float:
        """log2 of the size that parity needs: the right side, with r = N / 3 - 1."""
        return self._premise("Hastad").log2_size(_log2_bits(log2_length), self.depth)

    def least_budget(self, log2_length: float) -> int:
        """The smallest S >= 0 that the inequality leaves open at N = 2^log2_length; 0 where it says nothing."""
        needed = self.needed(log2_length)
        if self.allowed(log2_length, 0) >= needed:
            return 0
        enough, short = int(needed / log2(self.alphabet + 1)) + 2, 0
        while enough - short > 1:
            middle = (enough + short) // 2
            enough, short = (middle, short) if self.allowed(log2_length, middle) >= needed else (enough, middle)
        return enough

    def closed_form(self, log2_length: float) -> float:
        """(h^(d/(d-1)) r^(1/(d-1)) - c log2 N) / log2(|Gamma| + 1) - 1: the bound with S left out of N + S; may be negative."""
        exponent = self._premise("small circuits").exponent
        return (self.needed(log2_length) - exponent * log2_length) / log2(self.alphabet + 1) - 1

    def first_log2_length(self) -> int:
        """The smallest integer l >= 2 such that the closed form asks for a scratch token, S >= 1, at N = 2^l."""
        for ell in range(2, 1000 * (self.depth - 1)):
            if self.closed_form(ell) >= 1:
                return ell
        limit = f"N = 2^{1000 * (self.depth - 1)}"
        raise ValueError(f"premises: below {limit} this bound asks for nothing; its exponent is too large")


def _log2_bits(log2_length: float) -> float:
    """log2 r for r = N / 3 - 1, without forming N; -inf where there is no bit."""
    share = 3 * 2.0**-log2_length
    return -inf if share >= 1 else log2_length - log2(3) + log1p(-share) / log(2)


# the scratchpad as a disjunction -----------------------------------------------------------------------------------------


def accepting_words(model: Model, ar, tokens, budget: int) -> list[list[tuple[int, ...]]]:
    """For each prompt (num, N) all words tau over Gamma, |tau| <= budget, such that every tau_i is the next token after
    z tau_{<i} and an answer token comes after z tau.

    This is the OR over words in the proof of Lemma 6.1, evaluated word by word: nothing is decoded. Cost: one pass of the model
    for each of the (|Gamma|^(S+1) - 1) / (|Gamma| - 1) words.
    """
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise ValueError(f"budget must be an integer >= 0 (scratch tokens before the answer), got {budget!r}")
    tokens = model.embedding.check(tokens)
    gamma = [model.vocabulary.index(name) for name in model.vocabulary.scratch]
    answers = [model.vocabulary.index(name) for name in model.vocabulary.answers]
    following: dict[tuple[int, ...], np.ndarray] = {}
    for length in range(budget + 1):
        for word in product(gamma, repeat=length):
            context = np.concatenate([tokens, np.tile(np.array(word, dtype=np.int64), (len(tokens), 1))], axis=1)
            following[word] = np.asarray(model.greedy(ar, context))
    found: list[list[tuple[int, ...]]] = [[] for _ in tokens]
    for word, after in following.items():
        prefix = np.ones(len(tokens), dtype=bool)
        for i, token in enumerate(word):
            prefix &= following[word[:i]] == token
        for row in np.flatnonzero(prefix & np.isin(after, answers)):
            found[row].append(word)
    return found


# checks ------------------------------------------------------------------------------------------------------------------


def check_reduction(max_r: int, solve=pcr.solve, address: int = 1) -> Check:
    """For all x of up to max_r bits the answer of the prompt is the parity of x.

    solve, address: the solver and the place of MARK; with another address the answer is no longer the parity.
    """
    _check_inputs(max_r)
    got, expected, shown = [], [], []
    for r in range(max(1, address - 1), max_r + 1):
        x = _inputs(r)
        got += (solve(prompts(x, address).tokens) == pcr.YES).astype(int).tolist()
        expected += [row.tolist().count(1) % 2 for row in x]
        shown += ["".join(map(str, row)) for row in x]
    return Check.equal("YES exactly if the parity of x is odd", got, expected, f"all x, r = 1..{max_r}", inputs=shown)


def check_prompt_bits(max_r: int, bits=reduction) -> Check:
    """Each prompt bit, tabulated over all x, is what its literal says, and there are N tokens of four possible names."""
    _check_inputs(max_r)
    wrong, cases = [], 0
    for r in range(1, max_r + 1):
        x, literals = _inputs(r), bits(r)
        tokens = prompts(x).tokens
        if len(literals) != 4 * tokens.shape[1]:
            wrong.append(f"r = {r}: {len(literals)} bits for {tokens.shape[1]} tokens")
        for bit in literals:
            table = tokens[:, bit.position - 1] == pcr.VOCABULARY.index(bit.token)
            cases += len(x)
            if not np.array_equal(table, bit.evaluate(x)):
                wrong.append(f"r = {r}: [token {bit.position} = {bit.token}] is not {bit}")
    scope = f"every position and token name, all x, r = 1..{max_r}"
    return Check.true("each prompt bit is a constant or a literal", not wrong, scope, cases, wrong[:1])


def check_argument(bound: ScratchBound, log2_lengths: Iterable[float]) -> Check:
    """The chain of inequalities, step by step: both premises are there, the stated budget satisfies the inequality, and one
    token less contradicts Hastad's theorem."""
    lengths, wrong = list(log2_lengths), [f"missing premise: {name}" for name in bound.missing]
    if not wrong:
        for ell in lengths:
            wrong += _objections(bound, ell, bound.least_budget(ell))
    name = "one token less than the bound would contradict Hastad's theorem"
    scope = f"d = {bound.depth}, |Gamma| = {bound.alphabet}, {len(lengths)} lengths, log2 N = {min(lengths):g}..{max(lengths):g}"
    return Check.true(name, not wrong, scope, max(1, len(lengths)), wrong[:1])


def _objections(bound: ScratchBound, ell: float, budget: int) -> list[str]:
    """What is wrong with `budget` as the least one at N = 2^ell, by both sides computed anew to 60 digits."""
    with localcontext(Context(prec=60)):
        two, length, depth = Decimal(2), Decimal(2) ** Decimal(ell), Decimal(bound.depth)
        share = 1 / (depth - 1)
        gates = Decimal(str(bound._premise("Hastad").constant)) ** (depth * share) * max(length / 3 - 1, Decimal(0)) ** share
        exponent, word = Decimal(str(bound._premise("small circuits").exponent)), Decimal(bound.alphabet + 1).ln() / two.ln()

        def spare(tokens: int) -> Decimal:
            return exponent * (length + tokens).ln() / two.ln() + (tokens + 1) * word - gates

        slack, wrong = gates * Decimal("1e-12"), []
        if budget < 0 or spare(budget) < -slack:
            wrong.append(f"log2 N = {ell:g}: budget {budget} does not satisfy the inequality")
        if budget > 0 and spare(budget - 1) >= slack:
            wrong.append(f"log2 N = {ell:g}: budget {budget - 1} satisfies it too")
    return wrong


def check_first_lengths(expected: Mapping[tuple[int, float], int], alphabet: int = 2, constant: float = 0.1) -> Check:
    """The first integer log2 N at which the bound asks for a scratch token, for each (depth, exponent)."""
    got = [ScratchBound.of(d, c, alphabet, constant).first_log2_length() for d, c in expected]
    scope = f"(d, c) in {', '.join(f'({d}, {c:g})' for d, c in expected)}, |Gamma| = {alphabet}, h = {constant:g}"
    return Check.equal("first log2 N with S >= 1", got, list(expected.values()), scope, list(expected))


def check_growth(bounds: Iterable[ScratchBound], tolerance: float) -> Check:
    """Far out the bound grows like N^(1/(d-1)): slope of log2 S over log2 N from N = 2^(200 (d-1)) to 2^(300 (d-1))."""
    bounds = list(bounds)
    slopes = [
        (log2(b.least_budget(300 * (b.depth - 1))) - log2(b.least_budget(200 * (b.depth - 1)))) / (100 * (b.depth - 1))
        for b in bounds
    ]
    gaps = [abs(slope * (b.depth - 1) - 1) for slope, b in zip(slopes, bounds, strict=True)]
    scope = f"d in {[b.depth for b in bounds]}, N = 2^(200(d-1)) to 2^(300(d-1)), relative tolerance {tolerance:g}"
    return Check.true(
        "the bound grows like N^(1/(d-1))", max(gaps) <= tolerance, scope, len(bounds), slopes, {"largest gap": max(gaps)}
    )


def check_disjunction(model: Model, ar, batches: Iterable[pcr.Prompts], budget: int) -> Check:
    """For each prompt exactly one word is accepted, it is what greedy decoding writes, and the words number at most
    (|Gamma| + 1)^(S+1)."""
    wrong, cases = [], 0
    gamma = len(model.vocabulary.scratch)
    words = sum(gamma**t for t in range(budget + 1))
    if words > (gamma + 1) ** (budget + 1):
        wrong.append(f"{words} words")
    for batch in batches:
        written = model.generate(ar, batch.tokens, budget)
        for row, accepted in enumerate(accepting_words(model, ar, batch.tokens, budget)):
            cases += 1
            if accepted != ([written.scratch[row]] if written.answer[row] is not None else []):
                wrong.append(f"{batch.text(row)}: accepted {accepted}, written {written.scratch[row]}")
    scope = f"{cases} prompts, all {words} words of up to {budget} scratch tokens"
    return Check.true("one word is accepted: the one that greedy decoding writes", not wrong, scope, cases, wrong[:1],
                      {"words": words, "allowed by the lemma": (gamma + 1) ** (budget + 1)})  # fmt: skip
