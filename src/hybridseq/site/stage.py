"""Put together in one folder what Sphinx is to render: pages, executed chapters, generated pages, configuration."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from hybridseq.site.book import Book, Chapter, source_of
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import Execution
from hybridseq.site.figures import number_figures
from hybridseq.site.ledger import Claim
from hybridseq.site.pages import at_a_glance, claims_page, ledger_anchor, status_page

DOWNLOADS = "downloads"
_CLAIM_BOX = re.compile(r'<div class="hybridseq-claim" id="claim-[^"]*"[^>]*aria-label="Claim ([^"]+)"')


def stage_book(book: Book, stage: Path, executions: Sequence[Execution], claims: Sequence[Claim]) -> None:
    """Fill the empty folder `stage`; the executions decide which chapters appear and with which outputs."""
    stage.mkdir(parents=True)
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "journal*")
    shutil.copytree(book.root / "book", stage / "book", ignore=skip)
    shutil.copy(book.root / "_toc.yml", stage / "_toc.yml")
    (stage / "_config.yml").write_text(yaml.safe_dump(staged_config(book), sort_keys=False, allow_unicode=True), encoding="utf-8")
    (stage / "book" / "claims.md").write_text(claims_page(book, claims), encoding="utf-8")
    (stage / "book" / "run-status.md").write_text(status_page(book, executions, claims), encoding="utf-8")
    _copy_other_pages(book, stage)
    for folder in ("chapters", DOWNLOADS):
        (stage / folder).mkdir(exist_ok=True)
    for execution in executions:
        name = f"{execution.chapter.slug}.ipynb"
        page = page_notebook(book, execution, claims)
        (stage / "chapters" / name).write_text(json.dumps(page, ensure_ascii=False, indent=1), encoding="utf-8")
        shutil.copy(execution.chapter.path, stage / DOWNLOADS / name)


def staged_config(book: Book) -> dict:
    """`_config.yml` as Sphinx shall see it: nothing executes, and buttons that need the address exist only with it."""
    config = copy.deepcopy(book.config)
    config["execute"] = {"execute_notebooks": "off"}
    config["exclude_patterns"] = [*config.get("exclude_patterns", []), f"{DOWNLOADS}/**"]
    html = config.setdefault("html", {})
    if not book.address:
        config.pop("repository", None)
        config.pop("launch_buttons", None)
    for button in ("use_repository_button", "use_issues_button"):
        html[button] = bool(book.address)
    return config


def page_notebook(book: Book, execution: Execution, claims: Sequence[Claim]) -> dict:
    """The executed notebook as a page: the box after the title, numbered figures, links from verdicts to the ledger.

    Each cell remembers where in the stored chapter it begins (`metadata.hybridseq`: cell, line), for messages about the page.
    """
    notebook = copy.deepcopy(execution.notebook)
    cells: list[dict] = []
    for index, cell in enumerate(notebook["cells"]):
        cell.setdefault("metadata", {})["hybridseq"] = {"cell": index, "line": 0}
        cell["metadata"].pop("papermill", None)
        _link_to_ledger(cell)
        cells += number_figures(cell)
    title = title_cell(execution.chapter, cells)
    box = at_a_glance(book, execution, claims)
    notebook["cells"] = [*cells[:title], *_with_box(cells[title], box), *cells[title + 1 :]]
    notebook["metadata"].pop("papermill", None)
    return notebook


def title_cell(chapter: Chapter, cells: Sequence[dict]) -> int:
    """Position of the markdown cell with the `# Title`; BookFailed when the chapter is empty or has none."""
    for index, cell in enumerate(cells):
        if cell["cell_type"] == "markdown" and re.match(r"(\([^)\n]*\)=\n+)?# \S", source_of(cell).lstrip()):
            return index
    raise BookFailed(f"{chapter.label}: an empty page: no markdown cell begins with a title ('# ...')")


def _with_box(cell: dict, box: str) -> list[dict]:
    """The title's cell with the box after title and abstract, that is before its first section, if it has one."""
    lines = source_of(cell).splitlines(keepends=True)
    cut = next((number for number, line in enumerate(lines) if line.startswith("## ")), len(lines))
    origin = cell["metadata"]["hybridseq"]
    parts = [
        {**cell, "source": "".join(lines[:cut])},
        {"cell_type": "markdown", "id": "at-a-glance", "metadata": {"hybridseq": origin}, "source": box},
    ]
    if cut < len(lines):
        rest = {**cell["metadata"], "hybridseq": {**origin, "line": cut}}
        parts.append({**cell, "id": "after-the-box", "metadata": rest, "source": "".join(lines[cut:])})
    return parts


def _link_to_ledger(cell: dict) -> None:
    for output in cell.get("outputs", ()):
        html = output.get("data", {}).get("text/html")
        html = html if isinstance(html, str) or html is None else "".join(html)
        found = _CLAIM_BOX.search(html or "")
        if found and html.rstrip().endswith("</div>"):
            link = f'<a href="../book/claims.html#{ledger_anchor(found[1])}">{found[1]} in the ledger</a>'
            output["data"]["text/html"] = f"{html.rstrip().removesuffix('</div>')}<p class='claim-ledger'>{link}</p></div>"


def _copy_other_pages(book: Book, stage: Path) -> None:
    """Pages that lie neither in `book/` nor in `chapters/`; any page without a file, or without a word, stops the build."""
    problems = []
    for page in book.pages:
        if page.startswith("chapters/") or page in ("book/claims", "book/run-status"):
            continue
        source = next((book.root / f"{page}{end}" for end in (".md", ".ipynb") if (book.root / f"{page}{end}").is_file()), None)
        if source is None:
            problems.append(f"_toc.yml: page {page!r} has no file {page}.md")
        elif not source.read_text(encoding="utf-8").strip():
            problems.append(f"{source.relative_to(book.root)}: an empty page")
        elif not page.startswith("book/"):
            target = stage / source.relative_to(book.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    if problems:
        raise BookFailed(problems)
