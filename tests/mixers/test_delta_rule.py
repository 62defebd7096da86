"""The delta rule: paper A's cell in every evaluation order, and step against chunk."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import ORDERS, DeltaInputs, DeltaRule

KAPPA = {2: 3, 3: 6, 4: 11, 5: 23, 6: 45, 7: 91, 8: 181}  # code of 1/sqrt(2)
P0, P1 = (0, 1), (1, 0)


def kappa_code(ar):
    return int(np.asarray(ar.array(0.5**0.5)))


def token(ar, alpha, beta, k, v):
    """One token; alpha, beta real, k and v as codes."""
    codes = np.array([k], dtype=ar.dtype)
    return DeltaInputs(
        q=np.array([[ar.one, 0]], dtype=ar.dtype),
        k=codes,
        v=np.array([[v]], dtype=ar.dtype),
        alpha=ar.array([alpha]),
        beta=ar.array([beta]),
    )


def moves(ar):
    one, kp = ar.one, kappa_code(ar)
    quarter, half, three = Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)
    return {
        "Z": token(ar, three, quarter, (one, 0), 0),
        "G": token(ar, three, half, (kp, kp), 6),
        "F": token(ar, quarter, three, (-kp, kp), 0),
        "T": token(ar, three, three, (kp, kp), 0),
    }


def run(ar, cell, word, state):
    state = np.array([state], dtype=ar.dtype)
    for letter in word:
        state = cell.step(ar, state, moves(ar)[letter].at(0))
    return tuple(int(c) for c in state[0])


def is_parity_cell(ar, cell):
    """The hold fixes both states and G, F swap them."""
    return all(run(ar, cell, "Z", p) == p for p in (P0, P1)) and (run(ar, cell, "GF", P0), run(ar, cell, "GF", P1)) == (P1, P0)


@pytest.mark.parametrize("s", [2, 3, 4, 8])
def test_the_trace_of_the_cell(s):
    ar, cell = FixedPoint(s), DeltaRule(2, 1)
    assert kappa_code(ar) == KAPPA[s]
    assert [run(ar, cell, w, P0) for w in ("Z", "ZZ", "G", "GF")] == [(0, 1), (0, 1), (2, 3), (1, 0)]
    assert [run(ar, cell, w, P1) for w in ("Z", "ZZ", "G", "GF")] == [(1, 0), (1, 0), (3, 2), (0, 1)]


# spec A, table 2.4: for which s in 2..8 the published cell works, by order, products and tie rule
ALL, FROM_4 = set(range(2, 9)), set(range(4, 9))
TABLE = {
    ("A", "rounded"): {"zero": ALL, "even": FROM_4, "odd": set(), "up": set(), "down": FROM_4},
    ("A", "wide"): dict.fromkeys(("zero", "even", "away", "odd", "up", "down"), ALL),
    ("B", "rounded"): {"zero": ALL, "even": FROM_4, "away": set(), "odd": set(), "up": set(), "down": FROM_4},
    ("B", "wide"): {"zero": ALL, "even": ALL, "away": FROM_4, "odd": FROM_4, "up": FROM_4, "down": ALL},
    ("D", "rounded"): dict.fromkeys(("zero", "even", "away", "odd", "up", "down"), frozenset()),
    ("Q", "rounded"): {"zero": set(), "even": {2, 3}, "away": set(), "odd": set(), "up": set(), "down": set()},
    ("W", "rounded"): dict.fromkeys(("zero", "even", "away", "odd", "up", "down"), frozenset()),
    ("M", "rounded"): dict.fromkeys(("zero", "even", "away", "odd", "up", "down"), frozenset()),
}


@pytest.mark.parametrize("order, products", list(TABLE))
def test_which_order_and_tie_rule_carries_parity(order, products):
    cell = DeltaRule(2, 1, order=order, products=products)
    for ties, expected in TABLE[order, products].items():
        works = {s for s in range(2, 9) if is_parity_cell(FixedPoint(s, ties), cell)}
        assert works == expected, (order, products, ties)


@pytest.mark.parametrize("order", ["A", "B", "D", "Q"])
@pytest.mark.parametrize("ties", ["zero", "even", "away", "odd", "up", "down"])
def test_one_token_toggle_in_every_tie_rule(order, ties):
    for s in (2, 3, 4, 8, 15, 16, 24):
        ar, cell = FixedPoint(s, ties), DeltaRule(2, 1, order=order)
        assert run(ar, cell, "T", (0, 1)) == (-1, 0)
        assert run(ar, cell, "T", (-1, 0)) == (0, 1)


@pytest.mark.parametrize("order", ["W", "M"])
def test_one_rounding_an_update_forgets_the_toggle(order):
    for s in (2, 3, 4, 8, 16):
        ar, cell = FixedPoint(s), DeltaRule(2, 1, order=order)
        assert run(ar, cell, "TTTT", (0, 1)) != (0, 1) or run(ar, cell, "T", (0, 1)) != (-1, 0)


def test_large_formats_use_python_integers_and_agree():
    for s in (15, 16, 24):
        ar = FixedPoint(s)
        assert is_parity_cell(ar, DeltaRule(2, 1)), s


def random_inputs(rng, ar, batch, seq_len, d, dv, gated=True):
    k = rng.standard_normal((*batch, seq_len, d))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return DeltaInputs(
        q=ar.array(rng.standard_normal((*batch, seq_len, d))),
        k=ar.array(k),
        v=ar.array(rng.standard_normal((*batch, seq_len, dv))),
        alpha=ar.array(rng.uniform(0, 1, (*batch, seq_len))) if gated else None,
        beta=ar.array(rng.uniform(0, 1, (*batch, seq_len))),
    )


@pytest.mark.parametrize("seq_len", [1, 37, 63, 65])
@pytest.mark.parametrize("gated", [True, False])
def test_chunk_equals_scan_in_float64(seq_len, gated):
    rng, ar = np.random.default_rng(seq_len), Float()
    start = rng.standard_normal((2, 3, 5))
    inputs, cell = random_inputs(rng, ar, (2,), seq_len, 5, 3, gated), DeltaRule(5, 3)
    for state in (None, start):
        u, last = cell.scan(ar, inputs, state)
        for size in (1, 16, 64, 100):
            u2, last2 = cell.chunked(ar, inputs, size, state)
            np.testing.assert_allclose(u2, u, atol=1e-12, rtol=0)
            np.testing.assert_allclose(last2, last, atol=1e-12, rtol=0)
        np.testing.assert_allclose(cell.parallel(ar, inputs, state), u, atol=1e-12, rtol=0)


def test_orders_are_one_map_over_the_reals():
    rng, ar = np.random.default_rng(0), Float()
    inputs = random_inputs(rng, ar, (), 20, 4, 3)
    reference = DeltaRule(4, 3).scan(ar, inputs)[0]
    for order in ORDERS:
        np.testing.assert_allclose(DeltaRule(4, 3, order=order).scan(ar, inputs)[0], reference, atol=1e-12)


def test_parallel_form_differs_in_fixed_point():
    """Caveat (ii) of Lemma 2.2: the chunk is another function as soon as numbers are rounded inside."""
    rng, ar = np.random.default_rng(1), FixedPoint(4)
    inputs = random_inputs(rng, ar, (), 16, 4, 4)
    assert (DeltaRule(4).scan(ar, inputs)[0] != DeltaRule(4).parallel(ar, inputs)).any()


def test_a_zero_decay_is_allowed_in_both_forms():
    rng, ar = np.random.default_rng(2), Float()
    inputs = random_inputs(rng, ar, (), 9, 3, 2)
    inputs.alpha[4] = 0.0
    np.testing.assert_allclose(DeltaRule(3, 2).parallel(ar, inputs), DeltaRule(3, 2).scan(ar, inputs)[0], atol=1e-12)


def test_initial_state_normalised_keys_and_last_only():
    ar = FixedPoint(2)
    cell = DeltaRule(2, 1, initial_state=[[0, Fraction(1, 4)]], normalise_keys=True)
    assert cell.init_state(ar, (3,)).tolist() == [[[0, 1]]] * 3
    assert cell.key(ar, np.array([8, 12])).tolist() == [2, 3]
    inputs = random_inputs(np.random.default_rng(3), ar, (3,), 7, 2, 1)
    assert (cell.last_only(ar, inputs) == cell.scan(ar, inputs)[0][..., -1, :]).all()
    assert cell.state_numbers(10) == 2 and cell.state_bits(ar.bits, 10) == 10


@pytest.mark.parametrize(
    "bad",
    [
        {"order": "Z"},
        {"products": "exact"},
        {"initial_state": [[1, 2, 3]]},
        {"head_dim": 0},
        {"value_dim": -1},
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        DeltaRule(**{"head_dim": 2, "value_dim": 1, **bad})


def test_bad_inputs():
    ar = Float()
    inputs = random_inputs(np.random.default_rng(0), ar, (), 4, 3, 2)
    with pytest.raises(ValueError, match="features"):
        DeltaRule(4, 2).scan(ar, inputs)
    with pytest.raises(ValueError, match="seq_len"):
        DeltaRule(3, 2).scan(ar, DeltaInputs(inputs.q, inputs.k, inputs.v, inputs.alpha[:3], inputs.beta))
    with pytest.raises(ValueError, match="at least one token"):
        DeltaRule(3, 2).scan(ar, inputs.between(0, 0))
