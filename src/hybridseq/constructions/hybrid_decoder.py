"""A hybrid decoder for parity-conditioned retrieval in one step (paper A, Theorem 5.3, which is Theorem 4.2, item 1).

Three layers on one residual stream of named subspaces; E is the address code, Q and K the interleaving of Lemma 5.1:

    L1  Gated DeltaNet   keeps the parity of the table in one row of its state and writes it:      PAR = p(Y)
    L2  Gated Attention  the query E(MARK) selects the marked token, whose value is its offset:    R   = E(j)
    L3  Gated Attention  the query R = E(j) selects the first token of block j, whose value is:    BIT = Y_j
        and its MLP                                                                                ANS = PAR xor BIT

The logits are YES = ANS, NO = 1 - ANS, and -1 for every other token. All numbers lie in F_s, all operations are rounded.

Deviates: the paper gives the layers in words; the residual coordinates, maps, MLP and logits here are ours, as are the
choices B(b) = bb, unit gain in the norms, and the scaling of the scores (chapter 3). The values of L2 and L3 have m and 1
coordinates, without zero padding to d_h. As in the paper there is no pre-norm, no rotary embedding, no convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, log, log2

import numpy as np

from hybridseq.codes import FAMILIES, address_codebook
from hybridseq.constructions.address_words import SCALES, AddressWords
from hybridseq.constructions.hard_selection import m0
from hybridseq.constructions.named_weights import NamedWeights, Removal, remove_each
from hybridseq.constructions.parity_cell import P0, START_EVEN, START_ODD, F, G, T, Update, Z
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, DeltaRule, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import pcr

STARTS = {
    "P0": "the state of L1 starts at P_0, as in the paper",
    "zero": "the state starts at zero, as in Qwen3-Next; the cell never leaves it, so this decoder fails",
    "cold": "the state starts at zero and the first token has update parameters of its own",
}
TYPES = {
    ("doubled", False): {"g": G, "f": F},
    ("doubled", True): {"g": G, "f": F, "first0": START_EVEN, "first1": START_ODD},
    ("one-token", False): {"t": T},
}
"""Coordinates that mark a token type, with the update of the parity cell that it asks for; all other tokens ask for Z."""


# the dimension --------------------------------------------------------------------------------------------------------


def code_length(n: int, s: int, scale: str = "sqrt") -> int:
    """m: length of the n + 3 address words, t = ceil(m_0(s) / m_b) copies of the smallest named code with enough words.

    Example:
        >>> code_length(8, 4), code_length(256, 4), code_length(8, 4, "raw")
        (56, 72, 8)
    """
    base = _base_length(next((size for size, _ in FAMILIES if n + 3 <= size), n + 3))
    return base * ceil(m0(s, scale) / base)


@lru_cache
def _base_length(num_words: int) -> int:
    return address_codebook(num_words).m


def dimension(n: int, s: int, scale: str = "sqrt") -> int:
    """d_M = 4 m + 6, the width of the residual stream of the doubled encoding started at P_0 (paper A, Theorem 5.3).

    Example:
        >>> dimension(8, 2), dimension(256, 4), dimension(8, 4, "raw")
        (102, 294, 38)
    """
    return 4 * code_length(n, s, scale) + 6


def dimension_bound(n: int, s: int, scale: str = "sqrt") -> float:
    """4 (m_0(s) + 16/3 log2(n + 3)) + 6: an upper bound of `dimension` for n + 3 <= 65,536, logarithmic in n for fixed s.

    t m_b < m_0 + m_b, and the four named codes have m_b <= 16/3 log2(n + 3) wherever they are used.
    """
    return 4 * (m0(s, scale) + 16 / 3 * log2(n + 3)) + 6


# the construction -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HybridDecoder(NamedWeights, AddressWords):
    """The decoder of Theorem 5.3 for one n and one precision.

    Args:
        n: bits in the table; the prompt has N = 3 n tokens (2 n in the encoding "one-token").
        s: bits behind the point, at least 2.
        scale: "sqrt" divides scores by sqrt(2 m); "raw" does not. Each has its own m_0(s).
        start: "P0", "zero" (fails: half of the answers are wrong) or "cold"; see `STARTS`.
        encoding: "doubled" (paper A) or "one-token" (the toggle T of the parity cell).
        order: evaluation order of the delta rule, see `hybridseq.mixers.ORDERS`; the construction is made for "A".
        changes: weights that differ from the construction, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: n < 1, s < 2, an unknown scale, start or encoding, or a cold start of the one-token encoding.

    Example:
        >>> decoder = HybridDecoder(n=3, s=2)
        >>> prompt = pcr.encode([1, 0, 1], 3)
        >>> pcr.VOCABULARY.names(decoder.answers(prompt.tokens)), prompt.text(0)
        (['YES'], '1 1 0 0 1 1 BLANK BLANK MARK')
    """

    n: int
    s: int
    scale: str = "sqrt"
    start: str = "P0"
    encoding: str = "doubled"
    order: str = "A"
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        pcr.prompt_length(self.n, self.encoding)
        self.ar.require(2, "the hybrid decoder, whose gates are 1/4, 1/2 and 3/4,")
        self._check_scale()
        if self.start not in STARTS:
            raise ValueError(f"start={self.start!r}: must be one of {', '.join(STARTS)}")
        if (self.encoding, self.start == "cold") not in TYPES:
            raise ValueError("start='cold': the cold start is made for encoding='doubled'")

    @property
    def seq_len(self) -> int:
        """N, the length of a prompt."""
        return pcr.prompt_length(self.n, self.encoding)

    @cached_property
    def types(self) -> dict[str, Update]:
        """Token-type coordinates and the update that each asks for."""
        return TYPES[self.encoding, self.start == "cold"]

    @cached_property
    def stream(self) -> Stream:
        """The residual stream: d_M = 4 m + 4 + the number of token types."""
        m = self.codebook.m
        return Stream(dict.fromkeys(self.types, 1) | {"A": m, "K1": m, "K2": m, "V": 1, "PAR": 1, "R": m, "BIT": 1, "ANS": 1})

    # ------------------------------------------------------------------------------------------------- the weights

    def _maps(self) -> dict[str, Affine]:
        return self._parity_maps() | self._address_maps() | self._bit_maps() | {"logits": self._logits()}

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _to_stream(self, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(Stream({"u": dim}), self.stream, rows)

    def _gate(self, value_dim: int) -> Affine:
        """An output gate that is always open: [sigma(B_s)]_s = 1."""
        return self._from_stream("gate", value_dim, {"gate": {"1": self.ar.max_value}})

    def _parity_maps(self) -> dict[str, Affine]:
        """L1: each quantity is that of Z, plus for each token type the difference between its update and Z."""
        delta, ln3 = self.ar.delta, self.ar.fraction(self.ar.array(log(3)).item())
        quantities = {
            "k": [lambda u: u.direction[0], lambda u: u.direction[1]],
            "v": [lambda u: u.value * delta],
            "alpha": [lambda u: _logit(u.alpha) * ln3],
            "beta": [lambda u: _logit(u.beta) * ln3],
        }
        maps = {"L1.q": self._from_stream("q", 2, {"q[0]": {"1": 1}})}
        for name, rows in quantities.items():
            dim = {"k": 2, "v": 2}.get(name, 1)
            spelled = {
                name if dim == 1 else f"{name}[{i}]": {"1": row(Z)} | {t: row(u) - row(Z) for t, u in self.types.items()}
                for i, row in enumerate(rows)
            }
            maps[f"L1.{name}"] = self._from_stream(name, dim, spelled)
        # delta (x) B_s = [1 - delta^2]_s = 1; the state of T for odd parity is (-1, 0), so its sign is turned.
        unit = self.ar.max_value if self.encoding == "doubled" else -self.ar.max_value
        return maps | {"L1.gate": self._gate(2), "L1.out": self._to_stream(2, {"PAR": {"u[0]": unit}})}

    def _address_maps(self) -> dict[str, Affine]:
        """L2: q = Q(E(MARK)) for every token, k = K(K1), v = A."""
        m = self.codebook.m
        return {
            "L2.q": self._from_stream("q", 2 * m, {"q[::2]": {"1": self.word("MARK").tolist()}, "q[1::2]": {"1": 1}}),
            "L2.k": self._from_stream("k", 2 * m, {"k[::2]": {"K1": 1}, "k[1::2]": {"1": -1}}),
            "L2.v": self._from_stream("v", m, {"v": {"A": 1}}),
            "L2.gate": self._gate(m),
            "L2.out": self._to_stream(m, {"R": {"u": 1}}),
        }

    def _bit_maps(self) -> dict[str, Affine]:
        """L3: q = Q(R), k = K(K2), v = V; its MLP forms PAR xor BIT = relu(PAR + BIT) - 2 relu(PAR + BIT - 1)."""
        m = self.codebook.m
        hidden = Stream({"any": 1, "both": 1})
        either = {"PAR": 1, "BIT": 1}
        return {
            "L3.q": self._from_stream("q", 2 * m, {"q[::2]": {"R": 1}, "q[1::2]": {"1": 1}}),
            "L3.k": self._from_stream("k", 2 * m, {"k[::2]": {"K2": 1}, "k[1::2]": {"1": -1}}),
            "L3.v": self._from_stream("v", 1, {"v": {"V": 1}}),
            "L3.gate": self._gate(1),
            "L3.out": self._to_stream(1, {"BIT": {"u": 1}}),
            "L3.MLP in": Affine.from_rows(self.stream, hidden, {"any": either, "both": either | {"1": -1}}),
            "L3.MLP out": Affine.from_rows(hidden, self.stream, {"ANS": {"any": 1, "both": -2}}),
        }

    def _logits(self) -> Affine:
        tokens = Stream({name if name.isidentifier() else f"token_{name}": 1 for name in pcr.VOCABULARY.tokens})
        others = {name: {"1": -1} for name in tokens.names if name not in ("YES", "NO")}
        return Affine.from_rows(self.stream, tokens, others | {"YES": {"ANS": 1}, "NO": {"1": 1, "ANS": -1}})

    @cached_property
    def embedding(self) -> Embedding:
        """Token type, addresses, keys and values by token and position; PAR, R, BIT and ANS start at zero."""
        table = np.zeros((len(pcr.VOCABULARY), self.seq_len, self.stream.dim), dtype=np.int8)

        def part(name):
            return table[..., self.stream.slice(name)]

        repeats = pcr.ENCODINGS[self.encoding]
        cells, addresses = self.n * repeats, self.codebook.words[: self.n]
        part("K1")[:] = part("K2")[:] = self.word("DUMMY")
        part("K2")[:, :cells:repeats] = addresses
        part("V")[pcr.ONE, :cells:repeats] = 1
        part("A")[:, cells:] = addresses
        part("K1")[:, cells:] = self.word("BLANK")
        part("K1")[pcr.MARK, cells:] = self.word("MARK")
        for slot, name in enumerate(name for name in ("g", "f", "t") if name in self.types):
            part(name)[pcr.ONE, slot:cells:repeats] = 1
        if self.start == "cold":
            part("g")[pcr.ONE, 0] = 0
            part("first0")[pcr.ZERO, 0] = part("first1")[pcr.ONE, 0] = 1
        return Embedding.from_table(self.stream, table)

    @cached_property
    def model(self) -> Model:
        """The decoder as a model: it runs in any arithmetic, but was made for `ar`."""
        maps = self.maps

        def head(layer, core, norm):
            names = [name.removeprefix(f"{layer}.") for name in maps if name.startswith(f"{layer}.")]
            inputs = {name: maps[f"{layer}.{name}"] for name in names if name in ("q", "k", "v", "alpha", "beta")}
            return Layer((Head(core, inputs, gate=maps[f"{layer}.gate"], qk_norm=norm),), maps[f"{layer}.out"])

        m, delta = self.codebook.m, self.ar.delta
        row = (0, 0) if self.start in ("zero", "cold") else tuple(code * delta for code in P0)
        parity = DeltaRule(2, 2, order=self.order, initial_state=(row, (0, 0)))
        blocks = (
            Block(head("L1", parity, "l2"), name="L1"),
            Block(head("L2", Attention(2 * m, m, scale=self.scale), "rms"), name="L2"),
            Block(head("L3", Attention(2 * m, 1, scale=self.scale), "rms"), MLP(maps["L3.MLP in"], maps["L3.MLP out"]), "L3"),
        )
        return Model(self.stream, pcr.VOCABULARY, self.embedding, blocks, maps["logits"])

    # --------------------------------------------------------------------------------------------------- answers

    def logits(self, tokens, full: bool = False, ar=None):
        """Logits (num, |Sigma|) after prompts (num, N): from the last position alone, or from the full causal pass."""
        ar = self.ar if ar is None else ar
        return self.model.forward(ar, tokens)[..., -1, :] if full else self.model.last_only(ar, tokens)

    def answers(self, tokens, full: bool = False, ar=None) -> np.ndarray:
        """The next token (num,) after prompts (num, N), greedily; `ar` evaluates the same weights in another arithmetic."""
        ar = self.ar if ar is None else ar
        return np.argmax(ar.values(self.logits(tokens, full, ar)), axis=-1)

    def describe(self) -> str:
        """The parameters in words, for scopes and captions; what is as in the theorem goes without saying."""
        words = f"s = {self.s}, {self.scale} scores"
        words += "" if self.encoding == "doubled" else f", {self.encoding} encoding"
        words += "" if self.start == "P0" else f", start {self.start}"
        words += "" if self.order == "A" else f", order {self.order}"
        return self._with_changes(words)


def _logit(gate: Fraction) -> int:
    """sigma^{-1} of 1/4, 1/2, 3/4 in units of ln 3."""
    return {Fraction(1, 4): -1, Fraction(1, 2): 0, Fraction(3, 4): 1}[gate]


# checks ---------------------------------------------------------------------------------------------------------------


def _batches(decoder: HybridDecoder, num: int | None, seed: int) -> Iterator[pcr.Prompts]:
    """All prompts of the decoder's n, or `num` random ones, in blocks that keep memory small."""
    if num is None:
        yield from pcr.every(decoder.n, decoder.encoding)
        return
    generator, block = Generator(seed).at(decoder.n, decoder.s), 64
    for start in range(0, num, block):
        yield pcr.sample(decoder.n, min(block, num - start), generator.at(start), decoder.encoding)


def expected_logits(decoder: HybridDecoder, prompts: pcr.Prompts) -> np.ndarray:
    """Codes (num, |Sigma|) that the construction promises: YES = R_j, NO = 1 - R_j, -1 elsewhere."""
    right = (prompts.labels == pcr.YES).astype(np.int64)
    logits = np.full((len(prompts), len(pcr.VOCABULARY)), -decoder.ar.one, dtype=np.int64)
    logits[:, pcr.YES], logits[:, pcr.NO] = right * decoder.ar.one, (1 - right) * decoder.ar.one
    return logits


def first_failure(
    decoder: HybridDecoder, num: int | None = None, seed: int = 0, full: bool = False
) -> tuple[int, int, dict | None]:
    """(prompts, wrong, counter-example): prompts whose logits differ from the promised codes in any coordinate."""
    total, wrong, example = 0, 0, None
    for prompts in _batches(decoder, num, seed):
        got = decoder.logits(prompts.tokens, full)
        bad = np.flatnonzero((got != expected_logits(decoder, prompts)).any(axis=-1))
        total, wrong = total + len(prompts), wrong + len(bad)
        if len(bad) and example is None:
            names = pcr.VOCABULARY.tokens
            example = {
                "n": decoder.n,
                "prompt": prompts.text(bad[0]),
                "expected": names[prompts.labels[bad[0]]],
                "YES logit": str(decoder.ar.fraction(got[bad[0], pcr.YES])),
                "NO logit": str(decoder.ar.fraction(got[bad[0], pcr.NO])),
            }
    return total, wrong, example


def check_answers(decoders, num: int | None = None, seed: int = 0, full: bool = False) -> Check:
    """Every decoder gives every prompt of its n (or `num` random ones) exactly the promised logits.

    decoders: HybridDecoders that differ in n only. full: use the full causal pass instead of the last position alone.
    """
    decoders = tuple(decoders)
    results = [first_failure(decoder, num, seed, full) for decoder in decoders]
    total, wrong = (sum(result[i] for result in results) for i in (0, 1))
    sizes = sorted(decoder.n for decoder in decoders)
    together = len(sizes) > 1 and sizes == list(range(sizes[0], sizes[-1] + 1))
    which = f"n = {sizes[0]}..{sizes[-1]}" if together else f"n = {', '.join(map(str, sizes))}"
    number = "all prompts" if num is None else f"{num} random prompts{' each' if len(sizes) > 1 else ''}"
    return Check.true(
        f"one step answers every prompt ({decoders[0].describe()})",
        wrong == 0,
        f"{number}, {which}, {'full causal pass' if full else 'last position'}",
        cases=total,
        counterexample=next((result[2] for result in results if result[2]), None),
        value={"wrong": wrong},
    )


def check_every_prompt(max_n: int, s: int, scale: str = "sqrt", full: bool = False, **options) -> Check:
    """Theorem 5.3 on all prompts with n <= max_n (3,586 prompts for max_n = 8); options go to `HybridDecoder`."""
    return check_answers((HybridDecoder(n, s, scale, **options) for n in range(1, max_n + 1)), full=full)


def check_greedy(decoder: HybridDecoder) -> Check:
    """Greedy decoding with scratch budget 0 emits the right answer as its first token, on all prompts of the decoder's n."""
    answers, labels, shown = [], [], []
    for prompts in pcr.every(decoder.n, decoder.encoding):
        done = decoder.model.generate(decoder.ar, prompts.tokens, budget=0)
        answers += [-1 if answer is None else answer for answer in done.answer]
        labels += prompts.labels.tolist()
        shown += [prompts.text(row) for row in range(len(prompts))]
    scope = f"all prompts, n = {decoder.n}, {decoder.describe()}"
    return Check.equal("the first generated token is the answer, scratch budget 0", answers, labels, scope, inputs=shown)


def check_stages(decoder: HybridDecoder, num: int | None = None, seed: int = 0) -> Check:
    """The three claims inside the proof, at the last position: PAR = p(Y) after L1, R = E(j) after L2, BIT = Y_j after L3.

    Full causal pass; also ANS = R_j after the MLP.
    """
    got, expected, shown = [], [], []
    one, read = decoder.ar.one, decoder.stream.read
    for prompts in _batches(decoder, num, seed):
        steps = {name: x[:, -1] for name, x in decoder.model.trace(decoder.ar, prompts.tokens)}
        parity, chosen = prompts.table.sum(axis=1) % 2, np.take_along_axis(prompts.table, prompts.address[:, None] - 1, axis=1)
        pairs = [
            (read(steps["L1"], "PAR"), parity[:, None]),
            (read(steps["L2"], "R"), decoder.codebook.words[prompts.address - 1].astype(np.int64)),
            (read(steps["L3"], "BIT"), chosen),
            (read(steps["L3 MLP"], "ANS"), parity[:, None] ^ chosen),
        ]
        got.append(np.concatenate([pair[0] for pair in pairs], axis=1))
        expected.append(np.concatenate([pair[1] for pair in pairs], axis=1) * one)
        shown += [prompts.text(row) for row in range(len(prompts))]
    scope = f"{'all' if num is None else f'{num} random'} prompts, n = {decoder.n}, {decoder.describe()}"
    name = "PAR = p(Y), R = E(j), BIT = Y_j, ANS = R_j(Y) at the last position"
    return Check.equal(name, np.concatenate(got), np.concatenate(expected), scope, inputs=shown)


def check_last_only(decoder: HybridDecoder, num: int | None = None, seed: int = 0) -> Check:
    """Evaluating L2 and L3 at the last position alone gives the residual stream of the full causal pass, on every coordinate."""
    last, full = [], []
    for prompts in _batches(decoder, num, seed):
        last.append(decoder.model.last_state(decoder.ar, prompts.tokens))
        full.append(decoder.model.trace(decoder.ar, prompts.tokens)[-1][1][:, -1])
    scope = f"{'all' if num is None else f'{num} random'} prompts, n = {decoder.n}, {decoder.describe()}"
    return Check.equal("last position alone = full causal pass", np.concatenate(last), np.concatenate(full), scope)


def check_dimension(expected: Mapping[tuple[int, int, str], int]) -> Check:
    """The formula and the built stream both have the expected width; keys are (n, s, scale)."""
    settings = list(expected)
    got = [[dimension(*key), HybridDecoder(*key).stream.dim] for key in settings]
    wanted = [[expected[key]] * 2 for key in settings]
    return Check.equal("d_M = 4 m + 6, by formula and as built", got, wanted, f"(n, s, scale) in {settings}", inputs=settings)


def check_growth(max_n: int, s_values, scales=SCALES) -> Check:
    """d_M <= 4 (m_0(s) + 16/3 log2(n + 3)) + 6 for every n up to max_n (at most 65,533): logarithmic growth at fixed s.

    d_M is constant where one code serves and the bound grows with n, so the smallest n of each code decides for the others;
    cases counts the comparisons that are made.
    """
    if not 1 <= max_n <= FAMILIES[-1][0] - 3:
        raise ValueError(f"max_n={max_n}: the bound covers 1..{FAMILIES[-1][0] - 3}, where the named codes have enough words")
    worst, starts = {}, _smallest_of_each_code(max_n)
    for scale in scales:
        for s in s_values:
            ratios = [dimension(n, s, scale) / dimension_bound(n, s, scale) for n in starts]
            worst[f"s = {s}, {scale}"] = max(ratios)
    return Check.true(
        "d_M stays below 4 (m_0(s) + 16/3 log2(n + 3)) + 6",
        max(worst.values()) <= 1,
        f"every n = 1..{max_n:,}, by the smallest n of each code; s in {tuple(s_values)}, {' and '.join(scales)} scores",
        cases=len(starts) * len(worst),
        counterexample=worst,
        value={"largest ratio": max(worst.values())},
    )


def _smallest_of_each_code(max_n: int) -> list[int]:
    """The first n that each named code serves."""
    starts = [1] + [size - 2 for size, _ in FAMILIES[:-1]]
    return [n for n in starts if n <= max_n]


def removals(decoder: HybridDecoder) -> list[Removal]:
    """Set every non-zero weight and bias to zero in turn, and run all prompts of the decoder's n each time.

    Cost: one exhaustive run for each number; meant for small n.
    """
    return remove_each(decoder, lambda changed: first_failure(changed)[1] > 0)


def accuracy(decoder: HybridDecoder, ar=None) -> Fraction:
    """The share of all n 2^n prompts that are answered correctly, in the decoder's arithmetic or in another one."""
    right = total = 0
    for prompts in pcr.every(decoder.n, decoder.encoding):
        right += int((decoder.answers(prompts.tokens, ar=ar) == prompts.labels).sum())
        total += len(prompts)
    return Fraction(right, total)


def check_zero_start(n_values, s: int, scale: str = "sqrt") -> Check:
    """Started at zero the decoder answers Y_j whatever the parity, so exactly half of its answers are right."""
    got, shares = [], {}
    for n in n_values:
        decoder = HybridDecoder(n, s, scale, start="zero")
        for prompts in pcr.every(n):
            chosen = np.take_along_axis(prompts.table, prompts.address[:, None] - 1, axis=1)[:, 0]
            got.append(decoder.answers(prompts.tokens) == np.where(chosen == 1, pcr.YES, pcr.NO))
        shares[f"accuracy at n = {n}"] = accuracy(decoder)
    ignores = np.concatenate(got)
    return Check.true(
        "from the zero state the answer is Y_j, right for exactly half of the prompts",
        ignores.all() and set(shares.values()) == {Fraction(1, 2)},
        f"all prompts, n in {tuple(n_values)}, s = {s}, {scale} scores",
        cases=len(ignores),
        counterexample=shares,
        value=shares,
    )


def check_needs_rounding(n_values, s: int, ar, scale: str = "sqrt") -> Check:
    """The same weights in floating point: p(Y) fades away, and the decoder errs on some prompt of every n."""
    shares = {f"accuracy in {ar.name} at n = {n}": accuracy(HybridDecoder(n, s, scale), ar) for n in n_values}
    return Check.true(
        "without rounding the same weights err",
        all(share < 1 for share in shares.values()),
        f"all prompts, n in {tuple(n_values)}, weights of s = {s}, {scale} scores, evaluated in {ar.name}",
        cases=sum(pcr.count(n) for n in n_values),
        counterexample=shares,
        value={name: float(share) for name, share in shares.items()},
    )
