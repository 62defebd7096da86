"""Indistinguishable decompositions on protocols whose messages are known: the definition, Lemma 4.2, the finders."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds import decompositions as dc
from hybridseq.bounds.abstract_hybrids import AbstractHybrid, AbstractProtocol
from hybridseq.bounds.decompositions import Decomposition
from hybridseq.bounds.hybrid_protocols import HybridProtocol, transcript_classes
from hybridseq.evidence import Certificate
from hybridseq.models.integer_hybrid import IntegerHybrid
from hybridseq.rng import Generator
from hybridseq.tasks.sequential_composition import SequentialComposition

TWO = SequentialComposition(2, (2,))
THREE = SequentialComposition(3, (2,))


@dataclass(frozen=True)
class Whisper:
    """Player 2 sends the first `entries` values of z_2 to everybody, and player 1 hands on all it owns; answers from that."""

    task: SequentialComposition
    entries: int

    def transcript(self, tokens, level):
        place = self.task.segments[2].start
        sent = [tokens[:, place : place + self.entries]]
        if level <= 1:
            sent.append(tokens[:, self.task.segments[1]])
        if level == 0:
            sent.append(tokens[:, self.task.segments[0]])
        return np.concatenate(sent, axis=1)

    def outputs(self, tokens):
        asked = dc.arguments(self.task, tokens)
        right = self.task.answers(tokens)
        return np.where(asked < self.entries, right, 0)

    def state(self, tokens, player):
        return np.zeros((len(tokens), 0), dtype=np.int64)


def everything(task, level, tables):
    lower = (*(task.functions(l) for l in range(level - 1, 0, -1)), np.arange(task.m)[:, None])
    return Decomposition(task, level, tables, lower)


# the definition


def test_equal_messages_form_a_decomposition_and_others_do_not():
    protocol, tables = Whisper(TWO, 2), TWO.functions(2)
    same = tables[(tables[:, :2] == [1, 3]).all(axis=1)]
    assert len(same) == 16
    check = dc.check_decomposition(protocol, everything(TWO, 2, same))
    assert check.passed and check.cases == 16 * 16
    spoilt = np.concatenate([same, tables[:1]])
    check = dc.check_decomposition(protocol, everything(TWO, 2, spoilt))
    assert not check.passed and check.counterexample["different"] == "messages"


def test_outputs_must_follow_from_the_messages():
    class Liar(Whisper):
        def outputs(self, tokens):
            return self.task.answers(tokens)

    same = TWO.functions(2)[:16]
    check = dc.check_decomposition(Liar(TWO, 2), everything(TWO, 2, same))
    assert not check.passed and check.counterexample["different"] == "outputs"


@given(st.sets(st.integers(0, 255), min_size=1, max_size=6), st.sets(st.integers(0, 3), min_size=1), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_the_checker_agrees_with_plain_loops(members, seconds, entries):
    tables, firsts = TWO.functions(2)[sorted(members)], TWO.functions(1)[sorted(seconds)]
    protocol = Whisper(TWO, entries)
    d = Decomposition(TWO, 2, tables, (firsts, np.array([[0], [1]])))
    expected = all(tuple(row[:entries]) == tuple(tables[0][:entries]) for row in tables.tolist())
    assert dc.check_decomposition(protocol, d).passed == expected


def test_arguments_that_are_asked():
    # (m; n_1) = (2; 2): z_2 is read at 2 w + z_1(z_0)
    d = Decomposition(TWO, 2, TWO.functions(2)[:3], (np.array([[1, 0]]), np.array([[0]])))
    assert d.contexts.tolist() == [[1, 0, 0, 0], [1, 0, 0, 1]]
    assert d.arguments().tolist() == [1, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"level": 3}, {"level": True}, {"upper": np.zeros((0, 4), int)}, {"upper": [[0, 0, 0, 0]] * 2}, {"upper": [[0, 0, 0, 4]]},
        {"upper": [[0, 0, 0]]}, {"lower": ([[0, 1]],)}, {"lower": ([[0, 2]], [[0]])}, {"task": TWO.with_order("rev")},
    ],
)  # fmt: skip
def test_sets_that_do_not_fit_are_refused(change):
    good = {"task": TWO, "level": 2, "upper": [[0, 1, 2, 3]], "lower": ([[0, 1]], [[0]])}
    Decomposition(**good)
    with pytest.raises(ValueError):
        Decomposition(**(good | change))


# Lemma 4.2


def test_counting_forces_a_pair_above_the_number_that_may_agree():
    lower = (np.array([[0, 1]]), np.array([[0]]))  # arguments 0 and 2 are asked
    tables = TWO.functions(2)
    agree = tables[(tables[:, 0] == 0) & (tables[:, 2] == 0)]
    assert len(agree) == 16 == dc.count(Decomposition(TWO, 2, agree, lower)).agreeing
    d = Decomposition(TWO, 2, agree, lower)
    assert not dc.count(d).forced and dc.fooling_pair(d) is None
    for other in tables[(tables[:, 0] != 0)][:50]:
        d = Decomposition(TWO, 2, np.concatenate([agree, other[None]]), lower)
        pair = dc.fooling_pair(d)
        assert dc.count(d).forced and pair is not None
        assert len(set(TWO.answers(pair.prompts).tolist())) == 2


def test_a_pair_may_exist_that_nothing_forces():
    d = Decomposition(TWO, 2, [[0, 0, 0, 0], [1, 0, 0, 0]], (np.array([[0, 1]]), np.array([[0]])))
    assert not dc.count(d).forced and dc.fooling_pair(d) is not None


def test_lemma_on_a_protocol_and_its_mutation():
    protocol = Whisper(TWO, 2)
    same = TWO.functions(2)[:16]
    check = dc.check_lemma(protocol, everything(TWO, 2, same))
    assert check.passed and check.value["forced"] and check.value["pair"]
    # R that is no decomposition: the protocol tells its members apart, and the check says so
    apart = Decomposition(TWO, 2, [[0, 0, 0, 0], [1, 0, 0, 0]], (np.array([[0, 1]]), np.array([[0]])))
    assert not dc.check_lemma(protocol, apart).passed


def test_decompositions_are_counted_together_only_if_they_share_tables():
    lower, tables = (np.array([[0]]),), TWO.functions(2)[:8]
    rows = [np.concatenate([tables, np.tile(z, (8, 1))], axis=1) for z in ([0, 0], [1, 1])]
    both = [Decomposition(TWO, 1, upper, lower) for upper in rows]
    assert [dc.count(d).reachable for d in both] == [2, 2] and dc.count(*both).reachable == 4
    with pytest.raises(ValueError, match="share"):
        dc.count(both[0], Decomposition(TWO, 1, rows[1][::-1], lower))
    mixed = Decomposition(TWO, 1, np.concatenate(rows), lower)
    with pytest.raises(ValueError, match="split"):
        dc.count(mixed)
    assert [len(d) for d in dc.split(mixed)] == [8, 8]


# grouping


@given(st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=20))
def test_classes_are_those_of_tuples(rows):
    labels = dc.classes(np.array(rows))
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            assert (labels[i] == labels[j]) == (a == b)
    assert sorted(set(labels.tolist())) == list(range(len(set(map(tuple, rows)))))


def test_classes_of_wide_numbers_stay_exact():
    big = 1 << 61
    rows = np.array([[big, 0, -big], [big, 0, -big], [big, 1, -big], [big - 1, 1, -big], [0, 0, 0]])
    assert [dc.classes(rows).tolist()[i] for i in (0, 1)] == [dc.classes(rows)[0]] * 2
    assert len(set(dc.classes(rows).tolist())) == 4


def test_refinement_leaves_out_nothing():
    protocol, tables = Whisper(TWO, 3), TWO.functions(2)
    d = everything(TWO, 2, tables)
    labels = dc.refine(protocol, tables, d.contexts, 2)
    assert np.array_equal(np.sort(np.bincount(labels)), np.full(64, 4))
    assert all(len({tuple(t[:3]) for t in tables[labels == g]}) == 1 for g in range(64))


# the finders


@pytest.mark.parametrize(("entries", "num_classes", "largest"), [(0, 1, 256), (2, 16, 16), (4, 256, 1)])
def test_exhaustive_finder(entries, num_classes, largest):
    found = dc.exhaustive(Whisper(TWO, entries))
    assert (found.tables, found.num_classes, found.largest) == (256, num_classes, largest)
    if largest == 1:
        assert found.decomposition is None
    else:
        assert dc.check_decomposition(Whisper(TWO, entries), found.decomposition).passed
        assert dc.count(found.decomposition).forced and dc.fooling_pair(found.decomposition) is not None


def test_proof_shaped_finder_fails_where_messages_carry_the_table():
    found = dc.proof_shaped(AbstractProtocol(AbstractHybrid((4, 8), 12), THREE))
    assert found.pair is None and found.left == 1


def test_proof_shaped_finder_is_for_two_tables():
    with pytest.raises(ValueError, match="L = 2"):
        dc.proof_shaped(Whisper(SequentialComposition(2, (1, 1)), 1))
    two = SequentialComposition(2, (2,))
    for word in ("FF", "R", "FRF"):
        with pytest.raises(ValueError, match="exactly one full layer"):
            dc.proof_shaped(HybridProtocol(IntegerHybrid.random(word, d=1, heads=1, p=2, g=1, task=two, seed=0), two))
    with pytest.raises(ValueError, match=r"choices=1\.5"):
        dc.proof_shaped(AbstractProtocol(AbstractHybrid((1, 1), 1), two), choices=1.5)


@pytest.mark.parametrize("word", ["F", "RF", "FR", "RFR", "RRFRR"])
def test_the_shared_round_finds_what_the_protocol_sends(word):
    """The fast grouping for integer hybrids against the grouping by whole transcripts."""
    for d, heads, seed in ((1, 1, 0), (2, 2, 1)):
        protocol = HybridProtocol(IntegerHybrid.random(word, d, heads, 2, 1, TWO, seed), TWO)
        tables = TWO.functions(2)
        states = dc.classes(protocol.state(tables, 2))
        tables = tables[states == np.bincount(states).argmax()]
        shared = dc._SharedRound(protocol, tables)
        for second in TWO.functions(1):
            contexts = np.array([[*second, 1, w] for w in range(2)])
            got, expected = dc.classes(shared.messages(second, 1)), dc.refine(protocol, tables, contexts, 1)
            assert np.array_equal(dc.classes(np.stack([got, expected], axis=1)), got) and got.max() == expected.max()


@pytest.mark.parametrize(("word", "p"), [("F", 2), ("RF", 3), ("FR", 3), ("RFR", 2)])
def test_random_hybrids_of_one_full_layer_are_confused(word, p):
    """(3; 2), all 46,656 functions z_2: found by the proof's steps, confirmed by brute force, replayed from text."""
    protocol = HybridProtocol(IntegerHybrid.random(word, 1, 1, p, 1, THREE, 0), THREE)
    found = dc.proof_shaped(protocol)
    assert dc.check_decomposition(protocol, *found.decompositions).passed
    assert dc.check_lemma(protocol, *found.decompositions).passed
    stored = dc.certificate(protocol.model, THREE, found.pair)
    assert stored.data["level"] == 1 and dc.replay(stored.to_json(), protocol.model).passed


def test_more_choices_find_what_the_commonest_does_not():
    protocol = HybridProtocol(IntegerHybrid.random("RFR", 1, 1, 3, 1, THREE, 2), THREE)
    assert dc.proof_shaped(protocol).pair is None
    found = dc.proof_shaped(protocol, choices=20)
    assert found.pair is not None and dc.check_decomposition(protocol, *found.decompositions).passed
    with pytest.raises(ValueError, match="choices"):
        dc.proof_shaped(protocol, choices=0)


def test_exhaustive_finder_on_an_integer_hybrid():
    """Every member of every class is checked by brute force through the protocol."""
    protocol = HybridProtocol(IntegerHybrid.random("F", 1, 1, 2, 1, TWO, 0), TWO)
    found = dc.exhaustive(protocol)
    assert (found.num_classes, found.largest) == transcript_classes(protocol)
    assert dc.check_decomposition(protocol, found.decomposition).passed and dc.count(found.decomposition).forced
    stored = dc.certificate(protocol.model, TWO, dc.fooling_pair(found.decomposition))
    assert stored.data["level"] == 2 and dc.replay(stored.to_json()).passed


def test_three_tables_by_collisions_in_a_sample():
    task = SequentialComposition(2, (1, 2))
    protocol = HybridProtocol(IntegerHybrid.random("RF", 1, 1, 2, 1, task, 0), task)
    sample = np.unique(Generator(0).integers(4, (200, 4)), axis=0)
    found = dc.exhaustive(protocol, sample)
    assert found.tables == len(sample) and found.decomposition is not None
    assert dc.check_decomposition(protocol, found.decomposition).passed
    assert dc.replay(dc.certificate(protocol.model, task, dc.fooling_pair(found.decomposition))).passed


def test_local_swap():
    tokens = THREE.sample(np.arange(20))
    assert dc.local_swap(THREE.answers, THREE, tokens) is None
    pair = dc.local_swap(Whisper(THREE, 3).outputs, THREE, tokens)
    asked = dc.arguments(THREE, pair.prompts)
    assert asked[0] == asked[1] >= 3 and (pair.prompts[0] != pair.prompts[1]).sum() == 1
    assert len(set(THREE.answers(pair.prompts).tolist())) == 2
    reverse = THREE.with_order("rev")
    assert dc.local_swap(lambda t: np.zeros(len(t)), reverse, reverse.sample(np.arange(3))) is not None


# certificates


@pytest.fixture(scope="module")
def swapped():
    model = IntegerHybrid.random("RFR", d=1, heads=1, p=2, g=1, task=THREE, seed=0)
    pair = dc.local_swap(model.answers, THREE, THREE.sample(np.arange(50)))
    return model, dc.certificate(model, THREE, pair)


def test_a_certificate_is_replayed_from_its_text(swapped):
    model, stored = swapped
    assert dc.replay(stored.to_json()).passed and dc.replay(stored, model).passed
    assert dc.check_certificates([stored], "one model").passed
    other = IntegerHybrid.random("RFR", d=1, heads=1, p=2, g=1, task=THREE, seed=1)
    assert "hashes differ" in str(dc.replay(stored, other).counterexample)


def forged(stored, change):
    data = copy.deepcopy(dict(stored.data))
    change(data)
    return Certificate(stored.kind, data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["prompts"].__setitem__(1, d["prompts"][0]), "the two prompts are equal"),
        (lambda d: d.update(output=d["output"] + 1), "not the one that is stated"),
        (lambda d: d.update(answers=d["answers"][::-1]), "not those that are stated"),
        (lambda d: d["prompts"][1].__setitem__(slice(9, 10), [(d["prompts"][1][9] + 1) % 3]) or d.update(level=1), "early token"),
        (lambda d: d["prompts"][1].__setitem__(slice(9, 10), [(d["prompts"][1][9] + 1) % 3]), "early token"),
        (lambda d: d.update(level=-1), "level -1"),
        (lambda d: d.update(level=3), "level 3"),
        (lambda d: d.update(level=True), "level True"),
        (lambda d: d.update(level=0.5), "level 0.5"),
        (lambda d: d["prompts"].append(d["prompts"][0]), "two prompts"),
        (lambda d: d["model"]["readout"]["entries"].__setitem__(0, 1 - abs(d["model"]["readout"]["entries"][0])), "hash"),
        (lambda d: d["prompts"][0].__setitem__(0, 9), "unreadable"),
        (lambda d: d.pop("model"), "unreadable"),
    ],
)
def test_a_forged_certificate_is_rejected(swapped, change, reason):
    check = dc.replay(forged(swapped[1], change))
    assert not check.passed and reason in str(check.counterexample)


def test_a_pair_that_the_model_tells_apart_is_refused(swapped):
    model, stored = swapped
    same = dc.Pair(*stored.data["prompts"][:1] * 2)
    with pytest.raises(ValueError, match="must say one thing"):
        dc.certificate(model, THREE, same)


def test_early_streams_are_compared_at_a_level(swapped):
    """Two prompts that differ in z_1 have, at level 1, equal early tokens but streams that a full layer makes different."""
    model, stored = swapped
    differ = None
    for tokens in THREE.sample(np.arange(60)):
        other = tokens.copy()
        other[0] = (other[0] + 1) % 6
        if not np.array_equal(*np.stack(model.trace(np.stack([tokens, other])), axis=1)[:, :, 9:]):
            differ = [tokens.tolist(), other.tolist()]
            break
    check = dc.replay(forged(stored, lambda d: d.update(level=1, prompts=differ)))
    assert "some early token has two different streams" in check.counterexample


@pytest.mark.parametrize("order", ["std", "rev", "wfirst"])
@pytest.mark.parametrize("args", [(4, ()), (4, (2,)), (2, (3, 2)), (3, (1, 2, 2))])
def test_the_replayers_own_loop_solves_the_task(order, args):
    task = SequentialComposition(*args, order)
    tokens = task.sample(np.arange(30))
    assert [dc._answer(row, task.m, task.ns, order) for row in tokens.tolist()] == task.answers(tokens).tolist()
