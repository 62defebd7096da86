"""Theorem 3.3 of paper B: the printed bound, and T-A, T-B, T-C."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds.payload_information import (
    Sizes,
    binary_entropy,
    check_fano,
    check_printed,
    check_states_after_payload,
    fano_rate,
    radius_one_bound,
    replay,
    shared_state,
    sphere_bound,
)
from hybridseq.bounds.state_machines import count_down, remember_last, remember_prefix
from hybridseq.evidence import Certificate
from hybridseq.tasks.function_composition import equality, index, inner_product, threshold

RATES = {
    2: (0, 0.2781, 0.4564, 0.5310),
    3: (0.0850, 0.6630, 0.9164, 1.0160),
    4: (0.2075, 0.9611, 1.2583, 1.3725),
    26: (1.3785, 3.0497, 3.5764, 3.7671),
}


@pytest.mark.parametrize("vocab_size", RATES)
def test_rates_of_the_index_task(vocab_size):
    got = [fano_rate(vocab_size, eps) for eps in (0.5, 0.2, 0.125, 0.1)]
    assert got == pytest.approx(RATES[vocab_size], abs=5e-5)


@given(st.integers(1, 20), st.integers(2, 30), st.integers(1, 40), st.integers(2, 30))
@settings(deadline=None)
def test_the_printed_bound_is_never_positive(m, vocab_size, q, num_answers):
    if num_answers**q < vocab_size**m:
        with pytest.raises(ValueError, match=r"Assumption 3\.2"):
            Sizes(m, vocab_size, q, num_answers)
    else:
        assert Sizes(m, vocab_size, q, num_answers).printed() <= 0


def test_printed_bound_of_the_instances():
    sizes = [Sizes.of(t) for t in (index(3), inner_product(3), threshold(3), equality(3))]
    assert [s.printed() for s in sizes] == [0, -4, -4, -4]
    assert check_printed(sizes).passed


def test_a_wrong_sign_would_be_noticed():
    class Wrong(Sizes):
        def printed(self):
            return -super().printed()

    assert not check_printed([Wrong(3, 2, 7, 2)]).passed


def test_no_error_gives_the_exact_bound_and_guessing_gives_nothing():
    assert Sizes(3, 2, 3, 2).fano(0) == 3
    assert Sizes(3, 2, 3, 2).fano(0.5) == 0
    assert Sizes(5, 3, 5, 3).fano(F(2, 3)) == pytest.approx(0, abs=1e-12)
    assert Sizes(7, 2, 7, 2).fano(1 / 8) == pytest.approx(3.1950, abs=5e-5)
    assert binary_entropy(0) == binary_entropy(1) == 0


@given(st.integers(1, 4), st.integers(1, 6), st.data())
@settings(deadline=None, max_examples=60)
def test_fano_holds_for_any_encoder(m, num_states, data):
    """T-B against random encoders of random injective tasks, success computed by counting."""
    q = data.draw(st.integers(m, 6))
    extra = data.draw(st.lists(st.integers(0, 1), min_size=2**m * (q - m), max_size=2**m * (q - m)))
    table = np.array([list(u) + extra[i * (q - m) : (i + 1) * (q - m)] for i, u in enumerate(product(range(2), repeat=m))])
    state = np.array(data.draw(st.lists(st.integers(0, num_states - 1), min_size=2**m, max_size=2**m)))
    right = 0
    for s in set(state.tolist()):
        block = table[state == s]
        right += sum(max((column == y).sum() for y in (0, 1)) for column in block.T)
    eps = 1 - right / table.size
    assert log2(len(set(state.tolist()))) >= Sizes(m, 2, q, 2).fano(min(eps, 0.5)) - 1e-9


def test_sphere_bound_values():
    assert sphere_bound(4, 2, 3) == F(25, 32)
    assert [sphere_bound(3, 2, S) for S in (1, 2, 3, 4)] == [F(1, 2), F(3, 4), F(19, 24), F(5, 6)]
    assert radius_one_bound(4, 2, 4) == sphere_bound(4, 2, 4) == F(13, 16)
    assert radius_one_bound(3, 2, 1) > sphere_bound(3, 2, 1)


def test_exact_machines_use_a_state_for_each_payload():
    for machine in (remember_prefix(3), remember_last(3)):
        assert check_states_after_payload(machine, index(3)).passed
        assert shared_state(machine, index(3)) is None
    assert not check_states_after_payload(count_down(3), index(3)).passed


def test_a_shared_state_is_a_certificate_and_a_forged_one_is_refused():
    machine, task = remember_last(2), index(3)
    # letters of the two-bit machine: 0, 1 bits, 2, 3 its two controls; ask it for u_1, which it has lost
    certificate = shared_state(machine, task, letters=[2, 2, 3])
    assert replay(certificate, machine, task).passed
    for change in (
        {"state": certificate.data["state"] + 1},
        {"said to both": 1 - certificate.data["said to both"]},
        {"right": certificate.data["right"][::-1]},
        {"payloads": [certificate.data["payloads"][0]] * 2},
        {"letter": 5 - certificate.data["letter"]},
    ):
        forged = Certificate(certificate.kind, certificate.data | change)
        if change != {"letter": 3} or machine.last([[*certificate.data["payloads"][0], 3]]) != certificate.data["said to both"]:
            assert not replay(forged, machine, task).passed


def test_fano_check_can_fail():
    sizes = Sizes(3, 2, 3, 2)
    assert not check_fano(sizes, [F(1)]).passed
    assert not check_fano(sizes, [F(1, 2), F(19, 20)]).passed


@pytest.mark.parametrize(
    "call",
    [
        lambda: Sizes(0, 2, 3, 2),
        lambda: Sizes(3, 1, 3, 2),
        lambda: Sizes(3, 2, True, 2),
        lambda: Sizes(3, 2, 3, 2).fano(0.6),
        lambda: Sizes(3, 2, 3, 2).fano(-0.1),
        lambda: binary_entropy(1.5),
        lambda: sphere_bound(3, 2, 0),
        lambda: sphere_bound(3, 2, 9),
        lambda: shared_state(remember_last(3), index(3), letters=[2]),
    ],
)
def test_bad_input_is_refused_with_its_name(call):
    with pytest.raises(ValueError, match=r".{15,}"):
        call()
