"""The ledger: 70 claims, each with the verdict of a current execution or none at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hybridseq.evidence import EVIDENCE_KINDS, VERDICTS
from hybridseq.site.book import Book
from hybridseq.site.build import check_executions
from hybridseq.site.cli import main
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import find_execution
from hybridseq.site.ledger import KINDS, PAPERS, load_ledger, merge, summary
from hybridseq.site.pages import claims_tables

# Ids by chapter: what the book sets out to decide, written once more here so that no entry is lost.
IDS = {
    1: "A-app-A A-ks", 2: "C-lem-2.2 C-def-2.1 C-def-2.3 B-def-mixers A-def-gdn", 3: "A-lem-5.1",
    4: "A-lem-5.2 A-remark-doubling X-zero-start X-rounding-orders X-reflection", 5: "A-def-pcr A-thm-5.3 A-dim",
    6: "A-thm-7.1 X-thm-7.1-even", 7: "A-lem-6.1", 8: "A-thm-6.2 A-thm-4.2 X-scratch-upper X-pcr-learned",
    9: "B-def-3.1 B-lem-3.5 B-thm-3.3 X-optimum", 10: "B-thm-3.7 B-thm-4.2 B-thm-4.5",
    11: "B-fig-1-3 B-thm-4.3 B-def-4.1 B-fig-9 X-real-mamba X-rope-everywhere", 12: "B-thm-4.6 B-def-4.4 B-fig-10",
    13: "B-fig-4 B-fig-11 B-fig-12 B-fig-13 B-fig-14 B-text-reverse B-text-positions", 14: "B-fig-6 B-fig-15 B-fig-16",
    15: "B-fig-7", 16: "B-fig-5 B-text-two-layers", 17: "B-fig-8 B-tab-1", 18: "C-def-2.5 C-thm-1.1-upper X-one-linear-layer",
    19: "C-model", 20: "C-lem-4.2 C-def-4.1 C-thm-1.1-lower X-lemma-E2 X-lemma-E3",
    21: "C-def-2.6 C-thm-1.2 X-two-sum-upper", 22: "X-depth-learned", 23: "X-meeting X-exchange A-conjecture",
}


@pytest.fixture(scope="module")
def entries(project_root: Path):
    return load_ledger(Book(project_root))


# The book's own ledger
def test_the_ledger_holds_every_claim_in_its_chapter(entries):
    wanted = {identity: chapter for chapter, ids in IDS.items() for identity in ids.split()}
    assert {entry.id: entry.chapter for entry in entries} == wanted
    assert len(entries) == 70


def test_the_words_of_the_ledger_are_those_it_may_use(entries):
    assert {entry.paper for entry in entries} <= set(PAPERS)
    assert {entry.kind for entry in entries} <= set(KINDS)
    assert {entry.expect for entry in entries} <= set(VERDICTS) - {"not built"}
    assert [entry.id for entry in entries if len(entry.statement.split()) < 5] == []


def test_no_verdict_stands_in_the_hand_written_part(project_root):
    raw = yaml.safe_load((project_root / "book/claims.yml").read_text(encoding="utf-8"))
    assert [entry["id"] for entry in raw if {"verdict", "evidence", "scope"} & set(entry)] == []


def test_claims_as_json_lists_every_claim(project_root):
    printed = CliRunner().invoke(main, ["--root", str(project_root), "claims", "--json"])
    assert printed.exit_code == 0, printed.output
    listed = json.loads(printed.stdout)
    assert len(listed) == 70
    assert all({"id", "verdict", "evidence", "scope", "chapter"} <= set(claim) for claim in listed)
    assert {claim["verdict"] for claim in listed} <= set(VERDICTS)
    for claim in listed:
        assert set(claim["evidence"]) <= set(EVIDENCE_KINDS)
        assert (claim["verdict"] == "not built") == (not claim["evidence"]) == (not claim["scope"])


def test_claims_of_absent_chapters_are_not_built(project_root, entries):
    present = {chapter.number for chapter in Book(project_root).chapters}
    verdicts = {claim.entry.id: claim.verdict for claim in merge(Book(project_root))}
    assert {verdicts[entry.id] for entry in entries if entry.chapter not in present} <= {"not built"}


# How the parts merge
def verdicts(book: Book) -> dict[str, str]:
    return {claim.entry.id: claim.verdict for claim in merge(book)}


def test_a_current_execution_gives_its_verdict(built_book):
    claim = merge(built_book.book)[0]
    assert (claim.verdict, claim.evidence, claim.scope, claim.value, claim.cell) == (
        "holds", ("exhaustive",), "all strings to n = 2", {"weight": 3}, "claim",
    )
    assert verdicts(built_book.book) == {"A-lem-5.2": "holds", "B-fig-4": "not built"}
    assert summary(merge(built_book.book)) == {"not built": 1, "holds": 1}


def test_without_an_execution_there_is_no_verdict(small_book):
    claim = merge(small_book.book)[0]
    assert (claim.verdict, claim.note) == ("not built", "not run yet")


@pytest.mark.parametrize("change", ["chapters/04_small.ipynb", "src/hybridseq/a_module.py", "requirements/lock.txt"])
def test_a_stale_execution_gives_no_verdict(built_book, change):
    path = built_book.root / change
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    claim = merge(built_book.book)[0]
    assert claim.verdict == "not built"
    assert "stale" in claim.note


# A verdict that no execution produced
def execution_of(small):
    (chapter,) = small.book.chapters
    return find_execution(small.book, chapter, "quick")


def test_a_verdict_written_into_the_record_does_not_count(built_book):
    path = execution_of(built_book).folder / "claims.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"holds"', '"holds after repair"'), encoding="utf-8")
    assert verdicts(built_book.book)["A-lem-5.2"] == "not built"
    with pytest.raises(BookFailed, match=r"claims\.json was changed after the run"):
        check_executions(built_book.book, [execution_of(built_book)])


def test_a_verdict_without_a_cell_that_shows_it_does_not_count(built_book):
    """Record and checksum both forged: the executed notebook still does not show the claim."""
    execution = execution_of(built_book)
    record = [{**execution.claims[0], "id": "B-fig-4", "verdict": "measured"}]
    (execution.folder / "claims.json").write_text(json.dumps(record), encoding="utf-8")
    run = {name: value for name, value in execution.record.items() if name != "sha256"}
    (execution.folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    assert set(verdicts(built_book.book).values()) == {"not built"}
    with pytest.raises(BookFailed, match="no visible cell shows its verdict"):
        check_executions(built_book.book, [execution_of(built_book)])


def test_a_record_copied_to_another_key_does_not_count(built_book):
    folder = execution_of(built_book).folder
    folder.rename(folder.with_name("04_small-" + "0" * 16))
    assert verdicts(built_book.book)["A-lem-5.2"] == "not built"


def test_a_verdict_in_the_hand_written_part_is_refused(built_book):
    entries = yaml.safe_load(built_book.book.ledger_path.read_text(encoding="utf-8"))
    entries[1]["verdict"] = "holds"
    built_book.yaml("book/claims.yml", entries)
    with pytest.raises(BookFailed, match="field 'verdict' is unknown"):
        merge(built_book.book)


# What the ledger refuses
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", "B-fig-4", "'B-fig-4' is used twice"),
        ("paper", "D", "paper is 'D'; allowed: A, B, C, beyond"),
        ("kind", "poem", "kind is 'poem'; allowed"),
        ("expect", "true", "expect is 'true'; allowed"),
        ("expect", "not built", "expect is 'not built'; allowed"),
        ("chapter", "four", "chapter is 'four'; it must be a chapter number"),
        ("deferred", True, "deferred is True; it must be the reason, in words"),
        ("deferred", "  ", "deferred is '  '; it must be the reason, in words"),
        ("statement", "", "field 'statement' is missing or empty"),
    ],
)
def test_wrong_entries_are_named(small_book, field, value, message):
    entries = yaml.safe_load(small_book.book.ledger_path.read_text(encoding="utf-8"))
    entries[0][field] = value
    small_book.yaml("book/claims.yml", entries)
    with pytest.raises(BookFailed, match=r"book/claims\.yml") as failure:
        load_ledger(small_book.book)
    assert message in str(failure.value)


def problems_with(small, ledger: list[dict]) -> str:
    """What the checks say about the executed chapter when the ledger had read so."""
    from hybridseq.site.ledger import Entry, check_claims

    return "\n".join(check_claims([Entry(**entry) for entry in ledger], execution_of(small)))


def test_claims_and_ledger_must_match_both_ways(built_book):
    first, other = yaml.safe_load(built_book.book.ledger_path.read_text(encoding="utf-8"))
    cell = 'chapter 4 (04_small), cell 5 [id claim]'
    assert problems_with(built_book, [first, other]) == ""
    unlike = problems_with(built_book, [{**first, "expect": "contradicted"}, other])
    assert cell in unlike
    assert "came out 'holds', the ledger expects 'contradicted'" in unlike
    assert f"{cell}" in problems_with(built_book, [other])
    assert "'A-lem-5.2' is not in the ledger" in problems_with(built_book, [other])
    assert "the ledger gives claim A-lem-5.2 to chapter 6" in problems_with(built_book, [{**first, "chapter": 6}, other])
    left = problems_with(built_book, [first, {**other, "chapter": 4}])
    assert "chapter 4 (04_small): no cell decides its claim B-fig-4" in left


# A claim that its chapter leaves open for now
def test_a_chapter_may_leave_a_deferred_claim_open(built_book):
    first, other = yaml.safe_load(built_book.book.ledger_path.read_text(encoding="utf-8"))
    later = {**other, "chapter": 4, "deferred": "it needs a trained model"}
    assert problems_with(built_book, [first, later]) == ""
    built_book.yaml("book/claims.yml", [first, later])
    assert verdicts(built_book.book)["B-fig-4"] == "not built"
    assert merge(built_book.book)[1].note == "it needs a trained model"
    assert "it needs a trained model" in claims_tables(built_book.book, merge(built_book.book))


def test_a_deferred_claim_that_a_cell_decides_is_refused(built_book):
    first, other = yaml.safe_load(built_book.book.ledger_path.read_text(encoding="utf-8"))
    assert "the ledger defers it" in problems_with(built_book, [{**first, "deferred": "later"}, other])
