"""Deciding a claim: failed checks stop everything, nothing is decided twice, and the record is what was decided."""

import json

import pytest

from hybridseq.evidence import EVIDENCE_KINDS, VERDICTS, Check, ClaimFailed, anchor, decide

GOOD = Check("two and two", True, "one sum", value={"sum": 4})
BAD = Check("two and two", False, "one sum", counterexample={"sum": 5})


@pytest.fixture
def record(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDSEQ_CLAIMS", str(tmp_path / "claims"))
    monkeypatch.setenv("HYBRIDSEQ_CHAPTER", "01_numbers")
    return tmp_path / "claims" / "01_numbers.json"


@pytest.fixture(autouse=True)
def no_record(monkeypatch):
    monkeypatch.delenv("HYBRIDSEQ_CLAIMS", raising=False)
    monkeypatch.delenv("HYBRIDSEQ_CHAPTER", raising=False)


def test_passing_checks_decide():
    verdict = decide("A-ks", GOOD, evidence=("proved here", "exhaustive"))
    assert verdict.claim == "A-ks" and verdict.verdict == "holds"
    assert verdict.scope == "one sum" and verdict.value == {"sum": 4}
    assert "A-ks: holds (proved here, exhaustive)" in str(verdict)
    assert decide("A-ks", GOOD, value={"K": 9}, scope="elsewhere").value == {"K": 9}


def test_one_failing_check_raises_with_its_counterexample():
    with pytest.raises(ClaimFailed, match=r"(?s)A-ks does not hold.*counter-example.*5"):
        decide("A-ks", GOOD, BAD)


def test_a_failed_claim_leaves_no_record(record):
    with pytest.raises(ClaimFailed):
        decide("A-ks", BAD)
    assert not record.exists()


def test_the_record_holds_every_decision(record):
    decide("A-app-A", GOOD, note="why")
    decide("A-ks", GOOD, verdict="holds after repair", evidence="certificate")
    stored = json.loads(record.read_text())
    assert stored["chapter"] == "01_numbers"
    assert [c["id"] for c in stored["claims"]] == ["A-app-A", "A-ks"]
    first, second = stored["claims"]
    assert first["verdict"] == "holds" and first["note"] == "why" and first["value"] == {"sum": 4}
    assert first["checks"] == [GOOD.as_dict()]
    assert second["verdict"] == "holds after repair" and second["evidence"] == ["certificate"]


def test_no_claim_is_decided_twice(record):
    decide("A-ks", GOOD)
    with pytest.raises(ValueError, match="A-ks is decided twice in chapter 01_numbers"):
        decide("A-ks", GOOD)
    assert len(json.loads(record.read_text())["claims"]) == 1


def test_nothing_is_written_outside_a_build(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decide("A-ks", GOOD)
    assert list(tmp_path.iterdir()) == []


def test_the_builder_must_name_the_chapter(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDSEQ_CLAIMS", str(tmp_path))
    with pytest.raises(ValueError, match="must name the chapter"):
        decide("A-ks", GOOD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"verdict": "true"}, "verdict='true' is unknown"),
        ({"verdict": "not built"}, "verdict='not built' is unknown"),
        ({"evidence": ("belief",)}, "evidence"),
        ({"evidence": ()}, "evidence"),
        ({"verdict": "undecided"}, "needs the reason"),
    ],
)
def test_unknown_words(arguments, message):
    with pytest.raises(ValueError, match=message):
        decide("A-ks", GOOD, **arguments)


def test_a_verdict_needs_a_check():
    with pytest.raises(ValueError, match="at least one executed Check"):
        decide("A-ks")
    assert decide("A-ks", verdict="undecided", note="the frontier exceeds the cap").checks == ()


@pytest.mark.parametrize("verdict", [v for v in VERDICTS if v not in ("not built", "undecided")])
def test_every_verdict_has_a_box_with_its_id(verdict):
    html = decide("A-lem-5.2", GOOD, verdict=verdict, evidence=EVIDENCE_KINDS, note="a < b")._repr_html_()
    assert f'id="{anchor("A-lem-5.2")}"' in html and anchor("A-lem-5.2") == "claim-A-lem-5-2"
    assert verdict in html and "a &lt; b" in html
