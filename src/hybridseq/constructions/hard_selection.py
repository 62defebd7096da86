"""Hard selection with a soft attention head in F_s (A, Lemma 5.1).

A code word c of {-1, +1}^m becomes the query Q(c) = (c_1, 1, ..., c_m, 1) and the key K(c) = (c_1, -1, ..., c_m, -1), so the
score of two words at Hamming distance h is <Q(c), K(c')> = (m - 2h) - m = -2h: zero on equal words and at most -2m/3 in a code of
distance m/3. The rounded exponential of a score that is low enough is 0, that of 0 is 1; then the softmax weight is exactly 1 on
the matching key and exactly 0 elsewhere, however many keys there are.

Deviates: the paper's text at hand prints the score over d_h, which no code length can serve; `scaling` says which reading is
meant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.arithmetic.transcendental import rounded_code
from hybridseq.codes import Codebook
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator

SCALINGS = {
    "sqrt": "score = <q, k> / sqrt(d_h): the usual head, and the reading used in this book",
    "raw": "score = <q, k>: what the printed condition on m_0 fits; a head with total gain sqrt(d_h)",
    "dim": "score = <q, k> / d_h: as printed; impossible",
}
_BLOCK_SCORES = 1 << 21  # scores held at once: 512 queries x 4096 keys, 16 MB as int64


# thresholds ---------------------------------------------------------------------------------------------------------------


@cache
def zero_score(s: int) -> int:
    """The score code nearest to 0 whose rounded exponential is 0.

    >>> [zero_score(s) for s in (2, 3, 4)]
    [-9, -23, -56]
    """
    FixedPoint(s)
    low, high = -((s + 2) << s), 0  # exp(-(s + 2)) rounds to 0, exp(0) to 1, and between them it keeps order
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rounded_code("exp", middle, s) == 0 else (low, middle)
    return low


def _scale_square(m: int, scaling: str) -> int:
    """The square of what the score is divided by, for head dimension 2m."""
    _check_scaling(scaling)
    return {"raw": 1, "sqrt": 2 * m, "dim": (2 * m) ** 2}[scaling]


def score_code(s: int, m: int, h, scaling: str, gain=1) -> int:
    """The code of [-2h g^2 / scale]_s, the score of two words of length m at distance h (A, Section 3.1 and Lemma 5.1).

    Args:
        h: distance, an int or a Fraction (the lemma's bound is the real number m/3).
        scaling: ``"sqrt"``, ``"raw"`` or ``"dim"``.
        gain: the gain g >= 0 that q and k carry each.

    Returns:
        An integer code of F_s, at most 0; ties toward zero, saturated.

    Example:
        >>> score_code(2, 24, 8, "sqrt"), score_code(2, 24, 8, "raw")
        (-9, -15)
    """
    ar = FixedPoint(s)
    square = (2 * Fraction(h) * Fraction(gain) ** 2 * ar.one) ** 2 / _scale_square(m, scaling)
    root = isqrt(square.numerator // square.denominator)
    root += 4 * square > (2 * root + 1) ** 2
    return -min(root, ar.max_code)


def selects(s: int, m: int, scaling: str, gain=1, h=None) -> bool:
    """Whether a word at distance h (default: the real number m/3) gets a rounded exponential of 0.

    Scores fall as h grows and rounding keeps order, so this decides for all larger distances too.

    >>> selects(2, 20, "sqrt"), selects(2, 21, "sqrt")
    (False, True)
    """
    return score_code(s, m, Fraction(m, 3) if h is None else h, scaling, gain) <= zero_score(s)


def m0(s: int, scaling: str, distance: str = "real") -> int:
    """m_0(s): the least M such that every m >= M satisfies the lemma's condition (A, before Lemma 5.1).

    Args:
        s: bits behind the point, s >= 1.
        scaling: ``"raw"`` (the condition as printed, [exp [-2m/3]_s]_s = 0) or ``"sqrt"`` (with -sqrt(2m)/3).
        distance: ``"real"`` takes the distance to be m/3, ``"integer"`` rounds it up to a whole number of places.

    With the real distance the score falls as m grows, so the first m that works is the threshold; no scan limit is involved.
    With the integer distance the score is never higher than with the real one, so the scan runs down from there.

    Raises:
        ValueError: ``scaling="dim"``: the score is never below -1, and [exp(-1)]_s > 0 for every s.

    Example:
        >>> [m0(s, "raw") for s in (2, 3, 4)], [m0(s, "sqrt") for s in (2, 3, 4)], m0(2, "sqrt", "integer")
        ([4, 5, 6], [21, 36, 55], 19)
    """
    _check_scaling(scaling)
    if distance not in ("real", "integer"):
        raise ValueError(f"distance = {distance!r}; it must be 'real' or 'integer'")
    if scaling == "dim":
        raise ValueError(
            "scaling = 'dim': no m is long enough, every score is at least -1 and the rounded exp(-1) is positive; "
            "use 'sqrt' or 'raw'"
        )
    m = 1
    while not selects(s, m, scaling):
        m += 1
    if distance == "integer":
        while m > 1 and selects(s, m - 1, scaling, h=-(-(m - 1) // 3)):
            m -= 1
    return m


def raw_gain(s: int, m: int) -> Fraction:
    """The least gain g in F_s with g^2 >= sqrt(2m): on q and on k, it makes a head over sqrt(d_h) score like a raw one, or lower.

    It exists exactly when m <= B_s^4 / 2.

    Raises:
        ValueError: m is larger than that.

    Example:
        >>> raw_gain(2, 24)
        Fraction(11, 4)
    """
    ar = FixedPoint(s)
    if 2 * m > ar.max_value**4:
        limit = f"m <= B_s^4 / 2 = {float(ar.max_value**4 / 2):.1f}"
        raise ValueError(f"m = {m}: gains of at most B_s = {ar.max_value} reach {limit}; take a shorter code or a larger s")
    code = isqrt(isqrt(2 * m * ar.one**4))
    return Fraction(code + (code**4 < 2 * m * ar.one**4), ar.one)


def _check_scaling(scaling: str) -> None:
    if scaling not in SCALINGS:
        raise ValueError(f"scaling = {scaling!r}; it must be one of {', '.join(SCALINGS)}")


# the head -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HardSelection:
    """The head of A, Lemma 5.1: one causal attention head of width 2m that returns the value of the key with the query's code.

    A token carries three named subspaces: ``query`` (m signs), ``key`` (m signs), ``value`` (value_dim numbers).

    Args:
        codebook: the code C; its distance must be at least m/3.
        s: bits behind the point.
        scaling: which reading of the score; see `SCALINGS`.
        gain: g >= 0 in F_s, on q and on k. With g != 1 the maps carry it and no norm is applied (it is the identity on signs).
        value_dim: numbers in a value.
        strict: refuse a code that breaks the lemma's assumptions; False builds the head all the same, to watch it fail.
        changes: weights that differ from the construction, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: an unknown scaling, a gain outside F_s, or (if strict) the first broken assumption.

    Example:
        >>> from hybridseq.codes import golay
        >>> head = HardSelection(golay(), s=2, scaling="sqrt")
        >>> head.head_dim, check_all_pairs(head).passed
        (48, True)
    """

    codebook: Codebook
    s: int
    scaling: str = "sqrt"
    gain: Fraction | int = 1
    value_dim: int = 1
    strict: bool = True
    changes: tuple = ()

    def __post_init__(self) -> None:
        _check_scaling(self.scaling)
        ar = self.ar
        gain_code = Fraction(self.gain) * ar.one
        if gain_code.denominator != 1 or not 0 <= gain_code <= ar.max_code:
            raise ValueError(f"gain = {self.gain}; it must be a number of {ar.name} from 0 to {ar.max_value}")
        broken = self.broken_assumptions()
        if self.strict and broken:
            raise ValueError(broken[0])

    def broken_assumptions(self) -> tuple[str, ...]:
        """The assumptions of the lemma that do not hold here, each as a sentence; empty if all hold."""
        broken = []
        try:
            self.codebook.require(ratio=Fraction(1, 3))
        except ValueError as problem:
            broken.append(str(problem))
        if self.scaling == "dim" and self.gain == 1:
            broken.append("scaling = 'dim': every score is at least -1 and the rounded exp(-1) is positive; use 'sqrt' or 'raw'")
        elif not selects(self.s, self.m, self.scaling, self.gain):
            least = f"m_0({self.s}) = {m0(self.s, self.scaling)}" if self.gain == 1 else "the threshold of this gain"
            broken.append(f"m = {self.m} is below {least} for scaling {self.scaling!r}; repeat the words or lower s")
        return tuple(broken)

    @property
    def ar(self) -> FixedPoint:
        """The number system F_s."""
        return FixedPoint(self.s)

    @property
    def m(self) -> int:
        """Length of a code word."""
        return self.codebook.m

    @property
    def head_dim(self) -> int:
        """d_h = 2m."""
        return 2 * self.m

    @property
    def stream(self) -> Stream:
        """The named subspaces of a token."""
        return Stream({"query": self.m, "key": self.m, "value": self.value_dim})

    @property
    def head(self) -> Head:
        """The attention head, with RMS norm on q and k (unit gain) or with the gain in the maps."""
        g = Fraction(self.gain)
        rows = {
            "q": {"q[::2]": {"query": g}, "q[1::2]": {"1": g}},
            "k": {"k[::2]": {"key": g}, "k[1::2]": {"1": -g}},
            "v": {"v": {"value": 1}},
        }
        widths = {"q": self.head_dim, "k": self.head_dim, "v": self.value_dim}
        maps = {name: Affine.from_rows(self.stream, Stream({name: widths[name]}), rows[name]) for name in rows}
        for name, target, source, weight in self.changes:
            maps[name] = maps[name].with_weight(target, source, weight)
        core = Attention(self.head_dim, self.value_dim, scale=self.scaling)
        return Head(core, maps, qk_norm="rms" if g == 1 else None)

    def with_weight(self, name: str, target: str, source: str, weight) -> HardSelection:
        """A copy whose map `name` has one weight changed, unchecked: for showing that the checks notice.

        >>> from hybridseq.codes import golay
        >>> wrong = HardSelection(golay(), s=2).with_weight("q", "q[0]", "query[0]", -1)
        >>> check_all_pairs(wrong).passed
        False
        """
        return replace(self, strict=False, changes=(*self.changes, (name, target, source, weight)))

    def tokens(self, ar, query_words, key_words, values):
        """Tokens (..., 2m + value_dim) from signs (..., m), signs (..., m) and stored values (..., value_dim)."""
        return ar.concat([_signs(ar, query_words), _signs(ar, key_words), values], axis=-1)

    def respond(self, ar, query_words, key_words, values):
        """Output (num_queries, value_dim) of each query over all the keys, in blocks of queries.

        Args:
            ar: the arithmetic; F_s for the lemma, `Float` for the soft head.
            query_words (num_queries, m), key_words (num_keys, m): signs. values (num_keys, value_dim): stored numbers.

        Memory: a block holds about two million scores, whatever the number of queries.
        """
        head, outputs = self.head, []
        keys = self.tokens(ar, np.ones_like(key_words), key_words, values)
        k, v = head.input(ar, keys, "k"), head.input(ar, keys, "v")
        rows = _block_rows(len(key_words))
        for start in range(0, len(query_words), rows):
            block = query_words[start : start + rows]
            asking = self.tokens(ar, block, np.ones_like(block), ar.zeros((len(block), self.value_dim)))
            part = head.core.partial(ar, head.input(ar, asking, "q"), k, v)
            outputs.append(head.core.finish(ar, part))
        return ar.concat(outputs, axis=0)


def _block_rows(num_keys: int) -> int:
    return max(16, _BLOCK_SCORES // num_keys)


def _signs(ar, words):
    words = np.asarray(words)
    return ar.where(words == 1, ar.full(words.shape, 1), ar.full(words.shape, -1))


def random_values(s: int, count: int, value_dim: int, seed: int) -> np.ndarray:
    """Codes (count, value_dim) drawn uniformly from all of F_s."""
    ar = FixedPoint(s)
    return Generator(seed).at(3, s).integers(ar.size, (count, value_dim)) - ar.max_code


# checks -------------------------------------------------------------------------------------------------------------------


def _where(selection: HardSelection) -> str:
    gain = "" if selection.gain == 1 else f", gain {selection.gain}"
    return f"{selection.codebook.name}, s = {selection.s}, scaling {selection.scaling}{gain}"


def check_norm_is_identity(selection: HardSelection) -> Check:
    """The RMS norm returns every query and every key of the code unchanged (their entries are all ±1)."""
    ar, words = selection.ar, selection.codebook.words
    head = replace(selection, gain=1, strict=False).head
    x = selection.tokens(ar, words, words, ar.zeros((len(words), selection.value_dim)))
    plain = np.stack([head.maps[name].apply(ar, x) for name in ("q", "k")])
    scope = f"all {len(words):,} words, {_where(selection)}"
    return Check.equal("RMS norm is the identity on q and k", ar.rms_norm(plain), plain, scope=scope)


def check_all_pairs(selection: HardSelection) -> Check:
    """[exp score]_s is exactly 1 on equal words and exactly 0 on all others: every ordered pair of words of the code."""
    ar, words, head = selection.ar, selection.codebook.words, selection.head
    x = selection.tokens(ar, words, words, ar.zeros((len(words), selection.value_dim)))
    q, k = head.input(ar, x, "q"), head.input(ar, x, "k")
    counterexample = None
    rows = _block_rows(len(words))
    for start in range(0, len(words), rows):
        z = ar.scores(q[start : start + rows], k, selection.scaling)
        e = ar.exp(z)
        expected = np.where(start + np.arange(len(z))[:, None] == np.arange(len(words)), ar.one, 0)
        wrong = np.argwhere(e != expected)
        if len(wrong):
            i, j = wrong[0]
            distance = int((words[start + i] != words[j]).sum())
            counterexample = {"query word": int(start + i), "key word": int(j), "distance": distance,
                              "score": str(ar.fraction(z[i, j])), "exp": str(ar.fraction(e[i, j]))}  # fmt: skip
            break
    return Check.true(
        "rounded exponential is 1 on the matching key and 0 on every other",
        counterexample is None,
        scope=f"all ordered pairs of {len(words):,} words, {_where(selection)}",
        cases=len(words) ** 2,
        counterexample=counterexample,
    )


def check_selection(selection: HardSelection, seed: int = 0, num_queries: int | None = None) -> Check:
    """Every query returns exactly the value of the key with its code; keys in random order, values random in F_s.

    Args:
        num_queries: how many of the code's words ask (default all); every word of the code is a key in any case.
    """
    words, ar = selection.codebook.words, selection.ar
    asked = Generator(seed).at(1).permutation(len(words))[:num_queries]
    order = Generator(seed).at(2).permutation(len(words))
    values = random_values(selection.s, len(words), selection.value_dim, seed)
    got = selection.respond(ar, words[asked], words[order], values)
    place = {int(word): position for position, word in enumerate(order)}  # the reference: a dictionary
    expected = values[[place[int(word)] for word in asked]]
    wrong = np.argwhere((got != expected).any(axis=-1))[:, 0]
    first = None
    if len(wrong):
        i = int(wrong[0])
        first = {"query word": int(asked[i]), "got codes": got[i].tolist(), "expected codes": expected[i].tolist()}
    return Check.true(
        "output is exactly the value of the matching key",
        len(wrong) == 0,
        scope=f"{len(asked):,} queries over {len(words):,} keys, {_where(selection)}, seed {seed}",
        cases=len(asked) * len(words),
        counterexample=first,
        value={f"wrong at s = {selection.s}, {selection.scaling}": len(wrong)},
    )


def check_no_match(selection: HardSelection, seed: int = 0) -> Check:
    """A query whose code no key carries returns exactly 0: half of the words are keys, the other half ask."""
    words, ar = selection.codebook.words, selection.ar
    order = Generator(seed).at(4).permutation(len(words))
    keys, absent = order[: len(words) // 2], order[len(words) // 2 :]
    values = random_values(selection.s, len(keys), selection.value_dim, seed)
    got = selection.respond(ar, words[absent], words[keys], values)
    return Check.equal(
        "a query without a match returns 0", got, np.zeros_like(got), inputs=absent,
        scope=f"{len(absent):,} absent words over {len(keys):,} keys, {_where(selection)}, seed {seed}",
    )  # fmt: skip


def check_causal(selection: HardSelection, seed: int = 0, seq_len: int | None = None) -> Check:
    """As a causal layer: token t returns the value of the one token at or before t that carries its query's code, else 0.

    Every token carries its own key word, a random query word of the same code, and a random value; half the queries look ahead.
    """
    words, ar = selection.codebook.words, selection.ar
    seq_len = len(words) if seq_len is None else seq_len
    if not 1 <= seq_len <= len(words):
        raise ValueError(f"seq_len = {seq_len}; every token needs a key word of its own, so it must lie in 1..{len(words)}")
    keys = Generator(seed).at(5).permutation(len(words))[:seq_len]
    queries = keys[Generator(seed).at(6).integers(seq_len, (seq_len,))]
    values = random_values(selection.s, seq_len, selection.value_dim, seed)
    got = selection.head.forward(ar, selection.tokens(ar, words[queries], words[keys], values))
    seen, expected = {}, np.zeros_like(values)
    for t in range(seq_len):
        seen[int(keys[t])] = values[t]
        expected[t] = seen.get(int(queries[t]), 0)
    return Check.equal(
        "each token of a causal sequence returns the value it asks for, or 0 if that lies ahead", got, expected, inputs=queries,
        scope=f"{seq_len:,} tokens, {_where(selection)}, seed {seed}",
    )  # fmt: skip


def over(check, selections, **options) -> Check:
    """One Check from the same check on several heads: all must pass, cases add up, the first counter-example is kept.

    Args:
        check: one of the checks above. selections: heads. options: passed on to the check.

    Example:
        >>> from hybridseq.codes import golay
        >>> over(check_no_match, [HardSelection(golay(), 2, "raw"), HardSelection(golay(), 2, "sqrt")]).cases
        4096
    """
    outcomes = [check(selection, **options) for selection in selections]
    first_bad = next((outcome for outcome in outcomes if not outcome.passed), outcomes[0])
    what = outcomes[0].scope.split(f", {selections[0].codebook.name}")[0]
    heads = ", ".join(f"s = {h.s} {h.scaling} (m = {h.m})" for h in selections)
    return Check.true(
        outcomes[0].name,
        all(outcome.passed for outcome in outcomes),
        scope=f"{what}; heads: {heads}",
        cases=sum(outcome.cases for outcome in outcomes),
        counterexample=first_bad.counterexample,
        value={key: entry for outcome in outcomes for key, entry in outcome.value.items()},
    )


# the soft head ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftErrors:
    """What the same head does without rounding: float64 over all words of a code, against the exact value.

    `leak` is the sum of exp(score) over the keys that do not match; `bound` is 2 B_s leak / (1 + leak), which no error can
    exceed; `wrong` counts the outputs that differ from the value even after they are rounded to F_s.
    """

    s: int
    scaling: str
    queries: int
    keys: int
    leak: float
    bound: float
    max_error: float
    exactly_right: int
    wrong: int

    @property
    def repaired(self) -> bool:
        """Whether the bound proves that rounding the soft output gives the value back: bound < delta / 2."""
        return self.bound < 2.0 ** -(self.s + 1)


def leak(selection: HardSelection, arithmetic: str = "real") -> float:
    """Sum of exp(score) over the keys that do not match, from the distance distribution of a linear code.

    Args:
        arithmetic: ``"real"``, or ``"rounded"`` for the exponentials of F_s.

    Example:
        >>> from hybridseq.codes import golay
        >>> f"{leak(HardSelection(golay(), 2, 'raw')):.2e}", leak(HardSelection(golay(), 2, "raw"), "rounded")
        ('8.55e-05', 0.0)
    """
    if not selection.codebook.linear:
        raise ValueError(f"codebook {selection.codebook.name} is not linear; its distances depend on the query word")
    if arithmetic not in ("real", "rounded"):
        raise ValueError(f"arithmetic = {arithmetic!r}; it must be 'real' or 'rounded'")
    distances, counts = np.unique((selection.codebook.words != 1).sum(axis=1), return_counts=True)
    total = 0.0
    for h, count in zip(distances[1:], counts[1:], strict=True):
        if arithmetic == "real":
            total += count * np.exp(-2.0 * h * float(selection.gain) ** 2 / _scale_square(selection.m, selection.scaling) ** 0.5)
        else:
            code = score_code(selection.s, selection.m, int(h), selection.scaling, selection.gain)
            total += count * selection.ar.values(selection.ar.exp(np.array(code))).item()
    return float(total)


def soft_errors(selection: HardSelection, seed: int = 0) -> SoftErrors:
    """Run the head in float64 on the keys, queries and values of `check_selection` and compare with the exact values."""
    words, ar, real = selection.codebook.words, selection.ar, Float()
    order = Generator(seed).at(2).permutation(len(words))
    codes = random_values(selection.s, len(words), selection.value_dim, seed)
    values = ar.values(codes)
    got = selection.respond(real, words[order], words[order], values)
    rounded = np.clip(np.ceil(np.abs(got) * ar.one - 0.5), 0, ar.max_code) * np.sign(got)  # ties toward zero
    leaking = leak(selection)
    return SoftErrors(
        s=selection.s,
        scaling=selection.scaling,
        queries=len(words),
        keys=len(words),
        leak=leaking,
        bound=float(2 * ar.max_value) * leaking / (1 + leaking),
        max_error=float(np.abs(got - values).max()),
        exactly_right=int((got == values).all(axis=-1).sum()),
        wrong=int((rounded != codes).any(axis=-1).sum()),
    )
