"""State collisions: a recurrent decoder that solves parity-conditioned retrieval needs n - 1 bits (paper A, Theorem 7.1).

    D log2 |Q| >= n - 1        D numbers of recurrent state over all layers and heads, each from an alphabet Q.

After the table everything that later tokens can learn about it is in the recurrent state. Two tables that leave the same state
get the same answer for every address, scratch tokens or not, so answer vectors R(Y) = Y xor p(Y) 1 need a state each. There are
2^n of them for even n and 2^(n-1) for odd n: for odd n, and only then, the complement of Y has the answers of Y.

`search` follows all reachable states block by block (a block is one table bit); where two prefixes merge, `certificate` extends
both, finds an address at which the right answers differ, and writes everything down as plain data. `replay` needs the models
alone: it loads the decoder from the certificate, runs both prompts and compares. It shares no code with the search.

Deviates: paper A proves that some collision exists when there are too few states; here one is found, or reported as not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds.packed_models import pack, unpack
from hybridseq.evidence import Certificate, Check
from hybridseq.mixers import DeltaRule, Head, Layer
from hybridseq.mixers.delta_rule import DeltaInputs
from hybridseq.models import Block, Model
from hybridseq.residual import Affine

KIND = "state collision"
MOST_BITS = 20
"""Answer vectors of longer tables are not enumerated."""


# the counting argument ---------------------------------------------------------------------------------------------------


def num_answer_vectors(n: int) -> int:
    """2^n for even n, 2^(n-1) for odd n: the distinct vectors R(Y).

    >>> [num_answer_vectors(n) for n in range(1, 7)]
    [1, 4, 4, 16, 16, 64]
    """
    _check_table_length(n)
    return 1 << (n if n % 2 == 0 else n - 1)


def bits_needed(n: int) -> int:
    """log2 of `num_answer_vectors`: n for even n, n - 1 for odd n (the theorem states n - 1 for all)."""
    return num_answer_vectors(n).bit_length() - 1


def answer_vectors(n: int) -> np.ndarray:
    """R(Y) for all 2^n tables in counting order (Y_1 most significant), bits (2^n, n): R_j = Y_j xor p(Y).

    Raises ValueError for n > 20, naming the size that it would need.
    """
    _check_table_length(n)
    if n > MOST_BITS:
        raise ValueError(f"n={n!r}: enumerating needs 2^{n} = {2**n:,} tables of {n} bits; at most n = {MOST_BITS} is listed")
    tables = (np.arange(2**n)[:, None] >> np.arange(n - 1, -1, -1) & 1).astype(np.uint8)
    return tables ^ (tables.sum(axis=1, keepdims=True) % 2).astype(np.uint8)


def num_states(numbers: int, alphabet: int) -> int:
    """|Q|^D: states of `numbers` recurrent numbers, each from `alphabet` values."""
    if numbers < 0 or alphabet < 1:
        raise ValueError(f"numbers={numbers!r}, alphabet={alphabet!r}: need D >= 0 and an alphabet of one value or more")
    return alphabet**numbers


def solvable(n: int, numbers: int, alphabet: int) -> bool:
    """Whether |Q|^D is at least the number of answer vectors, in exact integers: False means that no decoder solves PCR_n."""
    return num_states(numbers, alphabet) >= num_answer_vectors(n)


# the search --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merge:
    """Two prefixes of `block` table bits that leave the same state."""

    block: int
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """What a search saw.

    n: bits of the table. counts: distinct reachable states after block 0, 1, ... merges: pairs at the first block where any
    merged, in order of the second prefix. complete: whether the search reached its last block (n, or the first merge).
    """

    n: int
    counts: tuple[int, ...]
    merges: tuple[Merge, ...]
    complete: bool
    repeats: int = 2

    @property
    def blocks(self) -> int:
        """The last block that was reached."""
        return len(self.counts) - 1

    def __str__(self) -> str:
        if self.merges:
            first = self.merges[0]
            words = "".join(map(str, first.first)), "".join(map(str, first.second))
            return f"first merge at block {first.block}: {words[0]} and {words[1]}; states by block {self.counts}"
        why = "" if self.complete else ", where the search stopped"
        return f"no collision up to block {self.blocks}{why}; states by block {self.counts}"


def search(
    model: Model, ar, n: int, repeats: int = 2, max_states: int = 1 << 16, stop_at_merge: bool = False
) -> Search:
    """Breadth-first over the distinct states that tables can leave, one block (a bit, written `repeats` times) after the other.

    Args:
        model: every layer made of delta rules. ar: a fixed-point format with s <= 31. n: table bits.
        max_states: the search stops, incomplete, after a block with more states than this.
        stop_at_merge: leave off at the first block where prefixes merge, instead of counting on to block n.

    Raises:
        ValueError: other layers than delta rules, an arithmetic that is not fixed point, n, repeats or max_states < 1,
            more positions than the embedding has.

    Cost: `repeats` steps a block, each vectorised over the children of all states.
    """
    return search_all([model], [ar], n, repeats, max_states, stop_at_merge)[0]


def search_all(
    decoders: Sequence[Model], formats: Sequence, n: int, repeats: int = 2, max_states: int = 1 << 16, stop_at_merge: bool = False
) -> list[Search]:
    """`search` for many decoders. Those of one shape and one format advance together, one array for the states of all of them."""
    if repeats < 1 or max_states < 1:
        raise ValueError(f"repeats={repeats!r}, max_states={max_states!r}: both must be integers >= 1")
    _check_table_length(n)
    groups: dict = {}
    for i, (model, ar) in enumerate(zip(decoders, formats, strict=True)):
        check_recurrent(model)
        _check_arithmetic(ar)
        longest = model.embedding.max_len
        if longest is not None and longest < repeats * n:
            raise ValueError(f"n={n!r}: a table takes {repeats * n} positions, the embedding has max_len = {longest}")
        groups.setdefault((ar, skeleton(model)), []).append(i)
    found: dict[int, Search] = {}
    for (ar, _), members in groups.items():
        group = Frontier([decoders[i] for i in members], ar)
        found |= zip(members, _search_group(group, n, repeats, max_states, stop_at_merge), strict=True)
    return [found[i] for i in range(len(decoders))]


def _search_group(frontier: Frontier, n: int, repeats: int, max_states: int, stop_at_merge: bool) -> list[Search]:
    num = len(frontier.models)
    counts, merges, complete = [[1] for _ in range(num)], [() for _ in range(num)], [True] * num
    prefixes = [0] * num
    for block in range(1, n + 1):
        children = [prefix << 1 | bit for prefix in prefixes for bit in (0, 1)]
        rows = frontier.children(range(repeats * (block - 1), repeats * block))
        first, place = _distinct(rows)
        owner, fresh = rows[:, 0], [[] for _ in range(num)]
        waiting = np.array([not m for m in merges])  # later merges would only repeat what is known
        for i in np.flatnonzero(waiting[owner] & (np.array(first)[place] != np.arange(len(rows)))).tolist():
            fresh[owner[i]].append(Merge(block, _bits(children[first[place[i]]], block), _bits(children[i], block)))
        sizes, goes_on = np.bincount(owner[first], minlength=num), np.zeros(num, dtype=bool)
        for k in np.unique(owner).tolist():
            counts[k].append(int(sizes[k]))
            merges[k] = merges[k] or tuple(fresh[k])
            complete[k] = bool(sizes[k] <= max_states or block == n or (merges[k] and stop_at_merge))
            goes_on[k] = sizes[k] <= max_states and not (merges[k] and stop_at_merge)
        kept = [i for i in first if goes_on[owner[i]]]
        if not kept:
            break
        frontier.rows, prefixes = rows[kept], [children[i] for i in kept]
    return [Search(n, tuple(counts[k]), merges[k], complete[k], repeats) for k in range(num)]


class Frontier:
    """The distinct states of several decoders of one shape, and how one token changes all of them.

    models: decoders with equal `skeleton`. rows: int64 (num, 1 + D), the number of the decoder and the codes of its state.
    """

    def __init__(self, models: Sequence[Model], ar):
        self.models, self.ar = list(models), ar
        self.tokens = [models[0].vocabulary.index(name) for name in ("0", "1")]
        self.shapes = [[h.core.init_state(ar).shape for h in block.layer.heads] for block in models[0].blocks]
        starts = [[h.core.init_state(ar).reshape(-1) for b in model.blocks for h in b.layer.heads] for model in models]
        codes = [np.concatenate([[k], *start]).astype(np.int64) for k, start in enumerate(starts)]
        self.rows = np.stack(codes)
        self.stacks = None
        if len(models) > 1:
            self.stacks = [_stack_block(layer, ar) for layer in zip(*(m.blocks for m in models), strict=True)]
        # Without positions a state has one successor a bit, wherever it stands: each is stepped once.
        self.memory = {} if models[0].embedding.max_len is None else None
        self._first_inputs: dict = {}

    def children(self, positions: range) -> np.ndarray:
        """Rows (2 num, 1 + D): for each state what tokens 0 and 1, repeated over the positions, make of it."""
        if self.memory is None:
            return self._step_all(self.rows, positions)
        keys = [row.tobytes() for row in self.rows]
        unknown = [i for i, key in enumerate(keys) if key not in self.memory]
        if unknown:
            after = self._step_all(self.rows[unknown], positions)
            for i, row in enumerate(unknown):
                self.memory[keys[row]] = after[2 * i : 2 * i + 2]
        return np.concatenate([self.memory[key] for key in keys])

    def _step_all(self, rows: np.ndarray, positions: range) -> np.ndarray:
        rows, token = np.repeat(rows, 2, axis=0), np.tile([0, 1], len(rows))
        layers = _layers(rows[:, 1:], self.shapes)
        for position in positions:
            layers = self._token(layers, rows[:, 0], token, position)
        parts = [np.asarray(state).reshape(len(rows), -1) for states in layers for state in states]
        return np.ascontiguousarray(np.concatenate([rows[:, :1], *parts], axis=1).astype(np.int64))

    def _token(self, layers: list, owner: np.ndarray, token: np.ndarray, position: int) -> list:
        """The states of all layers after one token for each row (bit `token` of decoder `owner`)."""
        blocks = self.models[0].blocks if self.stacks is None else [_bind(stack, owner) for stack in self.stacks]
        embedded, inputs = self._first(position)
        place, after, x, ar = 2 * owner + token, [], None, self.ar
        for number, (block, states) in enumerate(zip(blocks, layers, strict=True)):
            moved, outputs, last = [], [], number == len(blocks) - 1
            for h, head in enumerate(block.layer.heads):
                if number == 0:
                    given = {name: None if a is None else a[place] for name, a in inputs[h].items()}
                else:
                    names = [name for name in DeltaInputs.names() if not (last and name == "q")]
                    given = {name: head.input(ar, x, name) for name in names}
                given = DeltaInputs(**({"q": None} | given))
                moved.append(head.core.step(ar, states[h], given))
                if not last:  # nobody reads the last layer before the table ends
                    outputs.append(head.gated(ar, head.core.read(ar, moved[-1], given), embedded[place] if x is None else x))
            after.append(tuple(moved))
            if not last:
                x = embedded[place] if x is None else x
                x = ar.add(x, block.layer.out.apply(ar, outputs[0] if len(outputs) == 1 else ar.concat(outputs, axis=-1)))
                x = x if block.mlp is None else ar.add(x, block.mlp.apply(ar, x))
        return after

    def _first(self, position: int):
        """(embedded rows, inputs of the first layer's heads) for decoder 0 bit 0, decoder 0 bit 1, decoder 1 bit 0, ..."""
        key = None if self.memory is not None else position
        if key not in self._first_inputs:
            if key is not None:
                self._first_inputs.clear()
            tables = [[m.embedding.rows(self.ar, np.array(self.tokens), position) for m in self.models]]
            embedded, inputs = np.concatenate(tables[0]), []
            for h in range(len(self.shapes[0])):
                parts = [m.blocks[0].layer.heads[h].inputs(self.ar, x) for m, x in zip(self.models, tables[0], strict=True)]
                named = {name: [getattr(part, name) for part in parts] for name in DeltaInputs.names()}
                inputs.append({name: None if a[0] is None else np.concatenate(a) for name, a in named.items()})
            self._first_inputs[key] = embedded, inputs
        return self._first_inputs[key]


def skeleton(model: Model):
    """What two decoders must share to be stepped in one array: everything but the numbers."""
    parts = [model.stream, model.embedding.index.shape, *map(model.vocabulary.index, ("0", "1"))]
    for block in model.blocks:
        maps = [(name, m) for h in block.layer.heads for name, m in (*sorted(h.maps.items()), ("gate", h.gate))]
        maps += [("out", block.layer.out)] + ([] if block.mlp is None else [("hidden", block.mlp.hidden), ("add", block.mlp.out)])
        if any(m is not None and not isinstance(m, Affine) for _, m in maps):
            return id(model)  # a map of another kind cannot be stacked: this decoder goes alone
        parts.append(tuple((name, None if m is None else (m.source, m.target)) for name, m in maps))
        parts.append(tuple((replace(h.core, initial_state=None), h.qk_norm) for h in block.layer.heads))
    return tuple(parts)


@dataclass(frozen=True)
class _Stacked:
    """One affine map of several decoders, dense: weight (num, out, in) and bias (num, out), codes."""

    weight: np.ndarray
    bias: np.ndarray

    def at(self, owner: np.ndarray) -> _Stacked:
        """The maps of the decoders that own the rows."""
        return _Stacked(self.weight[owner], self.bias[owner])

    def apply(self, ar, x):
        """Row by row W x + b: rounded products, ascending columns, then the bias. A zero weight adds an exact zero."""
        return ar.add(ar.dot(self.weight, x[:, None, :]), self.bias)


def _stack(maps: Sequence[Affine], ar):
    if maps[0] is None:
        return None
    weight = np.zeros((len(maps), maps[0].target.dim, maps[0].source.dim), dtype=ar.dtype)
    bias = np.zeros(weight.shape[:2], dtype=ar.dtype)
    for k, affine in enumerate(maps):
        for row, column, number in affine.weights:
            weight[k, row, column] = _code(ar, number)
        for row, number in affine.bias:
            bias[k, row] = _code(ar, number)
    return _Stacked(weight, bias)


@lru_cache(maxsize=1 << 14)
def _code(ar, number) -> int:
    """A weight's code; decoders use few different numbers."""
    return ar.array([number]).item()


def _stack_block(blocks: Sequence[Block], ar):
    """(heads, out, mlp) of one layer of several decoders: cores and norms of the first, maps of all."""
    heads = []
    for h, head in enumerate(blocks[0].layer.heads):
        maps = {name: _stack([b.layer.heads[h].maps[name] for b in blocks], ar) for name in head.maps}
        heads.append((head, maps, _stack([b.layer.heads[h].gate for b in blocks], ar)))
    mlp = None if blocks[0].mlp is None else [_stack([getattr(b.mlp, part) for b in blocks], ar) for part in ("hidden", "out")]
    return heads, _stack([b.layer.out for b in blocks], ar), mlp


def _bind(stack, owner: np.ndarray) -> Block:
    """A block whose maps belong to the owners of the rows."""
    heads, out, mlp = stack
    bound = tuple(
        Head(head.core, {name: m.at(owner) for name, m in maps.items()}, None if gate is None else gate.at(owner), head.qk_norm)
        for head, maps, gate in heads
    )
    return Block(Layer(bound, out.at(owner)), None if mlp is None else _RowMLP(*(m.at(owner) for m in mlp)))


@dataclass(frozen=True)
class _RowMLP:
    """The MLP of each row's decoder."""

    hidden: _Stacked
    out: _Stacked

    def apply(self, ar, x):
        """out(relu(hidden(x))), as `hybridseq.models.MLP`."""
        return self.out.apply(ar, ar.relu(self.hidden.apply(ar, x)))


def _layers(flat: np.ndarray, shapes: list) -> list[tuple]:
    """Codes (num, D) cut into the states of the heads of each layer."""
    layers, start = [], 0
    for heads in shapes:
        states = []
        for shape in heads:
            size = int(np.prod(shape))
            states.append(flat[:, start : start + size].reshape(len(flat), *shape))
            start += size
        layers.append(tuple(states))
    return layers


def _distinct(rows: np.ndarray) -> tuple[list[int], list[int]]:
    """(first, place): row numbers of the first copy of each distinct row, ascending, and for each row its number among them."""
    number: dict[bytes, int] = {}
    first, place = [], []
    data, size = rows.tobytes(), rows.shape[1] * rows.itemsize
    for i in range(len(rows)):
        k = number.setdefault(data[i * size : (i + 1) * size], len(first))
        if k == len(first):
            first.append(i)
        place.append(k)
    return first, place


def _bits(number: int, length: int) -> tuple[int, ...]:
    return tuple(number >> (length - 1 - i) & 1 for i in range(length))


# certificates ------------------------------------------------------------------------------------------------------------


def certificate(model: Model, ar, n: int, found: Search | None = None, budget: int = 0, repeats: int = 2) -> Certificate | Search:
    """A certificate that the decoder errs on PCR_n; or the search itself, if it saw no two tables with different answers merge.

    found: a search of the same model (default: one that stops at the first merge). budget: scratch tokens that the decoder may
    write. Both prefixes are extended by zeros to n bits; j is the first address where the right answers differ. It exists unless
    the tables are complements of each other and n is odd.
    """
    found = search(model, ar, n, repeats, stop_at_merge=True) if found is None else found
    for merge in found.merges:
        tables = [merge.first + (0,) * (n - merge.block), merge.second + (0,) * (n - merge.block)]
        differ = [j for j in range(1, n + 1) if _right(tables[0], j) != _right(tables[1], j)]
        if differ:
            return _write(model, ar, tables, differ[0], merge.block, budget, found.repeats)
    return found


def _write(model: Model, ar, tables: list, j: int, block: int, budget: int, repeats: int) -> Certificate:
    outputs = _outputs(model, ar, tables, j, budget, repeats)
    return Certificate(
        KIND,
        {
            "n": len(tables[0]), "s": ar.s, "ties": ar.ties, "repeats": repeats, "block": block, "budget": budget,
            "tables": [list(map(int, table)) for table in tables], "address": j,
            "state": _states_after(model, ar, tables, repeats)[1][0].tolist(),
            "outputs": outputs, "expected": [_right(table, j) for table in tables],
            "model hash": model.content_hash, "model": pack(model),
        },
    )  # fmt: skip


def _right(table: Sequence[int], j: int) -> str:
    """The right answer: YES iff Y_j xor p(Y) = 1."""
    return "YES" if (table[j - 1] + sum(table)) % 2 else "NO"


def _prompts(model: Model, tables: Sequence[Sequence[int]], j: int, repeats: int) -> np.ndarray:
    """Token numbers: every bit `repeats` times, then MARK at offset j among BLANKs."""
    names = [[str(bit) for bit in table for _ in range(repeats)] for table in tables]
    query = ["MARK" if offset == j else "BLANK" for offset in range(1, len(tables[0]) + 1)]
    return np.array([[model.vocabulary.index(name) for name in row + query] for row in names])


def _outputs(model: Model, ar, tables, j: int, budget: int, repeats: int) -> list[dict]:
    """What the decoder writes for each table: its scratch tokens and its answer (None where there is none)."""
    written = model.generate(ar, _prompts(model, tables, j, repeats), budget)
    names = model.vocabulary.tokens
    return [
        {"answer": None if answer is None else names[answer], "scratch": [names[token] for token in scratch]}
        for answer, scratch in zip(written.answer, written.scratch, strict=True)
    ]


def _states_after(model: Model, ar, tables, repeats: int, block: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Flat codes (num, D) of all recurrent states after `block` table bits (default: all) and after the table.

    Layer by layer over the whole text, each core by its own scan: another road than the search, which goes token by token.
    """
    cut = repeats * (len(tables[0]) if block is None else block)
    x, early, late = model.embedding.apply(ar, _prompts(model, tables, 1, repeats)[:, : repeats * len(tables[0])]), [], []
    for layer, mlp in ((block.layer, block.mlp) for block in model.blocks):
        outputs = []
        for head in layer.heads:
            inputs = head.inputs(ar, x)
            u, state = head.core.scan(ar, inputs.between(0, cut))
            early.append(state)
            if cut < inputs.seq_len:
                rest, state = head.core.scan(ar, inputs.between(cut, inputs.seq_len), state)
                u = ar.concat([u, rest], axis=-2)
            late.append(state)
            outputs.append(head.gated(ar, u, x))
        x = ar.add(x, layer.out.apply(ar, outputs[0] if len(outputs) == 1 else ar.concat(outputs, axis=-1)))
        x = x if mlp is None else ar.add(x, mlp.apply(ar, x))
    return tuple(np.concatenate([s.reshape(len(s), -1) for s in states], axis=1).astype(np.int64) for states in (early, late))


# the replayer ------------------------------------------------------------------------------------------------------------


def replay(stored: Certificate | str, model: Model | None = None) -> Check:
    """Run both prompts of a certificate again, from the decoder that it carries (and, if given, against `model` by hash).

    A text is compared with its own hash first. Then: the decoder is the one that was named; the two tables differ and leave the
    stated state; both runs write what is stated and the same; the right answers differ. So one of the two is wrong.
    Nothing of the search is used.
    """
    scope = "one certificate, both prompts run again"
    try:
        stored = Certificate.from_json(stored) if isinstance(stored, str) else stored
        reasons, data = _objections(stored, model), stored.data
    except (ValueError, KeyError, TypeError, OSError, EOFError, json.JSONDecodeError) as unreadable:
        return Check("certificate of a state collision", False, scope, 1, f"unreadable: {unreadable}")
    if not reasons:
        scope = f"n = {data['n']}, s = {data['s']}, address {data['address']}, budget {data['budget']}: both prompts run again"
    return Check.true("certificate of a state collision", not reasons, scope, 1, reasons)


def _objections(stored: Certificate, model: Model | None) -> list[str]:
    """Everything that is wrong with a certificate; empty if it stands."""
    if stored.kind != KIND:
        return [f"kind {stored.kind!r} is not {KIND!r}"]
    data = stored.data
    carried, ar, tables = unpack(data["model"]), FixedPoint(data["s"], data["ties"]), data["tables"]
    n, j, repeats = data["n"], data["address"], data["repeats"]
    if carried.content_hash != data["model hash"]:
        return ["the decoder in the certificate does not have the hash that is stated"]
    if model is not None and model.content_hash != data["model hash"]:
        return ["the decoder at hand is not the one in the certificate: their hashes differ"]
    if len(tables) != 2 or any(len(t) != n or any(bit not in (0, 1) for bit in t) for t in tables) or not 1 <= j <= n:
        return ["there must be two tables of n bits and an address from 1 to n"]
    if not 1 <= data["block"] <= n:
        return [f"the block must lie in 1..{n}"]
    prefix, after = _states_after(carried, ar, tables, repeats, data["block"])
    outputs = _outputs(carried, ar, tables, j, data["budget"], repeats)
    expected = ["YES" if (table[j - 1] + sum(table)) % 2 else "NO" for table in tables]
    conditions = {
        "the two tables are equal": tables[0] != tables[1],
        "after the table the states differ from each other": np.array_equal(after[0], after[1]),
        "after the table the state is not the one that is stated": after[0].tolist() == data["state"],
        "at the stated block the states still differ": np.array_equal(prefix[0], prefix[1]),
        "the outputs are not those that are stated": outputs == data["outputs"],
        "the outputs differ from each other": outputs[0] == outputs[1],
        "the right answers are not those that are stated": expected == data["expected"],
        "the right answers do not differ, so nobody need be wrong": expected[0] != expected[1],
    }
    return [reason for reason, fine in conditions.items() if not fine]


# input -------------------------------------------------------------------------------------------------------------------


def check_recurrent(model: Model) -> None:
    """Raise ValueError unless every layer of the model is made of delta rules alone."""
    for number, block in enumerate(model.blocks, start=1):
        name = block.name or f"block {number}"
        if not isinstance(block.layer, Layer):
            raise ValueError(f"model: {name} is a {type(block.layer).__name__}; the argument needs layers of delta-rule heads")
        for head in block.layer.heads:
            if not isinstance(head.core, DeltaRule):
                kind = type(head.core).__name__
                raise ValueError(
                    f"model: {name} has a head of kind {kind}; the argument holds for recurrent state alone, "
                    "so every head must be a DeltaRule"
                )


def _check_arithmetic(ar) -> None:
    if not isinstance(ar, FixedPoint) or ar.s > 31:
        raise ValueError(f"ar={ar!r}: states are compared exactly, which needs FixedPoint(s) with s <= 31")


def _check_table_length(n) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be an integer >= 1 (bits in the table), got {n!r}")


# checks ------------------------------------------------------------------------------------------------------------------


def check_counting(max_n: int) -> Check:
    """Distinct answer vectors by enumeration equal the formula, n = 1 .. max_n."""
    sizes = list(range(1, max_n + 1))
    got = [len({row.tobytes() for row in answer_vectors(n)}) for n in sizes]
    scope = f"all 2^n tables, n = 1..{max_n}"
    expected = [num_answer_vectors(n) for n in sizes]
    return Check.equal("2^n distinct answer vectors for even n, 2^(n-1) for odd n", got, expected, scope, sizes)


def check_twins(max_n: int) -> Check:
    """Tables with the same answers: none for even n; exactly the complement for odd n."""
    got, sizes = [], list(range(1, max_n + 1))
    for n in sizes:
        groups: dict[bytes, list[int]] = {}
        for number, row in enumerate(answer_vectors(n)):
            groups.setdefault(row.tobytes(), []).append(number)
        pairs = [group for group in groups.values() if len(group) > 1]
        complements = len(pairs) == 2 ** (n - 1) and all(sum(pair) == 2**n - 1 and len(pair) == 2 for pair in pairs)
        got.append(pairs == [] if n % 2 == 0 else complements)
    scope = f"all pairs of tables, n = 1..{max_n}"
    return Check.equal("equal answers only for complements, and only for odd n", got, [True] * len(sizes), scope, sizes)


def check_decoders(decoders: Iterable[tuple[str, Model, FixedPoint]], n: int, budget: int = 0) -> Check:
    """Every decoder gets a certificate for PCR_n that the replayer accepts from its text, against the decoder at hand."""
    decoders, blocks, failed = list(decoders), [], []
    names = [name for name, _, _ in decoders]
    searches = search_all([model for _, model, _ in decoders], [ar for _, _, ar in decoders], n, stop_at_merge=True)
    for (name, model, ar), found in zip(decoders, searches, strict=True):
        outcome = certificate(model, ar, n, found, budget)
        if isinstance(outcome, Search):
            failed.append(f"{name}: {outcome}")
            continue
        blocks.append(outcome.data["block"])
        verdict = replay(outcome.to_json(), model)
        if not verdict.passed:
            failed.append(f"{name}: {verdict.counterexample}")
    value = {"certificates": len(blocks)}
    if blocks:
        value["first merges at blocks"] = f"{min(blocks)} to {max(blocks)}"
    scope = f"{len(names)} decoders, n = {n}, budget {budget}"
    name = "each decoder errs: certificate found and replayed"
    return Check.true(name, not failed, scope, cases=len(names), counterexample=failed[:1], value=value)


def check_future(stored: Certificate, budget: int) -> Check:
    """Merged tables get the same scratch tokens and the same answer for every address, with a budget of scratch tokens.

    The decoder is the certificate's own. The value says how many scratch tokens were written, so that an empty comparison shows.
    """
    data = stored.data
    model, ar = unpack(data["model"]), FixedPoint(data["s"], data["ties"])
    runs = [_outputs(model, ar, data["tables"], j, budget, data["repeats"]) for j in range(1, data["n"] + 1)]
    wrong = [j for j, (one, other) in enumerate(runs, start=1) if one != other]
    written = sum(len(output["scratch"]) for run in runs for output in run)
    scope = f"every address 1..{data['n']}, up to {budget} scratch tokens, s = {data['s']}"
    return Check.true(
        "equal states write the same scratch tokens and the same answer", not wrong, scope, cases=len(runs),
        counterexample={"addresses": wrong}, value={"scratch tokens compared": written},
    )  # fmt: skip


def check_counts(found: Search, expected: Sequence[int], what: str) -> Check:
    """The reachable states by block are the expected ones."""
    scope = f"{what}, blocks 0..{len(expected) - 1}"
    return Check.equal("distinct reachable states by block", found.counts, expected, scope)


def check_bound(solvers: Iterable[tuple[int, int, FixedPoint]]) -> Check:
    """Decoders known to solve PCR_n, as (n, D, format), satisfy |Q|^D >= number of answer vectors; the value is the largest
    ratio of D log2 |Q| to the bits needed."""
    solvers = list(solvers)
    failed = [(n, d, ar.s) for n, d, ar in solvers if not solvable(n, d, ar.size)]
    ratios = [d * log2(ar.size) / bits_needed(n) for n, d, ar in solvers if bits_needed(n)]
    scope = f"{len(solvers)} solving decoders, n from {min(s[0] for s in solvers)} to {max(s[0] for s in solvers)}"
    return Check.true(
        "solvers respect the bound", not failed, scope, cases=len(solvers), counterexample=failed[:1],
        value={"largest ratio to the bound": max(ratios)},
    )  # fmt: skip
