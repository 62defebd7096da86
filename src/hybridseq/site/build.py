"""Build the site from current executions: check, stage, render strictly, check what came out, then swap it in."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridseq.site.book import Book, Chapter, cell_name
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import Execution, Report, file_lock, run_chapters
from hybridseq.site.figures import check_figures
from hybridseq.site.keys import installed_version
from hybridseq.site.ledger import check_claims, load_ledger, merge
from hybridseq.site.links import check_site
from hybridseq.site.stage import DOWNLOADS, stage_book

_KEY_FILE = ".site-key"
_RENDERERS = ("jupyter-book", "sphinx", "myst-nb", "sphinx-book-theme", "sphinx-proof", "sphinx-exercise", "sphinxcontrib-bibtex")
_PLACE = r"(?P<file>[^\s:]+\.(?:ipynb|md|rst|bib|yml))(?::(?P<line>\d+))?:? ?"
_WARNING = re.compile(_PLACE + r"(?P<text>(?:WARNING|ERROR|CRITICAL|SEVERE).*)")
_LINES_A_CELL = 10000  # myst-nb numbers the lines of cell i (from 0) from (i + 1) * 10000


@dataclass(frozen=True)
class Site:
    """A site that stands: where it opens, and whether this call had anything to do."""

    index: Path
    rebuilt: bool


def check_executions(book: Book, executions: Sequence[Execution]) -> None:
    """Claims and figures of executed chapters; BookFailed lists what is wrong, by chapter and cell."""
    entries = load_ledger(book)
    problems = [problem for execution in executions for problem in check_claims(entries, execution)]
    problems += check_figures(executions)
    if problems:
        raise BookFailed(problems)


def build_site(
    book: Book,
    profile: str = "quick",
    jobs: int = 2,
    force: bool = False,
    report: Report | None = None,
    on_render: Callable[[], None] | None = None,
) -> Site:
    """Execute what changed, then render; the site before stays in place until the new one is whole and checked.

    `report` hears of the chapters, `on_render` is called when rendering begins (not when nothing has changed).
    Raises BookFailed with every problem found, each naming chapter (or page) and cell.
    """
    load_ledger(book)
    executions = run_chapters(book, None, profile, jobs=jobs, force=force, report=report)
    check_executions(book, executions)
    with file_lock(book.build_dir / "locks" / "site.lock"):
        try:
            return _render(book, profile, executions, on_render or (lambda: None))
        except OSError as error:
            raise BookFailed(f"the site: {error.strerror or error} ({error.filename}); the previous site is untouched") from error


def _render(book: Book, profile: str, executions: Sequence[Execution], on_render: Callable[[], None]) -> Site:
    _recover(book)
    index = book.site_dir / "index.html"
    stage, draft = book.build_dir / "stage", book.build_dir / "site-draft"
    for folder in (stage, draft):
        shutil.rmtree(folder, ignore_errors=True)
    stage_book(book, stage, executions, merge(book, profile))
    key = _site_key(stage)
    if index.is_file() and _stored_key(book.site_dir) == key:
        shutil.rmtree(stage, ignore_errors=True)
        return Site(index, rebuilt=False)
    on_render()
    _run_sphinx(book, stage, draft, executions)
    html = draft / "_build" / "html"
    problems = check_site(html, book.pages)
    if problems:
        raise BookFailed(problems)
    _offer_stored_notebooks(stage, html)
    (html / _KEY_FILE).write_text(key, encoding="utf-8")
    _swap(html, book.site_dir)
    for folder in (stage, draft):
        shutil.rmtree(folder, ignore_errors=True)
    return Site(index, rebuilt=True)


def _run_sphinx(book: Book, stage: Path, draft: Path, executions: Sequence[Execution]) -> None:
    """jupyter-book, every warning an error, its words in `_build/site.log`."""
    draft.mkdir(parents=True)
    log = book.build_dir / "site.log"
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(stage),
               "--path-output", str(draft), "--all", "-W", "-n", "--keep-going", "-q"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    finished = subprocess.run(command, cwd=stage, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    log.write_text(finished.stdout, encoding="utf-8")
    problems = page_problems(finished.stdout, book, stage, executions)
    if finished.returncode == 0 and not problems:
        return
    if not problems:
        tail = [line for line in finished.stdout.splitlines() if line.strip()][-8:]
        problems = ["jupyter-book failed:\n" + "\n".join(f"    {line}" for line in tail)]
    raise BookFailed([*problems, f"the whole log: {log}; the previous site is untouched"])


def page_problems(log: str, book: Book, stage: Path, executions: Sequence[Execution]) -> list[str]:
    """The warnings of a Sphinx log, with places in staged notebooks told as chapter and cell of the stored chapter."""
    import json

    chapters = {f"{execution.chapter.slug}.ipynb": execution.chapter for execution in executions}
    cells = {name: json.loads((stage / "chapters" / name).read_text(encoding="utf-8"))["cells"] for name in chapters}
    problems = []
    for line in log.splitlines():
        match = _WARNING.search(re.sub(r"\x1b\[[0-9;]*m", "", line))
        if not match:
            continue
        name = Path(match["file"]).name
        if name in chapters:
            where = _cell_of_line(chapters[name], cells[name], match["line"])
        else:
            where = match["file"].removeprefix(f"{stage}/") + (f", line {match['line']}" if match["line"] else "")
        problems.append(f"{where}: {match['text']}")
    return list(dict.fromkeys(problems))


def _cell_of_line(chapter: Chapter, cells: Sequence[dict], line: str | None) -> str:
    number = int(line or 0)
    index = number // _LINES_A_CELL - 1
    if not 0 <= index < len(cells):
        return chapter.label
    origin = cells[index]["metadata"]["hybridseq"]
    stored = chapter.notebook()["cells"]
    shown = stored[origin["cell"]] if origin["cell"] < len(stored) else None
    return f"{cell_name(chapter, origin['cell'], shown)}, near line {origin['line'] + number % _LINES_A_CELL}"


def _site_key(stage: Path) -> str:
    digest = hashlib.sha256(repr([(name, installed_version(name)) for name in _RENDERERS]).encode())
    for source in (stage, Path(__file__).parent):
        for path in sorted(p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            digest.update(f"{path.relative_to(source).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _stored_key(site: Path) -> str:
    path = site / _KEY_FILE
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _offer_stored_notebooks(stage: Path, html: Path) -> None:
    """The theme's own download button gives the stored chapter too, not the staged page."""
    for path in (stage / DOWNLOADS).glob("*.ipynb"):
        if (shown := html / "_sources" / "chapters" / path.name).is_file():
            shutil.copy(path, shown)


def _swap(new: Path, place: Path) -> None:
    """Two renames; `_recover` mends the case that the machine stops between them."""
    previous = place.with_name("html.previous")
    shutil.rmtree(previous, ignore_errors=True)
    if place.exists():
        place.rename(previous)
    new.rename(place)
    shutil.rmtree(previous, ignore_errors=True)


def _recover(book: Book) -> None:
    previous = book.site_dir.with_name("html.previous")
    if previous.exists() and not book.site_dir.exists():
        previous.rename(book.site_dir)
