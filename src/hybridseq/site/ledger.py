"""The ledger of claims: the hand-written entries of `book/claims.yml` merged with what the executed chapters recorded.

No verdict is written by hand: an entry is `not built` until an execution that belongs to the present chapter, package and
data has decided it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import yaml

from hybridseq.evidence import EVIDENCE_KINDS, VERDICTS, anchor
from hybridseq.site.book import Book, Chapter, cell_name
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import Execution, file_sum, find_execution, has_stale_execution

PAPERS = ("A", "B", "C", "beyond")
KINDS = ("definition", "lemma", "theorem", "finding", "figure", "table")
_REQUIRED = ("id", "paper", "kind", "place", "statement", "chapter", "expect")
_ALLOWED = (*_REQUIRED, "deviations", "deferred")
NOT_BUILT = "not built"


@dataclass(frozen=True)
class Entry:
    """One claim as written by hand; `expect` is the verdict we expect, never the verdict.

    `deferred` is empty, or the reason why the claim's chapter leaves it open for now: it is then `not built`, with that reason.
    """

    id: str
    paper: str
    kind: str
    place: str
    statement: str
    chapter: int
    expect: str
    deviations: tuple[str, ...] = ()
    deferred: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim with its verdict: the entry and what a current execution recorded, or `not built`."""

    entry: Entry
    verdict: str = NOT_BUILT
    evidence: tuple[str, ...] = ()
    scope: str = ""
    value: dict | None = None
    note: str = ""
    cell: str | None = None
    profile: str | None = None
    execution: str | None = None

    def as_dict(self) -> dict:
        """Plain data, as `hybridseq claims --json` prints it."""
        own = {name: value for name, value in asdict(self).items() if name != "entry"}
        return {**asdict(self.entry), **own}


def entries_of(book: Book) -> list:
    """The entries of `book/claims.yml` as they stand there, unchecked; an absent file is an empty ledger."""
    if not book.ledger_path.is_file():
        return []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(book.ledger_path.read_text(encoding="utf-8"), Loader=loader)
    except yaml.YAMLError as error:
        raise BookFailed(f"book/claims.yml is not valid YAML: {error}") from error
    if content is None:
        return []
    if not isinstance(content, list):
        raise BookFailed("book/claims.yml must be a list of entries")
    return content


def load_ledger(book: Book) -> list[Entry]:
    """The checked entries; BookFailed lists everything that is wrong with the file."""
    raw = entries_of(book)
    problems = [problem for number, entry in enumerate(raw, 1) for problem in _entry_problems(number, entry)]
    ids = [entry.get("id") for entry in raw if isinstance(entry, dict)]
    problems += [f"book/claims.yml: id {i!r} is used twice" for i in sorted({i for i in ids if ids.count(i) > 1}, key=str)]
    if problems:
        raise BookFailed(problems)
    return [Entry(**{**entry, "deviations": _texts(entry.get("deviations"))}) for entry in raw]


def merge(book: Book, profile: str = "quick") -> list[Claim]:
    """The whole ledger, each claim with the verdict of the current execution of its chapter or `not built`."""
    entries = load_ledger(book)
    present = {chapter.number: chapter for chapter in book.chapters}
    found: dict[int, Execution | None] = {}
    for number in {entry.chapter for entry in entries} & set(present):
        found[number] = find_execution(book, present[number], profile)
    return [_claim(book, entry, present.get(entry.chapter), found.get(entry.chapter), profile) for entry in entries]


def check_claims(entries: Sequence[Entry], execution: Execution) -> list[str]:
    """What is wrong with the claims of one executed chapter: each message names chapter and cell.

    A claim that the ledger lacks or gives to another chapter, a verdict unlike `expect`, a claim of the chapter that no
    cell decided although it is not deferred, a deferred claim that a cell decides all the same, and a record that its
    notebook does not bear out.
    """
    chapter = execution.chapter
    by_id = {entry.id: entry for entry in entries}
    problems = record_problems(execution)
    recorded = [record["id"] for record in execution.claims]
    for record in execution.claims:
        where, entry = _where(execution, record["id"]), by_id.get(record["id"])
        if entry is None:
            problems.append(f"{where}: claim {record['id']!r} is not in the ledger (book/claims.yml)")
        elif entry.chapter != chapter.number:
            problems.append(f"{where}: the ledger gives claim {entry.id} to chapter {entry.chapter}")
        elif entry.deferred:
            problems.append(f"{where}: claim {entry.id} is decided, but the ledger defers it; remove its field 'deferred'")
        elif record["verdict"] != entry.expect:
            problems.append(f"{where}: claim {entry.id} came out {record['verdict']!r}, the ledger expects {entry.expect!r}")
    for entry in entries:
        if entry.chapter == chapter.number and entry.id not in recorded and not entry.deferred:
            problems.append(f"{chapter.label}: no cell decides its claim {entry.id} ({entry.place})")
    return problems


def record_problems(execution: Execution) -> list[str]:
    """Signs that verdicts or notebook were changed after the run: every recorded verdict must stand in the notebook."""
    label, sums = execution.chapter.label, execution.record.get("sha256", {})
    problems = [
        f"{label}: {name} was changed after the run that wrote it; run the chapter again (--force)"
        for name, expected in sums.items()
        if file_sum(execution.folder / name) != expected
    ]
    for record in execution.claims:
        if record.get("verdict") not in VERDICTS[1:] or not set(record.get("evidence", ())) <= set(EVIDENCE_KINDS):
            problems.append(f"{label}: claim {record.get('id')} has verdict {record.get('verdict')!r}, "
                            f"evidence {record.get('evidence')!r}, which the ledger does not know")
        index = claim_cell(execution, record["id"])
        if index is None:
            problems.append(f"{label}: claim {record['id']} was recorded, but no visible cell shows its verdict; "
                            "let decide(...) be the last line of its cell")
    return problems


def claim_cell(execution: Execution, claim: str) -> int | None:
    """Position of the cell whose output shows the verdict box of the claim, or None."""
    mark = f'id="{anchor(claim)}"'
    for index, cell in enumerate(execution.notebook["cells"]):
        if any(mark in html for html in html_outputs(cell)):
            return index
    return None


def html_outputs(cell: dict) -> Iterable[str]:
    """The HTML texts that a code cell shows."""
    for output in cell.get("outputs", ()):
        html = output.get("data", {}).get("text/html")
        if html is not None:
            yield html if isinstance(html, str) else "".join(html)


def summary(claims: Iterable[Claim]) -> dict[str, int]:
    """How many claims have each verdict, in the order of the verdicts; verdicts that no claim has are left out."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return {verdict: count for verdict, count in counts.items() if count}


def _claim(book: Book, entry: Entry, chapter: Chapter | None, execution: Execution | None, profile: str) -> Claim:
    if entry.deferred:
        return Claim(entry, note=entry.deferred)
    if chapter is None:
        return Claim(entry)
    if execution is None:
        stale = has_stale_execution(book, chapter, profile)
        return Claim(entry, note="stale: the chapter or what it reads has changed since its last run" if stale else "not run yet")
    if record_problems(execution):
        return Claim(entry, note="the record does not belong to its execution; run the chapter again")
    record = next((record for record in execution.claims if record["id"] == entry.id), None)
    if record is None:
        return Claim(entry, note="the chapter ran and did not decide it")
    return Claim(
        entry,
        verdict=record["verdict"],
        evidence=tuple(record["evidence"]),
        scope=record["scope"],
        value=record.get("value") or {},
        note=record.get("note", ""),
        cell=execution.notebook["cells"][claim_cell(execution, entry.id)].get("id"),
        profile=execution.profile,
        execution=execution.key,
    )


def _where(execution: Execution, claim: str) -> str:
    index = claim_cell(execution, claim)
    if index is None:
        return execution.chapter.label
    return cell_name(execution.chapter, index, execution.notebook["cells"][index])


def _entry_problems(number: int, entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return [f"book/claims.yml, entry {number}: it must be a mapping with {', '.join(_REQUIRED)}"]
    where = f"book/claims.yml, entry {number} ({entry.get('id')})"
    problems = [f"{where}: field {name!r} is missing or empty" for name in _REQUIRED if entry.get(name) in (None, "")]
    problems += [f"{where}: field {name!r} is unknown; allowed: {', '.join(_ALLOWED)}" for name in entry if name not in _ALLOWED]
    allowed = {"paper": PAPERS, "kind": KINDS, "expect": VERDICTS[1:]}
    problems += [
        f"{where}: {name} is {entry[name]!r}; allowed: {', '.join(values)}"
        for name, values in allowed.items()
        if entry.get(name) not in (None, "", *values)
    ]
    if "chapter" in entry and not (isinstance(entry["chapter"], int) and entry["chapter"] >= 1):
        problems.append(f"{where}: chapter is {entry['chapter']!r}; it must be a chapter number")
    if "deferred" in entry and not (isinstance(entry["deferred"], str) and entry["deferred"].strip()):
        problems.append(f"{where}: deferred is {entry['deferred']!r}; it must be the reason, in words (or leave it out)")
    return problems


def _texts(value: object) -> tuple[str, ...]:
    if not value:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value)


def ledger_as_json(claims: Iterable[Claim]) -> str:
    """The list that `hybridseq claims --json` prints."""
    return json.dumps([claim.as_dict() for claim in claims], indent=1, ensure_ascii=False)
