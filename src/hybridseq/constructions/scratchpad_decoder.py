"""Attention alone, with a scratchpad: parity-conditioned retrieval in ceil(n / b) - 1 scratch tokens (beside paper A, Section 6).

The scratch alphabet is {0, 1}. Step t = 0, 1, ... reads the prompt and the t scratch tokens written so far; its own last token
holds the parity of the first t b table bits. Two layers of attention and nothing else, on named subspaces:

    L1  b heads ask for the next b bits by their addresses                      X = (Y_{tb+1}, ..., Y_{tb+b})
        one head asks for MARK, at the last step only, and fetches its offset   R = E(j), before the last step 0
        and the MLP folds the bits in                                           PAR = RUN xor X_1 xor ... xor X_b
    L2  one head asks for R                                                     BIT = Y_j, before the last step 0
        and the MLP                                                             ANS = PAR xor BIT

Before the last step the token ANS is written; the last step answers YES if ANS = 1 and NO otherwise. Which address a step asks
for is a matter of its position, so it stands in the embedding. A query that asks for nothing is 0: it meets no key, every
exponential rounds to 0, and the head returns 0.

Source: an addition to paper A, which has the lower bound (Theorem 6.2) and no decoder. Hard selection is Lemma 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.constructions.address_words import SCALES as SCALES
from hybridseq.constructions.address_words import AddressWords
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary, pcr

VOCABULARY = Vocabulary(pcr.VOCABULARY.tokens, answers=("YES", "NO"), scratch=("0", "1"))
"""The tokens of the task in their order, with Gamma = {0, 1}."""


def scratch_tokens(n: int, bits: int = 1) -> int:
    """ceil(n / b) - 1, the scratch tokens of a decoder that folds b bits a step.

    >>> [scratch_tokens(8, b) for b in (1, 2, 3)], scratch_tokens(24, 4)
    ([7, 3, 2], 5)
    """
    pcr.prompt_length(n)
    _check_bits(bits)
    return -(-n // bits) - 1


def most_bits(s: int) -> int:
    """The largest b for which the MLP of one step fits into F_s: its largest product is 2 b <= B_s, so b < 2^(s-1).

    >>> [most_bits(s) for s in (2, 3, 4, 8)]
    [1, 3, 7, 127]
    """
    return int(FixedPoint(s).max_value) // 2


@dataclass(frozen=True)
class ScratchpadDecoder(NamedWeights, AddressWords):
    """Two attention layers for tables of n bits that fold `bits` bits a step.

    Args:
        n: bits in the table; the prompt has N = 3 n tokens.
        s: bits behind the point, at least 2.
        bits: b, table bits that one step folds into the running parity, 1 .. 2^(s-1) - 1.
        scale: "sqrt" divides scores by sqrt(2 m), "raw" does not; each has its own m_0(s).
        gated: True for Gated Attention with gates held open, False for standard attention without gates.
        changes: weights that differ from the construction, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: n < 1, s < 2, an unknown scale, or bits outside the range.

    Example:
        >>> decoder = ScratchpadDecoder(n=3, s=2, scale="raw")
        >>> done = decoder.run(pcr.encode([1, 0, 1], 3).tokens)
        >>> VOCABULARY.names(done.scratch[0]), VOCABULARY.names(done.answer)
        (['1', '1'], ['YES'])
    """

    n: int
    s: int
    bits: int = 1
    scale: str = "sqrt"
    gated: bool = True
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        pcr.prompt_length(self.n)
        _check_bits(self.bits)
        self.ar.require(2, "the scratchpad decoder, whose MLP has a weight 2,")
        if self.bits > most_bits(self.s):
            raise ValueError(
                f"bits={self.bits}: the MLP of a step needs 2 * bits <= B_s = {float(self.ar.max_value)} at s = {self.s}; "
                f"use at most {most_bits(self.s)}, or a larger s"
            )
        self._check_scale()

    @property
    def budget(self) -> int:
        """S = ceil(n / b) - 1, the scratch tokens that the decoder writes on every prompt."""
        return scratch_tokens(self.n, self.bits)

    @property
    def prompt_len(self) -> int:
        """N = 3 n."""
        return pcr.prompt_length(self.n)

    @cached_property
    def stream(self) -> Stream:
        """The residual stream: (b + 4) m + b + 6 coordinates."""
        m, b = self.codebook.m, self.bits
        asks = {f"ASK{i}": m for i in range(1, b + 1)}
        return Stream(
            {"KEY": m, "A": m, "V": 1, "RUN": 1, "FINAL": 1, "ASKMARK": m}
            | asks
            | {"X": b, "PAR": 1, "R": m, "BIT": 1, "ANS": 1}
        )

    # ------------------------------------------------------------------------------------------------- the weights

    def _maps(self) -> dict[str, Affine]:
        return self._first_layer() | self._second_layer() | {"logits": self._logits()}

    def _select(self, name: str, query: str, value: str, value_dim: int) -> dict[str, Affine]:
        """Hard selection: q = Q(query), k = K(KEY), v = value; the padding of q by ones keeps its norm from zero."""
        m = self.codebook.m

        def read(target, dim, rows):
            return Affine.from_rows(self.stream, Stream({target: dim}), rows)

        maps = {
            f"{name}.q": read("q", 2 * m, {"q[::2]": {query: 1}, "q[1::2]": {"1": 1}}),
            f"{name}.k": read("k", 2 * m, {"k[::2]": {"KEY": 1}, "k[1::2]": {"1": -1}}),
            f"{name}.v": read("v", value_dim, {"v": {value: 1}}),
        }
        gate = {f"{name}.gate": read("gate", value_dim, {"gate": {"1": self.ar.max_value}})}
        return maps | gate if self.gated else maps

    def _first_layer(self) -> dict[str, Affine]:
        """The next b bits, the offset of MARK, and PAR = RUN xor X_1 xor ... xor X_b."""
        heads = self._select("mark", "ASKMARK", "A", self.codebook.m)
        for i in range(1, self.bits + 1):
            heads |= self._select(f"bit{i}", f"ASK{i}", "V", 1)
        fetched = Stream({"offset": self.codebook.m, "bits": self.bits})
        out = Affine.from_rows(fetched, self.stream, {"R": {"offset": 1}, "X": {"bits": 1}})
        terms = {"RUN": 1} | {f"X[{i}]": 1 for i in range(self.bits)}
        return heads | {"L1.out": out} | self._xor("L1", terms, "PAR")

    def _second_layer(self) -> dict[str, Affine]:
        """The marked bit, and ANS = PAR xor BIT."""
        out = Affine.from_rows(Stream({"u": 1}), self.stream, {"BIT": {"u": 1}})
        return self._select("row", "R", "V", 1) | {"L2.out": out} | self._xor("L2", {"PAR": 1, "BIT": 1}, "ANS")

    def _xor(self, layer: str, terms: Mapping[str, int], target: str) -> dict[str, Affine]:
        """The parity of k bits with sum a as relu(a) - 2 relu(a - 1) + 2 relu(a - 2) - ..., down to relu(a - k + 1)."""
        units = Stream({f"above{i}": 1 for i in range(len(terms))})
        signs = {name: 1 if i == 0 else 2 * (-1) ** i for i, name in enumerate(units.names)}
        hidden = {name: dict(terms) | ({"1": -i} if i else {}) for i, name in enumerate(units.names)}
        return {
            f"{layer}.MLP in": Affine.from_rows(self.stream, units, hidden),
            f"{layer}.MLP out": Affine.from_rows(units, self.stream, {target: signs}),
        }

    def _logits(self) -> Affine:
        """"1" = ANS and "0" = 1 - ANS, minus 2 at the last step; YES = ANS and NO = 1 - ANS, minus 2 before it; else -2."""
        names = {token: token if token.isidentifier() else f"token_{token}" for token in VOCABULARY.tokens}
        yes, no = {"ANS": 1}, {"1": 1, "ANS": -1}
        rows = {name: {"1": -2} for name in names.values()}
        rows |= {names["1"]: yes | {"FINAL": -2}, names["0"]: no | {"FINAL": -2}}
        rows |= {names["YES"]: {"1": -2, "ANS": 1, "FINAL": 2}, names["NO"]: {"1": -1, "ANS": -1, "FINAL": 2}}
        return Affine.from_rows(self.stream, Stream(dict.fromkeys(names.values(), 1)), rows)

    @cached_property
    def embedding(self) -> Embedding:
        """Keys and values of the prompt; from position N on, what each step asks for and the running parity."""
        n, first = self.n, self.prompt_len - 1
        table = np.zeros((len(VOCABULARY), self.prompt_len + self.budget, self.stream.dim), dtype=np.int8)

        def part(name):
            return table[..., self.stream.slice(name)]

        part("KEY")[:] = self.word("DUMMY")
        part("KEY")[:, : 2 * n : 2] = part("A")[:, 2 * n : 3 * n] = self.codebook.words[:n]
        part("V")[pcr.ONE, : 2 * n : 2] = 1
        part("KEY")[:, 2 * n : 3 * n] = self.word("BLANK")
        part("KEY")[pcr.MARK, 2 * n : 3 * n] = self.word("MARK")
        for step in range(self.budget + 1):
            for i, address in enumerate(self.addresses(step), start=1):
                part(f"ASK{i}")[:, first + step] = self.word(address)
        part("RUN")[pcr.ONE, first + 1 :] = 1
        part("FINAL")[:, -1] = 1
        part("ASKMARK")[:, -1] = self.word("MARK")
        return Embedding.from_table(self.stream, table)

    def addresses(self, step: int) -> range:
        """The table bits that step 0 .. S folds in: t b + 1, ..., at most b of them and none beyond n."""
        if not 0 <= step <= self.budget:
            raise ValueError(f"step={step!r}: must lie in 0..{self.budget}")
        start = step * self.bits + 1
        return range(start, min(start + self.bits, self.n + 1))

    @cached_property
    def model(self) -> Model:
        """The decoder as a model: nothing but attention."""
        maps, m = self.maps, self.codebook.m

        def head(name, value_dim):
            inputs = {key: maps[f"{name}.{key}"] for key in "qkv"}
            return Head(Attention(2 * m, value_dim, scale=self.scale), inputs, gate=maps.get(f"{name}.gate"), qk_norm="rms")

        first = (head("mark", m), *(head(f"bit{i}", 1) for i in range(1, self.bits + 1)))
        blocks = (
            Block(Layer(first, maps["L1.out"]), MLP(maps["L1.MLP in"], maps["L1.MLP out"]), "L1"),
            Block(Layer((head("row", 1),), maps["L2.out"]), MLP(maps["L2.MLP in"], maps["L2.MLP out"]), "L2"),
        )
        return Model(self.stream, VOCABULARY, self.embedding, blocks, maps["logits"])

    # --------------------------------------------------------------------------------------------------- decoding

    def run(self, tokens, budget: int | None = None):
        """Greedy decoding of prompts (num, N) within a budget of scratch tokens (default: the S of the construction)."""
        return self.model.generate(self.ar, tokens, self.budget if budget is None else budget)

    def running_parities(self, table) -> np.ndarray:
        """The scratch tokens promised for tables (num, n): parities of the first b, 2 b, ..., S b bits, (num, S)."""
        sums = np.cumsum(np.asarray(table), axis=-1) % 2
        return np.where(sums[..., self.bits - 1 :: self.bits][..., : self.budget] == 1, pcr.ONE, pcr.ZERO)

    def describe(self) -> str:
        """The parameters in words."""
        words = f"n = {self.n}, b = {self.bits}, s = {self.s}, {self.scale} scores, {'gated' if self.gated else 'no gates'}"
        return self._with_changes(words)


def _check_bits(bits) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or bits < 1:
        raise ValueError(f"bits must be an integer >= 1 (table bits folded a step), got {bits!r}")


# looking inside -------------------------------------------------------------------------------------------------------


def looks(decoder: ScratchpadDecoder, tokens) -> tuple[np.ndarray, list[str]]:
    """Where the heads look while one prompt (N,) is decoded: weights (S + 1, num_heads, N + S) and the tokens at the end.

    Row t is step t, evaluated by the full causal pass over the prompt and t scratch tokens; heads in the order MARK, bit 1 .. b,
    row. Raises ValueError if the decoder does not write its S scratch tokens.
    """
    done = decoder.run(np.asarray(tokens)[None])
    context = np.concatenate([tokens, done.scratch[0]]).astype(np.int64)
    if len(context) != decoder.prompt_len + decoder.budget:
        raise ValueError(f"tokens: the decoder wrote {len(done.scratch[0])} scratch tokens instead of {decoder.budget}")
    ar, heads = decoder.ar, [(block.layer, head) for block in decoder.model.blocks for head in block.layer.heads]
    steps = dict(decoder.model.trace(ar, context))
    entering = {id(decoder.model.blocks[0].layer): steps["embedding"], id(decoder.model.blocks[1].layer): steps["L1 MLP"]}
    queries = (decoder.prompt_len - 1, len(context))
    weights = []
    for layer, head in heads:
        inputs = head.inputs(ar, entering[id(layer)])
        weights.append(ar.values(head.core.weights(ar, inputs, queries)))
    return np.stack(weights, axis=1), VOCABULARY.names(context)


# checks ---------------------------------------------------------------------------------------------------------------


def _prompts(decoder: ScratchpadDecoder, which: str, num: int, seed: int) -> list[pcr.Prompts]:
    """"every": all n 2^n prompts; "tables": all tables, one random offset each; "random": `num` random prompts."""
    generator = Generator(seed).at(decoder.n, decoder.bits, decoder.s)
    if which == "every":
        return list(pcr.every(decoder.n))
    if which == "tables":
        tables = np.arange(2**decoder.n)[:, None] >> np.arange(decoder.n - 1, -1, -1) & 1
        return [pcr.encode(tables, generator.integers(decoder.n, (len(tables),)) + 1)]
    if which == "random":
        return [pcr.sample(decoder.n, num, generator)]
    raise ValueError(f"which={which!r}: must be 'every', 'tables' or 'random'")


def check_answers(decoders: Iterable[ScratchpadDecoder], which: str = "random", num: int = 20, seed: int = 0) -> Check:
    """Each decoder writes exactly the running parities promised, ceil(n / b) - 1 of them, and then the right answer.

    which: "every" prompt, all "tables" with one random offset each, or `num` "random" prompts.
    """
    decoders = tuple(decoders)
    total, wrong, example = 0, 0, None
    for decoder in decoders:
        for prompts in _prompts(decoder, which, num, seed):
            done, promised = decoder.run(prompts.tokens), decoder.running_parities(prompts.table).tolist()
            got = list(zip(done.scratch, done.answer, strict=True))
            wanted = [(tuple(scratch), int(label)) for scratch, label in zip(promised, prompts.labels, strict=True)]
            bad = [row for row in range(len(prompts)) if got[row] != wanted[row]]
            total, wrong = total + len(prompts), wrong + len(bad)
            if bad and example is None:
                example = {"decoder": decoder.describe(), "prompt": prompts.text(bad[0])}
                example |= {"written": _written(*got[bad[0]]), "promised": _written(*wanted[bad[0]])}
    prompts_of = {"every": "all prompts", "tables": "all tables, one random offset each", "random": f"{num} random prompts each"}
    sizes = ", ".join(f"({d.n}, {d.bits}, {d.budget})" for d in decoders)
    kinds = " and ".join(sorted({f"s = {d.s}, {d.scale} scores{'' if d.gated else ', no gates'}" for d in decoders}))
    return Check.true(
        "attention alone writes the running parity and answers", wrong == 0,
        f"{prompts_of[which]}, (n, b, scratch tokens) = {sizes}, {kinds}",
        cases=total, counterexample=example, value={"wrong": wrong},
    )  # fmt: skip


def _written(scratch, answer) -> str:
    return " ".join([*VOCABULARY.names(scratch), "no answer" if answer is None else VOCABULARY.tokens[answer]])


def check_budget(decoder: ScratchpadDecoder) -> Check:
    """With any budget below its S the decoder gives no answer, on every prompt of its n: it is still counting."""
    got = {}
    for budget in range(decoder.budget):
        done = [answer for prompts in pcr.every(decoder.n) for answer in decoder.run(prompts.tokens, budget).answer]
        got[f"answers with budget {budget}"] = sum(answer is not None for answer in done)
    if not got:
        raise ValueError(f"decoder: {decoder.describe()} needs no scratch token, so there is no smaller budget")
    return Check.true(
        "a smaller budget ends without an answer", not any(got.values()),
        f"all prompts, {decoder.describe()}, budgets 0..{decoder.budget - 1}",
        cases=pcr.count(decoder.n) * len(got), counterexample=got, value=got,
    )  # fmt: skip


def check_margin(decoder: ScratchpadDecoder) -> Check:
    """At every step of every prompt the largest logit is 1 and the next one 0, so ties are never broken."""
    ar, seen, cases = decoder.ar, set(), 0
    for prompts in pcr.every(decoder.n):
        context = np.concatenate([prompts.tokens, decoder.running_parities(prompts.table)], axis=1)
        logits = decoder.model.forward(ar, context)[:, decoder.prompt_len - 1 :]
        top = np.sort(ar.values(logits), axis=-1)[..., -2:]
        seen |= {tuple(pair) for pair in top.reshape(-1, 2)}
        cases += top.shape[0] * top.shape[1]
    scope = f"every step of all prompts, {decoder.describe()}, full causal pass"
    return Check.equal("largest logit 1, next 0", sorted(seen), [(0.0, 1.0)], scope, value={"steps": cases})


def check_sizes(decoders: Iterable[ScratchpadDecoder]) -> Check:
    """Width (b + 4) m + b + 6 as built, and no layer that is not attention."""
    decoders = tuple(decoders)
    got = [[d.stream.dim, {type(head.core) for block in d.model.blocks for head in block.layer.heads}] for d in decoders]
    wanted = [[(d.bits + 4) * d.codebook.m + d.bits + 6, {Attention}] for d in decoders]
    bad = [d.describe() for d, one, other in zip(decoders, got, wanted, strict=True) if one != other]
    return Check.true(
        "width (b + 4) m + b + 6, attention heads only", not bad, f"{len(decoders)} decoders as built", len(decoders), bad[:1]
    )
