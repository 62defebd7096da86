"""One layer and L thought tokens compose L functions: depth is exchanged for tokens (paper C's task with a scratchpad).

With `carry`, a thought is the token (l, w, i_l), written one after the other for l = 0, ..., L - 1; then comes the answer i_L. It
holds everything that the next hop needs, so one full layer with one head is enough:

    lev, aw, ai, val   the record of the position; thoughts have the level L + 2, which nobody looks up
    hop, dig, ptr      what to look up: code(0), code(0), code(0) at w; code(l + 1), code(w_l), code(i_l) at the thought of step l
    w                  the digits of w, at w and at every thought
    scr                0; what the layer has read, which the MLP makes the new pointer

Without `carry` a thought is the bare symbol i_l. The digit w_l then has to be fetched before the hop: one layer more.

Deviates: paper C has no such construction; thoughts may be tokens of their own, (l, w, i), in place of ordinary symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, prod

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words, width_for
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.constructions.pointer_doubling import digit_selection
from hybridseq.constructions.sequential_composition import bits, pointer_maps
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import MLP, Block, Model, TypedEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.sequential_composition import SequentialComposition

MOST_TOKENS = 1 << 16
"""Vocabularies beyond this are refused; with `carry` there is a token for every (l, w, i)."""


@dataclass(frozen=True)
class CompositionScratchpad(NamedWeights):
    """The construction for one task in the order std, in float64.

    Args:
        task: what to solve. carry: whether a thought carries l and w along (one layer) or is the symbol i_l alone (two layers).
        changes: weights that differ, as (map, target, source, weight).

    Raises:
        ValueError: another prompt order, a vocabulary beyond 2^16 tokens, an unknown map in changes.

    Example:
        >>> task = SequentialComposition(4, (2,))
        >>> model = CompositionScratchpad(task)
        >>> model.num_layers, model.text(task.sample(0))
        (1, '0:1:1 1:1:0 =7')
    """

    task: SequentialComposition
    carry: bool = True
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        if self.task.order != "std":
            raise ValueError(f"task: the construction reads the order 'std', got {self.task.order!r}")
        size = 2 * self.task.vocab_size + (sum(self._thought_counts) if self.carry else 0)
        if size > MOST_TOKENS:
            raise ValueError(f"task: {size:,} tokens (l, w, i) are too many; use carry=False")

    @property
    def num_layers(self) -> int:
        """1 if thoughts carry w, else 2."""
        return 1 if self.carry else 2

    @property
    def ar(self) -> Float:
        """float64."""
        return Float()

    @property
    def gain(self) -> float:
        """beta = ln(8 (n + L)) / 2: prompt and thoughts are keys."""
        return log(8 * (self.task.seq_len + self.task.L)) / 2

    # -------------------------------------------------------------------------------------------------- vocabulary

    @property
    def _thought_counts(self) -> list[int]:
        """Thoughts of each step: n_1 ... n_{L-1} times the values of i_l."""
        return [prod(self.task.ns) * self.task.sizes[max(0, l - 1)] for l in range(self.task.L)]

    @cached_property
    def thoughts(self) -> np.ndarray:
        """(l, W, i) of every thought token, (num, 3); empty without `carry`."""
        if not self.carry:
            return np.zeros((0, 3), np.int64)
        steps = [(l, count, self.task.sizes[max(0, l - 1)]) for l, count in enumerate(self._thought_counts)]
        rows = [np.stack([np.full(c, l), np.arange(c) // size, np.arange(c) % size], axis=1) for l, c, size in steps]
        return np.concatenate(rows)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Symbols 0..N-1, thoughts l:W:i, answers =i. Scratch are the thoughts, or the symbols without `carry`."""
        symbols = tuple(map(str, range(self.task.vocab_size)))
        thoughts = tuple(":".join(map(str, row)) for row in self.thoughts.tolist())
        answers = tuple(f"={i}" for i in range(self.task.num_answers))
        return Vocabulary(symbols + thoughts + answers, answers, thoughts if self.carry else symbols)

    @property
    def _first_answer(self) -> int:
        return self.task.vocab_size + len(self.thoughts)

    # ------------------------------------------------------------------------------------------- stream, embedding

    @cached_property
    def _widths(self) -> tuple[int, int, int, int]:
        """la, bw, bv and the number of digits of w, each at least 1."""
        task = self.task
        return bits(task.L + 3), width_for(max(task.ns, default=1)), bits(task.num_answers), max(1, task.L - 1)

    @cached_property
    def stream(self) -> Stream:
        """lev, aw, ai, val, hop, dig, ptr, w, scr; without `carry` also got and need."""
        la, bw, bv, slots = self._widths
        parts = {"lev": la, "aw": bw, "ai": bv, "val": bv, "hop": la, "dig": bw, "ptr": bv, "w": slots * bw, "scr": bv}
        return Stream(parts | ({} if self.carry else {"got": slots * bw, "need": slots}))

    def _code(self, numbers, name: str) -> np.ndarray:
        la, bw, bv, _ = self._widths
        width = {"lev": la, "hop": la, "aw": bw, "dig": bw}.get(name, bv)
        return binary_words(np.asarray(numbers), width, bit_order="lsb", one=+1)

    def _digit_codes(self, number: np.ndarray) -> np.ndarray:
        """All digits of W, (num, slots bw); a code of 0 for L = 1."""
        if self.task.L == 1:
            return np.full((len(number), self._widths[1]), -1, np.int8)
        return self._code(self.task.digits(number), "dig").reshape(len(number), -1)

    @cached_property
    def embedding(self) -> TypedEmbedding:
        """Kinds of position: 0 an entry of a table or z_0, 1 the token w, 2 a thought."""
        task, at, N = self.task, self.stream.slice, self.task.vocab_size
        number = np.arange(N)
        token = np.zeros((3, len(self.vocabulary), self.stream.dim), np.int8)
        token[0, :N, at("val")] = self._code(number, "val")
        token[1, :N, at("w")] = self._digit_codes(number)
        if self.carry:
            step, word, value = self.thoughts.T
            ids = slice(N, self._first_answer)
            token[2, ids, at("hop")], token[2, ids, at("ptr")] = self._code(step + 1, "hop"), self._code(value, "ptr")
            token[2, ids, at("w")] = self._digit_codes(word)
            digits = np.concatenate([np.zeros((len(word), 1), np.int64), task.digits(word)], axis=1)
            token[2, ids, at("dig")] = self._code(digits[np.arange(len(word)), step], "dig")
        else:
            token[2, :N, at("ptr")] = self._code(number, "ptr")
        kind = np.concatenate([(task.levels == task.L + 1).astype(int), np.full(task.L, 2)])
        return TypedEmbedding(self.stream, token, kind, self._positions())

    def _positions(self) -> np.ndarray:
        """Records of the n prompt positions and of L thoughts; hop and digit where the token does not bring them."""
        task, at, n = self.task, self.stream.slice, self.task.seq_len
        position = np.zeros((n + task.L, self.stream.dim), np.int8)
        nothing = np.zeros(task.L, np.int64)
        for name, values, thought in (("lev", task.levels, task.L + 2), ("aw", task.arg_w, 0), ("ai", task.arg_i, 0)):
            position[:, at(name)] = self._code(np.concatenate([values, nothing + thought]), name)
        position[n - 1, at("hop")] = self._code(0, "hop")
        position[:n, at("ptr")] = -1
        if self.carry:
            position[:n, at("dig")] = -1
        else:
            hops = np.arange(1, task.L + 1)
            position[n:, at("hop")] = self._code(hops, "hop")
            position[n:, at("need")] = hops[:, None] - 2 == np.arange(self._widths[3])  # hop h needs w_{h-1}, in slot h - 2
        return position

    # ----------------------------------------------------------------------------------------------------- weights

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _maps(self) -> dict[str, Affine]:
        la, bw, bv, slots = self._widths
        parts, gain = (f"[:{la}]", f"[{la}:{la + bw}]", f"[{la + bw}:]"), self.gain
        query, key = ("hop", "dig", "ptr"), ("lev", "aw", "ai")
        hidden, out = pointer_maps(self.stream)
        maps = {
            "K": self._from_stream("k", la + bw + bv, {f"k{p}": {s: 1} for p, s in zip(parts, key, strict=True)}),
            "hop.Q": self._from_stream("q", la + bw + bv, {f"q{p}": {s: gain} for p, s in zip(parts, query, strict=True)}),
            "hop.V": self._from_stream("v", bv, {"v": {"val": 1}}),
            "hop.O": Affine.from_rows(Stream({"v": bv}), self.stream, {"scr": {"v": 1}}),
            "hop.MLP hidden": hidden,
            "hop.MLP out": out,
            "logits": self._logits(),
        }
        if self.carry:
            return maps
        level = [gain * int(c) for c in self._code(self.task.L + 1, "lev")]
        rows = dict(zip((f"q{p}" for p in parts), ({"1": level}, {"1": -gain}, {"1": -gain}), strict=True))
        maps["fetch w.Q"] = self._from_stream("q", la + bw + bv, rows)
        maps["fetch w.V"] = self._from_stream("v", slots * bw, {"v": {"w": 1}})
        maps["fetch w.O"] = Affine.from_rows(Stream({"v": slots * bw}), self.stream, {"got": {"v": 1}})
        maps["fetch w.MLP hidden"], maps["fetch w.MLP out"] = digit_selection(self.stream, slots, {"need": "dig"})
        return maps

    def _logits(self) -> Affine:
        """Which token comes next: the thought that agrees in hop, w and pointer, or the symbol; after hop L the answer."""
        la, bw, bv, slots = self._widths
        N, first, total = self.task.vocab_size, self._first_answer, len(self.vocabulary)
        codes, last = 2 * self._code(np.arange(N), "ptr").astype(int), 2 * self._code(self.task.L, "hop").astype(int)
        finished = f"token[{first}:{total}]"
        if self.carry:
            step, word, value = self.thoughts.T
            matched = {"hop": step, "w": word, "ptr": value}
            written = {name: 2 * self._code(x, name).astype(int) for name, x in matched.items() if name != "w"}
            written["w"] = 2 * self._digit_codes(word).astype(int)
            rows = {f"token[{N}:{first}]": {name: matrix.tolist() for name, matrix in written.items()}}
            rows[finished] = {"hop": [last.tolist()] * N, "ptr": codes.tolist(), "1": 2 * slots * bw}
        else:
            over = 2 * bv
            rows = {f"token[:{N}]": {"ptr": codes.tolist()}}
            rows[finished] = {"hop": [(over * last).tolist()] * N, "ptr": codes.tolist(), "1": 2 * over * (1 - la)}
        return self._from_stream("token", total, rows)

    @cached_property
    def model(self) -> Model:
        """One block, or two without `carry`."""
        blocks = []
        for name in ("hop",) if self.carry else ("fetch w", "hop"):
            q, k, v, out = (self.maps[part] for part in (f"{name}.Q", "K", f"{name}.V", f"{name}.O"))
            head = Head(Attention(q.target.dim, v.target.dim, scale="raw"), {"q": q, "k": k, "v": v})
            blocks.append(Block(Layer((head,), out), MLP(self.maps[f"{name}.MLP hidden"], self.maps[f"{name}.MLP out"]), name))
        return Model(self.stream, self.vocabulary, self.embedding, tuple(blocks), self.maps["logits"])

    # ----------------------------------------------------------------------------------------------------- answers

    def generate(self, tokens, budget: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Greedy decoding of prompts (num, seq_len) with at most `budget` thoughts, None for L.

        Returns (thoughts, answers): i_l as written (num, budget), -1 where nothing was or where a thought says a wrong l or W;
        answers (num,), -1 where none came.
        """
        tokens, budget = self.task.check(tokens), self.task.L if budget is None else budget
        generation = self.model.generate(self.ar, tokens, budget)
        written = np.full((len(tokens), budget), -1, np.int64)
        for row, scratch in enumerate(generation.scratch):
            for l, token in enumerate(scratch[:budget]):
                written[row, l] = self._symbol(l, token, int(tokens[row, -1]))
        answers = [-1 if a is None else a - self._first_answer for a in generation.answer]
        return written, np.array(answers)

    def _symbol(self, l: int, token: int, word: int) -> int:
        if not self.carry:
            return token
        step, carried, value = self.thoughts[token - self.task.vocab_size].tolist()
        return value if (step, carried) == (l, word) else -1

    def text(self, tokens) -> str:
        """What is written after one prompt (seq_len,), as token names."""
        generation = self.model.generate(self.ar, self.task.check(tokens)[None], self.task.L)
        last = () if generation.answer[0] is None else (generation.answer[0],)
        return " ".join(self.vocabulary.names(generation.scratch[0] + last))

    def describe(self) -> str:
        """The task, the number of layers, and what is not as it should be."""
        kind = "thoughts that carry w" if self.carry else "symbols as thoughts"
        return self._with_changes(f"{self.task.name}, {self.num_layers} layer{'s' * (not self.carry)}, {kind}")


# checks ---------------------------------------------------------------------------------------------------------------


def _check(model: CompositionScratchpad, batches: Iterable[np.ndarray], scope: str) -> Check:
    got, wanted = [], []
    for tokens in batches:
        written, answers = model.generate(tokens)
        got.append(np.concatenate([written, answers[:, None]], axis=1))
        wanted.append(model.task.trace(tokens))
    got, wanted = np.concatenate(got), np.concatenate(wanted)
    name = f"the thoughts are i_0, ..., i_(L-1) and the answer is i_L ({model.describe()})"
    return Check.equal(name, got, wanted, scope.format(num=len(got)), value={"thoughts": model.task.L, "instances": len(got)})


def check_every(model: CompositionScratchpad) -> Check:
    """All instances: every thought and every answer."""
    return _check(model, model.task.every(1 << 11), "all {num:,} instances")


def check_seeds(model: CompositionScratchpad, seeds: Sequence[int]) -> Check:
    """The instances of given seeds: every thought and every answer."""
    scope = f"{{num}} random instances of n = {model.task.seq_len} tokens"
    return _check(model, [model.task.sample(np.asarray(seeds))], scope)


def check_budget(model: CompositionScratchpad) -> Check:
    """With one thought fewer no prompt is answered: the tokens are used up before the last hop."""
    unanswered = num = 0
    for tokens in model.task.every(1 << 11):
        unanswered, num = unanswered + int((model.generate(tokens, model.task.L - 1)[1] == -1).sum()), num + len(tokens)
    return Check.true(
        f"with L - 1 thoughts no answer comes ({model.describe()})",
        unanswered == num,
        f"all {num:,} instances",
        cases=num,
        counterexample={"unanswered": unanswered},
    )
