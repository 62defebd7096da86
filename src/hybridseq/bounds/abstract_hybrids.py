"""Hybrids of which only the budgets are known: every map is a hash, and the steps of Lemmas E2, E3a and E3b are run on them.

A lower bound by counting speaks of all models with certain budgets: gaps of recurrent layers with S bits of state, full layers
with accumulators of b bits. `AbstractHybrid` is such a model with hashed maps (splitmix64) in every place, run token by token:

    gap g:         s <- u_g(x_i, s)  (S_g bits),  x_i <- f_g(x_i, s)
    full layer l:  a <- v_l(x_j, a; x_i)  for j = 1..i  (b bits),  x_i <- h_l(x_i, a)

x are words of 64 bits, so nothing is lost between the layers, and every update of s and a is a permutation: what is forgotten is
forgotten because the budget is too small. The answer is the last word.

The proofs fix parts of what the last table z_L (the first of the prompt) leaves behind, and say that then every output is
determined. `one_full_layer` (E2), `two_full_layers` (E3a and its corollary) and `three_functions` (E3b) compute these parts for
many tables at once: a `Family`. Two of its tables are *twins* if all parts agree. Lemma by lemma this checks

* determination: twins give equal outputs in every context that the proof uses;
* that each part is needed: agreement in all the others but this one leaves outputs that differ;
* certificates: twins that should be answered differently, replayed on the two full prompts.

Axes of all arrays of a run, in prompt order: z_L, ..., z_1, z_0, w.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from hybridseq import rng
from hybridseq.evidence import Certificate, Check
from hybridseq.tasks.sequential_composition import SequentialComposition

KIND = "abstract hybrid: equal outputs, different answers"

_TOKEN, _STATE, _GAP, _ACCUMULATE, _ATTEND = range(1, 6)

# the model ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AbstractHybrid:
    """Gaps and full layers in turn, R* F R* F ... R*, with hashed maps.

    gap_bits: S_0, ..., S_f, one more than there are full layers; 0 is a gap without state. accumulator_bits: b. seed: the maps.

    Raises ValueError for fewer than two gaps or bits that are not integers in 0..32.

    >>> model = AbstractHybrid((8, 8), 8)
    >>> int(model.outputs([[3, 1, 0, 2, 1, 0, 1, 1]])[0])
    13598463898663704407
    """

    gap_bits: tuple[int, ...]
    accumulator_bits: int
    seed: int = 0

    def __post_init__(self):
        whole = (int, np.integer)
        if len(self.gap_bits) < 2 or not all(
            isinstance(bits, whole) and 0 <= bits <= 32 for bits in (*self.gap_bits, self.accumulator_bits)
        ):
            raise ValueError(
                f"gap_bits={self.gap_bits}, accumulator_bits={self.accumulator_bits}: needs two gaps or more, bits in 0..32"
            )

    @property
    def full_layers(self) -> int:
        return len(self.gap_bits) - 1

    def run(self, columns: Sequence, marks: Sequence[int] = ()) -> Run:
        """Run on tokens given by column, values[i] an integer array; the columns broadcast against each other.

        marks: numbers of tokens after which every later query's accumulator is remembered. Work is done on the shape that a
        quantity depends on, so a context shared by many tables costs once.
        """
        return Run(self, [np.atleast_1d(c) for c in columns], tuple(marks))

    def outputs(self, prompts) -> np.ndarray:
        """The last word (uint64) of each prompt (num, seq_len)."""
        return self.run(list(np.asarray(prompts).T)).output

    def gap_states(self, columns: Sequence, state=0, first: int = 0) -> np.ndarray:
        """The state of gap 0 after the columns, which stand at the positions first, first + 1, ..., from a given state."""
        for i, column in enumerate(columns):
            state = self._step(0, self._token(first + i, column), state)
        return state

    def _token(self, position: int, value) -> np.ndarray:
        return rng.key(self.seed, _TOKEN, position, value)

    def _step(self, gap: int, x, state) -> np.ndarray:
        return _permute(rng.mix(x + self._salt(_STATE, gap)), state, self.gap_bits[gap])

    def _salt(self, what: int, layer: int) -> np.ndarray:
        return rng.key(self.seed, what, layer)


def _permute(word: np.ndarray, old, bits: int) -> np.ndarray:
    """`old` under a permutation of 0..2^bits - 1 that the word chooses: xor with its half, times an odd number, plus a shift."""
    if bits == 0:
        return np.zeros_like(word)
    old = np.asarray(old, dtype=np.uint64)
    mask, one = np.uint64((1 << bits) - 1), np.uint64(1)
    with np.errstate(over="ignore"):
        return ((old ^ (old >> one)) * (word | one) + (word >> np.uint64(32))) & mask


class Run:
    """What happened in one run: `words[l][i]` enters full layer l at position i, `states[g][i]` is the state of gap g after it.

    `marked[l][i, mark]`: the accumulator of the query at position i of full layer l after `mark` tokens. output: the last word.
    """

    def __init__(self, model: AbstractHybrid, columns: list[np.ndarray], marks: tuple[int, ...]):
        if not columns:
            raise ValueError("columns: a run needs one token or more")
        self.states: list[list[np.ndarray]] = []
        self.words: list[list[np.ndarray]] = []
        self.marked: list[dict[tuple[int, int], np.ndarray]] = []
        x = [model._token(i, column) for i, column in enumerate(columns)]
        for layer in range(model.full_layers + 1):
            x = self._gap(model, layer, x)
            if layer < model.full_layers:
                self.words.append(x)
                x = self._attend(model, layer, x, marks)
        self.output = x[-1]

    def _gap(self, model: AbstractHybrid, gap: int, x: list[np.ndarray]) -> list[np.ndarray]:
        state, states, out = np.zeros(1, dtype=np.uint64), [], []
        for word in x:
            state = model._step(gap, word, state)
            states.append(state)
            out.append(rng.mix(rng.mix(word + model._salt(_GAP, gap)) + state))
        self.states.append(states)
        return out

    def _attend(self, model: AbstractHybrid, layer: int, x: list[np.ndarray], marks: tuple[int, ...]) -> list[np.ndarray]:
        keys = [rng.mix(word + model._salt(_ACCUMULATE, layer)) for word in x]
        out, marked = [], {}
        for i, query in enumerate(x):
            accumulator = np.zeros(1, dtype=np.uint64)
            for j in range(i + 1):
                accumulator = _permute(rng.mix(keys[j] + query), accumulator, model.accumulator_bits)
                if j + 1 in marks:
                    marked[i, j + 1] = accumulator
            out.append(rng.mix(rng.mix(query + model._salt(_ATTEND, layer)) + accumulator))
        self.marked.append(marked)
        return out


@dataclass(frozen=True)
class AbstractProtocol:
    """An abstract hybrid on a task as a communication protocol: what the finders of `decompositions` ask for.

    Raises ValueError unless the prompt order is `std`.

    >>> protocol = AbstractProtocol(AbstractHybrid((1, 1), 2), SequentialComposition(2, (2,)))
    >>> protocol.transcript(protocol.task.sample(np.arange(3)), 1).shape
    (3, 4)
    """

    model: AbstractHybrid
    task: SequentialComposition

    def __post_init__(self):
        if self.task.order != "std":
            raise ValueError(f"order={self.task.order!r}: the players speak in the order 'std'")

    def transcript(self, tokens, level: int) -> np.ndarray:
        """What players >= level hand to players < level (num, width): states of all gaps, accumulators of all later queries."""
        tokens, end = np.asarray(tokens), self.task.segments[level].stop
        run = self.model.run(list(tokens.T), (end,))
        states = [gap[end - 1] for gap in run.states]
        later = [marked[i, end] for marked in run.marked for i in range(end, self.task.seq_len)]
        return np.stack([*states, *later], axis=1).astype(np.int64)

    def state(self, tokens, player: int) -> np.ndarray:
        """State of the first gap once `player` is through (num, 1); the tokens may end there."""
        end = self.task.segments[player].stop
        return self.model.gap_states(list(np.asarray(tokens)[:, :end].T)).astype(np.int64)[:, None]

    def outputs(self, tokens) -> np.ndarray:
        """The answer that the last word stands for, its remainder by the number of answers (num,)."""
        return (self.model.outputs(tokens) % np.uint64(self.task.num_answers)).astype(np.int64)


# families and twins ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Family:
    """Many tables z_L with what a proof fixes about each of them, and what comes out in each of its contexts.

    task, model; tables: (num, N_{L-1}). contexts: (num_contexts, n - N_{L-1}), the rest of the prompts. parts: name -> array
    (num, width) of fixed bits, the same for twins. outputs: (num, num_contexts) words. notes: facts that the proof's steps state.
    """

    model: AbstractHybrid
    task: SequentialComposition
    tables: np.ndarray
    contexts: np.ndarray
    parts: Mapping[str, np.ndarray]
    outputs: np.ndarray
    notes: Mapping[str, bool] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def arguments(self) -> np.ndarray:
        """(num_contexts,): the argument at which each context reads z_L."""
        rest = np.zeros((len(self.contexts), self.tables.shape[1]), dtype=np.int64)
        traces = self.task.trace(np.concatenate([rest, self.contexts], axis=1))
        last = self.task.digits(self.contexts[:, -1])[:, -1] * self.task.sizes[-2] if self.task.L > 1 else 0
        return last + traces[:, -2]

    def labels(self, leaving_out: str | None = None) -> np.ndarray:
        """(num,): equal numbers for tables that agree in all parts (but one)."""
        kept = [part for name, part in self.parts.items() if name != leaving_out]
        if leaving_out is not None and leaving_out not in self.parts:
            raise ValueError(f"leaving_out={leaving_out!r}: the parts are {', '.join(self.parts)}")
        return _labels(np.concatenate([np.zeros((len(self), 1), dtype=np.uint64), *kept], axis=1))

    def groups(self, leaving_out: str | None = None) -> list[np.ndarray]:
        """Indices of tables that agree, in groups of two or more, the largest first."""
        labels = self.labels(leaving_out)
        order = np.argsort(labels, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
        return sorted((g for g in groups if len(g) > 1), key=lambda g: (-len(g), g[0]))


def _labels(rows: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, ... of the distinct rows of a uint64 array: columns packed into words while they fit, then sorted."""
    labels, used, word = np.zeros(len(rows), dtype=np.int64), 0, np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        width = int(column.max(initial=0)).bit_length()
        if used + width > 64:
            labels, used, word = _refine(labels, word), 0, np.zeros(len(rows), dtype=np.uint64)
        word = (word << np.uint64(width % 64)) | column
        used += width
    return _refine(labels, word)


def _refine(labels: np.ndarray, word: np.ndarray) -> np.ndarray:
    values, index = np.unique(word, return_inverse=True)
    return np.unique(labels * len(values) + index, return_inverse=True)[1]


def check_determination(families: Iterable[Family], what: str) -> Check:
    """Twins give equal outputs in every context, and the facts that the steps state hold. value: twins and models seen."""
    twins, models, found = 0, 0, None
    for family in families:
        models += 1
        for name, true in family.notes.items():
            if not true and found is None:
                found = {"seed": family.model.seed, "step that does not hold": name}
        for group in family.groups():
            twins += len(group) - 1
            differ = np.flatnonzero((family.outputs[group] != family.outputs[group[0]]).any(axis=0))
            if len(differ) and found is None:
                found = {
                    "seed": family.model.seed,
                    "tables": family.tables[group[:2]].tolist(),
                    "context": family.contexts[differ[0]].tolist(),
                }
    return Check.true(
        f"{what}: equal parts give equal outputs",
        found is None,
        f"{twins} twins in {models} models with hashed maps",
        cases=max(twins, 1),
        counterexample=found,
        value={"twins": twins, "models": models},
    )


def models_that_need(families: Iterable[Family], part: str) -> tuple[int, int]:
    """(models in which tables that agree in all parts but this one have some different output, models)."""
    broken = total = 0
    for family in families:
        total += 1
        broken += any((family.outputs[g] != family.outputs[g[0]]).any() for g in family.groups(part))
    return broken, total


def certificate(family: Family) -> Certificate | None:
    """Two prompts with equal parts, equal outputs and different answers, from the first group of twins that has any."""
    arguments = family.arguments
    for group in family.groups():
        values = family.tables[group][:, arguments]
        pairs = np.argwhere(values != values[0])
        if len(pairs):
            other, context = pairs[0]
            rest = family.contexts[context].tolist()
            model = family.model
            return Certificate(
                KIND,
                {
                    "gap_bits": list(model.gap_bits),
                    "accumulator_bits": model.accumulator_bits,
                    "seed": model.seed,
                    "m": family.task.m,
                    "ns": list(family.task.ns),
                    "prompts": [family.tables[group[i]].tolist() + rest for i in (0, other)],
                },
            )
    return None


def replay(stored: Certificate) -> Check:
    """Run the model on the two prompts, whole, and solve both: outputs must be equal and answers different.

    Raises ValueError for a certificate of another kind, or other than two prompts.
    """
    data = stored.data
    if stored.kind != KIND:
        raise ValueError(f"stored: a certificate of the kind {stored.kind!r}, needs {KIND!r}")
    if len(data["prompts"]) != 2:
        raise ValueError(f"stored: {len(data['prompts'])} prompts, needs two")
    task = SequentialComposition(data["m"], tuple(data["ns"]))
    prompts = task.check(np.array(data["prompts"]))
    model = AbstractHybrid(tuple(data["gap_bits"]), data["accumulator_bits"], data["seed"])
    outputs, answers = model.outputs(prompts), task.answers(prompts)
    return Check.true(
        "two prompts, one output, two answers",
        outputs[0] == outputs[1] and answers[0] != answers[1],
        f"m = {task.m}, ns = {task.ns}, seed {model.seed}, both prompts run whole",
        cases=2,
        counterexample={"outputs": outputs.tolist(), "answers": answers.tolist()},
        value={"answers": answers.tolist()},
    )


# tables, contexts --------------------------------------------------------------------------------------------------------


def sampled_tables(size: int, num: int, seed: int) -> np.ndarray:
    """Random functions [size] -> [size], no two equal: (num, size), or fewer rows where the draw repeats itself."""
    return np.unique(rng.integers(size, seed, np.arange(num)[:, None], np.arange(size)[None, :]), axis=0)


def _along(axis: int, axes: int, columns: np.ndarray) -> list[np.ndarray]:
    """The columns of an array (num, places), each laid along one of so many axes."""
    shape = [1] * axes
    shape[axis] = len(columns)
    return [column.reshape(shape) for column in columns.T]


def _commonest(labels: np.ndarray) -> np.ndarray:
    """Indices of the members of the largest class."""
    _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.flatnonzero(index == counts.argmax())


def _contexts(*tables: np.ndarray) -> np.ndarray:
    """All rows of the product of the given arrays (num_i, places_i), the last one fastest."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for table in tables:
        rows = np.concatenate([np.repeat(rows, len(table), axis=0), np.tile(table, (len(rows), 1))], axis=1)
    return rows


def _part(*arrays: np.ndarray, num: int) -> np.ndarray:
    """Arrays (num, ...) as one (num, width); a leading axis of length 1 is repeated."""
    return np.concatenate([np.broadcast_to(a, (num, *a.shape[1:])).reshape(num, -1) for a in arrays], axis=1)


def _choose(functions: np.ndarray, starts: Sequence[int], members: int) -> np.ndarray:
    """Up to so many functions, one after the other with most new pairs (a, value), a among the starts."""
    chosen: list[int] = []
    covered: set = set()
    for _ in range(members):
        gains = [len({(a, int(row[a])) for a in starts} - covered) for row in functions]
        best = int(np.argmax(gains))
        if gains[best] == 0:
            break
        chosen.append(best)
        covered |= {(a, int(functions[best, a])) for a in starts}
    return functions[chosen]


def _two_functions(model: AbstractHybrid, task: SequentialComposition, full_layers: int) -> None:
    if task.L != 2 or task.order != "std" or model.full_layers != full_layers:
        raise ValueError(
            f"task of {task.L} functions in order {task.order!r}, {model.full_layers} full layers: needs 2, 'std', {full_layers}"
        )


# the bits of a query -----------------------------------------------------------------------------------------------------


def one_context(model: AbstractHybrid, task: SequentialComposition, tables: np.ndarray, rest: np.ndarray) -> Family:
    """The parts that `two_full_layers.BitsAQuery` fixes: states after z_0 and, at w, each full layer's accumulator after z_0.

    tables: functions z_L (num, N_{L-1}). rest: the tokens of z_{L-1}, ..., z_0, fixed. Contexts: all values of the last digit of
    w, the others 0. Any number of full layers and of functions (L >= 2).

    Raises ValueError for another prompt order, L = 1 or a rest of another length.
    """
    last, rest = task.sizes[-1], np.asarray(rest)
    if task.order != "std" or task.L < 2 or rest.shape != (task.seq_len - last - 1,):
        raise ValueError(f"{task}, rest {rest.shape}: needs order 'std', L >= 2 and {task.seq_len - last - 1} tokens")
    ws = (np.arange(task.ns[-1]) * int(np.prod(task.ns[:-1])))[:, None]
    at_w = task.seq_len - 1
    run, num = model.run(_along(0, 2, tables) + list(rest) + _along(1, 2, ws), (at_w,)), len(tables)
    parts = {"states after z_0": _part(*(gap[at_w - 1] for gap in run.states), num=num)}
    for layer, marked in enumerate(run.marked, start=1):
        parts[f"full layer {layer} at w"] = _part(marked[at_w, at_w], num=num)
    outputs = np.broadcast_to(run.output, (num, len(ws)))
    return Family(model, task, tables, _contexts(rest[None, :], ws), parts, outputs)


# E2 ----------------------------------------------------------------------------------------------------------------------


def one_full_layer(
    model: AbstractHybrid,
    task: SequentialComposition,
    tables: np.ndarray | None = None,
    starts: int = 1,
    functions: int | None = None,
) -> Family:
    """The parts that Lemma E2 fixes, in its order: state before the full layer, a class of z_1, arguments for z_0, then z_2.

    tables: functions z_2, all of them by default. Of these the ones with the commonest pre-state are kept. z_1: the commonest
    pre-state after it. starts: s arguments for z_0, those at which the class has most different restrictions (E2: 1, E2': more).
    functions: at most k functions z_1, chosen for many values there (default: as long as there are new ones).
    """
    _two_functions(model, task, 1)
    N_0, N_1 = task.sizes
    if not 1 <= starts <= N_0:
        raise ValueError(f"starts={starts}: z_0 has {N_0} values")
    tables = task.functions(2) if tables is None else tables
    states = model.gap_states(list(tables.T))
    kept = _commonest(states)
    firsts = task.functions(1)
    firsts = firsts[_commonest(model.gap_states(list(firsts.T), states[kept[0]], N_1))]
    chosen = max(combinations(range(N_0), starts), key=lambda A: len(np.unique(firsts[:, A], axis=0)))
    firsts = _choose(firsts, chosen, functions or len(firsts))
    tables, ws, z0 = tables[kept], np.arange(task.ns[0])[:, None], np.array(chosen)[:, None]
    run = model.run(_along(0, 4, tables) + _along(1, 4, firsts) + _along(2, 4, z0) + _along(3, 4, ws), (N_1,))
    num = len(tables)
    parts = {
        "state after z_1": _part(run.states[1][N_1 + N_0 - 1], num=num),
        "accumulator at z_0": _part(run.marked[0][N_1 + N_0, N_1], num=num),
        "accumulators at w": _part(run.marked[0][N_1 + N_0 + 1, N_1], num=num),
    }
    notes = {"what z_0 and w ask does not depend on z_2 and z_1": _constant(run.words[0][-2:], (0, 1))}
    outputs = np.broadcast_to(run.output, (num, len(firsts), starts, len(ws))).reshape(num, -1)
    return Family(model, task, tables, _contexts(firsts, z0, ws), parts, outputs, notes)


def _constant(arrays: Iterable[np.ndarray], axes: tuple[int, ...]) -> bool:
    """Whether the arrays are the same along the given axes."""
    return all(bool((a == np.take(a, [0], axis=axis)).all()) for a in arrays for axis in axes)


# E3a and recurrence after it ---------------------------------------------------------------------------------------------


def two_full_layers(
    model: AbstractHybrid, task: SequentialComposition, tables: np.ndarray, starts: int, values: int, functions: int
) -> Family:
    """The parts that E3a and its corollary fix, in this order: the first layer at w, then a class of z_1, then the rest.

    tables: functions z_2 (num, N_1), of which those with the commonest accumulators at w are kept. starts: s; values: r;
    functions: k functions z_1 of the class. z_1(a) lies in [a r, (a + 1) r) for a < s and is 0 elsewhere.

    Raises ValueError unless s r <= m and the gaps before the last full layer are without state.
    """
    _two_functions(model, task, 2)
    N_0, N_1 = task.sizes
    if model.gap_bits[:2] != (0, 0) or starts * values > task.m:
        raise ValueError(
            f"gap_bits={model.gap_bits}, starts * values={starts * values}: needs (0, 0, S_post) and at most {task.m}"
        )
    ws, z0 = np.arange(task.ns[0])[:, None], np.arange(starts)[:, None]
    firsts = _contexts(*[np.arange(a * values, (a + 1) * values)[:, None] for a in range(starts)])
    firsts = np.pad(firsts, ((0, 0), (0, N_0 - starts)))
    # words enter the first full layer before any state, so its accumulators at w need z_2 and z_1 alone
    early = model.run(_along(0, 4, tables) + _along(1, 4, firsts[:1]) + _along(2, 4, z0[:1]) + _along(3, 4, ws), (N_1,))
    kept = _commonest(_labels(early.marked[0][N_1 + N_0 + 1, N_1].reshape(len(tables), -1)))
    tables = tables[kept]
    later = model.run(_along(0, 4, tables[:1]) + _along(1, 4, firsts) + _along(2, 4, z0[:1]) + _along(3, 4, ws), (N_1 + N_0,))
    firsts = firsts[_commonest(_labels(later.marked[0][N_1 + N_0 + 1, N_1 + N_0].reshape(len(firsts), -1)))]
    firsts = _choose(firsts, range(starts), functions)
    run = model.run(_along(0, 4, tables) + _along(1, 4, firsts) + _along(2, 4, z0) + _along(3, 4, ws), (N_1,))
    first, second, num = run.marked[0], run.marked[1], len(tables)
    at_z1, at_z0, at_w = range(N_1, N_1 + N_0), N_1 + N_0, N_1 + N_0 + 1
    parts = {
        "first layer at z_1 and z_0": _part(*(first[i, N_1] for i in (*at_z1, at_z0)), num=num),
        "second layer at w": _part(second[at_w, N_1], num=num),
    }
    if model.gap_bits[2]:
        parts["second layer at z_0"] = _part(second[at_z0, N_1], num=num)
        parts["state after z_1"] = _part(run.states[2][at_z0 - 1], num=num)
    step1 = Family(model, task, tables, np.zeros((0, 0)), {"": parts["first layer at z_1 and z_0"]}, tables)
    same = np.flatnonzero(step1.labels() == step1.labels()[0])
    asked = np.broadcast_to(run.words[1][at_w], (num, len(firsts), starts, len(ws)))[same]
    notes = {"what w asks in the second layer does not depend on z_1 and z_2": _constant([asked], (0, 1))}
    outputs = np.broadcast_to(run.output, (num, len(firsts), starts, len(ws))).reshape(num, -1)
    return Family(model, task, tables, _contexts(firsts, z0, ws), parts, outputs, notes)


# E3b ---------------------------------------------------------------------------------------------------------------------


def three_functions(
    model: AbstractHybrid,
    task: SequentialComposition,
    tables: np.ndarray,
    first_functions: int = 1,
    starts: int = 1,
    second_functions: int = 2,
    last_digits: int = 1,
    equal_states: bool = True,
) -> Family:
    """The parts that E3b fixes, in its order. tables: functions z_3 (num, N_2), those with the commonest state are kept.

    first_functions: k_1; starts: s; second_functions: k_2; last_digits: q_2 values of w_2 (all values of w_1 are used).

    The functions z_2 come from the class of step 3 of the first table kept: equal pre-states, equal accumulators of the first
    full layer after z_2 at the later queries; and among them, as in step 4, from the largest class by the state between the
    layers. equal_states=False leaves step 4 out. notes: what step 5 states, for the twins of that table.

    Raises ValueError unless L = 3, the order is `std`, there are two full layers and q_2 <= n_2.
    """
    if task.L != 3 or task.order != "std" or model.full_layers != 2 or not 1 <= last_digits <= task.ns[1]:
        raise ValueError(
            f"{task}, {model.full_layers} full layers, last_digits={last_digits}: needs L = 3, order 'std', 2, last_digits <= n_2"
        )
    _, N_1, N_2 = task.sizes
    states = model.gap_states(list(tables.T))
    kept = _commonest(states)
    tables, num = tables[kept], len(kept)
    seconds = task.functions(2)
    after = model.gap_states(list(seconds.T), states[kept[0]], N_2)
    common = _commonest(after)
    seconds, after = seconds[common], after[common]
    firsts = task.functions(1)
    firsts = firsts[_commonest(model.gap_states(list(firsts.T), after[0], N_2 + N_1))]
    firsts = _choose(firsts, range(starts), first_functions)
    z0, ws = np.arange(starts)[:, None], np.arange(task.ns[0] * last_digits)[:, None]
    rest = _along(2, 5, firsts) + _along(3, 5, z0) + _along(4, 5, ws)
    later = range(N_2 + N_1, task.seq_len)
    marks = (N_2, N_2 + N_1)
    # steps 3 and 4 for the first table: accumulators after z_2 at later queries, then the state between the layers
    probe = model.run(_along(0, 5, tables[:1]) + _along(1, 5, seconds) + rest, marks)
    found = [np.moveaxis(probe.marked[0][i, marks[1]], 1, 0) for i in later]
    seconds_kept = _commonest(_labels(_part(*found, num=len(seconds))))
    between = probe.states[1][marks[1] - 1].reshape(-1)[seconds_kept]
    if equal_states:
        seconds_kept = seconds_kept[_commonest(between)]
    seconds = seconds[seconds_kept][:second_functions]
    run = model.run(_along(0, 5, tables) + _along(1, 5, seconds) + rest, marks)
    first, second = run.marked
    parts = {
        "state between after z_3": _part(run.states[1][N_2 - 1], num=num),
        "first layer after z_3, asked in z_2": _part(*(first[i, N_2] for i in range(N_2, marks[1])), num=num),
        "first layer after z_3, asked in z_1, at z_0 and w": _part(*(first[i, N_2] for i in later), num=num),
    }
    step5 = Family(model, task, tables, np.zeros((0, 0)), dict(parts), tables)
    same = np.flatnonzero(step5.labels() == step5.labels()[0])
    parts |= {
        "second layer after z_3, asked at z_0 and w": _part(*(second[i, N_2] for i in later[-2:]), num=num),
        "state after z_1": _part(run.states[2][task.seq_len - 3], num=num),
    }
    shape = (num, len(seconds), len(firsts), starts, len(ws))
    of_twins = lambda words: [np.broadcast_to(w, (num, *w.shape[1:]))[same] for w in words]  # noqa: E731
    notes = {
        "what z_0 and w ask in the second layer does not depend on z_3 and z_2": _constant(of_twins(run.words[1][-2:]), (0, 1)),
        "what enters the second layer in z_2 does not depend on z_3": _constant(of_twins(run.words[1][N_2 : marks[1]]), (0,)),
        "the state between after z_2 does not depend on z_3": _constant(of_twins([run.states[1][marks[1] - 1]]), (0,)),
    }
    outputs = np.broadcast_to(run.output, shape).reshape(num, -1)
    return Family(model, task, tables, _contexts(seconds, firsts, z0, ws), parts, outputs, notes)
