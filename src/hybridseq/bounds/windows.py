"""What a stack of windows cannot see: fooling pairs for sliding-window transformers (paper B, Theorem 3.7).

With windows W_1, .., W_k that count the current token, the output at a position is a function of that token and of the

    reach = sum_i (W_i - 1)

tokens before it, and of no others. Two sequences that agree on their last R tokens and differ right before them get the same
output, bit for bit, whenever reach < R. If the task wants different answers for them, one answer is wrong.

`certificate` writes a model and such a pair down as plain data; `replay` needs the models alone: it runs both sequences again and
solves the task by a plain loop of its own. Nothing in the replay relies on the theorem.

Deviates: the paper asks for sum W_i >= R and leaves open what W_i counts. If it counts the current token, that is true and k
tokens too weak; it is tight if W_i counts previous tokens only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds.packed_models import pack, unpack
from hybridseq.evidence import Certificate, Check
from hybridseq.mixers import Attention
from hybridseq.models import Model
from hybridseq.rng import Generator

KIND = "fooling pair"

# the light cone ----------------------------------------------------------------------------------------------------------


def reach(windows: Sequence[int]) -> int:
    """sum (W_i - 1): how many tokens before the last one the last output may depend on.

    >>> reach((12, 12)), reach((12, 13))
    (22, 23)
    """
    windows = tuple(windows)
    if not windows or any(isinstance(w, bool) or not isinstance(w, int | np.integer) or w < 1 for w in windows):
        raise ValueError(f"windows={windows!r}: needs one integer >= 1 for each layer (the current token counts)")
    return int(sum(w - 1 for w in windows))


def light_cone(windows: Sequence[int], seq_len: int) -> np.ndarray:
    """Which positions the last output may depend on: bool (k + 1, seq_len), row 0 the tokens, row i the stream after layer i.

    Found by walking down from the last position, window by window; `reach` is not used.

    >>> light_cone((3, 2), 6).astype(int).tolist()
    [[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1]]
    """
    reach(windows)
    rows = [np.arange(seq_len) == seq_len - 1]
    for window in reversed(tuple(windows)):
        above = rows[-1]
        rows.append(np.array([above[j : j + window].any() for j in range(seq_len)]))
    return np.array(rows[::-1])


def windows_of(model: Model) -> tuple[int, ...]:
    """The window of each layer, the widest of its heads. Raises ValueError for a head that is no attention or sees everything."""
    found = []
    for number, block in enumerate(model.blocks, start=1):
        cores = [head.core for head in block.layer.heads]
        for core in cores:
            if not isinstance(core, Attention) or core.window is None:
                kind = type(core).__name__ if not isinstance(core, Attention) else "Attention without a window"
                name = block.name or f"block {number}"
                raise ValueError(f"model: {name} has a head of kind {kind}; the argument needs sliding windows in every layer")
        found.append(max(core.window for core in cores))
    return tuple(found)


# pairs -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pair:
    """Two sequences of one length and what a task wants at the last position.

    tokens: (2, seq_len) token numbers. task: the name of a task in TASKS. sizes: its parameters.
    Raises ValueError for sequences that do not differ, or differ in the last token.
    """

    tokens: np.ndarray
    task: str
    sizes: tuple[int, ...] = ()

    def __post_init__(self):
        tokens = np.asarray(self.tokens, dtype=np.int64)
        if tokens.ndim != 2 or len(tokens) != 2:
            raise ValueError(f"tokens: needs two sequences of one length, got shape {tokens.shape}")
        if self.task not in TASKS:
            raise ValueError(f"task={self.task!r}: must be one of {', '.join(TASKS)}")
        differ = np.flatnonzero(tokens[0] != tokens[1])
        if not len(differ) or differ[-1] == tokens.shape[1] - 1:
            raise ValueError("tokens: the two sequences must differ, and agree in the last token")
        object.__setattr__(self, "tokens", tokens)

    @property
    def agreement(self) -> int:
        """R: on how many last tokens the two agree; they differ in the token before these."""
        return int(self.tokens.shape[1] - 1 - np.flatnonzero(self.tokens[0] != self.tokens[1])[-1])

    @property
    def targets(self) -> tuple[int, int]:
        """The right answers at the last position, by the task's plain solver."""
        one, other = (TASKS[self.task](row, *self.sizes) for row in self.tokens.tolist())
        return one, other


def copied(tokens: Sequence[int], num_numbers: int) -> int:
    """Selective copying by a plain loop: the token n - 1 places before the last, n the last number (ids 0..N-1 are #1..#N).

    Raises ValueError where the answer is undefined: no number, or a number beyond the sequence.

    >>> copied([1, 2, 2, 3, 2], num_numbers=2), copied([0, 2, 2, 3, 2], num_numbers=2)
    (3, 2)
    """
    n = 0
    for token in tokens:
        n = token + 1 if token < num_numbers else n
    if not 1 <= n <= len(tokens):
        raise ValueError(f"tokens: selective copying has no answer here (last number {n or 'absent'}, length {len(tokens)})")
    return tokens[len(tokens) - n]


def recalled(tokens: Sequence[int], num_words: int) -> int:
    """Recall with decoding by a plain loop: what follows the last occurrence of the word that the last b bits spell.

    Words are 0..W-1, W = 2^b; W is the bit 0 and W + 1 the bit 1, most significant first. The occurrence must have a successor.
    Raises ValueError where the answer is undefined (fewer than b bits, or no occurrence), and unless W is a power of two >= 2.

    >>> recalled([0, 2, 1, 3, 4, 5], num_words=4), recalled([4, 4, 0, 2, 1, 3], num_words=4)
    (3, 2)
    """
    width = num_words.bit_length() - 1
    if width < 1 or num_words != 1 << width:
        raise ValueError(f"num_words={num_words!r}: must be a power of two >= 2, since b = log2 W bits spell a word")
    bits = [token - num_words for token in tokens if token >= num_words][-width:]
    word = int("".join(map(str, bits)), 2) if len(bits) == width else None
    answer = None
    for token, following in pairwise(tokens):
        answer = following if token == word else answer
    if answer is None:
        raise ValueError(f"tokens: recall has no answer here (bits {bits}, the word must occur before the last position)")
    return answer


def heard(tokens: Sequence[int]) -> int:
    """The rumour's task: whether there is a token 1 anywhere."""
    return int(1 in tokens)


TASKS: dict[str, Callable[..., int]] = {"selective copying": copied, "recall": recalled, "rumour": heard}


def copying_pair(seq_len: int, num_numbers: int = 2, num_words: int = 2) -> Pair:
    """#1 or #2 in front, then words only, of which the last two differ: R = seq_len - 1, one wants x_L, the other x_{L-1}.

    >>> pair = copying_pair(6)
    >>> pair.tokens.tolist(), pair.agreement, pair.targets
    ([[0, 2, 2, 2, 3, 2], [1, 2, 2, 2, 3, 2]], 5, (2, 3))
    """
    if num_numbers < 2 or num_words < 2 or seq_len < 3:
        raise ValueError(f"needs num_numbers, num_words >= 2 and seq_len >= 3, got {num_numbers}, {num_words}, {seq_len}")
    rest = [num_numbers] * (seq_len - 3) + [num_numbers + 1, num_numbers]
    return Pair(np.array([[first, *rest] for first in (0, 1)]), "selective copying", (num_numbers,))


def recall_pair(num_words: int, blocks: int, generator: Generator) -> Pair:
    """The code of one of two words in front, then blocks of pairs: R = L - b, because the codes differ in their last bit.

    Contexts are those of `task_bounds.Recall`: in each block every word of the lower half occurs once, followed by a uniform
    word of the upper half; in the last block the words 0 and 1 have different successors.
    """
    width, half = num_words.bit_length() - 1, num_words // 2
    if num_words != 1 << width or num_words < 4 or blocks < 1:
        raise ValueError(f"num_words={num_words!r}, blocks={blocks!r}: needs a power of two >= 4 and at least one block")
    context: list[int] = []
    for block in range(blocks):
        alphas = generator.at(block, 0).permutation(half).tolist()
        betas = (half + generator.at(block, 1).integers(half, (half,))).tolist()
        if block == blocks - 1:
            betas[alphas.index(1)] = half + (betas[alphas.index(0)] - half + 1) % half
        context += [token for pair in zip(alphas, betas, strict=True) for token in pair]
    codes = [[num_words] * (width - 1) + [num_words + bit] for bit in (0, 1)]
    return Pair(np.array([code + context for code in codes]), "recall", (num_words,))


def rumour_pair(seq_len: int, distance: int) -> Pair:
    """Zeros, and zeros with a single 1 that stands `distance` tokens before the last."""
    if not 1 <= distance < seq_len:
        raise ValueError(f"distance={distance}: must lie in 1..{seq_len - 1}")
    tokens = np.zeros((2, seq_len), dtype=np.int64)
    tokens[1, seq_len - 1 - distance] = 1
    return Pair(tokens, "rumour")


# certificates ------------------------------------------------------------------------------------------------------------


def same_bits(a, b) -> bool:
    """Whether two arrays of stored numbers are the same, bit for bit (so that 0.0 and -0.0 differ)."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and (a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes())


def last_outputs(model: Model, ar, tokens) -> list:
    """The logits at the last position, sequence by sequence: passes of identical shape, so floats round identically."""
    return [model.forward(ar, row)[-1] for row in np.asarray(tokens)]


def certificate(model: Model, ar, pair: Pair) -> Certificate | None:
    """The certificate that `model` errs on one sequence of the pair; None if it tells the two apart.

    Raises ValueError for a model with other layers than sliding windows, or a pair whose targets are equal.
    """
    windows, targets = windows_of(model), pair.targets
    if targets[0] == targets[1]:
        raise ValueError(f"pair: both sequences want {targets[0]}, so nobody need be wrong")
    outputs = last_outputs(model, ar, pair.tokens)
    if not same_bits(*outputs):
        return None
    data = {
        "model": pack(model), "model hash": model.content_hash, "arithmetic": _name(ar), "windows": list(windows),
        "task": pair.task, "sizes": list(pair.sizes), "tokens": pair.tokens.tolist(), "agreement": pair.agreement,
        "targets": list(targets), "said": int(np.argmax(ar.values(outputs[0]))),
    }  # fmt: skip
    return Certificate(KIND, data)


def replay(stored: Certificate | str, model: Model | None = None) -> Check:
    """Run both sequences of a certificate again with the model that it carries (and, if given, compare `model` by hash).

    Everything that is stated is computed anew: the windows, where the sequences differ, the outputs, the right answers. The
    check passes if the outputs are equal bit for bit and the right answers differ, so that one of the two is wrong.
    """
    scope = "one certificate, both sequences run again"
    try:
        stored = Certificate.from_json(stored) if isinstance(stored, str) else stored
        reasons, data = _objections(stored, model), stored.data
    except (ValueError, KeyError, TypeError, OSError, EOFError, IndexError, json.JSONDecodeError) as unreadable:
        return Check("certificate of a fooling pair", False, scope, 1, f"unreadable: {unreadable}")
    if not reasons:
        scope = f"{data['task']}, windows {tuple(data['windows'])}, R = {data['agreement']}, {data['arithmetic']}"
    return Check.true("certificate of a fooling pair", not reasons, scope, 1, reasons)


def _objections(stored: Certificate, model: Model | None) -> list[str]:
    """Everything that is wrong with a certificate; empty if it stands."""
    if stored.kind != KIND:
        return [f"kind {stored.kind!r} is not {KIND!r}"]
    data = stored.data
    carried, ar = unpack(data["model"]), _arithmetic(data["arithmetic"])
    if carried.content_hash != data["model hash"]:
        return ["the model in the certificate does not have the hash that is stated"]
    if model is not None and model.content_hash != data["model hash"]:
        return ["the model at hand is not the one in the certificate: their hashes differ"]
    one, other = data["tokens"]
    agree = 0
    while agree < min(len(one), len(other)) and one[-1 - agree] == other[-1 - agree]:
        agree += 1
    targets = [TASKS[data["task"]](row, *data["sizes"]) for row in (one, other)]
    outputs = last_outputs(carried, ar, [one, other])
    conditions = {
        "the sequences do not have one length": len(one) == len(other),
        "the sequences are equal": one != other,
        "the sequences do not agree on exactly the stated number of last tokens": agree == data["agreement"],
        "the windows are not those of the model": list(windows_of(carried)) == data["windows"],
        "the outputs differ": same_bits(*outputs),
        "the output is not the one that is stated": int(np.argmax(ar.values(outputs[0]))) == data["said"],
        "the right answers are not those that are stated": targets == data["targets"],
        "the right answers do not differ, so nobody need be wrong": targets[0] != targets[1],
    }
    return [reason for reason, fine in conditions.items() if not fine]


def _name(ar) -> str:
    return f"F_{ar.s}, ties {ar.ties}" if isinstance(ar, FixedPoint) else ar.name


def _arithmetic(name: str):
    if name.startswith("F_"):
        s, ties = name.removeprefix("F_").split(", ties ")
        return FixedPoint(int(s), ties)
    return Float("torch", name.removeprefix("torch ")) if name.startswith("torch ") else Float(dtype=name)


# checks ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sight:
    """What one model saw: for each distance 1, 2, .. whether changing the token there changed the last output."""

    windows: tuple[int, ...]
    seen: np.ndarray

    @property
    def reach(self) -> int:
        return reach(self.windows)


def sight(model: Model, ar, base: np.ndarray, distances: Iterable[int] | None = None) -> Sight:
    """Change one token of `base` (seq_len,) at each distance from the end and compare the last output with that of `base`.

    The changed token is the next one in the vocabulary. All sequences go through the model in one batch of equal shapes; an
    effect of the batch on rounding would show as a false difference, never as a false agreement.
    """
    base = np.asarray(base)
    distances = np.arange(1, len(base)) if distances is None else np.asarray(list(distances))
    tokens = np.tile(base, (len(distances) + 1, 1))
    rows, columns = np.arange(1, len(tokens)), len(base) - 1 - distances
    tokens[rows, columns] = (tokens[rows, columns] + 1) % model.embedding.num_tokens
    last = model.forward(ar, tokens)[:, -1]
    return Sight(windows_of(model), np.array([not same_bits(last[0], row) for row in last[1:]]))


def sights(models: Iterable[Model], ar, seq_len: int, seed: int = 0) -> list[Sight]:
    """`sight` of each model on a random sequence."""
    found = []
    for i, model in enumerate(models):
        found.append(sight(model, ar, Generator(seed).at(i).integers(model.embedding.num_tokens, (seq_len,))))
    return found


def check_blind(found: Sequence[Sight], what: str) -> Check:
    """No model saw a token beyond its reach."""
    wrong = [f"windows {s.windows}: saw distance {d}" for s in found for d in _distances(s) if d > s.reach and s.seen[d - 1]]
    beyond = sum(int(np.sum(_distances(s) > s.reach)) for s in found)
    return Check.true(
        "nothing beyond sum(W_i - 1) changes a bit of the output", not wrong, what, beyond, wrong[:1], {"blind pairs": beyond}
    )


def check_sharp(found: Sequence[Sight], what: str) -> Check:
    """Every model saw every token within its reach."""
    wrong = [
        f"windows {s.windows}: missed distance {d}" for s in found for d in _distances(s) if d <= s.reach and not s.seen[d - 1]
    ]
    within = sum(int(np.sum(_distances(s) <= s.reach)) for s in found)
    value = {"seeing pairs": within, "blind although sum W_i >= R": off_by_layers(found)}
    return Check.true("everything within sum(W_i - 1) changes the output", not wrong, what, within, wrong[:1], value)


def off_by_layers(found: Sequence[Sight]) -> int:
    """Pairs that satisfy the printed condition sum W_i >= R and are blind all the same."""
    return sum(int(np.sum(~s.seen & (_distances(s) <= sum(s.windows)))) for s in found)


def _distances(s: Sight) -> np.ndarray:
    return np.arange(1, len(s.seen) + 1)


def check_cone(lists: Iterable[Sequence[int]], seq_len: int) -> Check:
    """Walking down window by window gives the interval of sum(W_i - 1) + 1 last tokens."""
    lists = list(lists)
    got = [light_cone(windows, seq_len)[0].tolist() for windows in lists]
    expected = [(np.arange(seq_len) >= seq_len - 1 - reach(windows)).tolist() for windows in lists]
    scope = f"{len(lists)} lists of windows, {seq_len} positions"
    return Check.equal("the light cone is the last sum(W_i - 1) + 1 tokens", got, expected, scope, lists)


def check_told(models: Iterable[Model], ar, seq_len: int) -> Check:
    """A rumour at every distance is answered rightly exactly up to the reach, and beyond it not."""
    models = list(models)
    got, expected = [], []
    for model in models:
        tokens = np.array([rumour_pair(seq_len, d).tokens[1] for d in range(1, seq_len)])
        got.append([int(a) for a in model.greedy(ar, tokens)])
        expected.append([int(d <= reach(windows_of(model))) for d in range(1, seq_len)])
    names = [windows_of(model) for model in models]
    scope = f"{len(models)} lists of windows, every distance 1..{seq_len - 1}, {_name(ar)}"
    return Check.equal("a rumour is heard exactly up to sum(W_i - 1)", got, expected, scope, names)


def check_success(models: Iterable[Model], ar, pair: Pair) -> Check:
    """On the uniform distribution over the pair, blind models are right with probability 0 or 1/2, never more."""
    models = list(models)
    rights, wrong = [], []
    for model in models:
        said = [int(np.argmax(ar.values(out))) for out in last_outputs(model, ar, pair.tokens)]
        rights.append(sum(a == b for a, b in zip(said, pair.targets, strict=True)))
        if reach(windows_of(model)) < pair.agreement and (said[0] != said[1] or rights[-1] > 1):
            wrong.append(f"windows {windows_of(model)}: said {said}, wanted {pair.targets}")
    scope = f"{pair.task}, R = {pair.agreement}, {len(models)} models, {_name(ar)}"
    return Check.true("a blind model is right on at most one of two", not wrong, scope, len(models), wrong[:1],
                      {"most right answers of two": max(rights)})  # fmt: skip


def check_certificates(models: Iterable[Model], ar, pair: Pair, and_no_other: bool = True) -> Check:
    """Every model whose reach is below R gets a certificate that the replayer accepts from its text, and no other model does.

    and_no_other: False in coarse formats, where rounding may blind a model whose windows are long enough.
    """
    models, failed, written = list(models), [], 0
    for model in models:
        found = certificate(model, ar, pair)
        blind = reach(windows_of(model)) < pair.agreement
        if (found is None and blind) or (found is not None and not blind and and_no_other):
            failed.append(f"windows {windows_of(model)}: certificate {'written' if found else 'missing'}")
        elif found is not None:
            written += 1
            verdict = replay(found.to_json(), model)
            failed += [] if verdict.passed else [verdict.counterexample]
    scope = f"{pair.task}, R = {pair.agreement}, {len(models)} models, {_name(ar)}"
    name = f"a certificate {'exactly where' if and_no_other else 'wherever'} sum(W_i - 1) < R, each replayed"
    return Check.true(name, not failed, scope, len(models), failed[:1], {"certificates": written})
