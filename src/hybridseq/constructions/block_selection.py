"""Two-sum through a layer that reads k blocks of B tokens: four ways to summarise a block (paper C, Theorem 1.2, sparse side).

Content is T blocks of B residues, then one query. A head ranks the blocks by <selector(x_q), phi(block)>, reads the first k
tokens by token with the three-dimensional head of the full layer, and the query is its own sink:

    q = c (cos, sin, 1) of x_q,    k = (cos, -sin, -1) of content, (0, 0, tau - 1) of the query,    c = ln(4 n H) / g

Scores are those of the full layer less c, so none is positive and no softmax needs to subtract a maximum. H heads add up what
they see: with a partner read somewhere at least 4/5, without less than 1/4.

What differs is phi and the selector, two tables over residues and a summary:

    RandomMean   pseudo-random integers of p bits, mean rounded down             any phi will do for the lower bound
    TrigMean     (cos, sin), mean                                                what mean pooling makes of this very head
    RandomMLP    pseudo-random MLP over the tokens side by side                  positions inside the block count
    Cancelling   2B + 1 coefficients of -prod (1 - cos(t - theta_s))             top-1 is right on every prompt
    BloomKey     d bits, each residue sets r of them                             top-2 is right on most

Reconstructed: the layer, and all of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import combinations
from math import ceil, log

import numpy as np

from hybridseq import rng
from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.constructions.two_sum import circle, gap
from hybridseq.evidence import Check
from hybridseq.mixers import (
    Attention,
    BlockSparseAttention,
    Head,
    Layer,
    MaxSummary,
    MeanSummary,
    MLPSummary,
    PositionedSummary,
    Summary,
    SummaryFormat,
)
from hybridseq.models import Block, Model, TypedEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.two_sum import LastTokenTwoSum

_SELECTOR, _HIDDEN, _BIAS, _OUT, _TOKEN, _HASH = 1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20, 6 << 20  # counters
_PRECISION = 4096  # bits of the balls that polynomials are computed with


# ways to summarise a block -------------------------------------------------------------------------------------------------


class BlockKeys(ABC):
    """Tables over residues, content (M, features) and selector (M, width), and the summary that turns content into a key."""

    @abstractmethod
    def content(self, modulus: int) -> np.ndarray: ...

    @abstractmethod
    def selector(self, modulus: int) -> np.ndarray: ...

    @abstractmethod
    def summary(self, task: LastTokenTwoSum) -> Summary: ...


@dataclass(frozen=True)
class RandomMean(BlockKeys):
    """phi_c = floor(mean of E_c(x)), E_c(x) = rnd(seed, c, x, 2^bits) for c = 0..dims - 1; the selector is random too.

    >>> RandomMean(1, 4, 7).content(4).ravel().tolist()
    [8.0, 0.0, 4.0, 0.0]
    """

    dims: int
    bits: int
    seed: int = 0

    def content(self, modulus: int) -> np.ndarray:
        return rng.integers(1 << self.bits, self.seed, np.arange(self.dims), np.arange(modulus)[:, None]).astype(float)

    def selector(self, modulus: int) -> np.ndarray:
        words = rng.integers(1 << self.bits, self.seed, _SELECTOR + np.arange(self.dims), np.arange(modulus)[:, None])
        return words - 0.5 * (1 << self.bits)

    def summary(self, task: LastTokenTwoSum) -> Summary:
        return MeanSummary(SummaryFormat(self.bits))


@dataclass(frozen=True)
class TrigMean(BlockKeys):
    """phi = mean of (cos, sin); the selector (cos, -sin) ranks a block by its mean score. bits: of each number, None for all."""

    bits: int | None = None

    def content(self, modulus: int) -> np.ndarray:
        return np.stack(circle(modulus)[:2], axis=-1)

    def selector(self, modulus: int) -> np.ndarray:
        return self.content(modulus) * [1, -1]

    def summary(self, task: LastTokenTwoSum) -> Summary:
        return MeanSummary(None if self.bits is None else SummaryFormat(self.bits, 2.0 ** (1 - self.bits), -1.0))


@dataclass(frozen=True)
class RandomMLP(BlockKeys):
    """A pseudo-random MLP of `units` hidden units over the block's tokens side by side, `features` numbers each.

    positioned: another MLP for each block, phi_t.
    """

    dims: int
    bits: int
    seed: int = 0
    positioned: bool = False
    features: int = 6
    units: int = 24

    def content(self, modulus: int) -> np.ndarray:
        return self._normal(_TOKEN, (modulus, self.features))

    def selector(self, modulus: int) -> np.ndarray:
        return self._normal(_SELECTOR, (modulus, self.dims))

    def _normal(self, counter: int, shape: tuple[int, ...], block: int = 0) -> np.ndarray:
        place = np.arange(int(np.prod(shape))).reshape(shape)
        u, v = (rng.uniform(self.seed, counter + part, block, place) for part in (0, 1))
        return np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)

    def summary(self, task: LastTokenTwoSum) -> Summary:
        functions = tuple(self._mlp(task.block_size, t) for t in range(task.blocks if self.positioned else 1))
        return PositionedSummary(functions) if self.positioned else functions[0]

    def _mlp(self, block_size: int, block: int) -> MLPSummary:
        """Weights scaled so that a pre-activation of the sigmoid spreads over its whole range."""
        hidden = self._normal(_HIDDEN, (self.units, block_size * self.features), block) / np.sqrt(block_size * self.features)
        bias = self._normal(_BIAS, (self.units,), block)
        out = self._normal(_OUT, (self.dims, self.units), block) * np.sqrt(6.0 / self.units)
        out = out - out.mean(axis=1, keepdims=True)  # hidden units are positive: no common offset
        return MLPSummary(hidden, bias, out, SummaryFormat(self.bits, 2.0**-self.bits))


@dataclass(frozen=True)
class Cancelling(BlockKeys):
    """The coefficients of P(t) = -prod (1 - cos(t - theta_s)) over the block's distinct residues s, 2B + 1 numbers.

    The selector evaluates P at t = -theta_q: P = 0 exactly if some s + x_q = 0, and P < 0 otherwise. Numbers are rounded by the
    arithmetic alone. block_size: B.
    """

    block_size: int

    def content(self, modulus: int) -> np.ndarray:
        return np.arange(modulus, dtype=object)[:, None]

    def selector(self, modulus: int) -> np.ndarray:
        return np.array([_harmonics(x, modulus, self.block_size) for x in range(modulus)], dtype=object)

    def summary(self, task: LastTokenTwoSum) -> Summary:
        return CancellingSummary(task.modulus)


@dataclass(frozen=True)
class CancellingSummary(Summary):
    """Residues (..., B, 1) to the 2B + 1 coefficients a_0, a_1, b_1, ..., of P(t) = a_0 + sum_k a_k cos kt + b_k sin kt."""

    modulus: int
    format: SummaryFormat | None = None

    def width(self, features: int, block_size: int) -> int:
        if features != 1:
            raise ValueError(f"content: must be the residue itself, one number, got {features}")
        return 2 * block_size + 1

    def _raw(self, ar, blocks):
        size = blocks.shape[-2]
        codes = np.asarray(ar.values(blocks[..., 0])).reshape(-1, size)
        rows = [_coefficients(tuple(sorted({round(x) for x in row})), self.modulus, size) for row in codes]
        return ar.array(rows).reshape((*blocks.shape[:-2], 2 * size + 1))


@dataclass(frozen=True)
class BloomKey(BlockKeys):
    """A Bloom filter of dims bits: a residue sets `hashes` of them, a query counts those of -x_q that are set.

    hashes: r; None takes max(1, round(0.69 dims / B)).
    """

    dims: int
    block_size: int
    seed: int = 0
    hashes: int | None = None

    @property
    def rounds(self) -> int:
        """r."""
        return max(1, round(0.69 * self.dims / self.block_size)) if self.hashes is None else self.hashes

    def content(self, modulus: int) -> np.ndarray:
        places = rng.integers(self.dims, self.seed, _HASH + np.arange(self.rounds), np.arange(modulus)[:, None])
        table = np.zeros((modulus, self.dims))
        np.put_along_axis(table, places, 1.0, axis=1)
        return table

    def selector(self, modulus: int) -> np.ndarray:
        return self.content(modulus)[-np.arange(modulus) % modulus]

    def summary(self, task: LastTokenTwoSum) -> Summary:
        return MaxSummary(SummaryFormat(1))


# the polynomial --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def _coefficients(residues: tuple[int, ...], modulus: int, size: int) -> tuple[Fraction, ...]:
    """-prod (1 - cos(t - theta_s)) by powers of z = e^{it}: 1 - (z e^{-i theta} + z^{-1} e^{i theta}) / 2 for each factor."""
    from flint import acb, acb_poly, arb, ctx, fmpq

    before = ctx.prec
    try:
        ctx.prec = _precision(size)
        product = acb_poly([-1])
        for s in residues:
            angle = arb(fmpq(2 * s, modulus))
            turn = acb(angle.cos_pi(), angle.sin_pi())
            product *= acb_poly([-turn / 2, 1, -turn.conjugate() / 2])
        centre, found = len(residues), []
        for k in range(size + 1):
            c = product[centre + k] if k <= centre else acb(0)
            found += [c.real] if k == 0 else [2 * c.real, -2 * c.imag]
        return tuple(map(_fraction, found))
    finally:
        ctx.prec = before


@cache
def _harmonics(residue: int, modulus: int, size: int) -> tuple[Fraction, ...]:
    """1, cos kt, sin kt for k = 1..size at t = -2 pi residue / M."""
    from flint import arb, ctx, fmpq

    before = ctx.prec
    try:
        ctx.prec = _precision(size)
        angles = [arb(fmpq(-2 * residue * k, modulus)) for k in range(1, size + 1)]
        return (Fraction(1), *(_fraction(value) for a in angles for value in (a.cos_pi(), a.sin_pi())))
    finally:
        ctx.prec = before


def _precision(size: int) -> int:
    return min(_PRECISION, 256 + 64 * size)


def _fraction(ball) -> Fraction:
    """The ball's centre, which is rational; the ball's radius lies far below every rounding that follows."""
    mantissa, exponent = ball.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def least_distance(modulus: int, block_size: int):
    """The least |P| over blocks of B residues, repeated or not, that do not cancel the query. A ball (arb).

    1 - cos is increasing on the way round to the opposite side, so the product is least at the offsets 1, -1, 2, -2, ..., up to a
    quarter turn: a block may repeat residues and so leave out factors above 1.
    Raises ValueError unless 1 <= block_size < modulus.

    >>> import math
    >>> round(float(least_distance(32, 8).log()) / math.log(2), 2)
    -27.52
    """
    from flint import arb, fmpq

    if not 1 <= block_size < modulus:
        raise ValueError(f"block_size={block_size!r}: must be an integer from 1 to modulus - 1 = {modulus - 1}")
    product = arb(1)
    for offset in (place // 2 + 1 for place in range(block_size)):
        if 4 * offset < modulus:
            product *= 1 - arb(fmpq(2 * offset, modulus)).cos_pi()
    return product


def log2_least_distance(modulus: int, block_size: int) -> float:
    """log2 of `least_distance`."""
    from flint import arb

    return float((least_distance(modulus, block_size).log() / arb(2).log()).mid())


def enough_bits(modulus: int, block_size: int) -> int:
    """p: fraction bits with which top-1 by the polynomial is right on every prompt.

    Coefficients and harmonics are rounded by 2^-p / 2 each. Absolute coefficients add up to at most sqrt(2) 2^B, harmonics are
    at most 1, so a score moves by at most 2^-p / 2 (sqrt(2) 2^B + 2B + 2), and by 2^-p / 2 more when it is rounded itself. Twice
    that must stay below the least distance: 2^p > (sqrt(2) 2^B + 2B + 3) / least.

    >>> [enough_bits(256, b) for b in (1, 2, 4, 8)]
    [15, 28, 48, 84]
    """
    from flint import arb

    ratio = (arb(2).sqrt() * 2**block_size + 2 * block_size + 3) / least_distance(modulus, block_size)
    return int((ratio.log() / arb(2).log()).floor().unique_fmpz()) + 1


def polynomial_budget(modulus: int, block_size: int) -> int:
    """H d p of the polynomial key: 2B + 1 numbers of p fraction bits, B + 1 bits before the point and a sign."""
    return (2 * block_size + 1) * (enough_bits(modulus, block_size) + block_size + 2)


# the model -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparseTwoSum(NamedWeights):
    """One block-sparse layer for the last-token version of two-sum.

    Args:
        task: M, T and B. keys: one way to summarise for each head, or one for a single head.
        top_k: blocks that each head reads, 0..T. window: tokens seen in any case, the query included, or None.
        values: a table over residues, summarised like a key, for the branch of value summaries; its output is written to the
            stream and not used for the answer. None leaves the branch out.
        changes: weights that differ, as (map, target, source, weight).

    Raises:
        ValueError: top_k beyond the number of blocks, no keys, or keys made for another block size.

    Example:
        >>> task = LastTokenTwoSum(16, blocks=3, block_size=2)
        >>> model = SparseTwoSum(task, Cancelling(2), top_k=1)
        >>> tokens = task.prompt([[3, 7], [5, 2], [6, 6]], 11)
        >>> bool(model.answers(tokens)), model.selected(tokens)[0].astype(int).tolist()
        (True, [0, 1, 0])
    """

    task: LastTokenTwoSum
    keys: BlockKeys | tuple[BlockKeys, ...]
    top_k: int = 1
    window: int | None = None
    values: RandomMean | None = None
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        keys = (self.keys,) if isinstance(self.keys, BlockKeys) else tuple(self.keys)
        if not keys:
            raise ValueError("keys: give one way to summarise a block for each head")
        object.__setattr__(self, "keys", keys)
        whole = isinstance(self.top_k, int | np.integer) and not isinstance(self.top_k, bool)
        if not whole or not 0 <= self.top_k <= self.task.blocks:
            raise ValueError(f"top_k={self.top_k!r}: must be an integer from 0 to the number of blocks, {self.task.blocks}")
        for key in keys:
            if getattr(key, "block_size", self.task.block_size) != self.task.block_size:
                raise ValueError(f"keys: {key} is for blocks of {key.block_size}, the task has blocks of {self.task.block_size}")

    @property
    def scale(self) -> float:
        """c = ln(4 n H) / g with n = T B."""
        return log(4 * self.task.length * len(self.keys)) / gap(self.task.modulus)

    @cached_property
    def _tables(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(key.content(self.task.modulus), key.selector(self.task.modulus)) for key in self.keys]

    @cached_property
    def stream(self) -> Stream:
        parts = {"cos": 1, "sin": 1, "qcos": 1, "qsin": 1, "query": 1, "token": 1}
        for h, (content, selector) in enumerate(self._tables):
            parts |= {f"content{h}": content.shape[1], f"selector{h}": selector.shape[1]}
        if self.values is not None:
            parts |= {"value": self.values.dims, "branch": len(self.keys) * (self.values.dims + 1)}
        return Stream(parts | {"seen": 1})

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Residues and the two answers."""
        return Vocabulary((*map(str, range(self.task.modulus)), "no", "yes"), answers=("no", "yes"))

    @cached_property
    def embedding(self) -> TypedEmbedding:
        """Kind 0 is content, kind 1 the query."""
        M, at = self.task.modulus, self.stream.slice
        cos, sin, _ = circle(M)
        columns = [{"cos": cos, "sin": sin, "token": 1}, {"qcos": cos, "qsin": sin, "query": 1}]
        for h, (content, selector) in enumerate(self._tables):
            columns[0][f"content{h}"], columns[1][f"selector{h}"] = content, selector
        if self.values is not None:
            columns[0]["value"] = self.values.content(M)
        exact = any(part.dtype == object for pair in self._tables for part in pair)
        table = np.zeros((2, M + 2, self.stream.dim), dtype=object if exact else float)
        for kind, named in enumerate(columns):
            for name, values in named.items():
                values = np.asarray(values)
                table[kind, :M, at(name)] = values[:, None] if values.ndim == 1 else values
        kind = np.zeros(self.task.seq_len, np.int64)
        kind[-1] = 1
        return TypedEmbedding(self.stream, table, kind, np.zeros((self.task.seq_len, self.stream.dim), np.int8))

    def _maps(self) -> dict[str, Affine]:
        c, tau = self.scale, circle(self.task.modulus)[2]
        query = {"q[0]": {"qcos": c}, "q[1]": {"qsin": c}, "q[2]": {"query": c}}
        key = {"k[0]": {"cos": 1}, "k[1]": {"sin": -1}, "k[2]": {"token": -1, "query": tau - 1}}
        value = {"v[0]": {"token": 1}} | ({} if self.values is None else {"v[1:]": {"value": 1}})
        answers = Stream({"logit": len(self.vocabulary)})
        no, yes = (f"logit[{self.vocabulary.index(name)}]" for name in ("no", "yes"))
        maps = {
            "Q": Affine.from_rows(self.stream, Stream({"q": 3}), query),
            "K": Affine.from_rows(self.stream, Stream({"k": 3}), key),
            "V": Affine.from_rows(self.stream, Stream({"v": self._value_dim}), value),
            "O": self._out(),
            "logits": Affine.from_rows(self.stream, answers, {no: {"seen": -1, "1": 1}, yes: {"seen": 1}}),
        }
        for h, (content, selector) in enumerate(self._tables):
            for name, width in (("content", content.shape[1]), ("selector", selector.shape[1])):
                maps[f"{name}{h}"] = Affine.from_rows(self.stream, Stream({"y": width}), {"y": {f"{name}{h}": 1}})
        return maps

    @property
    def _value_dim(self) -> int:
        return 1 if self.values is None else 1 + self.values.dims

    def _out(self) -> Affine:
        """What each head saw is added up; what its branch of summaries says is kept beside."""
        width, branch = self._value_dim, 0 if self.values is None else self._value_dim
        heads = len(self.keys)
        source = Stream({f"u{h}": width + branch for h in range(heads)})
        rows = {"seen": {f"u{h}[0]": 1 for h in range(heads)}}
        if branch:
            rows |= {f"branch[{h * branch}:{(h + 1) * branch}]": {f"u{h}[{width}:]": 1} for h in range(heads)}
        return Affine.from_rows(source, self.stream, rows)

    def _core(self, h: int) -> BlockSparseAttention:
        value_summary = None if self.values is None else self.values.summary(self.task)
        return BlockSparseAttention(
            3, self._value_dim, self.task.block_size, self.top_k, self.window, "raw",
            summary=self.keys[h].summary(self.task), value_summary=value_summary, content_dim=self._tables[h][0].shape[1],
        )  # fmt: skip

    @cached_property
    def model(self) -> Model:
        """The decoder; it answers at the last token."""
        heads = []
        for h in range(len(self.keys)):
            names = {"q": "Q", "k": "K", "v": "V", "selector": f"selector{h}", "content": f"content{h}"}
            heads.append(Head(self._core(h), {name: self.maps[of] for name, of in names.items()}))
        block = Block(Layer(tuple(heads), self.maps["O"]), name="blocks")
        return Model(self.stream, self.vocabulary, self.embedding, (block,), self.maps["logits"])

    @cached_property
    def dense(self) -> Model:
        """The same weights with full attention: what k = T must reproduce. Raises ValueError with a branch of summaries."""
        if self.values is not None:
            raise ValueError("values: full attention has no branch of summaries to compare")
        head = Head(Attention(3, 1, "raw"), {"q": self.maps["Q"], "k": self.maps["K"], "v": self.maps["V"]})
        layer = Layer((head,) * len(self.keys), self.maps["O"])
        return Model(self.stream, self.vocabulary, self.embedding, (Block(layer),), self.maps["logits"])

    def seen(self, tokens, ar=None) -> np.ndarray:
        """What the heads saw together at the last token, float64 (...)."""
        ar = Float() if ar is None else ar
        return np.asarray(ar.values(self.stream.read(self.model.last_state(ar, self.task.check(tokens)), "seen")[..., 0]))

    def answers(self, tokens, ar=None) -> np.ndarray:
        """bool (...): the heads saw more than 1/2."""
        return self.seen(tokens, ar) > 0.5

    def selected(self, tokens, ar=None) -> np.ndarray:
        """Which blocks each head reads for the query: bool (..., heads, blocks)."""
        ar = Float() if ar is None else ar
        tokens = self.task.check(tokens)
        x, found = self.model.embedding.apply(ar, tokens), []
        for head in self.model.blocks[0].layer.heads:
            keys = head.core.summaries(ar, head.input(ar, x, "content"))
            selector = head.input(ar, x[..., -1:, :], "selector")
            found.append(head.core.selected(ar, selector, keys, np.array([self.task.blocks]))[..., 0, : self.task.blocks])
        return np.stack(found, axis=-2)

    def describe(self) -> str:
        """In words."""
        task = self.task
        return self._with_changes(f"M = {task.modulus}, T = {task.blocks}, B = {task.block_size}, k = {self.top_k}, {self.keys}")


# checks -----------------------------------------------------------------------------------------------------------------------


def check_all_blocks_are_full(models: Iterable[SparseTwoSum], num: int = 40, seed: int = 0, ar=None) -> Check:
    """With k = T the sparse layer is full attention: equal bits in F_s, within 2^-40 in floats."""
    ar, cases, wrong = Float() if ar is None else ar, 0, None
    for model in models:
        if model.top_k != model.task.blocks:
            raise ValueError(f"top_k={model.top_k}: this check is for all {model.task.blocks} blocks")
        tokens = np.concatenate([model.task.sample(seed + np.arange(num), planted) for planted in (False, True)])
        got = np.asarray(ar.values(model.model.last_only(ar, tokens)))
        expected = np.asarray(ar.values(model.dense.last_only(ar, tokens)))
        apart = np.abs(got - expected).max()
        cases += len(tokens)
        if apart > (0 if ar.exact else 2.0**-40) and wrong is None:
            wrong = {"model": model.describe(), "difference": float(apart)}
    scope = f"random prompts, {ar.name}"
    return Check.true("a layer that reads all blocks is full attention", wrong is None, scope, cases, wrong)


def misses(model: SparseTwoSum, num: int, seed: int = 0, ar=None, batch: int = 32) -> int:
    """On how many of `num` random prompts with a planted partner no head reads a block that holds one."""
    count = 0
    for start in range(0, num, batch):
        tokens = model.task.sample(seed + np.arange(start, min(start + batch, num)), planted=True)
        holds = ((model.task.contents(tokens) + tokens[:, -1, None, None]) % model.task.modulus == 0).any(axis=-1)
        read = model.selected(tokens, ar).any(axis=-2)
        count += int((~(holds & read).any(axis=-1)).sum())
    return count


def worst_prompt(task: LastTokenTwoSum, residue: int = 1) -> np.ndarray:
    """The hardest prompt for the polynomial: block 0 holds the B nearest neighbours of u, block 1 holds u, the query is -u.

    Raises ValueError for fewer than two blocks or a block too large for M.
    """
    M, B = task.modulus, task.block_size
    if task.blocks < 2 or not B < M // 2:
        raise ValueError(f"task: needs two blocks or more, and B < M / 2, got T = {task.blocks}, B = {B}, M = {M}")
    offsets = [(place // 2 + 1) * (-1) ** place for place in range(B)]
    near = [(residue + offset) % M for offset in offsets]
    far = [(residue + M // 2 + offset) % M for offset in offsets]
    return task.prompt([near, [residue, *far[1:]], *([far] * (task.blocks - 2))], -residue % M)


def check_polynomial(sizes: Sequence[tuple[int, int]], num: int, blocks: int = 8, seed: int = 0) -> Check:
    """Top-1 by the polynomial in F_s, s = `enough_bits`: a block with a partner is read on random prompts and on the worst.

    sizes: pairs (M, B). The value holds the least s with which the worst prompt alone comes out right, by size.
    """
    cases, wrong, value = 0, None, {}
    for modulus, size in sizes:
        task = LastTokenTwoSum(modulus, blocks, size)
        model, s = SparseTwoSum(task, Cancelling(size)), enough_bits(modulus, size)
        missed = misses(model, num, seed, FixedPoint(s), batch=num)
        worst = bool(model.selected(worst_prompt(task), FixedPoint(s))[0, 1])
        cases += num + 1
        if (missed or not worst) and wrong is None:
            wrong = {"M": modulus, "B": size, "s": s, "missed": missed, "worst prompt": worst}
        value[f"M = {modulus}, B = {size}"] = s
    scope = f"(M, B) in {list(sizes)}, T = {blocks}: {num} random prompts each, and the worst one"
    return Check.true("one block, chosen by the polynomial, is the right one", wrong is None, scope, cases, wrong, value)


def worst_prompt_bits(modulus: int, block_size: int, blocks: int = 2) -> int:
    """The least s from which on, up to `enough_bits`, F_s ranks the blocks of the worst prompt rightly."""
    task = LastTokenTwoSum(modulus, blocks, block_size)
    model, tokens = SparseTwoSum(task, Cancelling(block_size)), worst_prompt(task)
    s = enough_bits(modulus, block_size)
    while s > 1 and 2 ** (s - 1) >= modulus and model.selected(tokens, FixedPoint(s - 1))[0, 1]:
        s -= 1
    return s


def check_polynomial_budget(sizes: Iterable[tuple[int, int]]) -> Check:
    """H d p <= (2B + 1)(2B log2 M - B + 6), so O(B^2 log M); for M a power of two.

    A factor of the least distance is 1 or 1 - cos(2 pi j / M) = 2 sin^2(pi j / M) >= 8 j^2 / M^2, so at least 8 / M^2. And
    sqrt(2) 2^B + 2B + 3 <= 5 * 2^B, so p <= log2(5 * 2^B (M^2 / 8)^B) + 1 < 2B log2 M - 2B + 4.
    """
    sizes, wrong = list(sizes), None
    for modulus, size in sizes:
        if modulus & (modulus - 1):
            raise ValueError(f"sizes: M = {modulus} is no power of two")
        bound = (2 * size + 1) * (2 * size * (modulus.bit_length() - 1) - size + 6)
        if polynomial_budget(modulus, size) > bound and wrong is None:
            wrong = {"M": modulus, "B": size, "budget": polynomial_budget(modulus, size), "bound": bound}
    scope = f"{len(sizes)} pairs (M, B)"
    return Check.true("the polynomial key has O(B^2 log M) bits", wrong is None, scope, len(sizes), wrong)


def check_bloom(tasks: Iterable[LastTokenTwoSum], num: int, rate: float = 0.01, seed: int = 0) -> Check:
    """Top-2 by a Bloom key of `bloom_bits(task, rate)` bits misses at most a share `rate` of random prompts with a partner.

    So many are expected at most; what `num` prompts show may lie three standard errors above.
    """
    tasks, value, wrong = list(tasks), {}, None
    for task in tasks:
        dims = bloom_bits(task, rate)
        missed = misses(SparseTwoSum(task, BloomKey(dims, task.block_size, seed), top_k=2), num, seed)
        value[f"B = {task.block_size}"] = {"bits": dims, "missed": missed}
        if missed > rate * num + 3 * (rate * num) ** 0.5 and wrong is None:
            wrong = {"task": str(task), "bits": dims, "missed": missed, "of": num}
    scope = f"{num} random prompts each for B = {', '.join(str(t.block_size) for t in tasks)}, M = {tasks[0].modulus}"
    return Check.true("O(B log n) bits are enough on most prompts", wrong is None, scope, num * len(tasks), wrong, value)


def smallest_format(task: LastTokenTwoSum, num: int = 100, seed: int = 0, most: int = 24) -> int:
    """The least s from which on, up to `most`, the layer that reads everything is right in F_s, every operation rounded.

    Tried on 2 num random prompts, half of them with a planted partner. Raises ValueError if F_most fails.
    """
    model = SparseTwoSum(task, RandomMean(1, 1), top_k=task.blocks)
    tokens = np.concatenate([task.sample(seed + np.arange(num), planted) for planted in (False, True)])
    right = task.answers(tokens)
    for s in range(most, 0, -1):
        if not (model.answers(tokens, FixedPoint(s)) == right).all():
            if s == most:
                raise ValueError(f"most={most}: even F_{most} fails; it should hold the scale c = {model.scale:.0f}, or nearly")
            return s + 1
    return 1


def check_least_distance(sizes: Sequence[tuple[int, int]]) -> Check:
    """No block of B residues that misses the query comes nearer to zero than its neighbours do: all sets of 1 to B listed."""
    wrong, cases = None, 0
    for modulus, size in sizes:
        factors = 1 - circle(modulus)[0][1:]
        blocks = [block for distinct in range(1, size + 1) for block in combinations(range(modulus - 1), distinct)]
        least = min(float(np.prod(factors[list(block)])) for block in blocks)
        cases += len(blocks)
        if abs(least / float(least_distance(modulus, size)) - 1) > 1e-9 and wrong is None:
            wrong = {"M": modulus, "B": size, "least": least}
    return Check.true("the neighbours of a residue are the worst block", wrong is None, f"(M, B) in {list(sizes)}", cases, wrong)


def bloom_bits(task: LastTokenTwoSum, rate: float = 0.01) -> int:
    """d = B ln(T / rate) / ln^2 2 = O(B log(T / rate)): other blocks that claim the query number about `rate` a prompt.

    A block without -x_q claims it with probability about 0.6185^(d/B), the rate of a Bloom filter with ln 2 d/B hashes.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate={rate!r}: must lie between 0 and 1")
    return ceil(task.block_size * log(task.blocks / rate) / log(2) ** 2)
