"""Indistinguishable decompositions: late tables that early readers cannot tell apart (paper C, Definition 4.1, Lemma 4.2).

In sequential composition the players L, ..., 1, 0, -1 own z_L, ..., z_1, z_0, w, in the order of the prompt. At level l the late
players are L..l and the early ones l-1..-1. Sets

    R  of late parts (z_L, ..., z_l),      Z = Z_{l-1} x ... x Z_0 x (every w)  of early parts

form an indistinguishable decomposition of a protocol if for every member of Z all messages from late to early players coincide
on all of R. The last player then says the same for all of R, and Lemma 4.2 counts: functions z_L that agree on A of their N
arguments are at most N^(N - A). A larger R that shares its messages therefore holds two members with different answers.

Three finders, from general to particular: `exhaustive` groups all tables z_L by what they send, `proof_shaped` follows the proof
of Lemma E2 for one full layer and L = 2, `local_swap` changes the one entry that is asked for. What they find is written down by
`certificate` as plain data and run again by `replay`, which needs the models alone.

A protocol here is any object with `task` (in order std), `transcript(tokens, level)`: integers (num, width), equal exactly if all
messages from players >= level to players < level are, and `outputs(tokens)`: integers (num,). `proof_shaped` also needs
`state(tokens, player)`: the recurrent state before the full layer after that player's segment, for prompts that may end there.

Deviates: reconstructed from the names in the paper and from its predecessor (Chen, Peng and Wu 2024); the paper's own text of
both statements was not at hand. Lemma E2's proof uses several decompositions at level 1 that share their tables z_L; so
`Decomposition`s are counted together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from hybridseq.bounds.hybrid_protocols import HybridProtocol
from hybridseq.evidence import Certificate, Check
from hybridseq.mixers.attention import Partial, causal_mask
from hybridseq.mixers.linear_attention import LinearState
from hybridseq.models.integer_hybrid import IntegerHybrid
from hybridseq.tasks.sequential_composition import SequentialComposition

KIND = "indistinguishable prompts"
MOST_ROWS = 1 << 16
"""Prompts that go through a protocol at once."""


# the definition ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decomposition:
    """R and Z at a level; whether a protocol's messages coincide on them is for `check_decomposition` to say.

    task: in order std. level: l in 0..L. upper: R, integers (num, N_{L-1} + ...), rows (z_L, ..., z_l) as in a prompt.
    lower: Z_{l-1}, ..., Z_0, integers (num, N_{player-1}) each, and (num, 1) for player 0. Every w belongs to Z.

    Raises ValueError for another order, a level outside 0..L, an empty set, repeated members of R, or rows that do not fit.

    >>> task = SequentialComposition(2, (2,))
    >>> d = Decomposition(task, 2, [[0, 1, 2, 3], [1, 1, 2, 3]], ([[0, 1], [1, 1]], [[0]]))
    >>> len(d), d.contexts.shape
    (2, (4, 4))
    """

    task: SequentialComposition
    level: int
    upper: np.ndarray
    lower: tuple[np.ndarray, ...] = ()

    def __post_init__(self):
        _check_task(self.task)
        if isinstance(self.level, bool) or not isinstance(self.level, int | np.integer) or not 0 <= self.level <= self.task.L:
            raise ValueError(f"level={self.level!r}: must be an integer from 0 to L = {self.task.L}")
        upper, lower = np.asarray(self.upper), tuple(np.asarray(part) for part in self.lower)
        if len(lower) != self.level:
            players = ", ".join(str(p) for p in range(self.level - 1, -1, -1)) or "none"
            raise ValueError(f"lower: {len(lower)} sets; at level {self.level} give one for each of the players {players}")
        for name, part in (("upper", upper), *((f"lower[{i}]", part) for i, part in enumerate(lower))):
            if part.ndim != 2 or not len(part):
                raise ValueError(f"{name}: must be a set of rows (num >= 1, width), got shape {part.shape}")
        if len(np.unique(upper, axis=0)) != len(upper):
            raise ValueError("upper: R is a set, and some row stands in it twice")
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "lower", lower)
        self.task.check(join(upper, self.contexts[:1]))
        self.task.check(join(upper[:1], self.contexts))

    def __len__(self) -> int:
        """|R|."""
        return len(self.upper)

    @cached_property
    def contexts(self) -> np.ndarray:
        """All members of Z as ends of prompts (|Z|, width), the token of w last."""
        last = np.arange(prod(self.task.ns))[:, None]
        rows = [np.concatenate(parts) for parts in product(*self.lower, last)]
        return np.array(rows, dtype=np.int64)

    @property
    def tables(self) -> np.ndarray:
        """z_L of each member of R: (|R|, N_{L-1}). For level 0 it is part of the upper row like everything else."""
        return self.upper[:, : self.task.num_answers]

    def arguments(self, member: int = 0) -> np.ndarray:
        """Which argument of z_L each member of Z asks for, given z_{L-1}, ..., z_l of a member of R: integers (|Z|,)."""
        return arguments(self.task, join(self.upper[member : member + 1], self.contexts))


def join(upper: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Prompts of all pairs, (num_upper * num_contexts, seq_len), the contexts running faster."""
    first, second = np.repeat(upper, len(contexts), axis=0), np.tile(contexts, (len(upper), 1))
    return np.concatenate([first, second], axis=1)


def arguments(task: SequentialComposition, tokens) -> np.ndarray:
    """The argument at which prompts (..., seq_len) read z_L: w_{L-1} N_{L-2} + i_{L-1}, or i_0 for L = 1."""
    found = task.trace(tokens)[..., task.L - 1]
    if task.L > 1:
        digits = task.digits(np.asarray(tokens)[..., task.segments[-1].start])
        found = found + digits[..., -1] * task.sizes[task.L - 2]
    return found


def check_decomposition(protocol, *decompositions: Decomposition) -> Check:
    """Definition 4.1 by brute force: every member of Z against every member of R. The outputs must then coincide too."""
    cases, wrong = 0, None
    for d in decompositions:
        cases += len(d) * len(d.contexts)
        wrong = wrong or _first_difference(protocol, d)
    sizes = ", ".join(sorted({f"|R| = {len(d):,}, |Z| = {len(d.contexts):,} at level {d.level}" for d in decompositions}))
    name = "all messages from late to early players coincide on R"
    return Check.true(name, wrong is None, f"{sizes}: every pair", max(cases, 1), wrong)


def _first_difference(protocol, d: Decomposition) -> dict | None:
    at_once = max(1, MOST_ROWS // len(d))
    for start in range(0, len(d.contexts), at_once):
        contexts = d.contexts[start : start + at_once]
        tokens = join(d.upper, contexts)
        sent = np.asarray(protocol.transcript(tokens, d.level)).reshape(len(d), len(contexts), -1)
        said = np.asarray(protocol.outputs(tokens)).reshape(len(d), len(contexts), 1)
        for what, values in (("messages", sent), ("outputs", said)):
            differ = np.argwhere((values != values[:1]).any(axis=-1))
            if len(differ):
                member, context = map(int, differ[0])
                pair = [tokens[context].tolist(), tokens[member * len(contexts) + context].tolist()]
                return {"different": what, "prompts": pair}
    return None


# Lemma 4.2 ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting:
    """The counting half of Lemma 4.2. tables: |R|. reachable: A, arguments of z_L that Z asks for. size: N = N_{L-1}."""

    tables: int
    reachable: int
    size: int

    @property
    def agreeing(self) -> int:
        """N^(N - A): so many functions agree with a given one on all reachable arguments."""
        return self.size ** (self.size - self.reachable)

    @property
    def forced(self) -> bool:
        """Whether two members of R must differ on a reachable argument."""
        return self.tables > self.agreeing


@dataclass(frozen=True, eq=False)
class Pair:
    """Two prompts that differ in late tables only and have different answers. level: of the decomposition, None for a swap."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    level: int | None = None

    def __post_init__(self):
        for name in ("first", "second"):
            object.__setattr__(self, name, tuple(int(t) for t in getattr(self, name)))

    @property
    def prompts(self) -> np.ndarray:
        """(2, seq_len)."""
        return np.array([self.first, self.second], dtype=np.int64)


def count(*decompositions: Decomposition) -> Counting:
    """Lemma 4.2's count over decompositions that share their tables z_L, each with one choice of z_{L-1}, ..., z_l.

    One decomposition at level L is the lemma as it is named; Lemma E2 needs one at level 1 for each z_1 of a set Z_1.

    >>> task = SequentialComposition(2, (2,))
    >>> count(Decomposition(task, 2, task.functions(2)[:65], ([[0, 1]], [[0]])))
    Counting(tables=65, reachable=2, size=4)
    """
    _check_shared(decompositions)
    asked = np.unique(np.concatenate([d.arguments() for d in decompositions]))
    return Counting(len(decompositions[0]), len(asked), decompositions[0].task.num_answers)


def fooling_pair(*decompositions: Decomposition) -> Pair | None:
    """Two members of R and a member of Z with different answers, by direct search over R x Z; None if there are none.

    The search asks less than the count: a pair may exist although nothing forces it.
    """
    _check_shared(decompositions)
    for d in decompositions:
        answers = d.tables[:, d.arguments()]  # (|R|, |Z|)
        differ = np.argwhere(answers != answers[:1])
        if len(differ):
            member, context = differ[0]
            return Pair(*(join(d.upper[i : i + 1], d.contexts[[context]])[0] for i in (0, member)), d.level)
    return None


def check_lemma(protocol, *decompositions: Decomposition) -> Check:
    """Lemma 4.2 executed: if R is large enough a fooling pair exists, and on any pair found the protocol says the same twice.

    The value holds |R|, the reachable arguments, the number that may agree, and whether a pair was forced and found.
    """
    counted, pair = count(*decompositions), fooling_pair(*decompositions)
    reasons = []
    if counted.forced and pair is None:
        reasons.append("the count forces a pair, and there is none")
    if pair is not None:
        said = np.asarray(protocol.outputs(pair.prompts)).tolist()
        right = decompositions[0].task.answers(pair.prompts).tolist()
        reasons += ["the protocol says different things on the pair"] if said[0] != said[1] else []
        reasons += ["the right answers do not differ"] if right[0] == right[1] else []
    value = {
        "|R|": counted.tables, "reachable arguments": counted.reachable, "may agree": counted.agreeing,
        "forced": counted.forced, "pair": pair is not None,
    }  # fmt: skip
    scope = f"R of {counted.tables:,} tables, {counted.reachable} of {counted.size} arguments reachable"
    name = "a set larger than agreement allows holds two prompts that the protocol confuses"
    return Check.true(name, not reasons, scope, counted.tables, reasons, value)


def _check_shared(decompositions: Sequence[Decomposition]) -> None:
    if not decompositions:
        raise ValueError("decompositions: give one or more")
    first = decompositions[0]
    for d in decompositions:
        if d.task != first.task or not np.array_equal(d.tables, first.tables):
            raise ValueError("decompositions: they are counted together only if they share the task and the tables z_L, in order")
        rest = d.upper[:, d.task.num_answers :]
        if (rest != rest[:1]).any():
            raise ValueError("decompositions: R holds different z_{L-1}, ..., z_l; pass `split(decomposition)` group by group")


def split(d: Decomposition) -> list[Decomposition]:
    """The parts of R with equal z_{L-1}, ..., z_l, each a decomposition with the same Z (a subset keeps the property)."""
    rest = d.upper[:, d.task.num_answers :]
    groups = classes(rest)
    return [Decomposition(d.task, d.level, d.upper[groups == g], d.lower) for g in range(groups.max() + 1)]


# grouping by what is sent ------------------------------------------------------------------------------------------------


def classes(rows: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """Numbers 0, 1, ... (num,) of the distinct rows among integers (num, width); exact, columns packed into 62-bit words.

    labels: an earlier numbering that the new one refines.

    >>> classes(np.array([[1, 5], [1, 5], [2, 5]])).tolist()
    [0, 0, 1]
    """
    rows = np.asarray(rows)
    word = np.zeros(len(rows), dtype=np.int64) if labels is None else np.asarray(labels, dtype=np.int64)
    span = int(word.max(initial=0)) + 1
    for column in rows.T:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if low == high:
            continue
        if span * (high - low + 1) >= 1 << 62:
            word = np.unique(word, return_inverse=True)[1].reshape(-1)
            span = int(word.max(initial=0)) + 1
        if span * (high - low + 1) >= 1 << 62:
            column, low, high = np.unique(column, return_inverse=True)[1].reshape(-1), 0, len(rows)
        word, span = word * (high - low + 1) + (column - low).astype(np.int64), span * (high - low + 1)
    return np.unique(word, return_inverse=True)[1].reshape(-1)


def refine(protocol, tables: np.ndarray, contexts: np.ndarray, level: int) -> np.ndarray:
    """Class numbers (num,) of tables z_L (num, N_{L-1}): equal if in every context (num, rest of the prompt) the messages from
    players >= level to players < level are equal.

    A table that nobody shares its messages with is not asked again.
    """
    labels = np.zeros(len(tables), dtype=np.int64)
    open_rows, start = np.arange(len(tables)), 0
    while start < len(contexts) and len(open_rows):
        some = contexts[start : start + max(1, MOST_ROWS // len(open_rows))]
        start += len(some)
        sent = np.asarray(protocol.transcript(join(tables[open_rows], some), level)).reshape(len(open_rows), -1)
        found = classes(sent, labels[open_rows])
        labels[open_rows] = found + labels.max() + 1  # numbers of open classes stay apart from those that are closed
        open_rows = open_rows[np.bincount(found)[found] > 1]
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


# the finders -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Grouping:
    """What `exhaustive` saw. tables: how many z_L. num_classes: by messages. decomposition: the largest class or None."""

    tables: int
    num_classes: int
    decomposition: Decomposition | None

    @property
    def largest(self) -> int:
        """|R| of the largest class."""
        return 1 if self.decomposition is None else len(self.decomposition)


def exhaustive(protocol, tables: np.ndarray | None = None) -> Grouping:
    """Finder 1: group tables z_L by everything that player L sends in every context z_{<L}; the largest class is an R at level L.

    tables: integers (num, N_{L-1}); by default all functions. With a sample, classes are collisions within it.
    Any class of two is enough: with every context in Z all arguments are reachable, and N^0 = 1 function agrees.

    Raises ValueError where there are too many functions or contexts to list.
    """
    task = _check_task(protocol.task)
    tables = task.functions(task.L) if tables is None else np.asarray(tables)
    lower = (*(task.functions(level) for level in range(task.L - 1, 0, -1)), np.arange(task.m)[:, None])
    every = Decomposition(task, task.L, tables, lower)
    labels = refine(protocol, tables, every.contexts, task.L)
    sizes = np.bincount(labels)
    if sizes.max() < 2:
        return Grouping(len(tables), len(sizes), None)
    return Grouping(len(tables), len(sizes), Decomposition(task, task.L, tables[labels == sizes.argmax()], lower))


@dataclass(frozen=True, eq=False)
class ProofShaped:
    """The sets of Lemma E2's proof on one protocol.

    same_state: |R_1|, tables z_2 with one state before the full layer. same_second: |C|, tables z_1 with the commonest state
    after them. start: a. seconds: Z_1, rows (x_1, m) with different z_1(a). left: |R|, functions z_2 whose messages to the
    players 0 and -1 coincide. decompositions: (R x {z_1}, {a} x every w) at level 1, one for each z_1. pair: found among them.
    """

    same_state: int
    same_second: int
    start: int
    seconds: np.ndarray
    left: int
    decompositions: tuple[Decomposition, ...]
    pair: Pair | None


def proof_shaped(protocol, tables: np.ndarray | None = None, choices: int = 1) -> ProofShaped:
    """Finder 2, for L = 2 and exactly one full layer: the steps of Lemma E2's proof, each with the commonest choice.

    tables: the functions z_2 to choose from (default: all). choices: how many of the states after z_2 to try, commonest first,
    until a pair is found; the first attempt is returned if none is. Where the largest set R of an attempt holds no two prompts
    with different answers, the largest that does is taken.

    Raises ValueError for L other than 2, an integer hybrid whose word has not exactly one F, or choices < 1.
    """
    task = _check_task(protocol.task)
    if task.L != 2:
        raise ValueError(f"protocol.task has L = {task.L}: this finder follows the proof for L = 2; take `exhaustive`")
    if isinstance(protocol, HybridProtocol) and protocol.model.word.count("F") != 1:
        raise ValueError(f"word {protocol.model.word!r}: this finder needs exactly one full layer, F; take `exhaustive`")
    if isinstance(choices, bool) or not isinstance(choices, int | np.integer) or choices < 1:
        raise ValueError(f"choices={choices!r}: must be an integer >= 1")
    tables = task.functions(2) if tables is None else np.asarray(tables)
    labels = classes(protocol.state(tables, 2))  # (i) the state before the full layer after z_2
    order = np.argsort(-np.bincount(labels), kind="stable")[:choices]
    first = None
    for label in order:
        found = _from_one_state(protocol, tables[labels == label])
        if found.pair is not None:
            return found
        first = first or found
    return first


def _from_one_state(protocol, tables: np.ndarray) -> ProofShaped:
    """Steps (ii) to (iv) for tables z_2 that leave the same state."""
    task = protocol.task
    # (ii) the commonest state after z_1, and the argument a at which the z_1 that leave it take most values
    seconds = task.functions(1)
    labels = classes(protocol.state(join(tables[:1], seconds), 1))
    same = seconds[labels == np.bincount(labels).argmax()]
    start = int(np.argmax([len(np.unique(column)) for column in same.T]))
    chosen = same[np.unique(same[:, start], return_index=True)[1]]
    # (iii) what z_2 can still tell the players 0 and -1
    last = np.arange(task.ns[0])[:, None]
    contexts = np.array([np.concatenate(parts) for parts in product(chosen, np.array([[start]]), last)])
    labels = _cells(protocol, tables, chosen, start, contexts)
    # (iv) the largest class; if its members agree wherever they are asked, the largest that does not
    asked = np.unique(arguments(task, join(tables[:1], contexts)))
    sizes, kinds = np.bincount(labels), np.bincount(labels[_firsts(labels, tables[:, asked])])
    kept = tables[labels == np.argmax(np.where(kinds > 1, sizes, 0) if kinds.max() > 1 else sizes)]
    found = tuple(
        Decomposition(task, 1, np.concatenate([kept, np.tile(z, (len(kept), 1))], axis=1), (np.array([[start]]),)) for z in chosen
    )
    return ProofShaped(len(tables), len(same), start, chosen, len(kept), found, fooling_pair(*found))


def _cells(protocol, tables, seconds, start: int, contexts) -> np.ndarray:
    """`refine` at level 1; for an integer hybrid by way of `_SharedRound`, which computes less."""
    if not isinstance(protocol, HybridProtocol):
        return refine(protocol, tables, contexts, 1)
    shared, labels = _SharedRound(protocol, tables), None
    for second in seconds:
        labels = classes(shared.messages(second, start), labels)
    return labels


class _SharedRound:
    """What a hybrid with one full layer tells the players 0 and -1, for tables z_2 (num, N_1) that leave one state before it.

    Early tokens then have the same stream before the full layer for all tables, and what a token of z_2 adds to a sum depends on
    its own stream alone: it is computed once for each distinct stream and looked up. Messages that do not depend on z_2 are left
    out. Tests compare with `refine`, which knows nothing of this.
    """

    def __init__(self, protocol: HybridProtocol, tables: np.ndarray):
        self.model, self.task = protocol.model, protocol.task
        place = self.model.word.index("F")
        self.before, self.full, self.later = (self.model.layers[part] for part in (slice(place), place, slice(place + 1, None)))
        x, states = self._scan(self.before, self.model.embedding[np.arange(tables.shape[1]), tables], None)
        self.states = [LinearState(state.s[:1], None if state.z is None else state.z[:1]) for state in states]
        rows = x.reshape(-1, x.shape[-1])
        self.labels = classes(rows).reshape(tables.shape)
        distinct = rows[np.unique(self.labels, return_index=True)[1]]
        self.keys = self.full.inputs(self.model.ar, distinct[:, None])
        self.after = self._scan(self.later, self.full.forward(self.model.ar, x), None)[1] if self.later else []

    def _scan(self, layers, x, states):
        found = []
        for i, layer in enumerate(layers):
            x, state = layer.scan(self.model.ar, x, None if states is None else states[i])
            found.append(state)
        return x, found

    def messages(self, second: np.ndarray, start: int) -> np.ndarray:
        """Sums at z_0 = start and at every w, and the states after z_1 of later layers: integers (num, width)."""
        ar, core, m, parts = self.model.ar, self.full.core, self.task.m, []
        here = np.arange(self.task.segments[1].start, self.task.seq_len)
        for w in range(self.task.ns[0]):
            x, _ = self._scan(self.before, self.model.embedding[here, [*second, start, w]][None], self.states)
            inputs = self.full.inputs(ar, x)
            share = core.partial(ar, inputs.q, self.keys.k, self.keys.v)  # (distinct, heads, m + 2, .)
            num, den = (sum(part[column] for column in self.labels.T) for part in (share.num, share.den))
            parts += [part[:, :, m if w == 0 else m + 1 :] for part in (num, den)]
            if w == 0 and self.later:  # z_1 ends before w, so its state is the same for every w
                q, k, v = (part[:, :, :m] for part in (inputs.q, inputs.k, inputs.v))
                own = core.partial(ar, q, k, v, causal_mask(np.arange(m), np.arange(m)))
                whole = core.merge(ar, Partial(num=num[:, :, :m], den=den[:, :, :m]), own)
                stream = self.full.after(ar, np.repeat(x[:, :m], len(num), axis=0), core.finish(ar, whole))
                states = self._scan(self.later, stream, self.after)[1]
                parts += [part for state in states for part in (state.s, state.z) if part is not None]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _firsts(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """One index for each distinct (label, row)."""
    return np.unique(classes(rows, labels), return_index=True)[1]


def local_swap(outputs: Callable, task: SequentialComposition, tokens) -> Pair | None:
    """Finder 3, for any size and any model: change z_L only where it is asked and see whether the output moves.

    outputs: prompts (num, seq_len) -> integers (num,). tokens: prompts to start from (num, seq_len), in the task's order. Every
    other value of the entry is tried. Returns a pair (level None) or None.
    """
    tokens = np.atleast_2d(task.check(tokens))
    places = task.segments[task.L].start + arguments(task, tokens)
    values = np.arange(task.num_answers)
    at_once = max(1, MOST_ROWS // task.num_answers)
    for start in range(0, len(tokens), at_once):
        some, where = tokens[start : start + at_once], places[start : start + at_once]
        every = np.repeat(some[:, None], task.num_answers, axis=1)  # (num, N, seq_len); its own value gives the prompt itself
        every[np.arange(len(some))[:, None], values, where[:, None]] = values
        said = np.asarray(outputs(every.reshape(-1, task.seq_len))).reshape(len(some), -1)
        own = said[np.arange(len(some)), some[np.arange(len(some)), where]]
        hits = np.argwhere((said == own[:, None]) & (values != some[np.arange(len(some)), where][:, None]))
        if len(hits):
            row, value = hits[0]
            return Pair(some[row], every[row, value])
    return None


# certificates and their replay --------------------------------------------------------------------------------------------


def certificate(model: IntegerHybrid, task: SequentialComposition, pair: Pair) -> Certificate:
    """The pair and the model as plain data.

    Raises ValueError if the model answers the two prompts differently, or the right answers are equal: then it proves nothing.
    """
    said, right = model.answers(pair.prompts).tolist(), task.answers(pair.prompts).tolist()
    if said[0] != said[1] or right[0] == right[1]:
        raise ValueError(f"pair: the model answers {said}, right is {right}; it must say one thing where two are right")
    return Certificate(
        KIND,
        {
            "m": task.m, "ns": list(task.ns), "order": task.order, "level": pair.level,
            "prompts": pair.prompts.tolist(), "output": said[0], "answers": right,
            "model hash": model.content_hash, "model": model.to_data(),
        },
    )  # fmt: skip


def replay(stored: Certificate | str, model: IntegerHybrid | None = None) -> Check:
    """Run both prompts of a certificate again on the model that it carries (and, if given, against `model` by hash).

    A text is compared with its own hash first. Then: the prompts differ, and in late tables only (for a swap, level None, in z_L
    only); at a level every early token has the same stream after every layer, which is all that equal messages can mean to it;
    the model says the same twice; the right answers, found by a loop of its own, differ. Nothing of the search is used.
    """
    name, scope = "certificate of indistinguishable prompts", "one certificate, both prompts run again"
    try:
        stored = Certificate.from_json(stored) if isinstance(stored, str) else stored
        reasons, data = _objections(stored, model), stored.data
        if not reasons:
            scope = f"m = {data['m']}, n_l = {data['ns']}, word {data['model']['word']}, p = {data['model']['p']}: both prompts"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as unreadable:
        reasons = [f"unreadable: {unreadable}"]
    return Check.true(name, not reasons, scope, 1, reasons)


def _objections(stored: Certificate, model: IntegerHybrid | None) -> list[str]:
    """Everything that is wrong with a certificate; empty if it stands."""
    if stored.kind != KIND:
        return [f"kind {stored.kind!r} is not {KIND!r}"]
    data = stored.data
    carried = IntegerHybrid.from_data(data["model"])
    if carried.content_hash != data["model hash"]:
        return ["the model in the certificate does not have the hash that is stated"]
    if model is not None and model.content_hash != data["model hash"]:
        return ["the model at hand is not the one in the certificate: their hashes differ"]
    prompts = np.array(data["prompts"])
    task = SequentialComposition(data["m"], tuple(data["ns"]), data["order"])
    if task.check(prompts).shape != (2, task.seq_len):
        return ["there must be two prompts"]
    streams = np.stack(carried.trace(prompts), axis=1)  # (2, layers + 1, seq_len, dim)
    level = data["level"]
    if level is None:
        late = task.segments[task.L]
    elif isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= task.L or task.order != "std":
        return [f"level {level!r} in order {task.order!r}: must be null, or an integer from 0 to {task.L} in order 'std'"]
    else:
        late = slice(0, task.segments[level].stop)
    early = np.delete(prompts, late, axis=1)
    said = carried.read(streams[:, -1, -1]).tolist()
    right = [_answer(row, data["m"], data["ns"], data["order"]) for row in data["prompts"]]
    conditions = {
        "the two prompts are equal": data["prompts"][0] != data["prompts"][1],
        "the prompts differ in an early token": np.array_equal(*early),
        "some early token has two different streams": level is None or np.array_equal(*streams[:, :, late.stop :]),
        "the outputs differ from each other": said[0] == said[1],
        "the output is not the one that is stated": said[0] == data["output"],
        "the right answers are not those that are stated": right == data["answers"],
        "the right answers do not differ, so nobody need be wrong": right[0] != right[1],
    }
    return [reason for reason, fine in conditions.items() if not fine]


def _answer(tokens: Sequence[int], m: int, ns: Sequence[int], order: str) -> int:
    """The task solved by walking along one prompt: follow z_0 through z_1, ..., z_L, with the digits of w on the way."""
    lengths = [m * prod(ns[:l]) for l in range(len(ns) + 1)]
    ascending = [(-1, 1), (0, 1), *enumerate(lengths, start=1)]
    players = {"rev": ascending, "std": ascending[::-1], "wfirst": ascending[:1] + ascending[:0:-1]}[order]
    parts, start = {}, 0
    for player, length in players:
        parts[player], start = tokens[start : start + length], start + length
    pointer, (w,) = parts[1][parts[0][0]], parts[-1]
    for l, n in enumerate(ns, start=1):
        pointer = parts[l + 1][w % n * lengths[l - 1] + pointer]
        w //= n
    return pointer


def check_certificates(stored: Iterable[Certificate], what: str) -> Check:
    """Every certificate, written out as text, is accepted by `replay`."""
    return Check.replayed(stored, replay, what)


def _check_task(task) -> SequentialComposition:
    if not isinstance(task, SequentialComposition) or task.order != "std":
        raise ValueError(f"task={task!r}: must be a SequentialComposition in order 'std', with z_L first and w last")
    return task
