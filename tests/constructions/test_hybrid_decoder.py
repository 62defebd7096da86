"""Theorem 5.3: the hybrid decoder on its whole scope, its dimension, its failures, and what a changed weight does."""

import importlib.util
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.constructions import hybrid_decoder as hd
from hybridseq.constructions.hybrid_decoder import HybridDecoder
from hybridseq.constructions.parity_cell import START_EVEN, START_ODD, F, G, T, Z, update_inputs
from hybridseq.rng import Generator
from hybridseq.tasks import pcr

# T16: widths of the residual stream, by (n, s, scale).
DIMENSIONS = {
    (8, 2, "sqrt"): 102,
    (8, 3, "sqrt"): 166,
    (8, 4, "sqrt"): 230,
    (8, 8, "sqrt"): 710,
    (256, 4, "sqrt"): 294,
    (1000, 4, "sqrt"): 294,
    (4093, 2, "sqrt"): 102,
    (4093, 8, "sqrt"): 774,
    (8, 4, "raw"): 38,
    (125, 4, "raw"): 66,
    (126, 4, "raw"): 102,
}


def assert_passed(check):
    assert check.passed, str(check)
    return check


# the theorem ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "scale", "full"), [(2, "raw", True), (2, "sqrt", False), (3, "sqrt", False), (4, "raw", True), (4, "sqrt", False)]
)
def test_all_3586_prompts(s, scale, full):
    assert assert_passed(hd.check_every_prompt(8, s, scale, full)).cases == 3586


@pytest.mark.parametrize("n", [16, 64, 125, 126, 256])
@pytest.mark.parametrize("scale", ["raw", "sqrt"])
def test_long_random_prompts(n, scale):
    assert assert_passed(hd.check_answers([HybridDecoder(n, 4, scale)], num=32)).cases == 32


@pytest.mark.parametrize("n", [16, 64])
def test_long_prompts_with_the_full_pass(n):
    assert_passed(hd.check_answers([HybridDecoder(n, 4)], num=2, full=True))


@pytest.mark.parametrize("s", [5, 6, 8])
def test_other_precisions(s):
    assert assert_passed(hd.check_answers([HybridDecoder(8, s)], num=100)).cases == 100


@pytest.mark.parametrize("s", [2, 3])
def test_the_three_layers_do_what_the_proof_says(s):
    assert_passed(hd.check_stages(HybridDecoder(5, s)))


def test_last_position_equals_the_full_pass_on_every_coordinate():
    assert assert_passed(hd.check_last_only(HybridDecoder(5, 3))).cases == 160 * HybridDecoder(5, 3).stream.dim


@pytest.mark.parametrize("s", [2, 4])
def test_one_token_a_bit(s):
    assert assert_passed(hd.check_every_prompt(8, s, encoding="one-token")).cases == 3586
    assert HybridDecoder(8, s, encoding="one-token").stream.dim == hd.dimension(8, s) - 1


@pytest.mark.parametrize("s", [2, 3])
def test_cold_start(s):
    assert assert_passed(hd.check_every_prompt(8, s, start="cold")).cases == 3586


def test_it_is_a_decoder_that_answers_without_scratch():
    decoder = HybridDecoder(4, 2)
    (prompts,) = pcr.every(4)
    assert_passed(hd.check_greedy(decoder))
    assert not hd.check_greedy(decoder.with_weight("logits", "MARK", "1", 2)).passed
    done = decoder.model.generate(decoder.ar, prompts.tokens, budget=0)
    assert done.answer == tuple(prompts.labels.tolist()) and set(done.scratch) == {()}
    assert decoder.model.state_numbers(12) == 4 + 12 * (2 * decoder.codebook.m + decoder.codebook.m) + 12 * (
        2 * decoder.codebook.m + 1
    )


# dimension --------------------------------------------------------------------------------------------------------------


def test_dimensions():
    assert_passed(hd.check_dimension(DIMENSIONS))
    assert not hd.check_dimension({(8, 2, "sqrt"): 103}).passed


def test_growth_is_logarithmic():
    check = hd.check_growth(65_533, range(2, 9))
    assert_passed(check)
    assert check.cases == 4 * 7 * 2  # four codes, seven s, two scalings


def test_width_is_constant_where_one_code_serves():
    """What lets the smallest n of each code decide for all n of that code."""
    for n in (1, 2, 13, 14, 15, 125, 126, 127, 1000, 4093, 4094, 4095, 30_000, 65_533):
        first = max(start for start in (1, 14, 126, 4094) if start <= n)
        assert hd.dimension(n, 4) == hd.dimension(first, 4)


def test_bound_at_sampled_sizes():
    for n in range(1, 3000, 7):
        assert hd.dimension(n, 3) <= hd.dimension_bound(n, 3)


def test_growth_check_rejects_a_smaller_bound(monkeypatch):
    monkeypatch.setattr(hd, "dimension_bound", lambda n, s, scale: 4 * hd.m0(s, scale) + 6)
    assert not hd.check_growth(300, (2,)).passed
    with pytest.raises(ValueError, match="65533"):
        hd.check_growth(65_534, (2,))


# weights ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [2, 4, 8])
@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({}, {(pcr.ZERO, 0): Z, (pcr.ZERO, 1): Z, (pcr.ONE, 2): G, (pcr.ONE, 3): F, (pcr.MARK, 6): Z, (pcr.BLANK, 7): Z}),
        ({"start": "cold"}, {(pcr.ZERO, 0): START_EVEN, (pcr.ONE, 0): START_ODD, (pcr.ONE, 1): F, (pcr.ONE, 2): G}),
        ({"encoding": "one-token"}, {(pcr.ZERO, 0): Z, (pcr.ONE, 1): T, (pcr.MARK, 3): Z}),
    ],
)
def test_each_token_asks_for_its_update(s, options, tokens):
    decoder = HybridDecoder(3, s, **options)
    ar, head = decoder.ar, decoder.model.blocks[0].layer.heads[0]
    for (token, position), update in tokens.items():
        x = decoder.embedding.rows(ar, token, position)
        wanted = update_inputs(ar, [update]).at(0)
        got = head.inputs(ar, x)
        for name in ("q", "k", "v", "alpha", "beta"):
            assert np.array_equal(getattr(got, name), getattr(wanted, name)), (name, update)


def test_gates_are_open_and_the_parity_is_exactly_one():
    for s in range(2, 9):
        decoder = HybridDecoder(2, s)
        ar = decoder.ar
        gate = decoder.model.blocks[1].layer.heads[0].gate
        assert (ar.sigmoid(gate.apply(ar, ar.zeros((decoder.stream.dim,)))) == ar.one).all()
        assert ar.mul(ar.array([ar.delta]), ar.array([ar.max_value])).tolist() == [ar.one]


def test_addresses():
    decoder = HybridDecoder(5, 2)
    words = [tuple(decoder.word(name)) for name in (1, 2, 3, 4, 5, "MARK", "BLANK", "DUMMY")]
    assert len(set(words)) == 8 and len(words[0]) == decoder.codebook.m
    for bad in (0, 6, "STOP"):
        with pytest.raises(ValueError, match="address from 1 to 5"):
            decoder.word(bad)


def test_plain_python_integers_agree():
    path = Path(__file__).parents[2] / "benchmarks" / "hybrid_decoder.py"
    spec = importlib.util.spec_from_file_location("benchmark_hybrid_decoder", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    for n, s, scale in [(3, 2, "raw"), (5, 3, "sqrt"), (9, 4, "sqrt")]:
        decoder = HybridDecoder(n, s, scale)
        plain = benchmark.PlainDecoder(decoder)
        tokens = pcr.sample(n, 6, Generator(n)).tokens
        assert [plain.logits(row) for row in tokens.tolist()] == decoder.logits(tokens).tolist()
        assert decoder.logits(tokens, full=True).tolist() == decoder.logits(tokens).tolist()


# what fails, and must be seen to fail -----------------------------------------------------------------------------------


def test_zero_start_is_right_half_of_the_time():
    check = assert_passed(hd.check_zero_start((3, 6), 2))
    assert set(check.value.values()) == {Fraction(1, 2)}
    assert not hd.check_every_prompt(3, 2, start="zero").passed


def test_zero_start_check_rejects_a_working_start(monkeypatch):
    monkeypatch.setattr(hd, "HybridDecoder", lambda n, s, scale, start: HybridDecoder(n, s, scale))
    assert not hd.check_zero_start((3,), 2).passed


def test_without_rounding_the_same_weights_err():
    check = assert_passed(hd.check_needs_rounding((3, 6), 2, Float()))
    assert all(share < 1 for share in check.value.values())
    assert not hd.check_needs_rounding((3,), 2, FixedPoint(2)).passed


CHANGES = [
    ("L1.k", "k[1]", "g", 0),
    ("L1.k", "k[0]", "f", 0),
    ("L1.v", "v[0]", "g", 0),
    ("L1.alpha", "alpha", "f", 0),
    ("L1.beta", "beta", "f", 0),
    ("L1.q", "q[0]", "1", 0),
    ("L1.gate", "gate[0]", "1", Fraction(-15, 4)),
    ("L1.out", "PAR", "u[0]", 1),
    ("L2.gate", "gate[0]", "1", 0),
    ("L2.out", "R[0]", "u[0]", -1),
    ("L3.v", "v", "V", 0),
    ("L3.out", "BIT", "u", Fraction(1, 2)),
    ("L3.MLP in", "both", "1", 0),
    ("L3.MLP out", "ANS", "both", -1),
    ("logits", "NO", "ANS", 0),
    ("logits", "YES", "ANS", -1),
    ("logits", "MARK", "1", 2),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[1]} {change[2]}")
def test_one_changed_weight_is_noticed(change):
    decoders = [HybridDecoder(n, 2, "raw").with_weight(*change) for n in (1, 2, 3, 4)]
    checks = [hd.check_answers(decoders), hd.check_answers(decoders, full=True), *map(hd.check_stages, decoders)]
    assert not all(check.passed for check in checks)
    failed = next(check for check in checks if not check.passed)
    assert failed.counterexample is not None and str(change[0]) in f"{decoders[0].describe()}"


def test_the_answers_themselves_go_wrong():
    check = hd.check_answers([HybridDecoder(3, 2).with_weight("L3.MLP out", "ANS", "both", 0)])
    assert not check.passed and check.counterexample["expected"] == "NO" and check.value["wrong"] > 0
    broken = HybridDecoder(3, 2).with_weight("L1.out", "PAR", "u[0]", 0)
    assert not hd.check_stages(broken).passed and hd.accuracy(broken) == Fraction(1, 2)
    # At an earlier position a changed address map may do no harm; at the last one it must show.
    assert not hd.check_stages(HybridDecoder(3, 2).with_weight("L2.v", "v[0]", "A[0]", 0)).passed


def test_last_only_check_notices_a_difference(monkeypatch):
    decoder = HybridDecoder(3, 2)
    wrong = decoder.with_weight("L2.v", "v[0]", "A[0]", 0).model
    monkeypatch.setattr(type(decoder.model), "last_state", lambda self, ar, tokens: wrong.trace(ar, tokens)[-1][1][:, -1])
    assert not hd.check_last_only(decoder).passed


def test_a_changed_weight_changes_the_hash():
    assert HybridDecoder(3, 2).model.content_hash == HybridDecoder(3, 2).model.content_hash
    hashes = {HybridDecoder(3, 2).with_weight(*change).model.content_hash for change in CHANGES}
    assert len(hashes) == len(CHANGES)


def test_which_numbers_the_decoder_cannot_do_without():
    found = hd.removals(HybridDecoder(3, 2, "raw"))
    assert len(found) == sum(len(m.weights) + len(m.bias) for m in HybridDecoder(3, 2, "raw").maps.values())
    spared = {(r.name, r.target) for r in found if not r.noticed and not r.name.startswith(("L2", "L3.q", "L3.k"))}
    # The hold survives a write strength of 1/2, and the second row of the state is always zero.
    assert spared == {("L1.beta", "beta"), ("L1.gate", "gate[1]")}
    # One lost address coordinate is within the distance of the code.
    assert not any(r.noticed for r in found if r.name.startswith(("L2", "L3.q", "L3.k")))


@pytest.mark.parametrize(("encoding", "orders"), [("doubled", "AB"), ("one-token", "ABDQ")])
def test_orders_of_evaluation(encoding, orders):
    for order in "ABCDQWM":
        check = hd.check_every_prompt(4, 2, encoding=encoding, order=order)
        assert check.passed == (order in orders), order


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "s": 2}, "n must"),
        ({"n": 3, "s": 1}, "needs s >= 2"),
        ({"n": 3, "s": 2.5}, "integer s"),
        ({"n": 3, "s": 2, "scale": "dim"}, "sqrt, raw"),
        ({"n": 3, "s": 2, "start": "one"}, "P0, zero, cold"),
        ({"n": 3, "s": 2, "encoding": "tripled"}, "encoding"),
        ({"n": 3, "s": 2, "encoding": "one-token", "start": "cold"}, "cold"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        HybridDecoder(**arguments)


def test_bad_changes_and_prompts():
    with pytest.raises(ValueError, match="no map"):
        HybridDecoder(2, 2).with_weight("L4.q", "q", "1", 0).maps  # noqa: B018
    with pytest.raises(ValueError, match="max_len = 6"):
        HybridDecoder(2, 2).answers(pcr.encode([0, 1, 1], 1).tokens)
