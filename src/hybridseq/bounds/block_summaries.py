"""What a block's summary forgets, a layer that does not read the block cannot know (paper C, Theorem 1.2, sparse side).

The last-token version of two-sum, T blocks of B residues and a query; one layer whose heads read at most K blocks between them.
M' residues are free: x + x != 0. Their B-subsets are C(M', B) contents, and each head turns a block into numbers of so many bits.

Shared phi. If all summaries of a block together have fewer than log2 C(M', B) bits, two sets S != S' have the same. Take x in S
and not in S', the query -x, and S' in every block: the answer is no. T > K, so some block is not read; put S there instead. No
summary changes, so no selection, no token that is read, no output; but the answer is yes.

phi_t. Let F_t be the largest class of sets with one summary in block t, b the bits. If C(M', B) > 2^b C(w, B) with
w = floor(K M' / T) + T (B - 1), then the union of each F_t has more than w members (a family on w points has at most C(w, B)).
At most T (B - 1) residues lie in some intersection of F_t (two different sets share at most B - 1). So more than K M' pairs
(t, x) remain with x in the union of F_t and in no intersection, and some x has more than K of them. Fill each block s from F_s
without x; one of the more than K blocks is not read; swap in a member of its F_t with x.

Nothing here knows how a model was made: it is asked for its summaries, its selection and its output.

Deviates: layer and proof are reconstructed; the paper's own were not at hand. The constants are ours.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from hybridseq import rng
from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds import logarithms
from hybridseq.bounds.packed_models import pack, unpack
from hybridseq.evidence import Certificate, Check
from hybridseq.mixers import BlockSparseAttention, PositionedSummary
from hybridseq.models import Model
from hybridseq.tasks.two_sum import LastTokenTwoSum, free_residues, num_free

KIND = "equal block summaries"
_UNREADABLE = (ValueError, KeyError, TypeError, OSError, EOFError, IndexError, AttributeError, OverflowError)


# the bounds ----------------------------------------------------------------------------------------------------------------


def existence(modulus: int, block_size: int) -> float:
    """log2 C(M', B): below so many bits a block, two contents share their summaries.

    >>> [round(existence(256, b), 1) for b in (1, 2, 4, 8, 16)]
    [8.0, 15.0, 27.3, 48.4, 82.9]
    """
    return logarithms.as_float([(1, _contents(modulus, block_size))])


def collides(modulus: int, block_size: int, bits: int) -> bool:
    """Whether 2^bits < C(M', B), exactly."""
    return 1 << bits < _contents(modulus, block_size)


def least_budget(modulus: int, block_size: int, value_summary: bool = True) -> float:
    """What H d p must at least be: log2 C(M', B), or half of it where values are summarised by as many numbers as keys.

    >>> round(least_budget(256, 8), 4)
    24.2248
    """
    return existence(modulus, block_size) / (2 if value_summary else 1)


def blocks_seen(num_heads: int, top_k: int, block_size: int, window: int | None = None) -> int:
    """K: blocks that the query can read: k for each head, and those that a window of W tokens, the query included, touches."""
    return num_heads * top_k + (0 if window is None else -(-(window - 1) // block_size))


def positioned_budget(modulus: int, block_size: int, blocks: int, seen: int) -> float:
    """log2 C(M', B) - log2 C(w, B), w = floor(K M' / T) + T (B - 1): fewer bits cannot do, whatever phi_t is; at least 0.

    Raises ValueError unless 0 <= seen < blocks.

    >>> round(positioned_budget(257**2, 4, 64, 2), 1)
    19.5
    """
    if not 0 <= seen < blocks:
        raise ValueError(f"seen={seen!r}: must be an integer from 0 to T - 1 = {blocks - 1}; if all are read, nothing is hidden")
    free = num_free(modulus)
    w = seen * free // blocks + blocks * (block_size - 1)
    if w >= free or w < block_size:
        return 0.0 if w >= free else existence(modulus, block_size)
    return max(0.0, logarithms.as_float([(1, comb(free, block_size)), (-1, comb(w, block_size))]))


def check_growth(sizes: Iterable[tuple[int, int]]) -> Check:
    """log2 C(M', B) >= B log2(M' / B), and at least B log2 n for M = n^2 and B <= n / 2: integers compared.

    sizes: pairs (n, B). Each factor (M' - i) / (B - i) of C(M', B) is at least M' / B; and M' / B >= 2 (n^2 - 2) / n >= n.
    """
    wrong, cases = None, 0
    for n, size in sizes:
        free = num_free(n * n)
        count = comb(free, size)
        cases += 1
        if (count * size**size < free**size or count < n**size) and wrong is None:
            wrong = {"n": n, "B": size}
    return Check.true("log2 C(M', B) >= B log2(M'/B) >= B log2 n", wrong is None, f"{cases} pairs (n, B)", cases, wrong)


def _contents(modulus: int, block_size: int) -> int:
    free = num_free(modulus)
    if isinstance(block_size, bool) or not isinstance(block_size, int | np.integer) or not 1 <= block_size <= free:
        raise ValueError(f"block_size={block_size!r}: must be an integer from 1 to M' = {free}")
    return comb(free, int(block_size))


# what a model knows of a block ------------------------------------------------------------------------------------------------


def heads_of(model: Model) -> tuple:
    """The heads of a model of one block-sparse layer, all with one block size. Raises ValueError for any other model."""
    heads = model.blocks[0].layer.heads if len(model.blocks) == 1 else ()
    sparse = [head for head in heads if isinstance(head.core, BlockSparseAttention)]
    if not heads or len(sparse) < len(heads) or len({head.core.block_size for head in heads}) > 1:
        raise ValueError("model: must be one layer of block-sparse heads with one block size")
    return heads


def summary_bits(model: Model) -> int:
    """Bits that all heads together keep of a block: numbers times the bits of their format, keys and values.

    Raises ValueError for a summary without a format, which keeps as much as the arithmetic does.
    """
    total = 0
    for head in heads_of(model):
        parts = [(head.core.key_summary, head.core.select_dim)]
        parts += [(head.core.value_summary, head.core.compressed_dim)] if head.core.value_summary is not None else []
        total += sum(dim * _bits(summary) for summary, dim in parts)
    return total


def _bits(summary) -> int:
    formats = [summary.format] + [f.format for f in getattr(summary, "functions", ()) if summary.format is None]
    found = [form.bits for form in formats if form is not None]
    if not found or (summary.format is None and len(found) < len(formats) - 1):
        raise ValueError(f"summary: {type(summary).__name__} has no format, so its bits are not bounded; give one")
    return max(found)


def seen_by(model: Model, task: LastTokenTwoSum) -> int:
    """K of a model, at most."""
    cores = [head.core for head in heads_of(model)]
    windows = [core.window for core in cores if core.window is not None]
    window = max(windows, default=None)
    return sum(core.top_k for core in cores) + blocks_seen(0, 0, task.block_size, window)


def summaries(model: Model, ar, contents, block: int = 0) -> np.ndarray:
    """All that the heads know of a block unread: (num, numbers) for contents (num, B) of block number `block`, as float64."""
    contents, found = np.asarray(contents), []
    if contents.dtype.kind not in "iu" or contents.ndim != 2 or (contents.size and contents.min() < 0):
        raise ValueError(f"contents: must be tokens (num, B), integers >= 0, got {contents.dtype} of shape {contents.shape}")
    if contents.shape[1] != (size := heads_of(model)[0].core.block_size):
        raise ValueError(f"contents: must be whole blocks of {size} tokens, got {contents.shape[1]}")
    here = np.arange(contents.shape[-1])
    x = model.embedding.rows(ar, np.arange(int(contents.max()) + 1)[:, None], block * len(here) + here)  # each token once
    for head in heads_of(model):
        core = head.core
        content = _normalised(ar, core, head.input(ar, x, "k")) if core.content_dim is None else head.input(ar, x, "content")
        found.append(core.summaries(ar, content[contents, here], block))
        if core.value_summary is not None:
            found.append(core.summaries(ar, head.input(ar, x, "v")[contents, here], block, value=True))
    return np.concatenate([np.asarray(ar.values(part))[:, 0] for part in found], axis=-1) + 0.0  # no negative zeros


def unread(model: Model, ar, tokens) -> np.ndarray:
    """Which of the complete blocks before the last token's own it does not read: bool (num, blocks), tokens (num, seq_len)."""
    tokens = model.embedding.check(tokens)
    x, last = model.embedding.apply(ar, tokens), np.array([tokens.shape[-1] - 1])
    hidden = None
    for head in heads_of(model):
        inputs, core = head.inputs(ar, x), head.core
        content = _normalised(ar, core, inputs.k) if inputs.content is None else inputs.content
        selector = _normalised(ar, core, inputs.q) if inputs.selector is None else inputs.selector
        mask = core.mask(ar, selector[..., -1:, :], content, last)[..., 0, :]
        blocks = (tokens.shape[-1] - 1) // core.block_size
        own = ~mask[..., : blocks * core.block_size].reshape(*mask.shape[:-1], blocks, core.block_size).any(axis=-1)
        hidden = own if hidden is None else hidden & own
    return hidden


def _normalised(ar, core: BlockSparseAttention, x):
    return ar.rms_norm(x) if core.qk_norm else x


# collisions ----------------------------------------------------------------------------------------------------------------


@cache
def subsets(modulus: int, block_size: int, num: int, seed: int = 0) -> np.ndarray:
    """Sorted B-subsets of the free residues (rows): all of them if there are at most `num`, else random ones.

    Of `num` random sets those that repeat are left out. Raises ValueError for a block size beyond M'.

    >>> subsets(8, 2, 100).shape, subsets(256, 4, 100).shape
    ((15, 2), (100, 4))
    """
    if _contents(modulus, block_size) <= num:
        rows = np.array(list(combinations(free_residues(modulus).tolist(), block_size)))
    else:
        rows = _distinct_sets(free_residues(modulus), block_size, num, seed)
    rows.setflags(write=False)
    return rows


def _distinct_sets(free: np.ndarray, size: int, num: int, seed: int) -> np.ndarray:
    """The first `num` draws of `size` residues without a repeated residue, as sorted rows, each row once."""
    kept, drawn = np.empty((0, size), np.int64), 0
    while len(kept) < num:
        places = rng.integers(len(free), seed, np.arange(drawn, drawn + 2 * num)[:, None], np.arange(size))
        rows, drawn = np.sort(free[places], axis=1), drawn + 2 * num
        kept = np.concatenate([kept, rows[(rows[:, 1:] != rows[:, :-1]).all(axis=1)]])[:num]
    return kept[np.sort(np.unique(kept, axis=0, return_index=True)[1])]


def classes(known: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, ... (num,) of the distinct rows of a float64 array (num, width), bit for bit."""
    rows = np.ascontiguousarray(known)
    return np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel(), return_inverse=True)[1].ravel()


@dataclass(frozen=True)
class Census:
    """Contents by summary: how many contents, how many different summaries, contents that share theirs, the largest class."""

    contents: int
    summaries: int
    colliding: int
    largest: int


def census(known: np.ndarray) -> Census:
    """Count classes of summaries (num, width).

    >>> census(np.array([[0.0], [1.0], [0.0]]))
    Census(contents=3, summaries=2, colliding=2, largest=2)
    """
    sizes = np.bincount(classes(known))
    return Census(len(known), len(sizes), int(sizes[sizes > 1].sum()), int(sizes.max()))


def collision(known: np.ndarray) -> tuple[int, int] | None:
    """Two rows with equal summaries: the first of some class and another of its members; None if all differ."""
    labels = classes(known)
    order = np.argsort(labels, kind="stable")
    same = np.flatnonzero(labels[order][1:] == labels[order][:-1])
    return (int(order[same[0]]), int(order[same[0] + 1])) if len(same) else None


@dataclass(frozen=True, eq=False)
class FoolingPair:
    """Two prompts (seq_len,) that differ in one block; `first` has the answer no, `second` yes. The query is -residue."""

    first: np.ndarray
    second: np.ndarray
    block: int
    residue: int

    @property
    def prompts(self) -> np.ndarray:
        """(2, seq_len)."""
        return np.stack([self.first, self.second])


def shared_pair(model: Model, ar, task: LastTokenTwoSum, one, other) -> FoolingPair | None:
    """The prompts of the proof from two contents (B,) with equal summaries; None if every block is read, so k is too large."""
    one, other = np.asarray(one), np.asarray(other)
    (residue, *_) = np.setdiff1d(one, other)
    contents = np.repeat(other[None], task.blocks, axis=0)
    return _swap(model, ar, task, contents, dict.fromkeys(range(task.blocks), one), int(residue))


def positioned_pair(model: Model, ar, task: LastTokenTwoSum, families: Sequence[np.ndarray]) -> FoolingPair | None:
    """The prompts of the proof for phi_t from the sets F_t, integers (|F_t|, B) each; None where no residue serves.

    Residues that can be had and avoided in most blocks come first.
    """
    holds = np.zeros((task.blocks, 2, task.modulus), bool)  # in the union, in the intersection
    for t, family in enumerate(families):
        count = np.bincount(family.ravel(), minlength=task.modulus)
        holds[t] = count > 0, count == len(family)
    union, always = holds[:, 0], holds[:, 1]
    votes = np.where(always.any(axis=0) | (2 * np.arange(task.modulus) % task.modulus == 0), 0, union.sum(axis=0))
    for residue in np.argsort(-votes, kind="stable")[: int((votes > 0).sum())]:
        has = [(family == residue).any(axis=1) for family in families]
        contents = np.stack([family[np.argmin(h)] for family, h in zip(families, has, strict=True)])
        swaps = {t: family[np.argmax(h)] for t, (family, h) in enumerate(zip(families, has, strict=True)) if h.any()}
        pair = _swap(model, ar, task, contents, swaps, int(residue))
        if pair is not None:
            return pair
    return None


def _swap(model: Model, ar, task, contents: np.ndarray, swaps: dict[int, np.ndarray], residue: int) -> FoolingPair | None:
    """Replace the content of one block that is not read."""
    query = -residue % task.modulus
    first = task.prompt(contents, query)
    for t in np.flatnonzero(unread(model, ar, first[None])[0][: task.blocks]):
        if int(t) in swaps:
            changed = contents.copy()
            changed[t] = swaps[int(t)]
            return FoolingPair(first, task.prompt(changed, query), int(t), residue)
    return None


def search(model: Model, task: LastTokenTwoSum, samples: int = 1 << 14, seed: int = 0, ar=None) -> FoolingPair | None:
    """Birthday search: summarise `samples` contents (all, if there are no more), and make prompts of two that collide.

    Two that collide are looked for among the first 2^9, 2^10, ..., before more are summarised. A summary that depends on the
    block is searched block by block, and the largest classes are used together.
    """
    ar = Float() if ar is None else ar
    drawn = subsets(task.modulus, task.block_size, samples, seed)
    parts = [part for head in heads_of(model) for part in (head.core.key_summary, head.core.value_summary)]
    if not any(isinstance(part, PositionedSummary) for part in parts):
        known = np.empty((0, 0))
        while len(known) < len(drawn):
            more = summaries(model, ar, drawn[len(known) : max(512, 2 * len(known))])
            known = np.concatenate([known, more]) if len(known) else more
            if (found := collision(known)) is not None:
                return shared_pair(model, ar, task, drawn[found[0]], drawn[found[1]])
        return None
    families = []
    for t in range(task.blocks):
        labels = classes(summaries(model, ar, drawn, t))
        families.append(drawn[labels == np.bincount(labels).argmax()])
    return positioned_pair(model, ar, task, families)


def objections(model: Model, ar, task: LastTokenTwoSum, pair: FoolingPair) -> list[str]:
    """Run the model on both prompts; everything that is wrong with the pair, empty if it fools the model.

    Summaries, selections and the whole stream at the last token must be equal bit for bit, and the right answers differ.
    """
    prompts = task.check(pair.prompts)
    contents = task.contents(prompts)
    differ = (contents[0] != contents[1]).any(axis=-1)
    known = [summaries(model, ar, contents[:, t], t) for t in range(task.blocks)]
    hidden = unread(model, ar, prompts)
    states = [np.asarray(model.last_state(ar, row[None]))[0] for row in prompts]
    logits = [np.asarray(model.last_only(ar, row[None]))[0] for row in prompts]
    right = [_answer(row, task.modulus) for row in prompts.tolist()]
    conditions = {
        "the prompts do not differ in the stated block alone": np.flatnonzero(differ).tolist() == [pair.block],
        "the queries differ": prompts[0, -1] == prompts[1, -1],
        "some block has two summaries": all((part[0] == part[1]).all() for part in known),
        "the selections differ": (hidden[0] == hidden[1]).all(),
        "the block that differs is read": bool(hidden[:, pair.block].all()),
        "the streams at the last token differ": _same(*states),
        "the outputs differ": _same(*logits),
        "the right answers do not differ": right[0] != right[1],
    }
    return [reason for reason, fine in conditions.items() if not fine]


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and (np.array_equal(a, b) if a.dtype == object else a.tobytes() == b.tobytes())


def _answer(tokens: Sequence[int], modulus: int) -> int:
    """The task, by a loop of its own."""
    *content, query = tokens
    for x in content:
        if (x + query) % modulus == 0:
            return 1
    return 0


# certificates ------------------------------------------------------------------------------------------------------------------


def certificate(model: Model, task: LastTokenTwoSum, pair: FoolingPair, ar=None) -> Certificate:
    """Model, both prompts, what was said and what is right, as plain data. Raises ValueError for a pair that fools nobody."""
    ar = Float() if ar is None else ar
    if wrong := objections(model, ar, task, pair):
        raise ValueError(f"pair: it does not fool the model: {'; '.join(wrong)}")
    said = model.vocabulary.names(model.greedy(ar, pair.first[None]))[0]
    return Certificate(
        KIND,
        {
            "modulus": task.modulus, "blocks": task.blocks, "block size": task.block_size, "block": pair.block,
            "prompts": pair.prompts.tolist(), "output": said,
            "answers": [_answer(row, task.modulus) for row in pair.prompts.tolist()],
            "arithmetic": f"F_{ar.s}" if isinstance(ar, FixedPoint) else ar.name,
            "model hash": model.content_hash, "model": pack(model),
        },
    )  # fmt: skip


def replay(stored: Certificate | str, model: Model | None = None) -> Check:
    """Run both prompts of a certificate again on the model that it carries (and, if given, compare `model` by hash).

    Nothing of the search is used: summaries, selections, streams, outputs and answers are computed anew.
    """
    name, scope = "certificate of equal block summaries", "one certificate, both prompts run again"
    try:
        stored = Certificate.from_json(stored) if isinstance(stored, str) else stored
        reasons, data = _wrong_with(stored, model), stored.data
    except (*_UNREADABLE, json.JSONDecodeError, zipfile.BadZipFile, zlib.error) as unreadable:
        return Check(name, False, scope, 1, f"unreadable: {unreadable}")
    if not reasons:
        scope = f"M = {data['modulus']}, T = {data['blocks']}, B = {data['block size']}, {data['arithmetic']}: both prompts"
    return Check.true(name, not reasons, scope, 1, reasons)


def _wrong_with(stored: Certificate, model: Model | None) -> list[str]:
    """Everything that is wrong with a certificate; empty if it stands."""
    if stored.kind != KIND:
        return [f"kind {stored.kind!r} is not {KIND!r}"]
    data = stored.data
    carried = unpack(data["model"])
    if carried.content_hash != data["model hash"]:
        return ["the model in the certificate does not have the hash that is stated"]
    if model is not None and model.content_hash != data["model hash"]:
        return ["the model at hand is not the one in the certificate: their hashes differ"]
    name = data["arithmetic"]
    ar = FixedPoint(int(name.removeprefix("F_"))) if name.startswith("F_") else Float(dtype=name)
    task = LastTokenTwoSum(data["modulus"], data["blocks"], data["block size"])
    if any(head.core.block_size != task.block_size for head in heads_of(carried)):
        return ["the blocks of the model are not those of the task"]
    if carried.vocabulary.tokens != (*map(str, range(task.modulus)), *carried.vocabulary.answers):
        return ["the model's tokens are not the residues of the task"]
    first, second = (np.array(row) for row in data["prompts"])
    wrong = objections(carried, ar, task, FoolingPair(first, second, data["block"], int(-first[-1] % task.modulus)))
    said = carried.vocabulary.names(carried.greedy(ar, np.stack([first, second])))
    wrong += [] if said == [data["output"]] * 2 else ["the output is not the one that is stated"]
    right = [_answer(row, task.modulus) for row in data["prompts"]]
    return wrong + ([] if right == data["answers"] else ["the right answers are not those that are stated"])


def check_certificates(stored: Iterable[Certificate], what: str) -> Check:
    """Every certificate, written out as text, is accepted by `replay`."""
    return Check.replayed(stored, replay, what)


# experiments --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Success:
    """How many of `seeds` models were fooled, for blocks of B residues and summaries of so many bits."""

    block_size: int
    bits: int
    fooled: int
    seeds: int


Make = Callable[[LastTokenTwoSum, int, int], Model]
"""(task, bits of a summary, seed) -> model."""


def successes(make: Make, tasks: Iterable[LastTokenTwoSum], bits: Iterable[int], seeds: int, samples: int) -> list[Success]:
    """For each task and budget: on how many seeds the search finds a pair that the model, run on both prompts, falls for."""
    found, bits = [], list(bits)
    for task in tasks:
        for budget in bits:
            fooled = 0
            for seed in range(seeds):
                model = make(task, budget, seed)
                pair = search(model, task, samples, seed)
                fooled += pair is not None and not objections(model, Float(), task, pair)
            found.append(Success(task.block_size, budget, fooled, seeds))
    return found


def check_census(cases: Iterable[tuple[Model, LastTokenTwoSum, tuple[int, int, int, int]]]) -> Check:
    """All B-subsets of all residues, summarised by a model: contents, summaries, contents that share theirs, largest class."""
    got, expected, sizes = [], [], []
    for model, task, wanted in cases:
        every = np.array(list(combinations(range(task.modulus), task.block_size)))
        found = census(summaries(model, Float(), every))
        got.append((found.contents, found.summaries, found.colliding, found.largest))
        expected.append(tuple(wanted))
        sizes.append((task.modulus, task.block_size, summary_bits(model)))
    return Check.equal("contents by summary", got, expected, f"(M, B, bits) in {sizes}, all B-subsets", inputs=sizes)


def check_all_fooled(found: Iterable[Success], what: str) -> Check:
    """The search succeeded on every seed."""
    found = list(found)
    missed = [s for s in found if s.fooled < s.seeds]
    report = str(missed[0]) if missed else None
    return Check.true("every model is fooled", bool(found) and not missed, what, sum(s.seeds for s in found) or 1, report)


def check_always_below(make: Make, tasks, bits: Iterable[int], seeds: int, samples: int = 1 << 14) -> Check:
    """Where all contents can be listed and 2^bits < C(M', B), the search must succeed: for every task, budget and seed."""
    wrong, cases = None, 0
    for task in tasks:
        for budget in bits:
            if not collides(task.modulus, task.block_size, budget) or _contents(task.modulus, task.block_size) > samples:
                continue
            (outcome,) = successes(make, [task], [budget], seeds, samples)
            cases += seeds
            if outcome.fooled < seeds and wrong is None:
                wrong = {"task": str(task), "bits": budget, "fooled": outcome.fooled}
    scope = "every task and budget below log2 C(M', B) with all contents listed"
    return Check.true("below the bound every model is fooled", wrong is None and cases > 0, scope, max(cases, 1), wrong)
