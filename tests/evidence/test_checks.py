"""What a check accepts: equal means everywhere and exactly, NaN and wrong shapes fail, looking at nothing is refused."""

import json
from fractions import Fraction

import numpy as np
import pytest

from hybridseq.evidence import Check
from hybridseq.evidence.checks import plain


def test_equal_arrays_pass_and_count_their_cases():
    check = Check.equal("same", np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4).tolist(), "12 numbers")
    assert check.passed and check.cases == 12 and check.counterexample is None
    assert "[pass]" in str(check) and "12 cases" in str(check)


def test_the_first_wrong_entry_is_the_counterexample():
    got = np.zeros((4, 2), dtype=int)
    got[2, 1] = got[3, 0] = 7
    check = Check.equal("same", got, np.zeros((4, 2)), "8 numbers", inputs=["a", "b", "c", "d"])
    assert not check.passed
    assert check.counterexample == {"index": [2, 1], "got": 7, "expected": 0.0, "wrong": 2, "input": "c"}
    assert "counter-example" in str(check)


@pytest.mark.parametrize("one_entry", [0, 1, 2])
def test_every_single_change_is_seen(one_entry):
    expected = np.array([5, -3, 8])
    got = expected.copy()
    got[one_entry] += 1
    assert not Check.equal("same", got, expected, "3 numbers").passed


def test_nan_is_equal_to_nothing():
    assert not Check.equal("same", [np.nan], [np.nan], "one").passed
    assert not Check.close("near", [np.nan], [np.nan], "one", tolerance=1e9).passed
    assert not Check.close("near", [1.0, np.nan], [1.0, 0.0], "two", tolerance=1e9).passed


def test_shapes_do_not_broadcast():
    for shape in ((3, 1), (1,), (4,), ()):
        for check in (
            Check.equal("same", np.zeros(3), np.zeros(shape), "zeros"),
            Check.close("near", np.zeros(3), np.zeros(shape), "zeros", tolerance=1.0),
        ):
            assert not check.passed
            assert check.counterexample == {"got shape": [3], "expected shape": list(shape)}


def test_scalars_strings_fractions_and_long_integers():
    assert Check.equal("same", 3, 3, "one").passed
    assert not Check.equal("same", 3, 4, "one").passed
    assert Check.equal("same", ["YES", "NO"], ["YES", "NO"], "two").passed
    assert not Check.equal("same", ["YES", "NO"], ["YES", "YES"], "two").passed
    assert Check.equal("same", [Fraction(1, 3)], [Fraction(2, 6)], "one").passed
    assert not Check.equal("same", [2**70], [2**70 + 1], "one").passed


def test_close_is_absolute_and_inclusive():
    assert Check.close("near", [1.0, 2.0], [1.0, 2.5], "two", tolerance=0.5).passed
    check = Check.close("near", [1.0, 2.0], [1.0, 2.5], "two", tolerance=0.4)
    assert not check.passed and check.counterexample == {"index": [1], "largest difference": 0.5}
    assert check.value == {"largest difference": 0.5, "tolerance": 0.4}
    assert Check.close("near", [np.inf], [np.inf], "one", tolerance=0.1).passed
    assert not Check.close("near", [np.inf], [-np.inf], "one", tolerance=1e300).passed
    for tolerance in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="tolerance="):
            Check.close("near", [1.0], [1.0], "one", tolerance=tolerance)


def test_true():
    assert Check.true("condition", np.bool_(True), "one").passed
    failed = Check.true("condition", [], "one", counterexample="nothing")
    assert not failed.passed and failed.counterexample == "nothing"
    assert Check.true("condition", True, "one", counterexample="unused").counterexample is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: Check("name", True, "scope", cases=0),
        lambda: Check("name", True, " "),
        lambda: Check("", True, "scope"),
        lambda: Check.equal("name", [], [], "nothing at all"),
        lambda: Check.close("name", [], [], "nothing at all", tolerance=1.0),
    ],
)
def test_a_check_must_look_at_something(build):
    with pytest.raises(ValueError):
        build()


def test_checks_are_frozen():
    check = Check("name", True, "scope")
    with pytest.raises(AttributeError):
        check.passed = False


def test_plain_data_survives_json():
    value = {
        "array": np.arange(3),
        "number": np.float64(0.5),
        "flag": np.bool_(True),
        "fraction": Fraction(1, 3),
        "set": {3, 1, 2},
        1: (None, float("inf"), float("nan"), 2**80),
    }
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "array": [0, 1, 2],
        "number": 0.5,
        "flag": True,
        "fraction": "1/3",
        "set": [1, 2, 3],
        "1": [None, "inf", "nan", 2**80],
    }


def test_boxes_escape_what_they_show():
    check = Check("a < b & c", False, "<script>", counterexample={"x": "<b>"})
    html = check._repr_html_()
    assert "<script>" not in html and "<b>" not in html
    assert "a &lt; b &amp; c" in html and "check-fail" in html
    assert "check-pass" in Check("fine", True, "one")._repr_html_()


def test_certificates_are_replayed_from_their_text():
    class Text(str):
        def to_json(self):
            return str(self)

    def replay(text):
        return Check.true("good", text == "good", "one text", counterexample=text)

    fine = Check.replayed([Text("good")] * 2, replay, "two")
    assert fine.passed and fine.value == {"certificates": 2}
    forged = Check.replayed([Text("good"), Text("forged")], replay, "two")
    assert not forged.passed and forged.counterexample == ["forged"]
    assert not Check.replayed([], replay, "none").passed
