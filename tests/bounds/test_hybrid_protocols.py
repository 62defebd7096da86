"""Players with messages against the model: equality, bits, budgets, and what the messages tell."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds import hybrid_protocols as hp
from hybridseq.bounds.hybrid_protocols import Field, HybridProtocol
from hybridseq.constructions.integer_composition import composition_hybrid
from hybridseq.models.integer_hybrid import IntegerHybrid
from hybridseq.tasks.sequential_composition import SequentialComposition

TASK = SequentialComposition(2, (2,))
WORDS = ("F", "RF", "FR", "RFR", "FF", "RFF", "R", "RRRR")
SIZES = ((1, 1, 2, 1), (1, 1, 3, 2), (2, 1, 3, 2), (2, 2, 4, 2))


def protocol(word="RFR", size=SIZES[0], task=TASK, seed=0):
    return HybridProtocol(IntegerHybrid.random(word, *size, task, seed), task)


# equality ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_players_and_model_agree_on_all_inputs(word):
    check = hp.check_protocol([protocol(word, SIZES[0], seed=s) for s in range(2)], "all inputs of (2;2)")
    assert check.passed, check
    assert check.cases == 2 * 4096 and check.value["numbers compared"] == 2 * 4096 * 8 * 6


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("seed", range(2))
def test_players_and_model_agree_for_wider_models(size, seed):
    check = hp.check_protocol([protocol(w, size, seed=seed) for w in WORDS], "samples", [TASK.sample(np.arange(100))])
    assert check.passed, check


@pytest.mark.parametrize("order", ["rev", "wfirst"])
@pytest.mark.parametrize("args", [(3, ()), (2, (1, 2)), (4, (2,))])
def test_other_shapes_and_orders(args, order):
    task = SequentialComposition(*args, order)
    protocols = [protocol(w, (1, 2, 3, 2), task) for w in ("FRF", "RFR")]
    assert hp.check_protocol(protocols, "samples", [task.sample(np.arange(60))]).passed


class ForgetfulPlayers(HybridProtocol):
    """Every receiver overlooks the message of the first player."""

    def _round(self, post, layer, x):
        kept, send = self.players[0], post.send

        class Censor:
            def send(self, sender, receiver, numbers):
                arrived = send(sender, receiver, numbers)
                return tuple(0 * part for part in arrived) if sender == kept else arrived

        return super()._round(Censor(), layer, x)


class StateStartsAnew(HybridProtocol):
    """No state is handed over."""

    def _chain(self, post, layer, x):
        return {player: layer.scan(self.model.ar, part)[0] for player, part in x.items()}


@pytest.mark.parametrize(("broken", "word"), [(ForgetfulPlayers, "F"), (StateStartsAnew, "R")])
def test_a_protocol_that_loses_a_message_is_noticed(broken, word):
    right = protocol(word, SIZES[1])
    check = hp.check_protocol([broken(right.model, TASK)], "all inputs of (2;2)")
    assert not check.passed and len(check.counterexample["prompt"]) == 8
    assert hp.check_protocol([right], "all inputs").passed


def test_a_bit_that_flips_on_its_way_is_noticed():
    """The top bit of every message matters; and a bit that is not there cannot flip."""
    play, tokens = protocol("RFR", SIZES[1]), next(TASK.every())
    truth = play.run(tokens).stream
    assert play.sizes == tuple(m.bits for m in play.run(tokens[:1]).messages)
    for number, size in enumerate(play.sizes):
        assert (play.run(tokens, flip=(number, size - 1)).stream != truth).any()
    for flip in ((12, 0), (0, play.sizes[0]), (-1, 0)):
        with pytest.raises(ValueError, match="flip="):
            play.run(tokens, flip=flip)
    with pytest.raises(ValueError, match="on the wire"):
        play.run(tokens, wire=False, flip=(0, 0))


def test_a_model_with_one_weight_changed_is_another_protocol():
    one = protocol("FR", SIZES[2])
    layer = one.model.layers[0]
    other = HybridProtocol(one.model.with_layer(0, layer.with_weight("v", (0, 0, 0), -int(layer.v[0, 0, 0]) or 1)), TASK)
    tokens = next(TASK.every())
    assert (one.run(tokens).stream != other.model.forward(tokens)).any()


# bits and budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_bits_by_hand(size):
    d, heads, p, g = size
    width = g + p + 3 + 1
    run = protocol("FR", size).run(TASK.sample([0, 1]))
    rounds, chain = run.messages[:6], run.messages[6:]
    owned = {2: 4, 1: 2, 0: 1, -1: 1}
    assert [(m.sender, m.receiver) for m in rounds] == [(2, 1), (2, 0), (1, 0), (2, -1), (1, -1), (0, -1)]
    assert [m.bits for m in rounds] == [owned[m.receiver] * heads * (d * width + width - 1) for m in rounds]
    assert [m.budget for m in rounds] == [2 * heads * d * width * owned[m.receiver] for m in rounds]
    assert [(m.sender, m.receiver) for m in chain] == [(2, 1), (1, 0), (0, -1)]
    assert {m.bits for m in chain} == {m.budget for m in chain} == {heads * (d * d + d) * width}
    total = 7 * heads * (d * width + width - 1) + 3 * heads * (d * d + d) * width
    assert run.bits == protocol("FR", size).bits == total


def test_budgets_are_checked():
    check = hp.check_budgets([protocol(w, z) for w in WORDS for z in SIZES], "all words, four sizes")
    assert check.passed and check.value["messages"] == 4 * (6 + 9 + 9 + 12 + 12 + 15 + 3 + 12)
    assert check.value["fullest"] == 1


class Generous(HybridProtocol):
    """Allows one bit less than a message needs."""

    def _budget(self, layer, tokens):
        return sum(field.bits for field in self._fields(layer, tokens)) - (tokens > 1)


def test_a_budget_that_is_exceeded_is_noticed():
    check = hp.check_budgets([Generous(protocol("F").model, TASK)], "one model")
    assert not check.passed and "2 -> 1" in check.counterexample


def test_a_layer_that_cannot_fit_is_refused():
    model = protocol("RF", SIZES[2]).model
    recurrent, full = model.layers
    wide = replace(full, v=np.zeros((1, 4, model.dim), int), out=np.zeros((model.dim, 4), int))
    with pytest.raises(ValueError, match=r"layer 1 \(F\).*value_dim = 4, head_dim = 2"):
        HybridProtocol(model.with_layer(1, wide), TASK)
    with pytest.raises(ValueError, match=r"layer 0 \(R\): the state takes"):
        HybridProtocol(model.with_layer(0, replace(recurrent, state_bits=model.accumulator + 1)), TASK)


def test_sums_that_do_not_fit_the_accumulator_are_refused():
    narrow = HybridProtocol(replace(protocol("F", SIZES[2]).model, accumulator=4), TASK)
    with pytest.raises(ValueError, match=r"epoch 0 \(F\), player 2 to .* does not fit [34] .* wider accumulator"):
        narrow.run(next(TASK.every()))


def test_model_and_task_must_fit():
    with pytest.raises(ValueError, match="reads 8 tokens out of 4, but the task writes 14 out of 8"):
        HybridProtocol(protocol().model, SequentialComposition(4, (2,)))
    with pytest.raises(ValueError, match="position"):
        protocol().run(np.full((1, 8), 3))


@st.composite
def messages(draw):
    fields, arrays, num = [], [], draw(st.integers(1, 3))
    for index in range(draw(st.integers(1, 3))):
        width, signed = draw(st.integers(1, 30)), draw(st.booleans())
        low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
        size = draw(st.integers(1, 4))
        number = st.one_of(st.integers(low, high), st.sampled_from([low, high]))
        entries = st.lists(number, min_size=num * size, max_size=num * size)
        fields.append(Field(f"f{index}", (size, 1), width, signed))
        arrays.append(np.array(draw(entries), dtype=np.int64).reshape(num, size, 1))
    return arrays, fields


@settings(deadline=None)
@given(messages())
def test_wires_carry_what_was_sent(message):
    arrays, fields = message
    wire = hp.encode(arrays, fields)
    assert wire.dtype == np.uint8 and wire.shape == (len(arrays[0]), sum(f.bits for f in fields)) and wire.max(initial=0) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(arrays, hp.decode(wire, fields), strict=True))


@pytest.mark.parametrize(("number", "width", "signed"), [(4, 3, True), (-5, 3, True), (8, 3, False), (-1, 3, False)])
def test_wires_refuse_what_does_not_fit(number, width, signed):
    with pytest.raises(ValueError, match=f"num spans {number}..{number} and does not fit 3"):
        hp.encode([np.array([[number]])], [Field("num", (1,), width, signed)])


# who can know what -------------------------------------------------------------------------------------------------------


def test_a_message_depends_on_sender_receiver_and_what_came_before():
    """Two prompts that differ in player i's tokens alone: what is sent among the players before i is the same."""
    play, tokens = protocol("RFRF", SIZES[3]), TASK.sample(np.arange(40))
    for place, player in enumerate(play.players):
        changed = tokens.copy()
        changed[:, play.segments[player].start] = (changed[:, play.segments[player].start] + 1) % 2
        before = play.players[:place]
        one, two = (play.run(t).rows(lambda m, before=before: {m.sender, m.receiver} <= set(before)) for t in (tokens, changed))
        assert np.array_equal(one, two)
        one, two = (play.run(t).rows() for t in (tokens, changed))
        assert (one != two).any()


def test_transcripts_and_states_for_finders():
    play, tokens = protocol("RRF", SIZES[2]), TASK.sample(np.arange(30))
    run = play.run(tokens)
    crossing = [m for m in run.messages if m.sender >= 1 > m.receiver]
    assert [(m.letter, m.sender, m.receiver) for m in crossing] == [
        ("R", 1, 0), ("R", 1, 0), ("F", 2, 0), ("F", 1, 0), ("F", 2, -1), ("F", 1, -1),
    ]  # fmt: skip
    assert np.array_equal(play.transcript(tokens, 1), np.concatenate([m.rows for m in crossing], axis=1))
    assert np.array_equal(play.outputs(tokens), run.outputs)
    for player, successor in ((2, 1), (1, 0)):
        handed = run.rows(lambda m, hop=(player, successor): m.letter == "R" and (m.sender, m.receiver) == hop)
        assert np.array_equal(play.state(tokens, player), handed)
        assert np.array_equal(play.state(tokens[:, : play.segments[player].stop], player), handed)
    assert protocol("FR").state(tokens, 2).shape == (30, 0)
    with pytest.raises(ValueError, match="player=3"):
        play.state(tokens, 3)
    with pytest.raises(ValueError, match="ends after 6"):
        play.state(tokens[:, :5], 1)
    with pytest.raises(ValueError, match="position by position"):
        play.state(-1 - tokens, 2)
    for level in (-1, 3, 1.0, True):
        with pytest.raises(ValueError, match="level="):
            play.transcript(tokens, level)
    with pytest.raises(ValueError, match="order 'rev'"):
        protocol("F", task=TASK.with_order("rev")).transcript(tokens, 1)


def test_no_protocol_is_no_budget_kept():
    with pytest.raises(ValueError, match="cases=0"):
        hp.check_budgets([], "nothing")


# information -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "seed"), [("F", 2), ("R", 1), ("FR", 1)])
def test_classes_and_best_read_out_by_dictionaries(word, seed):
    play = protocol(word, SIZES[0], seed=seed)
    tokens = next(TASK.every())
    run, answers = play.run(tokens), TASK.answers(tokens)
    heard, sent = defaultdict(Counter), defaultdict(list)
    for row, (prompt, answer) in enumerate(zip(tokens.tolist(), answers.tolist(), strict=True)):
        received = tuple(tuple(m.rows[row].tolist()) for m in run.messages if m.receiver == -1)
        heard[prompt[-1], received][answer] += 1
        sent[tuple(prompt[:4])].append(tuple(tuple(m.rows[row].tolist()) for m in run.messages if m.sender == 2))
    found = hp.information(play)
    assert found.best == sum(max(votes.values()) for votes in heard.values()) / 4096
    sizes = Counter(map(tuple, sent.values()))
    assert (found.tables, found.classes, found.largest) == (256, len(sizes), max(sizes.values()))
    assert found.accuracy == np.mean(run.outputs == answers) <= found.best
    assert hp.transcript_classes(play) == (found.classes, found.largest) and hp.best_read_out(play) == found.best


@pytest.mark.parametrize(("linear", "bits"), [(False, 609), (True, 412)])
def test_a_model_that_composes_tells_all_tables_apart(linear, bits):
    """The totals of the specification: 7 messages of a token, 29 bits each, in a round; 3 hops of 2 bits in the chain."""
    play = HybridProtocol(composition_hybrid(TASK, linear), TASK)
    found = hp.information(play)
    assert (found.bits, found.classes, found.largest, found.best, found.accuracy) == (bits, 256, 1, 1, 1)
    assert hp.check_protocol([play], "all inputs of (2;2)").passed and hp.check_budgets([play], "one model").passed
    assert hp.information(HybridProtocol(play.model.first_layers(2), TASK)).accuracy == 0.25


def test_without_messages_nothing_is_known():
    """All matrices zero: one class, and the best read-out knows w alone, a quarter."""
    model = protocol("FR").model
    silent = [replace(a, **{name: 0 * getattr(a, name) for name in a.MATRICES}) for a in model.layers]
    silent[1] = replace(silent[1], feature_low=0)
    found = hp.information(HybridProtocol(replace(model, layers=tuple(silent)), TASK))
    assert (found.classes, found.largest, found.best) == (1, 256, 0.25)


def test_information_needs_the_hard_order():
    task = TASK.with_order("rev")
    with pytest.raises(ValueError, match="order 'rev'"):
        hp.information(protocol("F", task=task))


# floating point ----------------------------------------------------------------------------------------------------------


def test_floats_do_not_merge_bit_for_bit():
    found = hp.merge_in_floats(protocol("RF", SIZES[2]), next(TASK.every()), epoch=1)
    assert found.entries == 4096 * 8 * 2
    assert 0 < found.differ < found.entries and 0 < found.order < found.entries
    assert 0 < found.largest < 1e-13
    with pytest.raises(ValueError, match="epoch=0: must be the place of a letter F in RF"):
        hp.merge_in_floats(protocol("RF"), TASK.sample([0]))
