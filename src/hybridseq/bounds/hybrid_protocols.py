"""A hybrid as a communication protocol: one player a segment of the prompt, bit for bit the model (paper C, Section 3).

The players stand in the order of the prompt; for sequential composition they are L, ..., 1, 0, -1, the owners of z_L, ...,
z_1, z_0 and w. Each starts with the embeddings of its own tokens and works through the layers of the word, one epoch a layer:

    F   a round.  Player i shows its queries to every player j before it, for free. For each head and each of the m_i tokens of
        i, player j answers with its part of the sums: value_dim numerators of p_A bits, and a denominator of p_A - 1 bits (it
        is not negative). That is m_i H (value_dim p_A + p_A - 1) <= 2 B m_i bits, with B = H d p_A. Player i adds up.
    R   a chain.  The first player runs the recurrence over its tokens and hands its state to the second, and so on: at most
        H (d^2 + d) p_A bits a hop.

What is token by token (the maps, the MLP) costs nothing. A message travels as zeros and ones: a receiver works with what it
decodes from exactly as many bits as the message is said to have.

Numerators and denominators are exact integers, so the sums of disjoint segments add up to those of the model, in any order. In
floating point they do not (`merge_in_floats`), and that is why the model is made of integers.

Source: reconstructed from paper C, Section 3, and Chen, Peng and Wu (2024). Deviates: p_A counts the bits of an accumulator, not
only those of a stored number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.evidence import Check
from hybridseq.mixers.attention import Partial, causal_mask
from hybridseq.mixers.linear_attention import LinearState
from hybridseq.models.integer_hybrid import FullLayer, IntegerHybrid, IntegerLayer, RecurrentLayer
from hybridseq.tasks.sequential_composition import SequentialComposition

__all__ = [
    "Field", "FloatMerge", "HybridProtocol", "Information", "Message", "Run", "best_read_out", "check_budgets", "check_protocol",
    "decode", "encode", "information", "merge_in_floats", "transcript_classes",
]  # fmt: skip


# messages ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """One part of a message: its shape for one prompt, bits a number, and whether numbers may be negative."""

    name: str
    shape: tuple[int, ...]
    width: int
    signed: bool

    @property
    def bits(self) -> int:
        """Bits of the whole part."""
        return prod(self.shape) * self.width


@dataclass(frozen=True, eq=False)
class Message:
    """What one player sends to another in one epoch (from 0), for every prompt of a batch.

    numbers: one integer array (num, *shape) a field. budget: the bits that the protocol allows for it.
    """

    epoch: int
    letter: str
    sender: int
    receiver: int
    fields: tuple[Field, ...]
    numbers: tuple[np.ndarray, ...]
    budget: int

    @property
    def bits(self) -> int:
        """Bits for one prompt."""
        return sum(field.bits for field in self.fields)

    @property
    def rows(self) -> np.ndarray:
        """All numbers, one row a prompt: (num, count)."""
        return np.concatenate([part.reshape(len(part), -1) for part in self.numbers], axis=1)

    def __str__(self) -> str:
        return f"epoch {self.epoch} ({self.letter}): {self.sender} -> {self.receiver}, {self.bits} of {self.budget} bits"


def encode(numbers: Sequence[np.ndarray], fields: Sequence[Field], where: str = "message") -> np.ndarray:
    """Zeros and ones (num, bits), uint8: numbers in two's complement, or unsigned, lowest bit first.

    Raises ValueError for a number that its width does not hold.

    >>> encode([np.array([[-3]])], [Field("num", (1,), 3, True)]).tolist()
    [[1, 0, 1]]
    """
    parts = []
    for array, field in zip(numbers, fields, strict=True):
        low, high = (-(1 << (field.width - 1)), (1 << (field.width - 1)) - 1) if field.signed else (0, (1 << field.width) - 1)
        if array.size and not low <= array.min() <= array.max() <= high:
            kind = "signed" if field.signed else "unsigned"
            raise ValueError(
                f"{where}: {field.name} spans {array.min()}..{array.max()} and does not fit {field.width} {kind} bits "
                f"({low}..{high}); give the model a wider accumulator"
            )
        flat = array.reshape(len(array), -1, 1)
        parts.append(((flat >> np.arange(field.width)) & 1).astype(np.uint8).reshape(len(array), field.bits))
    return np.concatenate(parts, axis=1)


def decode(wire: np.ndarray, fields: Sequence[Field]) -> list[np.ndarray]:
    """The inverse of `encode`: (num, bits) -> integers (num, *shape) a field."""
    numbers, start = [], 0
    for field in fields:
        digits = wire[:, start : start + field.bits].reshape(len(wire), prod(field.shape), field.width)
        weights = np.left_shift(np.int64(1), np.arange(field.width))
        if field.signed:
            weights[-1] = -weights[-1]
        numbers.append((digits @ weights).reshape(len(wire), *field.shape))
        start += field.bits
    return numbers


# the protocol ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Run:
    """One run over a batch. messages: in the order of the epochs. stream: (num, n, dim), the players' final vectors side by side.

    outputs: what the last player says (num,).
    """

    messages: tuple[Message, ...]
    stream: np.ndarray
    outputs: np.ndarray

    @property
    def bits(self) -> int:
        """Bits of all messages together, for one prompt."""
        return sum(message.bits for message in self.messages)

    def rows(self, chosen=lambda message: True) -> np.ndarray:
        """The numbers of the chosen messages, one row a prompt (num, count)."""
        picked = [message.rows for message in self.messages if chosen(message)]
        return np.concatenate([np.zeros((len(self.outputs), 0), np.int64), *picked], axis=1)


@dataclass(frozen=True, eq=False)
class HybridProtocol:
    """The protocol of an integer hybrid on a task: `run` plays it for a batch of prompts.

    Raises ValueError where the model reads another length or alphabet than the task writes, or where a message of some layer
    cannot fit its budget.

    >>> task = SequentialComposition(2, (2,))
    >>> protocol = HybridProtocol(IntegerHybrid.random("RF", 1, 1, 2, 1, task, seed=0), task)
    >>> run = protocol.run(task.sample([0, 1]))
    >>> print(run.messages[0], run.messages[-1], sep="\\n")
    epoch 0 (R): 2 -> 1, 14 of 14 bits
    epoch 1 (F): 0 -> -1, 13 of 14 bits
    >>> run.bits, protocol.bits
    (133, 133)
    """

    model: IntegerHybrid
    task: SequentialComposition

    def __post_init__(self):
        if self.model.seq_len != self.task.seq_len or self.model.embedding.shape[1] < self.task.vocab_size:
            raise ValueError(
                f"model: reads {self.model.seq_len} tokens out of {self.model.embedding.shape[1]}, but the task writes "
                f"{self.task.seq_len} out of {self.task.vocab_size}"
            )
        for epoch, layer in enumerate(self.model.layers):
            one = self._fields(layer, 1)
            need, budget = sum(field.bits for field in one), self._budget(layer, 1)
            if need > budget:
                what = "a token's share of a round" if layer.letter == "F" else "the state"
                raise ValueError(
                    f"layer {epoch} ({layer.letter}): {what} takes {need} bits, its budget is {budget}; make values no wider "
                    f"than keys (value_dim = {layer.value_dim}, head_dim = {layer.head_dim}), states no wider than accumulators"
                )

    # what is sent

    @cached_property
    def segments(self) -> dict[int, slice]:
        """The positions of each player, in prompt order."""
        return self.task.segments

    @property
    def players(self) -> tuple[int, ...]:
        """In prompt order."""
        return tuple(self.segments)

    def tokens_of(self, player: int) -> int:
        """m_i: how many tokens a player owns."""
        place = self.segments[player]
        return place.stop - place.start

    def _fields(self, layer: IntegerLayer, tokens: int) -> tuple[Field, ...]:
        """The form of a message: to an owner of so many tokens in a round; of a state in a chain."""
        if isinstance(layer, FullLayer):
            width = self.model.accumulator
            num = Field("num", (layer.heads, tokens, layer.value_dim), width, True)
            return num, Field("den", (layer.heads, tokens, 1), width - 1, False)
        s = Field("S", (layer.heads, layer.value_dim, layer.core.rank), layer.state_bits, True)
        return (s, Field("z", (layer.heads, layer.core.rank), layer.state_bits, True)) if layer.normalise else (s,)

    def _budget(self, layer: IntegerLayer, tokens: int) -> int:
        """2 B m_i in a round, H (d^2 + d) p_A in a chain."""
        each = layer.heads * layer.head_dim * self.model.accumulator
        return 2 * each * tokens if layer.letter == "F" else each * (layer.head_dim + 1)

    def _pairs(self, layer: IntegerLayer) -> list[tuple[int, int]]:
        """(sender, receiver) in one epoch, in the order in which they are sent."""
        if layer.letter == "R":
            return list(pairwise(self.players))
        return [(j, i) for place, i in enumerate(self.players) for j in self.players[:place]]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bits of each message, in the order of `Run.messages`."""
        sent = [(layer, i) for layer in self.model.layers for _, i in self._pairs(layer)]
        return tuple(sum(field.bits for field in self._fields(layer, self.tokens_of(i))) for layer, i in sent)

    @property
    def bits(self) -> int:
        """Bits of all messages for one prompt; the same for every prompt."""
        return sum(self.sizes)

    # how it is played

    def run(self, tokens, wire: bool = True, flip: tuple[int, int] | None = None) -> Run:
        """Play it for prompts (num, n). wire: send every message as zeros and ones; without, numbers are handed over as they are.

        flip: (message, bit), both counted from 0, is inverted on its way, in every prompt: a control.

        Raises ValueError for bad prompts, a bit to flip that is not there, or (on the wire) a sum that does not fit its bits.
        """
        if flip is not None and not (wire and 0 <= flip[0] < len(self.sizes) and 0 <= flip[1] < self.sizes[flip[0]]):
            raise ValueError(f"flip={flip!r}: must be (message, bit) on the wire; the messages have {self.sizes} bits")
        tokens = np.atleast_2d(self.task.check(tokens))
        embedded = self.model.embed(tokens)
        x = {player: embedded[:, place] for player, place in self.segments.items()}
        messages: list[Message] = []
        for epoch, layer in enumerate(self.model.layers):
            play = self._round if isinstance(layer, FullLayer) else self._chain
            x = play(_Post(self, epoch, layer, messages, wire, flip), layer, x)
        stream = np.concatenate(list(x.values()), axis=1)
        return Run(tuple(messages), stream, self.model.read(stream[:, -1]))

    def _round(self, post: _Post, layer: FullLayer, x: dict) -> dict:
        ar, core, after = self.model.ar, layer.core, {}
        own = {player: layer.inputs(ar, part) for player, part in x.items()}
        for place, i in enumerate(self.players):
            q, steps = own[i].q, np.arange(self.tokens_of(i))
            total = core.partial(ar, q, own[i].k, own[i].v, causal_mask(steps, steps))
            for j in self.players[:place]:
                part = core.partial(ar, q, own[j].k, own[j].v)
                num, den = post.send(j, i, (part.num, part.den))
                total = core.merge(ar, Partial(num=num, den=den), total)
            after[i] = layer.after(ar, x[i], core.finish(ar, total))
        return after

    def _chain(self, post: _Post, layer: RecurrentLayer, x: dict) -> dict:
        state, after = None, {}
        for place, i in enumerate(self.players):
            after[i], state = layer.scan(self.model.ar, x[i], state)
            if place + 1 < len(self.players):
                numbers = (state.s,) if state.z is None else (state.s, state.z)
                s, *z = post.send(i, self.players[place + 1], numbers)
                state = LinearState(s, z[0] if z else None)
        return after

    # what finders of fooling pairs ask for

    def transcript(self, tokens, level: int) -> np.ndarray:
        """All numbers sent by players >= level to players < level (num, count), for prompts (num, n).

        Raises ValueError for a level that is not 0..L, or in an order in which these players do not come first.
        """
        if isinstance(level, bool) or not isinstance(level, int | np.integer) or not 0 <= level <= self.task.L:
            raise ValueError(f"level={level!r}: must be an integer from 0 to L = {self.task.L}")
        if self.task.order != "std":
            raise ValueError(f"task: order {self.task.order!r}, but players >= level must come first: use order 'std'")
        return self.run(tokens, wire=False).rows(lambda message: message.sender >= level > message.receiver)

    def outputs(self, tokens) -> np.ndarray:
        """What the last player says (num,)."""
        return self.model.answers(np.atleast_2d(self.task.check(tokens)))  # the same as run(tokens).outputs, by `check_protocol`

    def state(self, tokens, player: int) -> np.ndarray:
        """The recurrent state before the first full layer once `player` is through: (num, count), over all layers there.

        tokens: prompts (num, >= end of the player's segment); what stands after it is not read.
        """
        if player not in self.segments:
            raise ValueError(f"player={player!r}: must be one of {', '.join(map(str, self.players))}")
        stop = self.segments[player].stop
        tokens = np.atleast_2d(tokens)[:, :stop]
        if tokens.shape[1] < stop:
            raise ValueError(f"tokens: {tokens.shape[1]} of them, but player {player} ends after {stop}")
        if tokens.dtype.kind not in "iu" or (tokens < 0).any() or (tokens >= self.task.alphabet[:stop]).any():
            most = (self.task.alphabet[:stop] - 1).tolist()
            raise ValueError(f"tokens: must be integers from 0 to {most}, position by position")
        x, found = self.model.embedding[np.arange(stop), tokens], [np.zeros((len(tokens), 0), np.int64)]
        for layer in self.model.layers:
            if isinstance(layer, FullLayer):
                break
            x, state = layer.scan(self.model.ar, x)
            found += [part.reshape(len(tokens), -1) for part in (state.s, state.z) if part is not None]
        return np.concatenate(found, axis=1)


@dataclass(frozen=True, eq=False)
class _Post:
    """Carries messages in one epoch and keeps a copy of each."""

    protocol: HybridProtocol
    epoch: int
    layer: IntegerLayer
    kept: list
    wire: bool
    flip: tuple[int, int] | None

    def send(self, sender: int, receiver: int, numbers) -> tuple[np.ndarray, ...]:
        """What arrives."""
        size = self.protocol.tokens_of(receiver)
        fields = self.protocol._fields(self.layer, size)
        if self.wire:
            where = f"epoch {self.epoch} ({self.layer.letter}), player {sender} to {receiver}"
            bits = encode(numbers, fields, where)
            if self.flip and self.flip[0] == len(self.kept):
                bits[:, self.flip[1]] ^= 1
            numbers = decode(bits, fields)
        budget = self.protocol._budget(self.layer, size)
        self.kept.append(Message(self.epoch, self.layer.letter, sender, receiver, fields, tuple(numbers), budget))
        return tuple(numbers)


# checks ------------------------------------------------------------------------------------------------------------------


def check_protocol(protocols: Iterable[HybridProtocol], scope: str, prompts: Iterable[np.ndarray] | None = None) -> Check:
    """Bit for bit: every number of every token's final vector, and the answer, agree between protocol and model.

    prompts: blocks (num, n); by default all inputs of each protocol's task. The value counts models and compared numbers.
    """
    models = cases = compared = 0
    wrong = None
    blocks = None if prompts is None else [np.atleast_2d(block) for block in prompts]
    for protocol in protocols:
        models += 1
        for tokens in protocol.task.every() if blocks is None else blocks:
            run, stream = protocol.run(tokens), protocol.model.forward(tokens)
            differ = (run.stream != stream).any(axis=(1, 2)) | (run.outputs != protocol.model.read(stream[:, -1]))
            cases, compared = cases + len(tokens), compared + stream.size
            if wrong is None and differ.any():
                row = int(np.argmax(differ))
                wrong = {"word": protocol.model.word, "model": protocol.model.content_hash[:12], "prompt": tokens[row].tolist()}
    value = {"models": models, "numbers compared": compared}
    return Check.true("the players compute what the model computes, bit for bit", wrong is None, scope, cases, wrong, value)


def check_budgets(protocols: Iterable[HybridProtocol], scope: str) -> Check:
    """Every message within its budget: 2 B bits a token of the receiver in a round, H (d^2 + d) p_A bits in a chain.

    The value holds the number of messages and the largest share of a budget that one of them uses.
    """
    count, fullest, wrong = 0, 0.0, None
    for protocol in protocols:
        for message in protocol.run(protocol.task.sample([0])).messages:
            count += 1
            fullest = max(fullest, message.bits / message.budget)
            wrong = wrong or (str(message) if message.bits > message.budget else None)
    value = {"messages": count, "fullest": round(fullest, 4)}
    return Check.true("every message fits its budget", wrong is None, scope, count, wrong, value)


# information -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Information:
    """What a protocol lets through, over all inputs of its task. bits: all messages of one run.

    tables, classes, largest: see `transcript_classes`. best: see `best_read_out`. accuracy: the model's own.
    """

    word: str
    bits: int
    tables: int
    classes: int
    largest: int
    best: float
    accuracy: float


def information(protocol: HybridProtocol) -> Information:
    """All of it from one run over all inputs.

    Raises ValueError where there are too many inputs to list, or z_L does not come first in the prompt.
    """
    task, last = protocol.task, protocol.players[-1]
    if task.order != "std":
        raise ValueError(f"task: order {task.order!r}, but z_L must come first: use order 'std'")
    sent, views, answers, said = [], [], [], []
    for tokens in task.every():
        run = protocol.run(tokens, wire=False)
        sent.append(run.rows(lambda message: message.sender == task.L))
        received = run.rows(lambda message: message.receiver == last)
        views.append(np.concatenate([tokens[:, protocol.segments[last]], received], axis=1))
        answers.append(task.answers(tokens))
        said.append(run.outputs)
    answers, tables = np.concatenate(answers), task.num_answers**task.num_answers
    # z_L is the most significant part of the counting order, so a row of labels is everything that one table makes L send
    _, sizes = np.unique(_labels(np.concatenate(sent)).reshape(tables, -1), axis=0, return_counts=True)
    labels = _labels(np.concatenate(views))
    votes = np.bincount(labels * task.num_answers + answers, minlength=(labels.max() + 1) * task.num_answers)
    best = votes.reshape(-1, task.num_answers).max(axis=1).sum() / len(answers)
    accuracy = (np.concatenate(said) == answers).mean()
    return Information(protocol.model.word, protocol.bits, tables, len(sizes), int(sizes.max()), float(best), float(accuracy))


def transcript_classes(protocol: HybridProtocol) -> tuple[int, int]:
    """(number, largest) of the classes of tables z_L: two are in one class if, all else alike, player L sends the same.

    As many classes as tables: no two can be confused. A class of two: some two prompts with different right answers get the same
    output. Raises ValueError as `information` does.
    """
    found = information(protocol)
    return found.classes, found.largest


def best_read_out(protocol: HybridProtocol) -> float:
    """The share of all inputs that the last player can answer at best, given its own tokens and the messages it received.

    For each such view the commonest right answer is taken. Nothing that the last player does with its messages can be better, so
    the model's own accuracy is at most this. Raises ValueError as `information` does.
    """
    return information(protocol).best


def _labels(rows: np.ndarray) -> np.ndarray:
    """Numbers 0, 1, ... of the distinct rows: (num,)."""
    _, labels = np.unique(np.ascontiguousarray(rows), axis=0, return_inverse=True)
    return labels.reshape(-1)


# floating point ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FloatMerge:
    """How often sums merged player by player differ from those over all keys at once, in float64.

    entries: outputs compared. differ: how many are not the same bits. order: how many change when the players' parts are merged
    from last to first. largest: the largest difference to the sums over all keys.
    """

    entries: int
    differ: int
    order: int
    largest: float


def merge_in_floats(protocol: HybridProtocol, tokens, epoch: int = 0) -> FloatMerge:
    """The negative control: the round of one full layer with softmax in float64, on the same queries, keys and values.

    Raises ValueError for an epoch that is no round.
    """
    model = protocol.model
    if not 0 <= epoch < len(model.layers) or not isinstance(model.layers[epoch], FullLayer):
        raise ValueError(f"epoch={epoch}: must be the place of a letter F in {model.word}, from 0")
    ar, core = Float(), model.layers[epoch].core
    inputs = model.layers[epoch].inputs(model.ar, model.trace(np.atleast_2d(tokens))[epoch])
    q, k, v = (np.asarray(part, dtype=np.float64) for part in (inputs.q, inputs.k, inputs.v))
    steps = np.arange(model.seq_len)
    whole = core.finish(ar, core.partial(ar, q, k, v, causal_mask(steps, steps)))
    forwards, backwards = [], []
    for place, i in enumerate(protocol.players):
        here = protocol.segments[i]
        steps = np.arange(protocol.tokens_of(i))
        parts = [
            core.partial(ar, q[..., here, :], k[..., there, :], v[..., there, :], causal_mask(steps, steps) if j == i else None)
            for j, there in list(protocol.segments.items())[: place + 1]
        ]
        forwards.append(_merged(core, ar, parts))
        backwards.append(_merged(core, ar, parts[::-1]))
    merged, other = (np.concatenate(outputs, axis=-2) for outputs in (forwards, backwards))
    gap = float(np.abs(merged - whole).max())
    return FloatMerge(whole.size, int((merged != whole).sum()), int((merged != other).sum()), gap)


def _merged(core, ar, parts):
    total = parts[0]
    for part in parts[1:]:
        total = core.merge(ar, total, part)
    return core.finish(ar, total)
