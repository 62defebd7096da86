"""One full attention layer, one head of three dimensions: two-sum (paper C, Theorem 1.2, upper side).

The stream has six coordinates; theta = 2 pi x / M for a token x, and one start token is the sink:

    cos, sin   of theta, 0 at the start      one    1 everywhere        sink   1 at the start, 0 elsewhere
    token      1 at numbers, 0 at the start                             seen   0; the head writes here

    q = c (cos, sin, 1),   k = (cos, -sin, tau sink),   v = token,      tau = (1 + cos(2 pi / M)) / 2

so <q_i, k_j> = c cos(theta_i + theta_j): c if x_i + x_j = 0, at most c cos(2 pi / M) if not, and c tau at the sink, halfway. The
output is the share of attention that numbers get. With g = (1 - cos(2 pi / M)) / 2 and c = ln(4 n) / g:

    match      the sink has e^{-cg} = 1/(4n) of the partner's weight:     seen >= 4n / (4n + 1)
    no match   n numbers have at most n e^{-cg} = 1/4 of the sink's:      seen <= 1/5

The same with +-1 digits in place of angles (`code="signs"`): queries hold the digits of -x, keys those of x; scores are w, w - 1
(sink) and at most w - 2 for w digits, so g = 1.

Deviates: the paper's construction was not at hand; all weights are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.two_sum import LastTokenTwoSum, TwoSum

CODES = {"circle": "angles 2 pi x / M, three dimensions", "signs": "binary digits as +-1, ceil(log2 M) + 1 dimensions"}
_PRECISION = 256  # bits at which a number that still lies on a tie is one


# the circle --------------------------------------------------------------------------------------------------------------


@cache
def circle(modulus: int, bits: int | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    """cos and sin of 2 pi x / M for x = 0..M - 1, and tau: the nearest doubles, or the nearest multiples of 2^-bits.

    Certified by ball arithmetic (Arb); a tie goes up. Raises ValueError for modulus < 2 or bits outside 1..40.
    """
    _check(modulus, bits)
    from flint import arb, ctx, fmpq

    before = ctx.prec
    try:
        ctx.prec = _PRECISION
        angles = [arb(fmpq(2 * x, modulus)) for x in range(modulus)]
        tau = (1 + arb(fmpq(2, modulus)).cos_pi()) / 2
        stored = (lambda v: float(v.mid())) if bits is None else (lambda v: _nearest(v, bits))
        cos, sin = (np.array([stored(f(a)) for a in angles]) for f in (arb.cos_pi, arb.sin_pi))
        cos.setflags(write=False)
        sin.setflags(write=False)
        return cos, sin, stored(tau)
    finally:
        ctx.prec = before


def _nearest(value, bits: int) -> float:
    from flint import arb

    scaled = value * 2**bits + arb(0.5)
    found = scaled.floor().unique_fmpz()
    return int(scaled.mid().floor().unique_fmpz() if found is None else found) * 2.0**-bits


def gap(modulus: int) -> float:
    """g = (1 - cos(2 pi / M)) / 2 = sin^2(pi / M), the distance of the sink's score from a match and from the best other."""
    _check(modulus)
    return float(np.sin(np.pi / modulus) ** 2)


def scale(modulus: int, length: int) -> float:
    """c = ln(4 n) / g.

    >>> round(scale(16, 256), 3), round(scale(64, 256), 3)
    (182.118, 2878.953)
    """
    if length < 1:
        raise ValueError(f"length={length!r}: must be an integer >= 1")
    return log(4 * length) / gap(modulus)


# how many bits the three numbers need ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Margins:
    """What is left of the two gaps when cos, sin and tau have `bits` fraction bits and the scale is 2 c.

    above: least score of a match less the sink's, to be >= ln 2. below: the sink's less the largest other, to be >= ln(2n). fine:
    whether both hold, decided with balls that are proved to contain the true values.
    """

    modulus: int
    length: int
    bits: int
    above: float
    below: float
    fine: bool


def margins(modulus: int, bits: int, length: int | None = None) -> Margins:
    """All M^2 pairs of residues, products in integers. n = M unless a length is given.

    A match then has at least 2 times the sink's weight, seen >= 2/3; without one n numbers have at most 1/2 of it, seen <= 1/3.

    >>> margins(8, 3).fine, margins(8, 2).fine
    (True, False)
    >>> margins(8, 30).fine, margins(8, 40).fine
    (True, True)
    """
    from flint import arb, ctx, fmpq

    length = modulus if length is None else length
    cos, sin, tau = circle(modulus, bits)
    whole = np.int64 if bits <= 30 else object  # a product has 2 * bits fraction bits
    cos, sin = (np.rint(part * 2**bits).astype(np.int64).astype(whole) for part in (cos, sin))
    products = np.outer(cos, cos) - np.outer(sin, sin)
    x = np.arange(modulus)
    least = int(products[x, -x % modulus].min())
    products[x, -x % modulus] = -4 << 2 * bits if whole is object else np.iinfo(np.int64).min
    most, sink = int(products.max()), round(tau * 2**bits) << bits
    before = ctx.prec
    try:
        ctx.prec = _PRECISION
        c = 2 * arb(4 * length).log() / arb(fmpq(1, modulus)).sin_pi() ** 2
        above, below = (c * arb(fmpq(codes, 4**bits)) for codes in (least - sink, sink - most))
        fine = bool(above >= arb(2).log()) and bool(below >= arb(2 * length).log())
        return Margins(modulus, length, bits, float(above.mid()), float(below.mid()), fine)
    finally:
        ctx.prec = before


@cache
def smallest_bits(modulus: int, length: int | None = None) -> int:
    """p_min: the least number of fraction bits with which all pairs of residues keep their distance.

    >>> [smallest_bits(m) for m in (8, 16, 32)]
    [3, 5, 7]
    """
    return next(bits for bits in range(1, 41) if margins(modulus, bits, length).fine)


def check_precision(expected: Mapping[int, int]) -> Check:
    """p_min of each modulus is the one expected: it suffices, and every smaller number of bits fails."""
    got = [smallest_bits(modulus) for modulus in expected]
    value = {f"M = {modulus}": bits for modulus, bits in zip(expected, got, strict=True)}
    scope = f"all pairs of residues, M = {', '.join(map(str, expected))}, n = M"
    return Check.equal("fewest fraction bits of the three-dimensional head", got, list(expected.values()), scope, value=value)


def check_enough_precision(moduli: Iterable[int]) -> Check:
    """ceil(2 log2 M) fraction bits keep all pairs of residues at their distance, whatever the length: n = 1, M, M^2, 2^40.

    Rounding moves a score less the sink's by at most (sqrt(2) + 1/2) 2^-p + 2^-2p / 2, which is 2 * 2^-p or less for p >= 3, and
    with p >= 2 log2 M that is at most g / 2, as g = sin^2(pi / M) >= 4 / M^2. So both gaps, times 2 c, are at least ln(4n). For
    M = 2 all numbers are exact.
    """
    moduli = list(moduli)
    cases = [(m, n) for m in moduli for n in (1, m, m * m, 1 << 40)]
    wrong = next(({"M": m, "n": n} for m, n in cases if not margins(m, (m * m - 1).bit_length(), n).fine), None)
    scope = f"M = {min(moduli)}..{max(moduli)} ({len(moduli)} moduli), four lengths each"
    return Check.true("2 log2 M fraction bits are enough", wrong is None, scope, len(cases), wrong)


# the model -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoSumAttention(NamedWeights):
    """The construction for one task, in float64.

    Args:
        task: with a bit at each position, in any of its four variants.
        code: "circle" or "signs".
        bits: fraction bits of cos, sin and tau, with the scale 2 c; None takes the nearest doubles and the scale c.
        changes: weights that differ, as (map, target, source, weight).

    Raises:
        ValueError: unknown code, bits outside 1..40 or with signs, which need none.

    Example:
        >>> model = TwoSumAttention(TwoSum(8, 6))
        >>> model.answers([3, 7, 5, 4, 0, 2]).astype(int).tolist()
        [1, 0, 1, 1, 1, 0]
    """

    task: TwoSum
    code: str = "circle"
    bits: int | None = None
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        if self.code not in CODES:
            raise ValueError(f"code={self.code!r}: must be one of {', '.join(map(repr, CODES))}")
        if self.code == "signs" and self.bits is not None:
            raise ValueError(f"bits={self.bits!r}: signs are stored exactly; leave bits out")
        _check(self.task.modulus, self.bits)

    @property
    def ar(self) -> Float:
        return Float()

    @property
    def digits(self) -> int:
        """w = ceil(log2 M), digits of a residue."""
        return (self.task.modulus - 1).bit_length()

    @property
    def head_dim(self) -> int:
        """3 on the circle, w + 1 with signs."""
        return 3 if self.code == "circle" else self.digits + 1

    @property
    def scale(self) -> float:
        """c, or 2 c with rounded numbers."""
        if self.code == "signs":
            return log(4 * self.task.length)
        return scale(self.task.modulus, self.task.length) * (1 if self.bits is None else 2)

    @property
    def sink(self) -> float:
        """The score of the sink, divided by c."""
        return circle(self.task.modulus, self.bits)[2] if self.code == "circle" else self.digits - 1

    @cached_property
    def stream(self) -> Stream:
        own = {"cos": 1, "sin": 1} if self.code == "circle" else {"key": self.digits, "query": self.digits}
        return Stream(own | {"one": 1, "sink": 1, "token": 1, "seen": 1})

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Residues, the start token, and the two answers."""
        return Vocabulary((*map(str, range(self.task.modulus)), "start", "no", "yes"), answers=("no", "yes"))

    @cached_property
    def embedding(self) -> Embedding:
        M, at = self.task.modulus, self.stream.slice
        table = np.zeros((M + 3, self.stream.dim))
        table[: M + 1, at("one")] = 1
        table[:M, at("token")] = 1
        table[M, at("sink")] = 1
        if self.code == "circle":
            table[:M, at("cos")], table[:M, at("sin")] = (part[:, None] for part in circle(M, self.bits)[:2])
        else:
            x = np.arange(M)
            for name, y in (("key", x), ("query", -x % M)):
                table[:M, at(name)] = binary_words(y, self.digits, bit_order="lsb", one=+1)
        return Embedding.from_table(self.stream, table)

    def _maps(self) -> dict[str, Affine]:
        c, last = self.scale, f"[{self.head_dim - 1}]"
        if self.code == "circle":
            query, key = {"q[0]": {"cos": c}, "q[1]": {"sin": c}}, {"k[0]": {"cos": 1}, "k[1]": {"sin": -1}}
        else:
            query, key = {"q[:-1]": {"query": c}}, {"k[:-1]": {"key": 1}}
        answers = Stream({"logit": len(self.vocabulary)})
        no, yes = (f"logit[{self.vocabulary.index(name)}]" for name in ("no", "yes"))
        return {
            "Q": Affine.from_rows(self.stream, Stream({"q": self.head_dim}), query | {"q" + last: {"one": c}}),
            "K": Affine.from_rows(self.stream, Stream({"k": self.head_dim}), key | {"k" + last: {"sink": self.sink}}),
            "V": Affine.from_rows(self.stream, Stream({"v": 1}), {"v": {"token": 1}}),
            "O": Affine.from_rows(Stream({"v": 1}), self.stream, {"seen": {"v": 1}}),
            "logits": Affine.from_rows(self.stream, answers, {no: {"seen": -1, "1": 1}, yes: {"seen": 1}}),
        }

    @cached_property
    def model(self) -> Model:
        """A decoder: it answers the causal variant in which a token may be its own partner."""
        core = Attention(self.head_dim, 1, scale="raw")
        head = Head(core, {"q": self.maps["Q"], "k": self.maps["K"], "v": self.maps["V"]})
        layer = Layer((head,), self.maps["O"])
        return Model(self.stream, self.vocabulary, self.embedding, (Block(layer, name="two-sum"),), self.maps["logits"])

    def prompt(self, tokens) -> np.ndarray:
        """The start token before residues (..., length)."""
        tokens = self.task.check(tokens)
        return np.concatenate([np.full((*tokens.shape[:-1], 1), self.task.modulus), tokens], axis=-1)

    @cached_property
    def mask(self) -> np.ndarray:
        """Who sees whom, the start token first: everybody sees it, and the partners that the task allows."""
        mask = np.zeros((self.task.length + 1,) * 2, bool)
        mask[:, 0], mask[1:, 1:] = True, self.task.allowed
        return mask

    def seen(self, tokens) -> np.ndarray:
        """The share of attention on numbers at each position, float64 (..., length), under the task's own mask."""
        ar, block = self.ar, self.model.blocks[0]
        x = self.embedding.apply(ar, self.prompt(tokens))
        inputs = block.layer.heads[0].inputs(ar, x)
        core = block.layer.heads[0].core
        x = ar.add(x, block.layer.out.apply(ar, core.finish(ar, core.partial(ar, inputs.q, inputs.k, inputs.v, self.mask))))
        return self.stream.read(x, "seen")[..., 1:, 0]

    def answers(self, tokens) -> np.ndarray:
        """bool (..., length): more than half of the attention is on numbers."""
        return self.seen(tokens) > 0.5

    @property
    def slack(self) -> float:
        """delta: what rounding in float64 may move a score by.

        Stored numbers are off by 2^-53 at most, and a score sums three products of them (w + 1 with signs, exact but for c): an
        error of at most 16 units 2^-53 for each unit of c, and as much for every dimension beyond three.
        """
        return 16 * (self.head_dim - 2) * self.scale * 2.0**-53

    @property
    def bounds(self) -> tuple[float, float]:
        """(least seen with a partner, most seen without), rounding included: scores by `slack`, weights and sums by 2^-40."""
        n, loose = self.task.length, exp(2 * self.slack)
        if self.bits is None:
            return 4 * n / (4 * n + loose) - 2.0**-40, loose / (4 + loose) + 2.0**-40
        return 2 / (2 + loose) - 2.0**-40, loose / (2 + loose) + 2.0**-40

    def describe(self) -> str:
        """In words."""
        numbers = "float64" if self.bits is None else f"{self.bits} fraction bits"
        return self._with_changes(f"{self.code}, M = {self.task.modulus}, n = {self.task.length}, {numbers}")


def check_definition(pairs: Iterable[tuple[int, int]]) -> Check:
    """Vectorised answers against loops from the definition: all M^n prompts for each (M, n) and variant, and all prompts of n - 1
    numbers and a query of the last-token version.
    """
    pairs, cases, wrong = list(pairs), 0, None
    for modulus, length in pairs:
        tasks = [TwoSum(modulus, length, causal, itself) for causal in (False, True) for itself in (False, True)]
        for task in [*tasks, *([LastTokenTwoSum(modulus, 1, length - 1)] if length > 1 else [])]:
            for tokens in tasks[0].every():
                expected = np.array([task.solve(row) for row in tokens])
                bad = np.flatnonzero((task.answers(tokens) != expected).reshape(len(tokens), -1).any(axis=1))
                cases += len(tokens)
                if len(bad) and wrong is None:
                    wrong = {"task": str(task), "tokens": tokens[bad[0]].tolist()}
    scope = f"all prompts for (M, n) in {pairs}, four variants and the last-token version"
    return Check.true("bits of two-sum, as defined", wrong is None, scope, max(cases, 1), wrong)


def check_thresholds(model: TwoSumAttention, batches: Iterable[np.ndarray], what: str) -> Check:
    """On each batch (num, length): the right bit at every position, and seen on the proved side of its threshold.

    The value holds the two extremes and the bounds.
    """
    low, high, cases, wrong = 1.0, 0.0, 0, None
    least, most = model.bounds
    for tokens in batches:
        seen, right = model.seen(tokens), model.task.answers(tokens)
        low, high = min(low, seen[right].min(initial=1)), max(high, seen[~right].max(initial=0))
        bad = np.argwhere(np.where(right, seen < least, seen > most) | ((seen > 0.5) != right))
        if len(bad) and wrong is None:
            row, i = map(int, bad[0])
            wrong = {"tokens": tokens[row].tolist(), "position": i, "seen": float(seen[row, i]), "right": bool(right[row, i])}
        cases += seen.size
    value = {"least with a partner": low, "bound": least, "most without": high, "bound without": most}
    name = f"two-sum by one head ({model.describe()})"
    return Check.true(name, wrong is None, what, max(cases, 1), wrong, value)


def check_every(pairs: Iterable[tuple[int, int]], code: str = "circle") -> list[Check]:
    """All M^n prompts for each (M, n), every token allowed as partner, itself included."""
    tasks = [TwoSum(modulus, length) for modulus, length in pairs]
    return [check_thresholds(TwoSumAttention(t, code), t.every(), f"all {t.count:,} prompts") for t in tasks]


def check_random(pairs: Iterable[tuple[int, int]], num: int, code: str = "circle", bits: bool = False, seed: int = 0) -> Check:
    """`num` random prompts for each (M, n) and each of the four variants; bits: with p_min(M) bits, for n = M."""
    checks, pairs = [], list(pairs)
    for modulus, length in pairs:
        for causal in (False, True):
            for itself in (False, True):
                task = TwoSum(modulus, length, causal, itself)
                model = TwoSumAttention(task, code, smallest_bits(modulus, length) if bits else None)
                tokens = task.sample(seed * num + np.arange(num))
                checks.append(check_thresholds(model, [tokens], f"{num} prompts"))
    failed = next((c for c in checks if not c.passed), None)
    scope = f"(M, n) in {pairs}, causal or not, itself or not, {num} random prompts each"
    name = f"two-sum by one head ({code}{', fewest bits' if bits else ''}): bits and thresholds"
    wrong = None if failed is None else {"check": failed.name, "case": failed.counterexample}
    value = {"positions": sum(c.cases for c in checks)}
    return Check.true(name, failed is None, scope, sum(c.cases for c in checks), wrong, value)


def check_codes_agree(pairs: Iterable[tuple[int, int]], num: int, seed: int = 0) -> Check:
    """Angles and signs give the same bits on random prompts."""
    got, pairs, expected = [], list(pairs), []
    for modulus, length in pairs:
        task = TwoSum(modulus, length)
        tokens = task.sample(seed * num + np.arange(num))
        got.append(TwoSumAttention(task).answers(tokens).ravel())
        expected.append(TwoSumAttention(task, "signs").answers(tokens).ravel())
    return Check.equal(
        "angles and signs answer alike", np.concatenate(got), np.concatenate(expected), f"(M, n) in {pairs}, {num} prompts each"
    )


def _check(modulus, bits=None) -> None:
    if isinstance(modulus, bool) or not isinstance(modulus, int | np.integer) or modulus < 2:
        raise ValueError(f"modulus={modulus!r}: must be an integer >= 2")
    if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not 1 <= bits <= 40):
        raise ValueError(f"bits={bits!r}: must be an integer from 1 to 40, or None")
