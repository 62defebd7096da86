"""L + 1 full attention layers with one head each compose L functions (paper C, upper side of Theorem 1.1), and its relatives.

The residual stream has seven named parts; code(x) are binary digits of x as +-1, least significant first:

    lev  la   code(level of the position)                     la = bits(L + 2), bits(x) = ceil(log2 x)
    aw   bw   code(high digit of the argument)                bw = max_l bits(n_l)
    ai   bv   code(low part of the argument)                  bv = bits(N_{L-1})
    val  bv   code(the token), code(0) at w
    w    (L-1) bw   the codes of w_1, ..., w_{L-1} at w, 0 elsewhere
    ptr  bv   the pointer, code(0) at the start
    scr  bv   0; a layer writes what it has read, the MLP turns it into the next pointer

Layer l + 1 performs hop l = 0..L at the last token: the query [code(l); slot w_{l-1}; ptr] meets the keys [lev; aw; ai], one key
agrees in all d = la + bw + bv signs, and its value val is the next pointer. In floats scores are beta <q, k>, beta = ln(8 n) / 2.

In integers (arithmetic.Integer) a weight is 2^kappa where all signs agree and 1 elsewhere, kappa = ceil(log2 4n); the score
carries one constant coordinate more, and the mean over the keys is rounded to an integer, which already is the right sign.

Deviates: the paper's construction was not at hand; all weights are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, log, prod

import numpy as np

from hybridseq.arithmetic import Float, Integer
from hybridseq.codes.binary import binary_words
from hybridseq.constructions.named_weights import NamedWeights, Removal, remove_each
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, AttentionInputs, Head, Layer, LinearAttention, ShortConvolution
from hybridseq.models import MLP, Block, Model, TypedEmbedding
from hybridseq.models.names import everywhere
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.sequential_composition import SequentialComposition

STARTS = {
    "full": "F F^L: layer 1 fetches z_0",
    "linear": "R F^L: one linear attention layer with a single feature fetches z_0",
    "carried": "F R F^(L-1): hop 1 is made at z_0's token, the linear layer carries the result to w",
    "memory": "R R F^(L-1): a linear layer with m features remembers all of z_1, another carries what z_0 reads there",
    "convolution": "C F^L: a causal convolution of width 2 hands z_0 to its neighbour w",
    "merged": "F^L: another prompt, in which one last token holds both z_0 and w",
}
NUMBERS = ("float64", "integer")
UNIT = 2.0**-52
"""What one rounded addition near 1 may cost."""


# formulas -------------------------------------------------------------------------------------------------------------


def bits(count: int) -> int:
    """ceil(log2 count): digits that tell `count` things apart, 0 for one thing."""
    return (count - 1).bit_length()


@dataclass(frozen=True)
class Sizes:
    """What the construction costs: H = 1 head of width d = la + bw + bv, p bits an accumulator, a stream of D numbers.

    p = kappa + (bits of the number n) + 1 holds sums of n weights up to 2^kappa, kappa = ceil(log2 4n), times a sign.

    >>> sizes(SequentialComposition(2, (2,)))
    Sizes(n=8, la=2, bw=1, bv=2, d=5, D=12, kappa=5, p=10)
    """

    n: int
    la: int
    bw: int
    bv: int
    d: int
    D: int
    kappa: int
    p: int

    @property
    def hdp(self) -> int:
        """H d p with H = 1."""
        return self.d * self.p

    @property
    def gain(self) -> float:
        """beta = ln(8 n) / 2."""
        return log(8 * self.n) / 2

    @property
    def bound(self) -> int:
        """(3x - 1)(2x + 4) with x = ceil(log2 n), an upper bound of H d p for every m, L and n_l (see `hdp_bound`)."""
        return hdp_bound(self.n)


def sizes(task: SequentialComposition) -> Sizes:
    """The sizes of the construction for a task."""
    n, L = task.seq_len, task.L
    la, bw, bv = bits(L + 2), max(map(bits, task.ns), default=0), bits(task.num_answers)
    kappa = bits(4 * n)
    return Sizes(n, la, bw, bv, la + bw + bv, la + L * bw + 4 * bv, kappa, kappa + n.bit_length() + 1)


def hdp_bound(n: int) -> int:
    """(3x - 1)(2x + 4), x = ceil(log2 n): n >= 2 L + 2 gives la <= x, n_l <= n / 2 gives bw <= x - 1, N_{L-1} <= n gives bv <= x.

    >>> hdp_bound(4034)
    980
    """
    x = bits(n)
    return (3 * x - 1) * (2 * x + 4)


def proved_margin(n: int) -> Fraction:
    """(7n + 1) / (9n - 1) > 7/9: a lower bound on |y|, as n - 1 keys of weight 1/(8n) may pull against the one that matches.

    >>> proved_margin(8), float(proved_margin(4096)) > 7 / 9
    (Fraction(57, 71), True)
    """
    return Fraction(7 * n + 1, 9 * n - 1)


# arithmetic that is coarser than it needs to be ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CoarseHeads(Float):
    """float64 in which every weighted mean of values is rounded to a multiple of `step` (half to even).

    >>> CoarseHeads(step=0.25).mix(np.array([[0.9, 0.1]]), np.array([[1.0], [-1.0]])).tolist()
    [[0.75]]
    """

    step: float = 0.25

    def __post_init__(self):
        super().__post_init__()
        if not self.step > 0:
            raise ValueError(f"step={self.step!r}: must be above 0")

    def mix(self, p, v):
        return np.round((p @ v) / self.step) * self.step


# the construction -----------------------------------------------------------------------------------------------------


def pointer_maps(stream: Stream) -> tuple[Affine, Affine]:
    """The two maps of the MLP ptr <- sign(scr), scr <- 0, with 6 hidden units a coordinate.

    relu(2y + 1) - relu(2y - 1) - 1 is the sign of y where |y| >= 1/2; relu(x) - relu(-x) = x takes away what stands there.
    """
    size = len(stream.coordinates("ptr"))
    units = Stream(dict.fromkeys(("up", "down", "old", "minus_old", "read", "minus_read"), size))
    hidden = {
        "up": {"scr": 2, "1": 1},
        "down": {"scr": 2, "1": -1},
        "old": {"ptr": 1},
        "minus_old": {"ptr": -1},
        "read": {"scr": 1},
        "minus_read": {"scr": -1},
    }
    out = {
        "ptr": {"up": 1, "down": -1, "old": -1, "minus_old": 1, "1": -1},
        "scr": {"read": -1, "minus_read": 1},
    }
    return Affine.from_rows(stream, units, hidden), Affine.from_rows(units, stream, out)


@dataclass(frozen=True)
class ComposingTransformer(NamedWeights):
    """The construction for one task; it answers at the last token.

    Args:
        task: in the order "std". start: how the pointer gets its first value, see `STARTS`.
        numbers: "float64" or "integer". layers: how many layers to run, None for all; fewer are a control.
        normalise: whether linear attention divides by the sum of its features.
        changes: weights that differ, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: another prompt order, an unknown start or number system, more layers than there are, an unknown map in
        changes (once the maps are asked for).

    Example:
        >>> task = SequentialComposition(4, (2,))
        >>> model = ComposingTransformer(task)
        >>> model.word, int(model.answers(task.sample(0)))
        ('FFF', 7)
    """

    task: SequentialComposition
    start: str = "full"
    numbers: str = "float64"
    layers: int | None = None
    normalise: bool = True
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        if self.task.order != "std":
            raise ValueError(f"task: the construction reads the order 'std', got {self.task.order!r}")
        if self.start not in STARTS:
            raise ValueError(f"start={self.start!r}: must be one of {', '.join(map(repr, STARTS))}")
        if self.numbers not in NUMBERS:
            raise ValueError(f"numbers={self.numbers!r}: must be one of {', '.join(map(repr, NUMBERS))}")
        if self.layers is not None:
            whole = not isinstance(self.layers, bool) and isinstance(self.layers, int | np.integer)
            if not whole or not 0 <= self.layers <= len(self._full_word):
                raise ValueError(f"layers={self.layers!r}: must be an integer from 0 to {len(self._full_word)}")

    # ------------------------------------------------------------------------------------------------------- sizes

    @property
    def _full_word(self) -> str:
        L = self.task.L
        first = {"full": "F", "linear": "R", "carried": "FR", "memory": "RR", "convolution": "C", "merged": ""}[self.start]
        return first + "F" * (L - 1 if self.start in ("carried", "memory") else L)

    @property
    def word(self) -> str:
        """One letter a layer: F full attention, R linear attention, C convolution of width 2."""
        return self._full_word if self.layers is None else self._full_word[: self.layers]

    @property
    def _hops(self) -> range:
        """The hops that full layers make at the last token."""
        return range({"full": 0, "carried": 2, "memory": 2}.get(self.start, 1), self.task.L + 1)

    @cached_property
    def sizes(self) -> Sizes:
        """Widths by name."""
        return sizes(self.task)

    @property
    def seq_len(self) -> int:
        """Tokens of the prompt: n, one less if z_0 and w are merged."""
        return self.task.seq_len - (self.start == "merged")

    @cached_property
    def ar(self) -> Float | Integer:
        """float64, or integers just wide enough for the largest number that is stored."""
        if self.numbers == "float64":
            return Float()
        largest = max(abs(self._offset), 2 * self.sizes.bv, 4)
        return Integer(largest.bit_length() + 1, self.sizes.kappa)

    @property
    def _gain(self):
        """What a sign that agrees adds to a score: beta, or ceil(kappa / 2)."""
        return self.sizes.gain if self.numbers == "float64" else ceil(self.sizes.kappa / 2)

    @property
    def _offset(self) -> int:
        """The constant of an integer score: it makes the exponent kappa where all signs agree, and at most 0 elsewhere."""
        half = ceil(self.sizes.kappa / 2)
        return half - half * self.sizes.d

    @cached_property
    def stream(self) -> Stream:
        """lev, aw, ai, val, w, ptr, scr; aw and w are absent where every n_l is 1."""
        s = self.sizes
        parts = {"lev": s.la, "aw": s.bw, "ai": s.bv, "val": s.bv, "w": (self.task.L - 1) * s.bw, "ptr": s.bv, "scr": s.bv}
        return Stream({name: dim for name, dim in parts.items() if dim})

    # --------------------------------------------------------------------------------------------------- embedding

    def _code(self, numbers, name: str) -> np.ndarray:
        width = {"lev": self.sizes.la, "aw": self.sizes.bw, "w": self.sizes.bw}.get(name, self.sizes.bv)
        return binary_words(np.asarray(numbers), width, bit_order="lsb", one=+1)

    @cached_property
    def embedding(self) -> TypedEmbedding:
        """Kinds of position: 0 an entry of a table or z_0, 1 the token w, 2 the merged token m W + z_0."""
        task, at, s = self.task, self.stream.slice, self.sizes
        number = np.arange(task.vocab_size)
        token = np.zeros((3, task.vocab_size, self.stream.dim), np.int8)
        token[:, :, at("val")] = self._code(0, "val")
        token[0, :, at("val")] = self._code(number, "val")
        if s.bw:
            for kind, words in ((1, number), (2, number // task.m)):
                digits = self._code(task.digits(words), "w").reshape(len(number), -1)
                token[kind, :, at("w")] = np.where((words < prod(task.ns))[:, None], digits, 0)
        token[2, :, at("ptr")] = self._code(number % task.m, "ptr")
        merged = self.start == "merged"
        kept = np.delete(np.arange(task.seq_len), task.segments[0]) if merged else np.arange(task.seq_len)
        position = np.zeros((self.seq_len, self.stream.dim), np.int8)
        columns = {"lev": task.levels[kept], "ai": task.arg_i[kept]} | ({"aw": task.arg_w[kept]} if s.bw else {})
        for name, values in columns.items():
            position[:, at(name)] = self._code(values, name)
        position[:, at("ptr")] = -1
        kind = np.zeros(self.seq_len, np.int64)
        kind[-1] = 2 if merged else 1
        if merged:
            position[-1, at("ptr")] = 0
        return TypedEmbedding(self.stream, token, kind, position)

    def prompt(self, tokens) -> np.ndarray:
        """The tokens that this model reads: those of the task, or with z_0 and w merged into m W + z_0."""
        tokens = self.task.check(tokens)
        if self.start != "merged":
            return tokens
        last = tokens[..., -1:] * self.task.m + tokens[..., -2:-1]
        return np.concatenate([tokens[..., :-2], last], axis=-1)

    # ----------------------------------------------------------------------------------------------------- weights

    def _maps(self) -> dict[str, Affine]:
        return self._attention_maps() | self._linear_maps() | self._pointer_maps()

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _attention_maps(self) -> dict[str, Affine]:
        """Keys and values, the same in every layer, and one query a hop."""
        s, integer = self.sizes, self.numbers == "integer"
        width = s.d + integer
        key = {f"k[:{s.la}]": {"lev": 1}, f"k[{s.la + s.bw}:{s.d}]": {"ai": 1}}
        key |= {f"k[{s.la}:{s.la + s.bw}]": {"aw": 1}} if s.bw else {}
        key |= {f"k[{s.d}]": {"1": 1}} if integer else {}
        maps = {
            "K": self._from_stream("k", width, key),
            "V": self._from_stream("v", s.bv, {"v": {"val": 1}}),
            "O": Affine.from_rows(Stream({"v": s.bv}), self.stream, {"scr": {"v": 1}}),
        }
        maps |= {f"Q{hop}": self._from_stream("q", width, self._query(hop, "ptr")) for hop in self._hops}
        if self.start == "carried":
            maps["Q1 at z_0"] = self._from_stream("q", width, self._query(1, "val"))
        return maps

    def _query(self, hop: int, pointer: str) -> dict:
        s, gain = self.sizes, self._gain
        rows = {f"q[:{s.la}]": {"1": [gain * int(c) for c in self._code(hop, "lev")]}}
        if s.bw:
            slot = f"w[{(hop - 2) * s.bw}:{(hop - 1) * s.bw}]"
            rows[f"q[{s.la}:{s.la + s.bw}]"] = {slot: gain} if hop >= 2 else {"1": -gain}
        rows[f"q[{s.la + s.bw}:{s.d}]"] = {pointer: gain} if hop >= 1 else {"1": -gain}
        if self.numbers == "integer":
            rows[f"q[{s.d}]"] = {"1": self._offset}
        return rows

    def _linear_maps(self) -> dict[str, Affine]:
        """R: phi(k) = relu(<code(0), lev> - la + 1) = [level = 0], phi(q) = 1. M: one feature for each argument of z_1."""
        s, m = self.sizes, self.task.m
        maps = {}
        if "R" in self._full_word:
            level = [[int(c) for c in self._code(0, "lev")]]
            carries = self.start in ("carried", "memory")
            maps["R.k"] = self._from_stream("k", 1, {"k": {"lev": level, "1": 1 - s.la}})
            maps["R.q"] = self._from_stream("q", 1, {"q": {"1": 1}})
            maps["R.v"] = self._from_stream("v", s.bv, {"v": {"ptr" if carries else "val": 1}})
        if self.start == "memory":
            codes = self._code(np.arange(m), "val").astype(int).tolist()
            level = [self._code(1, "lev").astype(int).tolist()] * m
            maps["M.k"] = self._from_stream("k", m, {"k": {"lev": level, "ai": codes, "1": 1 - s.la - s.bv}})
            maps["M.q"] = self._from_stream("q", m, {"q": {"val": codes, "1": 1 - s.bv}})
            maps["M.v"] = self._from_stream("v", s.bv, {"v": {"val": 1}})
        if self.start == "convolution":
            maps["C.x"] = self._from_stream("x", s.bv, {"x": {"val": 1}})
        return maps

    def _pointer_maps(self) -> dict[str, Affine]:
        hidden, out = pointer_maps(self.stream)
        codes = (2 * self._code(np.arange(self.task.vocab_size), "ptr").astype(int)).tolist()
        logits = self._from_stream("token", self.task.vocab_size, {"token": {"ptr": codes}})
        return {"MLP hidden": hidden, "MLP out": out, "logits": logits}

    # ------------------------------------------------------------------------------------------------------ layers

    def _full_layer(self, query: str) -> Layer:
        q, k, v = (self.maps[name] for name in (query, "K", "V"))
        core = Attention(q.target.dim, v.target.dim, scale="raw")
        return Layer((Head(core, {"q": q, "k": k, "v": v}),), self.maps["O"])

    def _linear_layer(self, name: str) -> Layer:
        maps = {part: self.maps[f"{name}.{part}"] for part in ("q", "k", "v")}
        core = LinearAttention(maps["q"].target.dim, self.sizes.bv, feature_map="relu", normalise=self.normalise)
        return Layer((Head(core, maps),), self.maps["O"])

    def _convolution_layer(self) -> Layer:
        core = ShortConvolution(self.ar.array(np.tile([1, 0], (self.sizes.bv, 1))))
        return Layer((Head(core, {"x": self.maps["C.x"]}),), self.maps["O"])

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        """(name, layer) in order: what precedes hop 1 or 2, then the hops at the last token."""
        first = {
            "full": lambda: [("hop 0", self._full_layer("Q0"))],
            "linear": lambda: [("hop 0", self._linear_layer("R"))],
            "carried": lambda: [("hop 1 at z_0", self._full_layer("Q1 at z_0")), ("carry", self._linear_layer("R"))],
            "memory": lambda: [("hop 1 at z_0", self._linear_layer("M")), ("carry", self._linear_layer("R"))],
            "convolution": lambda: [("hop 0", self._convolution_layer())],
            "merged": list,
        }
        yield from first[self.start]()
        for hop in (hop for hop in self._hops if hop):
            yield f"hop {hop}", self._full_layer(f"Q{hop}")

    @cached_property
    def model(self) -> Model:
        """The layers that run, each followed by the MLP, and the logits of the pointer."""
        mlp = MLP(self.maps["MLP hidden"], self.maps["MLP out"])
        blocks = tuple(Block(layer, mlp, name) for name, layer in self._layers())[: len(self.word)]
        vocabulary = Vocabulary(tuple(map(str, range(self.task.vocab_size))))
        return Model(self.stream, vocabulary, self.embedding, blocks, self.maps["logits"])

    # ----------------------------------------------------------------------------------------------------- answers

    def answers(self, tokens, ar=None) -> np.ndarray:
        """The token with the largest logit at the last position, for prompts (..., seq_len) of the task: (...)."""
        ar = self.ar if ar is None else ar
        return np.argmax(ar.values(self.model.last_only(ar, self.prompt(tokens))), axis=-1)

    def walk(self, tokens, ar=None) -> Walk:
        """What stands at the last token before and after each layer, for prompts (num, seq_len)."""
        ar = self.ar if ar is None else ar
        x, model = self.embedding.apply(ar, self.prompt(tokens)), self.model
        states, outputs = [x[:, -1]], []
        for block, all_positions in zip(model.blocks, everywhere(model.blocks, self.stream), strict=True):
            here = x if all_positions else x[:, -1:]
            z = block.layer.forward(ar, x) if all_positions else block.layer.last_only(ar, x)[:, None]
            here = ar.add(here, z)
            outputs.append(self.stream.read(here[:, -1], "scr"))
            here = ar.add(here, block.mlp.apply(ar, here))
            x = here if all_positions else ar.concat([x[:, :-1], here], axis=1)
            states.append(x[:, -1])
        states = np.stack([ar.values(state) for state in states], axis=1)
        y = np.stack([ar.values(y) for y in outputs], axis=1) if outputs else np.zeros((len(states), 0, self.sizes.bv))
        return Walk(states, y, self.stream.read(states, "ptr"))

    def heads(self, tokens, ar=None) -> Iterator[tuple[Head, AttentionInputs]]:
        """For a word of the letter F alone: each layer's head, and its inputs for the query of the last token.

        q is (num, 1, .), k and v are (num, seq_len, .). Raises ValueError for another word.
        """
        if set(self.word) != {"F"} or self.start not in ("full", "merged"):
            raise ValueError(f"model: needs a word of the letter F alone, got {self.describe()}")
        ar = self.ar if ar is None else ar
        x, states = self.embedding.apply(ar, self.prompt(tokens)), self.walk(tokens, ar).states
        for i, block in enumerate(self.model.blocks):
            head, last = block.layer.heads[0], states[:, i : i + 1].astype(x.dtype)
            here = np.concatenate([x[:, :-1], last], axis=1)
            q, k, v = (head.input(ar, part, name) for part, name in ((last, "q"), (here, "k"), (here, "v")))
            yield head, AttentionInputs(q, k, v)

    def looks(self, tokens) -> np.ndarray:
        """Where the last token looks: softmax weights of every layer (num, layers, seq_len), for a word of the letter F alone."""
        weights = [self.ar.softmax(self.ar.scores(at.q, at.k, head.core.scale))[:, 0] for head, at in self.heads(tokens)]
        return self.ar.values(np.stack(weights, axis=1))

    def describe(self) -> str:
        """The task, the word, and what is not as in the theorem."""
        return self._with_changes(f"{self.task.name}, {self.word}, {self.numbers}")


@dataclass(frozen=True)
class Walk:
    """The last token of prompts: states (num, layers + 1, D), head outputs y (num, layers, bv), and the pointer's coordinates
    (num, layers + 1, bv)."""

    states: np.ndarray
    outputs: np.ndarray
    signs: np.ndarray

    @property
    def pointers(self) -> np.ndarray:
        """The number that the signs of the pointer spell, (num, layers + 1)."""
        return _number(self.signs)


def _number(signs: np.ndarray) -> np.ndarray:
    return (signs > 0) @ (1 << np.arange(signs.shape[-1], dtype=np.int64))


# checks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """A run over many prompts: how many, right answers, prompts with a right pointer after every layer, the least |y| that an MLP
    had to turn into a sign, the largest distance of a pointer coordinate from +-1, the first prompt that goes wrong."""

    num: int
    right: int
    right_pointers: int
    least: float
    error: float
    example: dict | None


def expected_pointers(model: ComposingTransformer, tokens) -> tuple[np.ndarray, np.ndarray]:
    """What is promised of the pointer at w before the first and after each layer.

    Returns (promised, pointers): bool (layers + 1,), and the numbers i_l (num, promised layers).
    """
    trace = model.task.trace(tokens)
    first = {"carried": [-1, -1, 1], "memory": [-1, -1, 1], "merged": [0]}.get(model.start, [-1, 0])
    hops = np.array(first + list(range(first[-1] + 1, model.task.L + 1)))[: len(model.word) + 1]
    return hops >= 0, trace[:, hops[hops >= 0]]


def tally(model: ComposingTransformer, batches: Iterable[np.ndarray], ar=None) -> Tally:
    """Run the model on batches of prompts (num, seq_len) and compare answers and pointers with the task's definition."""
    num = right = right_pointers = 0
    least, error, example = np.inf, 0.0, None
    for tokens in batches:
        seen, answers = model.walk(tokens, ar), model.task.answers(tokens)
        promised, wanted = expected_pointers(model, tokens)
        pointers, signs = seen.pointers[:, promised], seen.signs[:, promised]
        good = (pointers == wanted).all(axis=1)
        correct = (model.answers(tokens, ar) == answers) & (pointers[:, -1] == answers)
        least = min(least, float(np.abs(seen.outputs[:, promised[1:]]).min(initial=np.inf)))
        error = max(error, float(np.abs(np.abs(signs) - 1).max()))
        num, right, right_pointers = num + len(tokens), right + int(correct.sum()), right_pointers + int(good.sum())
        if not correct.all() and example is None:
            row = int(np.argmin(correct))
            text = model.task.text(tokens[row]) if tokens.shape[1] <= 40 else f"prompt {row} of {tokens.shape[1]} tokens"
            wanted = model.task.trace(tokens[row]).tolist()
            example = {"prompt": text, "trace": wanted, "pointers": seen.pointers[row].tolist()}
    return Tally(num, right, right_pointers, least, error, example)


def _proved(found: Tally, model: ComposingTransformer, ar) -> bool:
    """Right everywhere and inside the margin of the proof, less half a step where heads are rounded and UNIT n in floats;
    pointers +-1, in floats up to four units of rounding."""
    exact = isinstance(ar, CoarseHeads) or model.numbers == "integer"
    margin = 1.0 if model.numbers == "integer" else float(proved_margin(model.seq_len)) - UNIT * model.seq_len
    margin -= ar.step / 2 if isinstance(ar, CoarseHeads) else 0
    precise = found.error == 0 if exact else found.error <= 4 * UNIT
    return found.right == found.right_pointers == found.num and found.least >= margin and precise


def check_every(model: ComposingTransformer, ar=None, cases: int | None = None) -> Check:
    """The construction on all instances: right answer, right pointer after every layer, inside the proved margin."""
    found = tally(model, model.task.every(1 << 12), ar)
    numbers = {"prompts": found.num, "right": found.right, "least |y|": found.least, "pointer error": found.error}
    return Check.true(
        f"every instance is solved, pointer by pointer ({model.describe()}{_heads(ar)})",
        _proved(found, model, ar) and cases in (None, found.num),
        f"all {found.num:,} instances",
        cases=found.num,
        counterexample=found.example or numbers,
        value=numbers,
    )


def check_seeds(model: ComposingTransformer, seeds: Sequence[int], ar=None, block: int = 8) -> Check:
    """The construction on the instances of given seeds, under the same conditions as `check_every`."""
    seeds = np.asarray(seeds)
    found = tally(model, (model.task.sample(seeds[i : i + block]) for i in range(0, len(seeds), block)), ar)
    numbers = {"n": model.task.seq_len, "right": found.right, "least |y|": found.least, "pointer error": found.error}
    return Check.true(
        f"random instances are solved, pointer by pointer ({model.describe()}{_heads(ar)})",
        _proved(found, model, ar),
        f"{found.num} random instances of n = {model.task.seq_len} tokens",
        cases=found.num,
        counterexample=found.example or numbers,
        value=numbers,
    )


def _heads(ar) -> str:
    return f", heads rounded to 1/{round(1 / ar.step)}" if isinstance(ar, CoarseHeads) else ""


def least_ratio(model: ComposingTransformer) -> Fraction:
    """The least |num| / den over all instances, layers and value coordinates of an integer model of the word F...F, exactly.

    The proof promises at least (3n + 1) / (5n - 1) > 3/5: one key of weight 2^kappa >= 4n against n - 1 of weight 1.

    >>> least_ratio(ComposingTransformer(SequentialComposition(2, (2,)), numbers="integer"))
    Fraction(25, 39)
    """
    if model.numbers != "integer":
        raise ValueError(f"model: needs integers, got {model.describe()}")
    ar, least = model.ar, Fraction(1)
    for tokens in model.task.every(1 << 12):
        for head, at in model.heads(tokens):
            part = head.core.partial(ar, at.q, at.k, at.v)
            num, den = np.broadcast_arrays(np.abs(part.num), part.den)
            smallest = np.unravel_index(np.argmin(num / den), num.shape)
            least = min(least, Fraction(int(num[smallest]), int(den[smallest])))
    return least


def removals(model: ComposingTransformer, seeds: Sequence[int]) -> list[Removal]:
    """Set every weight and bias of the layers to zero in turn; the instances of `seeds` decide each time whether it is noticed.

    Four weights cannot be: those that clear the top digit of pointer and scratch. It is set by the last hop alone.
    """
    return remove_each(model, lambda changed: not check_seeds(changed, seeds, block=len(seeds)).passed, apart=("logits",))


def check_last_row(model: ComposingTransformer, tokens) -> Check:
    """The full causal forward at every position has the logits of the last row evaluated alone: bit for bit in integers, up to
    16 bv units of rounding in floats.
    """
    ar, prompts = model.ar, model.prompt(tokens)
    whole = ar.values(model.model.forward(ar, prompts))[..., -1, :]
    alone = ar.values(model.model.last_only(ar, prompts))
    name = f"evaluating the last row alone changes nothing ({model.describe()})"
    scope = f"{len(prompts)} instances of {model.seq_len} tokens"
    if ar.exact:
        return Check.equal(name, alone, whole, scope)
    return Check.close(name, alone, whole, scope, 16 * model.sizes.bv * UNIT)


def check_chance(model: ComposingTransformer) -> Check:
    """A model that stops early: over all instances, no read-out of the last token's state beats 1 / N_{L-1}.

    Instances are grouped by the whole state of the last token; a decoder can do no better than each group's commonest answer.
    Run it in integers: states that are equal then are equal bit for bit.
    """
    states, answers = [], []
    for tokens in model.task.every(1 << 12):
        states.append(model.walk(tokens).states[:, -1])
        answers.append(model.task.answers(tokens))
    states, answers = np.concatenate(states), np.concatenate(answers)
    _, group = np.unique(states, axis=0, return_inverse=True)
    table = np.zeros((group.max() + 1, model.task.num_answers), np.int64)
    np.add.at(table, (group.reshape(-1), answers), 1)
    best, own = int(table.max(axis=1).sum()), int((_number(model.stream.read(states, "ptr")) == answers).sum())
    wrong = len(answers) - own
    return Check.true(
        f"one layer fewer is at chance, whatever reads it out ({model.describe()})",
        best * model.task.num_answers == own * model.task.num_answers == len(answers),
        f"all {len(answers):,} instances",
        cases=len(answers),
        counterexample={"best read-out": best, "own read-out": own, "instances": len(answers)},
        value={"right": own, "wrong": wrong, "best read-out": best, "states": len(table)},
    )


def check_empty_denominators(task: SequentialComposition, num: int = 4) -> Check:
    """The single feature of the linear layer is 0 on every table: the denominator vanishes at exactly the n - 2 rows before z_0.

    There the layer returns 0 by convention, so no row ever holds a NaN.
    """
    model = ComposingTransformer(task, "linear")
    x = model.embedding.apply(model.ar, task.sample(np.arange(num)))
    layer = model.model.blocks[0].layer
    head = layer.heads[0]
    total = np.cumsum(head.core.features(model.ar, head.input(model.ar, x, "k"))[..., 0], axis=1)
    empty, output = total == 0, layer.forward(model.ar, x)
    expected = np.arange(task.seq_len) < task.seq_len - 2
    return Check.true(
        "0/0 would occur at every row before z_0, and the layer returns 0 there",
        bool((empty == expected).all() and (output[empty] == 0).all() and np.isfinite(output).all()),
        f"{num} instances of {task.seq_len} tokens",
        cases=num * task.seq_len,
        value={"rows": int(expected.sum())},
    )


def check_sizes(expected: Mapping[tuple[int, tuple[int, ...]], Mapping[str, int]]) -> Check:
    """Sizes by formula and as built; keys are (m, ns), values some of n, d, D, kappa, p and hdp."""
    got, wanted = [], []
    for (m, ns), numbers in expected.items():
        task = SequentialComposition(m, ns)
        model, made = ComposingTransformer(task), sizes(task)
        built = {"n": len(model.embedding.position), "d": model.maps["K"].target.dim, "D": model.stream.dim}
        for name, value in numbers.items():
            got.append([getattr(made, name), built.get(name, getattr(made, name))])
            wanted.append([value, value])
    return Check.equal("n, d, D, kappa, p and Hdp, by formula and as built", got, wanted, f"(m; n_l) in {list(expected)}")


def check_bound(tasks: Iterable[SequentialComposition]) -> Check:
    """H d p <= (3x - 1)(2x + 4), x = ceil(log2 n), on given tasks."""
    tasks = list(tasks)
    over = [t for t in tasks if sizes(t).hdp > hdp_bound(t.seq_len)]
    tightest = max(sizes(t).hdp / hdp_bound(t.seq_len) for t in tasks)
    return Check.true(
        "Hdp is at most (3x - 1)(2x + 4) with x = ceil(log2 n)",
        not over,
        f"{len(tasks):,} tasks up to n = {max(t.seq_len for t in tasks):,}",
        cases=len(tasks),
        counterexample={"task": str(over[0])} if over else None,
        value={"largest share of the bound": tightest},
    )


# the easy order --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReverseReader:
    """The order `rev` needs no attention: a recurrence with state (W, pointer, flag), log2(prod n_l) + log2 N_{L-1} + 1 bits.

    w comes first and is stored, z_0 sets the pointer. In table l the token at argument w_{l-1} N_{l-2} + pointer becomes the next
    pointer; the flag says that this table has been read.

    >>> task = SequentialComposition(4, (2,), "rev")
    >>> int(ReverseReader(task).answers(task.sample(0)))
    7
    """

    task: SequentialComposition

    def __post_init__(self):
        if self.task.order != "rev":
            raise ValueError(f"task: this machine reads the order 'rev', got {self.task.order!r}")

    @property
    def state_bits(self) -> int:
        """Bits of the state, each part rounded up."""
        return bits(prod(self.task.ns)) + bits(self.task.num_answers) + 1

    def answers(self, tokens) -> np.ndarray:
        """The pointer after the last token, for prompts (..., seq_len): one step a token."""
        task, tokens = self.task, self.task.check(tokens)
        number = pointer = np.zeros(tokens.shape[:-1], np.int64)
        read = np.zeros(tokens.shape[:-1], bool)
        for t in range(task.seq_len):
            number, pointer, read = self._step(t, tokens[..., t], number, pointer, read)
        return pointer

    def _step(self, t: int, token, number, pointer, read):
        level = int(self.task.levels[t])
        if level == self.task.L + 1:
            return token, pointer, read
        if level == 0:
            return number, token, read
        first = t == self.task.segments[level].start
        read = np.zeros_like(read) if first else read
        digit = self.task.digits(number)[..., level - 2] if level >= 2 else 0
        hit = ~read & (self.task.arg_w[t] == digit) & (self.task.arg_i[t] == pointer)
        return number, np.where(hit, token, pointer), read | hit
