"""The parity cell of Lemma 5.2 against hand-derived codes (paper A, Appendix B) and exhaustive strings."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.arithmetic.rounding import TIE_RULES
from hybridseq.constructions import parity_cell as pc
from hybridseq.constructions.parity_cell import P0, ParityCell


@pytest.mark.parametrize("s, code", list(zip(range(2, 9), (3, 6, 11, 23, 45, 91, 181), strict=True)))
def test_kappa_codes(s, code):
    inputs = pc.update_inputs(FixedPoint(s), [pc.G, pc.F, pc.Z])
    assert inputs.k.tolist() == [[code, code], [-code, code], [1 << s, 0]]


@pytest.mark.parametrize("s", (2, 3, 4, 8))
def test_trace_is_the_printed_one(s):
    """Codes of the trace by hand; they are the same at every s although the products differ as real numbers."""
    even, odd = (ParityCell(FixedPoint(s)).trace([b, 1])[-2:] for b in (0, 1))
    assert [(r["update"], r["t"], r["c"], r["erased"], r["after"]) for r in even] == [
        ("G", 1, 0, [0, 0], [2, 3]), ("F", 1, 1, [-1, 1], [1, 0])
    ]  # fmt: skip
    assert [(r["update"], r["t"], r["c"], r["erased"], r["after"]) for r in odd] == [
        ("G", 1, 0, [0, 0], [3, 2]), ("F", -1, -1, [1, -1], [0, 1])
    ]  # fmt: skip


@pytest.mark.parametrize("s", range(2, 25))
def test_transition_table(s):
    for scheme in pc.SCHEMES:
        check = pc.check_transitions(ParityCell(FixedPoint(s), scheme))
        assert check.passed, check


@pytest.mark.parametrize("s", (2, 3, 4, 8))
def test_every_string_to_length_16(s):
    check = pc.check_all_strings(ParityCell(FixedPoint(s)), 16)
    assert check.passed and check.cases == 131070


def test_levels_equal_strings_run_token_by_token():
    cell = ParityCell(FixedPoint(3))
    assert np.array_equal(cell.all_strings(9)[-1], cell.run(pc.all_bit_strings(9))[:, -1])
    assert np.array_equal(cell.parities(pc.all_bit_strings(6)), np.cumsum(pc.all_bit_strings(6), axis=1) % 2)


def test_random_string_and_its_stepwise_twin():
    cell = ParityCell(FixedPoint(4))
    assert pc.check_random_string(cell, 100_000, seed=1).passed
    assert pc.check_random_string(cell, 2_000, seed=1, stepwise=True).passed
    assert cell.automaton() == {(0, 1): ((0, 1), (1, 0)), (1, 0): ((1, 0), (0, 1))}


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(2, 20), st.sampled_from(sorted(pc.SCHEMES)))
def test_parity_of_any_string(bits, s, scheme):
    assert ParityCell(FixedPoint(s), scheme).parities(bits)[-1] == sum(bits) % 2


@pytest.mark.parametrize("s, limit", ((2, 15), (3, 63), (4, 60)))
def test_basin(s, limit):
    check = pc.check_basin(ParityCell(FixedPoint(s)), limit)
    assert check.passed, check


@pytest.mark.parametrize("s", range(2, 13))
def test_zero_start_fails_and_cold_start_repairs(s):
    assert pc.check_zero_start(FixedPoint(s), 8).passed
    assert pc.check_cold_start(FixedPoint(s), 8).passed
    first = ParityCell(FixedPoint(s), start=(0, 0), cold_start=True)
    zero = first.start_state()
    assert first.rows(first.step(zero, pc.START_EVEN)).tolist() == [0, 1]
    assert first.rows(first.step(zero, pc.START_ODD)).tolist() == [2, 3]


RULES = dict(zip(TIE_RULES, range(6), strict=True))
LITERAL = {  # orders and tie rules under which the doubled cell works, s = 2..24; columns as in TIE_RULES
    ("A", "rounded"): ("2-24", "4-24", "2-3", "none", "none", "4-24"),
    ("A", "wide"): ("2-24",) * 6,
    ("B", "rounded"): ("2-24", "4-24", "none", "none", "none", "4-24"),
    ("B", "wide"): ("2-24", "2-24", "4-24", "4-24", "4-24", "2-24"),
    ("D", "rounded"): ("none",) * 6,
    ("Q", "rounded"): ("none", "2-3", "none", "none", "none", "none"),
    ("W", "rounded"): ("none",) * 6,
    ("M", "rounded"): ("none",) * 6,
}


@pytest.mark.parametrize("order, products", sorted(LITERAL))
def test_rounding_orders(order, products):
    table = pc.rounding_table(range(2, 25), variants=[(order, products)])
    assert tuple(pc.compact(table[order, products, rule]) for rule in TIE_RULES) == LITERAL[order, products]


def test_order_c_fails_for_small_s():
    table = pc.rounding_table(range(2, 25), variants=[("C", "rounded")])
    assert 2 not in table["C", "rounded", "zero"] and not table["C", "rounded", "away"]


def test_toggle_orders():
    table = pc.rounding_table(range(2, 25), "toggle")
    everywhere = tuple(range(2, 25))
    for order, products in pc.VARIANTS:
        found = {table[order, products, rule] for rule in TIE_RULES}
        if order in "ABDQ":
            assert found == {everywhere}
        elif order in "WM":
            assert found == {()}


@pytest.mark.parametrize("s", (2, 3, 4, 6, 8, 12))
def test_no_other_pair_of_rows_holds_the_bit(s):
    assert pc.other_cells(ParityCell(FixedPoint(s)), 10) == [(P0, (1, 0))]


def test_gates_come_from_the_logistic_function():
    for s, ln3 in zip(range(2, 9), (4, 9, 18, 35, 70, 141, 281), strict=True):
        ar = FixedPoint(s)
        preactivations = ar.array([Fraction(0), np.log(3), -np.log(3)])
        assert preactivations.tolist() == [0, ln3, -ln3]
        assert ar.sigmoid(preactivations).tolist() == [ar.one // 2, 3 * ar.one // 4, ar.one // 4]


@pytest.mark.parametrize("s", range(9, 25))
def test_gates_exact_for_larger_formats(s):
    ar = FixedPoint(s)
    gates = ar.sigmoid(ar.array([0, np.log(3), -np.log(3)]))
    assert gates.tolist() == [ar.one // 2, 3 * ar.one // 4, ar.one // 4]


def test_eigenvalues_in_real_arithmetic():
    both = pc.ideal_transition(pc.F) @ pc.ideal_transition(pc.G)
    assert pc.eigenvalues(both) == {(1, 1): Fraction(3, 32), (1, -1): Fraction(3, 64)}
    assert pc.eigenvalues(pc.ideal_transition(pc.T)) == {(1, 1): Fraction(3, 16), (1, -1): Fraction(3, 4)}
    with pytest.raises(ValueError, match="eigenvector"):
        pc.eigenvalues(pc.ideal_transition(pc.Z))


def test_negative_eigenvalue():
    for arithmetic in (Float(), FixedPoint(2), FixedPoint(8)):
        assert pc.check_negative_eigenvalue(arithmetic, 8).passed


@pytest.mark.parametrize("dtype", sorted(pc.SMALLEST_SUBNORMAL))
def test_toggle_among_subnormals(dtype):
    assert pc.tokens_right(pc.float_cell(dtype), 300) == 300
    flushed = pc.tokens_right(pc.float_cell(dtype, flush=True), 300)
    assert flushed == 300 if dtype == "float16" else flushed < 10


@pytest.mark.parametrize("dtype", sorted(pc.SMALLEST_SUBNORMAL))
def test_model_of_flushing_agrees_with_the_processor(dtype):
    torch = pytest.importorskip("torch")
    cell = pc.float_cell(dtype)
    bits = np.ones(20, dtype=int)
    start = cell.start_state()
    model = pc.float_cell(dtype, flush=True)
    expected = bool(model.rows(model.apply(model.start_state(), [pc.T] * 20)).any())
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        after = cell.apply(start, [pc.T] * len(bits))
        alive = bool((after != 0).any())
    finally:
        torch.set_flush_denormal(False)
    assert alive == expected


# a changed weight is noticed ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("s", (2, 3, 4, 8))
def test_kappa_one_half_ends_in_zero(s):
    cell = ParityCell(FixedPoint(s), kappa=Fraction(1, 2))
    assert not pc.check_transitions(cell).passed
    assert not pc.check_all_strings(cell, 4).passed
    assert cell.run([1, 1, 1, 1])[-1].tolist() == [0, 0]


@pytest.mark.parametrize("code", range(129, 193))
def test_every_kappa_between_one_half_and_three_quarters(code):
    assert pc.check_transitions(ParityCell(FixedPoint(8), kappa=Fraction(code, 256))).passed


@pytest.mark.parametrize("field, value", (("alpha", Fraction(1, 2)), ("beta", Fraction(1, 4)), ("value", 2)))
def test_a_changed_update_fails(monkeypatch, field, value):
    monkeypatch.setitem(pc.SCHEMES, "doubled", ((pc.Z, pc.Z), (replace(pc.G, **{field: value}), pc.F)))
    cell = ParityCell(FixedPoint(2))
    assert not pc.check_transitions(cell).passed
    assert not pc.check_random_string(cell, 100, 0).passed


def test_checks_reject_wrong_starts():
    assert not pc.check_all_strings(ParityCell(FixedPoint(2), start=(1, 0)), 3).passed
    assert not pc.check_basin(ParityCell(FixedPoint(2, "away")), 15).passed
    assert pc.tokens_right(ParityCell(FixedPoint(2), "toggle", order="W"), 50) < 10


def test_several_checks_as_one():
    good, bad = (pc.check_transitions(ParityCell(FixedPoint(2), kappa=k)) for k in (None, Fraction(1, 2)))
    assert pc.together("both", [good, good], "twice").cases == 16
    failed = pc.together("both", [good, bad], "twice")
    assert not failed.passed and failed.counterexample["check"] == bad.name


# bad input ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make, words", (
    (lambda: ParityCell(FixedPoint(1)), "s >= 2"),
    (lambda: ParityCell(FixedPoint(2), "tripled"), "scheme"),
    (lambda: ParityCell(Float()), "unit"),
    (lambda: ParityCell(FixedPoint(2), "toggle", cold_start=True), "cold_start"),
    (lambda: ParityCell(FixedPoint(2)).run([0, 2]), "bits"),
    (lambda: ParityCell(FixedPoint(2)).run([]), "bits"),
    (lambda: ParityCell(FixedPoint(2), order="Q").trace([1]), "order"),
    (lambda: ParityCell(FixedPoint(2), start=(16, 0)).start_state(), "16"),
    (lambda: pc.float_cell("float8"), "dtype"),
    (lambda: ParityCell(FixedPoint(2), start=(0, 0), cold_start=True, kappa=0.5).run([1]), "kappa"),
))  # fmt: skip
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_compact():
    assert pc.compact((2, 3, 4, 7)) == "2-4, 7"
    assert pc.compact(()) == "none"
