"""The checks of chapter 2 pass on the definitions and fail on neighbours of them."""

import dataclasses

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float, Integer
from hybridseq.mixers import definitions as de
from hybridseq.mixers.catalogue import RATIONAL, catalogue, check_identity, companions
from hybridseq.mixers.linear_attention import LinearAttention


@pytest.mark.parametrize("ar", [Float(), FixedPoint(4)], ids=lambda a: a.name)
@pytest.mark.parametrize("entry", catalogue() + companions(), ids=lambda e: e.name)
def test_state_suffices(ar, entry):
    check = de.check_state_suffices(ar, entry, 12)
    assert check.passed, check


def test_a_mixer_with_hidden_memory_is_caught():
    seen = []

    class Leaky(LinearAttention):
        def step(self, ar, state, inputs_t):
            seen.append(1)
            return super().step(ar, state, inputs_t) if len(seen) % 7 else state

    entry = next(e for e in catalogue() if e.name == "linear attention, plain")
    bad = dataclasses.replace(entry, build=lambda ar: Leaky(5, normalise=False))
    assert not de.check_state_suffices(Float(), bad, 12).passed


def test_memory_beside_the_state_is_caught():
    seen = []

    class Remembers(LinearAttention):
        """Counts its tokens outside the state, from each new sequence on: prefix and rest in one go would agree."""

        def init_state(self, ar, batch_shape=()):
            seen.clear()
            return super().init_state(ar, batch_shape)

        def step(self, ar, state, inputs_t):
            seen.append(1)
            return super().step(ar, state, inputs_t)

        def read(self, ar, state, inputs_t):
            return super().read(ar, state, inputs_t) + len(seen)

    entry = next(e for e in catalogue() if e.name == "linear attention, plain")
    bad = dataclasses.replace(entry, build=lambda ar: Remembers(5, normalise=False))
    assert not de.check_state_suffices(Float(), bad, 12).passed


@pytest.mark.parametrize(
    "entry", [e for e in catalogue(3, 2) + companions(3, 2) if e.name in (*RATIONAL, "Mamba, P-form")], ids=lambda e: e.name
)
def test_identity_over_the_rationals(entry):
    check = check_identity(entry)
    assert check.passed, check


def test_a_wrong_parallel_form_is_no_identity():
    class Wrong(LinearAttention):
        def chunk(self, ar, inputs, state):
            u, state = super().chunk(ar, inputs, state)
            return ar.add(u, ar.full((), 1e-30)), state

    entry = next(e for e in catalogue() if e.name == "linear attention, plain")
    bad = dataclasses.replace(entry, build=lambda ar: Wrong(5, normalise=False))
    assert not check_identity(bad).passed


@pytest.mark.parametrize("ar", [Float(), FixedPoint(3), FixedPoint(16)], ids=lambda a: a.name)
def test_words(ar):
    assert de.check_words(ar, 3 if ar.name == "float64" else 2, (1, 4)).passed


def test_a_miscounted_word_is_caught(monkeypatch):
    from hybridseq.mixers.hybrid_word import HybridWord

    monkeypatch.setattr(HybridWord, "state_numbers", lambda self, cache, state, seq_len: seq_len * (cache + state))
    check = de.check_words(Float(), 2, (1, 4))
    assert not check.passed and "counted" in check.counterexample


def test_window(monkeypatch):
    assert de.check_window(12).passed
    shifted = de.Attention

    monkeypatch.setattr(de, "Attention", lambda d, dv, window: shifted(d, dv, window=window + 1))
    check = de.check_window(6)
    assert not check.passed and check.counterexample == {"n": 2, "W": 1}


@pytest.mark.parametrize("ar", [Float(), FixedPoint(2), FixedPoint(16), Integer(8)], ids=lambda a: a.name)
def test_registers(ar):
    assert de.check_registers(ar, 3, 6).passed


def test_in_the_smallest_format_a_shift_saturates():
    """F_1 ends at 3/2, and W_A h is a difference of neighbours, which can be 2."""
    assert not de.check_registers(FixedPoint(1), 3, 4).passed
    assert de.check_registers(FixedPoint(1), 1, 4).passed


def test_a_register_with_one_weight_changed_is_caught(monkeypatch):
    def dented(ar, length):
        w = np.eye(length) - np.eye(length, k=-1)
        w[1, 1] = 0.5
        good = shift(ar, length)
        return dataclasses.replace(good, w_a=ar.array(w))

    shift = de.shift_register
    monkeypatch.setattr(de, "shift_register", dented)
    check = de.check_registers(FixedPoint(4), 3, 5)
    assert not check.passed and "input" in check.counterexample


def test_reachable_states_of_registers():
    ar = FixedPoint(2)
    letters = {"#": ([0.0], 0.0), **{str(v): ([float(v)], 1.0) for v in (1, 2, 3)}}
    assert de.reachable_states(de.hold_register(ar, 1), ar, letters) == [1, 4]
    assert de.reachable_states(de.shift_register(ar, 2), ar, letters) == [1, 4, 13]


def test_gate_orders_layers_and_output_gate():
    assert de.check_gate_identity().passed
    assert de.check_delta_orders().passed
    assert de.check_heads().passed
    assert de.check_layers((2, 16), 9).passed
    assert de.check_output_gate().passed


def test_an_order_that_drops_the_decay_is_caught(monkeypatch):
    from hybridseq.mixers import delta_rule

    monkeypatch.setitem(delta_rule._UPDATES, "B", lambda ar, s, k, v, a, b, p: delta_rule._order_a(ar, s, k, v, None, b, p))
    assert not de.check_delta_orders().passed


@pytest.mark.parametrize("part", ["no norm", "other norm", "no output gate", "undivided scores", "no decay"])
def test_a_head_that_departs_from_its_formula_is_caught(part, monkeypatch):
    class NoDecay:
        weight, bias = np.zeros((1, 6)), np.zeros(1)  # what the formula reads: a decay of one half

        def apply(self, ar, x):
            return ar.full((*x.shape[:-1], 1), 40.0)

    def departed(rng, letter):
        layer = right(rng, letter)
        head, changes = layer.heads[0], {}
        if part == "undivided scores" and letter == "F":
            changes["core"] = dataclasses.replace(head.core, scale="raw")
        if part == "no decay" and letter == "R":
            changes["maps"] = {**head.maps, "alpha": NoDecay()}
        if part.endswith(" norm"):
            changes["qk_norm"] = None if part == "no norm" else {"rms": "l2", "l2": "rms"}[head.qk_norm]
        return dataclasses.replace(layer, heads=(dataclasses.replace(head, **changes),))

    right = de.random_layer
    monkeypatch.setattr(de, "random_layer", departed)
    if part == "no output gate":
        monkeypatch.setattr(de.Head, "gated", lambda self, ar, u, x: u)
    assert not de.check_heads().passed
