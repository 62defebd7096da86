"""Theorem 4.6: the three-layer hybrid on its whole scope, windows, the base-3 register, and what a changed weight does."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.constructions import recall_with_decoding as rd
from hybridseq.constructions.recall_with_decoding import RecallHybrid
from hybridseq.rng import Generator
from hybridseq.tasks.recall_with_decoding import RecallWithDecoding


def assert_passed(check):
    assert check.passed, str(check)
    return check


# the theorem ------------------------------------------------------------------------------------------------------------


# Spec of paper B, section 8: defined labels over all sequences, all of them right.
@pytest.mark.parametrize(
    ("words", "seq_len", "defined"),
    [(2, 3, 30), (2, 4, 254), (2, 5, 1686), (2, 6, 9806), (2, 7, 52566), (4, 4, 204), (4, 5, 3016), (4, 6, 34316)],
)
def test_every_position_of_all_sequences(words, seq_len, defined):
    check = assert_passed(rd.check_labels(RecallHybrid(words, seq_len), cases=defined))
    assert check.value["weight"] >= 0.80 and check.value["margin"] >= 1.20


def test_the_longest_listed_domain():
    assert_passed(rd.check_labels(RecallHybrid(2, 8), cases=266798))


def test_a_short_window_gets_what_it_can_see():
    assert_passed(rd.check_labels(RecallHybrid(2, 7, window=3), cases=43888))


def test_the_count_is_part_of_the_check():
    assert not rd.check_labels(RecallHybrid(2, 4), cases=255).passed


@pytest.mark.parametrize("window", [1, 2, 5])
def test_other_windows(window):
    assert_passed(rd.check_labels(RecallHybrid(4, 5, window=window)))


def test_layers_one_by_one():
    assert assert_passed(rd.check_register(RecallHybrid(2, 5))).value["states"] == 3
    assert assert_passed(rd.check_register(RecallHybrid(4, 4))).value["states"] == 7
    assert_passed(rd.check_predecessors(RecallHybrid(4, 4)))


@pytest.mark.parametrize(("words", "seq_len", "half"), [(2, 7, (48820, 52566)), (4, 6, (29205, 34316))])
def test_the_gain_of_the_predecessor_copy(words, seq_len, half):
    enough = rd.enough_predecessor_gain(words, seq_len)
    assert enough == pytest.approx({2: 2.0838, 4: 2.2136}[words], abs=1e-4)
    model = RecallHybrid(words, seq_len, predecessor_gain=enough)
    check = assert_passed(rd.check_labels(model, weight=rd.leak_weight(words)))
    assert 0.729 < check.value["weight"] < 0.731
    weak = rd.tally(RecallHybrid(words, seq_len, predecessor_gain=enough / 2), model.task.every(seq_len))
    assert (weak.right, weak.defined) == half


@pytest.mark.parametrize("bits", ["after", "before"])
@pytest.mark.parametrize("words", [2, 4, 8, 16, 32])
def test_random_inputs(words, bits):
    window = rd.window_tokens(words, bits)
    model = RecallHybrid(words, 2 * window, window=window)
    check = assert_passed(rd.check_random(model, 48, bits))
    assert check.value["in the window"] >= 44


@pytest.mark.parametrize("words", [64, 256])
def test_long_random_inputs(words):
    model = RecallHybrid(words, 2 * rd.window_words(words), window=rd.window_tokens(words))
    assert_passed(rd.check_random(model, 8))


def test_the_last_position_alone_gives_the_full_pass():
    for register in rd.REGISTERS:
        model = RecallHybrid(8, 40, window=20, register=register)
        tokens = model.task.sample(16, 40, Generator(3), density=0.4)
        assert np.array_equal(model.last_outputs(tokens), model.outputs(tokens)[:, -1])


@given(st.integers(1, 4), st.integers(4, 30), st.integers(0, 2**32), st.sampled_from(sorted(rd.REGISTERS)))
def test_random_sequences_of_any_kind(b, seq_len, seed, register):
    model = RecallHybrid(2**b, seq_len, register=register)
    tokens = model.task.sample(4, seq_len, Generator(seed), density=0.4)
    assert np.array_equal(model.labels(tokens), model.task.labels(tokens))


def test_longer_positions_than_used_change_nothing():
    task, tokens = RecallWithDecoding(4), RecallWithDecoding(4).sample(8, 20, Generator(4), density=0.4)
    assert np.array_equal(RecallHybrid(4, 50).labels(tokens), task.labels(tokens))


# windows ----------------------------------------------------------------------------------------------------------------

WINDOWS = {2: 7, 4: 17, 8: 35, 16: 72, 32: 146, 64: 293, 128: 588, 256: 1177}


def test_windows_of_99_percent():
    assert_passed(rd.check_windows(WINDOWS))
    assert rd.window_probability(2, 7) == Fraction(127, 128) and rd.window_probability(2, 6) == Fraction(63, 64)
    assert rd.window_probability(4, 17) == Fraction(17050729021, 17179869184)


@pytest.mark.parametrize("words", [2, 4])
def test_a_wrong_window_is_seen(words):
    assert not rd.check_windows(WINDOWS | {words: WINDOWS[words] + 1}).passed


def test_windows_for_all_words_at_once():
    assert [rd.coverage_words(w) for w in (2, 4, 8, 16, 32)] == [8, 21, 51, 115, 255]
    # by counting: maps of 5 places onto 3 words
    onto = sum(len(set(np.unravel_index(i, (3,) * 5))) == 3 for i in range(3**5))
    assert rd.coverage_probability(3, 5) == Fraction(onto, 3**5)


def test_all_contexts_and_all_queries():
    assert_passed(rd.check_uniform_words(2, 7, 254))
    assert_passed(rd.check_uniform_words(4, 6, 13468))
    assert not rd.check_uniform_words(2, 5, 61).passed


def test_the_bits_may_stand_anywhere(monkeypatch):
    check = assert_passed(rd.check_bits_anywhere(2))
    assert check.value["least share"] == Fraction(127, 128) and check.cases == 9 * 2 * 2**8
    monkeypatch.setattr(rd, "window_tokens", lambda num_words, bits: 7)
    assert not rd.check_bits_anywhere(2).passed


@pytest.mark.parametrize("bits", ["after", "before"])
def test_a_window_one_token_shorter_misses_the_first_word(bits):
    task = RecallWithDecoding(4)
    words = np.array([[3, 1, 0, 1, 2, 0]])
    tokens = task.join(words, task.spell([3]), bits)
    reach = 6 + 1 if bits == "after" else 6
    first = 0 if bits == "after" else 2
    assert task.sources(tokens)[0, -1] == first + 1
    sees = RecallHybrid(4, 8, window=reach - 1 if bits == "before" else reach)
    blind = RecallHybrid(4, 8, window=reach - 2 if bits == "before" else reach - 1)
    assert sees.last_outputs(tokens) == 1 != blind.last_outputs(tokens)
    assert sees.trace(tokens).weights[0, -1, first + 1] > rd.proved_weight(reach) > 0
    assert blind.trace(tokens).weights[0, -1, first + 1] == 0


# the base-3 register ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "seq_len", "defined"), [(2, 7, 52566), (4, 5, 3016), (4, 6, 34316)])
def test_base3_at_every_position(words, seq_len, defined):
    assert_passed(rd.check_labels(RecallHybrid(words, seq_len, register="base3"), cases=defined))


@pytest.mark.parametrize("b", range(1, 9))
def test_register_values_are_as_far_apart_as_said(b):
    tau = np.sort(rd.register_values(2**b))
    assert np.diff(tau).min() == pytest.approx(2 * 3.0 ** (1 - b), rel=1e-9)
    tail = 0.5 * 3.0 ** (1 - b)
    true, false = tail**2, (2 * 3.0 ** (1 - b) - tail) ** 2
    assert false - true == pytest.approx(rd.register_gap(2**b), rel=1e-9)
    assert np.abs(tau).max() + tail < 1.5 + 1e-12 < rd.BIT_VALUE


@pytest.mark.parametrize("b", range(1, 9))
def test_keys_are_off_by_less_than_the_error_bound_assumes(b):
    """2 tau by 2u and tau^2 by 5u, in units of the roundoff u, against exact values."""
    for dtype, u in rd.UNIT.items():
        model = RecallHybrid(2**b, 8, register="base3", dtype=dtype)
        keys = model.embedding.apply(model.ar, np.arange(2**b).reshape(-1, 1))[:, 0, model.stream.slice("U")]
        for word, (double, square) in enumerate(keys.tolist()):
            tau = sum(Fraction(1 if word >> k & 1 else -1, 3**k) for k in range(b))
            assert abs(Fraction(double) - 2 * tau) <= 2 * Fraction(u)
            assert abs(Fraction(square) + tau**2) <= 5 * Fraction(u)


@pytest.mark.parametrize("words", [2, 4, 16])
def test_scores_in_float32_are_off_by_less_than_the_bound(words):
    """Every score of word keys in rows that have a query, against exact values of the same gains."""
    b, u = words.bit_length() - 1, rd.UNIT["float32"]
    seq_len, reach = 2 * rd.window_words(words) + b, rd.window_tokens(words)
    model = RecallHybrid(words, seq_len, window=reach, register="base3", dtype="float32")
    tokens = model.task.sample(1, seq_len, Generator(7), density=0.4)[0]
    steps = dict(model.model.trace(model.ar, tokens))
    head = model.model.blocks[2].layer.heads[0]
    inputs = head.inputs(model.ar, steps["L2"])
    scores = model.ar.values(model.ar.scores(inputs.q, inputs.k, "raw"))
    tau = [sum(Fraction(1 if w >> k & 1 else -1, 3**k) for k in range(b)) for w in range(words)]
    h, off, register_off = Fraction(0), 0.0, 0.0
    registers = model.ar.values(model.stream.read(steps["L1"], "C"))[:, 0]
    for i, token in enumerate(tokens):
        h = h / 3 + (2 * int(token - words) - 1) if token >= words else h
        register_off = max(register_off, abs(float(Fraction(float(registers[i])) - h)))
        for j in range(max(0, i - reach + 1), i + 1):
            before = int(tokens[max(0, j - 1)])
            if before < words:
                key = Fraction(model.score_gain) * (2 * tau[before] * h - tau[before] ** 2)
                exact = key + Fraction(rd.RECENCY) * (j - Fraction(2**model.r - 1, 2))
                off = max(off, abs(float(Fraction(float(scores[i, j])) - exact)))
    assert 0 < register_off <= 7 * u
    assert 0 < off <= rd.rounding_error(words, seq_len, reach, "float32")


def test_float32_up_to_16_words_is_proved():
    enough = {}
    for b in range(1, 9):
        words = 2**b
        settings = (words, 2 * rd.window_words(words) + b, rd.window_tokens(words))
        assert rd.float_is_enough(*settings, "float64")
        enough[words] = rd.float_is_enough(*settings, "float32")
    assert [w for w, good in enough.items() if good] == [2, 4, 8, 16]


@pytest.mark.parametrize(("words", "right"), [(16, True), (32, True), (256, False)])
def test_float32_measured(words, right):
    window = rd.window_tokens(words)
    model = RecallHybrid(words, 2 * window, window=window, register="base3", dtype="float32")
    assert rd.check_random(model, 32).passed == right
    assert rd.check_random(RecallHybrid(words, 2 * window, window=window, register="base3"), 8).passed


# formulas and the figure ----------------------------------------------------------------------------------------------------


def test_dimensions():
    assert_passed(rd.check_dimensions({(2, 7): 15, (4, 6): 19, (32, 100): 39, (256, 2362): 61}))
    assert not rd.check_dimensions({(2, 7): 16}).passed


def test_score_gains():
    assert rd.match_gain(7) == pytest.approx((6 * log(5) + log(28)) / 2)
    assert RecallHybrid(32, 100, register="base3").score_gain == pytest.approx(rd.match_gain(100) * 9.0**4)


def test_memory():
    bits = rd.memory(32, 100, 100)
    assert bits["register"] == pytest.approx(5.977, abs=1e-3) and bits["pure recurrence"] == 64


def test_figure_10():
    """Counts and hashes of section 9 of the spec."""
    model, tokens = RecallHybrid(32, 100), rd.figure_sequence()
    seen = model.trace(tokens)
    expected = {
        "embedding": ((1164, 1802, 934), "cae87b6439c2f4b4"),
        "register": ((1251, 1547, 1102), "28938ce30da1b1b0"),
        "predecessor": (None, "4f44ba490c83c5b3"),
    }
    for name, (counts, digest) in expected.items():
        codes = seen.streams[name].T.astype(np.int8)
        assert np.array_equal(codes, seen.streams[name].T)
        assert counts is None or tuple(int((codes == v).sum()) for v in (-1, 0, 1)) == counts
        assert hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()[:16] == digest
    assert seen.register[-1].tolist() == [-1, 1, 1, -1, 1] and model.task.queries(tokens)[-1] == 22
    assert (np.flatnonzero(tokens == 22) + 1).tolist() == [2, 17, 34, 49, 66, 81, 98]
    labels = model.labels(tokens)
    assert (np.flatnonzero(labels >= 0) + 1).tolist() == list(range(80, 101))
    assert np.array_equal(labels, model.task.labels(tokens)) and labels[-1] == 16


# mutations --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target", "source", "weight"),
    [
        ("L1.W_A", "h[1]", "h[0]", 0),
        ("L1.W_B", "h[0]", "T[0]", -1),
        ("L1.Delta", "delta", "I", 0),
        ("L2.q", "q[0]", "Q[0]", 0),
        ("L2.v", "v[2]", "T[2]", 0),
        ("L3.q", "q[2]", "K", 0),
        ("L3.k", "k[3]", "P[0]", 0),
        ("L3.k", "k[3]", "P[2]", -0.5),
        ("L3.out", "O[1]", "v[1]", 0),
    ],
)
def test_one_changed_weight_is_rejected(name, target, source, weight):
    model = RecallHybrid(4, 5)
    assert rd.check_labels(model).passed
    assert not rd.check_labels(model.with_weight(name, target, source, weight)).passed


@pytest.mark.parametrize(
    ("name", "target", "source", "weight"),
    [("L1.delta", "delta", "I", 0), ("L3.q", "q[1]", "K", 0), ("L2.v", "v[1]", "U[1]", 0)],
)
def test_one_changed_weight_of_base3_is_rejected(name, target, source, weight):
    assert not rd.check_labels(RecallHybrid(4, 5, register="base3").with_weight(name, target, source, weight)).passed


def test_a_broken_register_and_a_broken_predecessor_are_rejected():
    assert not rd.check_register(RecallHybrid(4, 4).with_weight("L1.W_A", "h[1]", "h[0]", 0)).passed
    assert not rd.check_predecessors(RecallHybrid(4, 3, predecessor_gain=2.0)).passed


def test_which_weights_can_go():
    """Only the digits of the positions above the lowest: two neighbours always differ in the lowest one."""
    found = rd.removals(RecallHybrid(2, 5))
    spared = {(r.name, r.target) for r in found if not r.noticed}
    assert spared == {(f"L2.{side}", f"{side}[{k}]") for side in "qk" for k in (1, 2)}
    assert len(found) == RecallHybrid(2, 5).nonzeros


# bad input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RecallHybrid(3, 8), "num_words"),
        (lambda: RecallHybrid(4, 0), "seq_len"),
        (lambda: RecallHybrid(4, 8, window=0), "window"),
        (lambda: RecallHybrid(4, 8, window=9), "window"),
        (lambda: RecallHybrid(4, 8, register="base2"), "register"),
        (lambda: RecallHybrid(4, 8, dtype="float16"), "dtype"),
        (lambda: RecallHybrid(4, 8, predecessor_gain=0), "predecessor_gain"),
        (lambda: RecallHybrid(4, 8, predecessor_gain=float("inf")), "predecessor_gain"),
        (lambda: RecallHybrid(4, 8).with_weight("L9.q", "q[0]", "K", 1).maps, "no map"),
        (lambda: RecallHybrid(4, 8).labels([0] * 9), "max_len"),
        (lambda: RecallHybrid(4, 8).labels([0, 6]), "0..5"),
        (lambda: rd.check_labels(RecallHybrid(4, 8), batches=[np.array([[0, 1, 2]])]), "nothing to check"),
        (lambda: rd.window_words(4, Fraction(1)), "goal"),
        (lambda: rd.window_tokens(4, "between"), "bits"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
