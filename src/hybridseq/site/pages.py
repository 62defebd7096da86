"""The generated parts of the site: the box at the top of a chapter, the page of claims, the page of run status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from hybridseq.evidence import anchor
from hybridseq.site.book import Book, Chapter
from hybridseq.site.execute import Execution
from hybridseq.site.keys import ORACLES
from hybridseq.site.ledger import NOT_BUILT, Claim, summary

CLAIMS_MARK = "<!-- generated: claims -->"
STATUS_MARK = "<!-- generated: run-status -->"
_PAPER_TITLES = {
    "A": "A: shorter scratchpads",
    "B": "B: expressivity and efficiency",
    "C": "C: the hierarchy",
    "beyond": "Beyond the papers",
}
_CLAIMS_PAGE = f"""# Claims

Every row is one claim. Its verdict was recorded by the run that made this site; a claim that no chapter has decided yet says
so. The verdict links to the cell that decides it, and that cell links back here.

{CLAIMS_MARK}
"""
_STATUS_PAGE = f"""# Run status

What was run to make this site, on which machine, how long it took and how much memory it needed.

{STATUS_MARK}
"""


def ledger_anchor(claim: str) -> str:
    """The id of a claim's row on the claims page.

    >>> ledger_anchor("A-lem-5.2")
    'ledger-A-lem-5-2'
    """
    return anchor(claim).replace("claim-", "ledger-", 1)


# The box at the top of a chapter
def at_a_glance(book: Book, execution: Execution, claims: Sequence[Claim]) -> str:
    """Markdown of the box: run time, hardware, claims, downloads, and ways to run it when the address is known."""
    chapter, record = execution.chapter, execution.record
    own = [claim for claim in claims if claim.entry.chapter == chapter.number]
    decided = [claim for claim in own if claim.verdict != NOT_BUILT]
    links = ", ".join(f'<a href="../book/claims.html#{ledger_anchor(c.entry.id)}">{escape(c.entry.id)}</a>' for c in own)
    lines = [
        f"- **Run time** {_run_time(record)} ({record['profile']} profile){_full_time(book, chapter, record)}",
        f"- **Hardware** any CPU, no accelerator; {_megabytes(record['peak_mb'])} of memory at the peak",
        f"- **Claims** {len(decided)} of {len(own)} checked in this run{_left_open(own)}" + (f": {links}" if links else ""),
        f"- **Notebook** {{download}}`{chapter.slug}.ipynb <../downloads/{chapter.slug}.ipynb>` (without outputs)",
    ]
    if book.address:
        lines.append(f"- **Run or discuss it** {_ways_to_run(book, chapter)}")
    return "\n".join([":::{admonition} At a glance", ":class: glance", "", *lines, ":::"])


def _left_open(own: Sequence[Claim]) -> str:
    later = sum(bool(claim.entry.deferred) for claim in own)
    return f", {later} left for later" if later else ""


def _run_time(record: Mapping) -> str:
    """The time of one core; also that of the clock, where the machine had other work to do."""
    waited = record["wall_s"] > 1.5 * record["cpu_s"] + 2
    return f"{_seconds(record['cpu_s'])} of one core" + (f", {_seconds(record['wall_s'])} by the clock" if waited else "")


def _full_time(book: Book, chapter: Chapter, record: Mapping) -> str:
    minutes = book.expected_minutes.get(chapter.number)
    return f"; full profile about {minutes:g} min" if minutes and record["profile"] != "full" else ""


def _ways_to_run(book: Book, chapter: Chapter) -> str:
    branch = (book.config.get("repository") or {}).get("branch") or "main"
    owner_and_name = book.address.removeprefix("https://github.com/")
    path = f"chapters/{chapter.slug}.ipynb"
    ways = []
    if book.address.startswith("https://github.com/"):
        ways += [
            ("Colab", f"https://colab.research.google.com/github/{owner_and_name}/blob/{branch}/{path}"),
            ("Binder", f"https://mybinder.org/v2/gh/{owner_and_name}/{branch}?urlpath=lab/tree/{path}"),
        ]
    ways.append(("report a problem", f"{book.address}/issues/new?title=Chapter%20{chapter.number}"))
    return " · ".join(f"[{name}]({address})" for name, address in ways)


# The page of claims
def claims_page(book: Book, claims: Sequence[Claim]) -> str:
    """The page of claims: the hand-written page with its mark replaced, or a whole page where there is none."""
    return _fill(book, "claims", _CLAIMS_PAGE, CLAIMS_MARK, claims_tables(book, claims))


def claims_tables(book: Book, claims: Sequence[Claim]) -> str:
    """A count of verdicts, then one table a paper with one row a claim."""
    counts = ", ".join(f"{count} {_badge(verdict)}" for verdict, count in summary(claims).items())
    parts = ["## All claims at once", "", f"{len(claims)} claims: {counts}.", ""]
    for paper, group in groupby(sorted(claims, key=lambda c: list(_PAPER_TITLES).index(c.entry.paper)), lambda c: c.entry.paper):
        parts += [f"## {_PAPER_TITLES[paper]}", "", *_claims_table(book, list(group)), ""]
    return "\n".join(parts)


def _claims_table(book: Book, claims: Sequence[Claim]) -> list[str]:
    slugs = {chapter.number: chapter.slug for chapter in book.chapters}
    rows = [":::{list-table}", ":header-rows: 1", ":class: claims-table", ":widths: 20 45 35", "",
            "* - Claim", "  - Statement", "  - Verdict and what stands behind it"]
    for claim in claims:
        rows += [f"* - {_first_column(claim)}", f"  - {_statement(claim)}", f"  - {_verdict(claim, slugs)}"]
    return [*rows, ":::"]


def _first_column(claim: Claim) -> str:
    entry = claim.entry
    name = f'<span id="{ledger_anchor(entry.id)}" class="claim-id">{escape(entry.id)}</span>'
    return f"{name}<br>{_line(entry.place)} ({entry.kind})"


def _statement(claim: Claim) -> str:
    entry = claim.entry
    deviations = "".join(f"<br>*Deviation:* {_line(text)}" for text in entry.deviations)
    return _line(entry.statement) + deviations


def _verdict(claim: Claim, slugs: Mapping[int, str]) -> str:
    entry = claim.entry
    slug = slugs.get(entry.chapter)
    if claim.verdict == NOT_BUILT:
        where = f'<a href="../chapters/{slug}.html">chapter {entry.chapter}</a>' if slug else f"chapter {entry.chapter}"
        note = f" ({_line(claim.note)})" if claim.note else ""
        return f"{_badge(claim.verdict)} {where}{note}"
    where = f'<a href="../chapters/{slug}.html#{anchor(entry.id)}">chapter {entry.chapter}</a>'
    lines = [f"{_badge(claim.verdict)} {where}", _line(escape(", ".join(claim.evidence))), f"Scope: {_literal(claim.scope)}"]
    if claim.value:
        lines.append(" · ".join(f"{_literal(name)} = {_literal(_number(value))}" for name, value in claim.value.items()))
    if claim.note:
        lines.append(_literal(claim.note))
    return "<br>".join(lines)


def _badge(verdict: str) -> str:
    return f'<span class="verdict verdict-{verdict.replace(" ", "-")}">{escape(verdict)}</span>'


# The page of run status
def status_page(book: Book, executions: Sequence[Execution], claims: Sequence[Claim]) -> str:
    """The page of run status: the hand-written page with its mark replaced, or a whole page where there is none."""
    return _fill(book, "run-status", _STATUS_PAGE, STATUS_MARK, status_tables(executions, claims))


def status_tables(executions: Sequence[Execution], claims: Sequence[Claim]) -> str:
    """Time and memory a chapter, then machine, versions and oracles of the run."""
    parts = ["## Chapters", ""]
    if not executions:
        return "\n".join([*parts, "No chapter has been run.", ""])
    header = "| chapter | claims | wall time | processor time | peak memory |"
    parts += [header, "|---|---|---:|---:|---:|", *(_status_row(execution, claims) for execution in executions)]
    records = [execution.record for execution in executions]
    wall, cpu, peak = sum(r["wall_s"] for r in records), sum(r["cpu_s"] for r in records), max(r["peak_mb"] for r in records)
    parts += [f"| **all** | | {_seconds(wall)} | {_seconds(cpu)} | {_megabytes(peak)} |", ""]
    first, last = min(record["began"] for record in records), max(records, key=lambda record: record["began"])
    parts += [
        "Each chapter runs in a process of its own with one thread; time and memory are those of that process.",
        "",
        "## Machine and versions",
        "",
        "| what | this run |",
        "|---|---|",
        f"| profile | {last['profile']} |",
        f"| chapters ran (UTC) | {_when(first)} to {_when(last['began'])} |",
        f"| processor | {_line(last['cpu'])} |",
        f"| logical cores | {last['cores']} |",
        f"| system | {last['platform']} ({last['machine']}) |",
        f"| Python | {last['python']} |",
        *(f"| {name} | {version or 'not installed'} |" for name, version in last["versions"].items()),
        "",
        "## Oracles",
        "",
        "Reference code of other projects, read as source and run on the processor; their compiled kernels are not what ran.",
        "",
        "| oracle | this run |",
        "|---|---|",
        *(f"| {name} | {_oracle(last['oracles'].get(name))} |" for name in ORACLES),
        "",
    ]
    return "\n".join(parts)


def _status_row(execution: Execution, claims: Sequence[Claim]) -> str:
    chapter, record = execution.chapter, execution.record
    own = [claim for claim in claims if claim.entry.chapter == chapter.number]
    decided = sum(claim.verdict != NOT_BUILT for claim in own)
    link = f'<a href="../chapters/{chapter.slug}.html">{chapter.number}. {_title(execution)}</a>'
    return (f"| {link} | {decided} of {len(own)} | {_seconds(record['wall_s'])} | {_seconds(record['cpu_s'])} | "
            f"{_megabytes(record['peak_mb'])} |")


def _title(execution: Execution) -> str:
    from hybridseq.site.book import source_of

    for cell in execution.notebook["cells"]:
        for line in source_of(cell).splitlines() if cell["cell_type"] == "markdown" else ():
            if line.startswith("# "):
                return line.removeprefix("# ").strip().replace("|", "\\|")
    return execution.chapter.slug


def _oracle(version: str | None) -> str:
    return f"version {version}, available" if version else "not run here (`make oracle` installs it)"


# Small matters of text
def _fill(book: Book, name: str, default: str, mark: str, content: str) -> str:
    path = book.root / "book" / f"{name}.md"
    page = path.read_text(encoding="utf-8") if path.is_file() else default
    return page.replace(mark, content) if mark in page else f"{page.rstrip()}\n\n{content}"


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    return f"{seconds:.0f}\u00a0s" if seconds < 120 else f"{seconds / 60:.1f}\u00a0min"


def _megabytes(megabytes: float) -> str:
    return f"{megabytes:.0f}\u00a0MB"


def _when(moment: str) -> str:
    return moment.replace("T", " ").removesuffix("+00:00")


def _line(text: str) -> str:
    """One line of markdown: what a cell of a table holds."""
    return " ".join(str(text).split())


def _literal(text: object) -> str:
    """Recorded text shown as it is: markdown and HTML in it mean nothing."""
    line = escape(_line(str(text)))
    return "".join(f"\\{mark}" if mark in "\\`*_{}[]$|~^" else mark for mark in line)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
