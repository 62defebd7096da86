"""Will the two commands work here? One line a matter: what was found, and the fix where something is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from hybridseq.site.book import Book
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import find_execution
from hybridseq.site.keys import ORACLES, installed_version

_NEEDED = ("jupyter-book", "papermill", "ipykernel", "torch", "numpy", "psutil")
_MODULES = {"mamba-ssm": "mamba_ssm", "fla-core": "fla", "transformers": "transformers"}


@dataclass(frozen=True)
class Finding:
    """`state` is "ok", "note" (works, but something is not run here) or "fail" (the two commands will not work)."""

    state: str
    what: str
    fix: str = ""


def examine(book: Book) -> list[Finding]:
    """Everything that the doctor looks at, in the order in which it is printed."""
    return [python_version(), *needed_packages(), lock_agreement(book), browser(), *oracles(), compiler(), native_step(),
            cluster(), memory(), build_folder(book), *results(book), *sweeps(book)]


def python_version() -> Finding:
    return Finding("ok", f"Python {'.'.join(map(str, sys.version_info[:3]))} at {sys.prefix}")


def needed_packages() -> list[Finding]:
    missing = [name for name in _NEEDED if installed_version(name) is None]
    if missing:
        return [Finding("fail", f"not installed: {', '.join(missing)}", "`make book` installs them into .venv")]
    return [Finding("ok", "the packages that run and render chapters are installed")]


def lock_agreement(book: Book) -> Finding:
    """Installed versions against the constraints that the tested environment had."""
    lock = locked_versions(book.root)
    present = {_normal(d.metadata["Name"]): d.version for d in distributions() if d.metadata["Name"]}
    other = [f"{name} {present[name]} (lock {version})" for name, version in lock.items()
             if name in present and present[name].split("+")[0] != version]
    if other:
        return Finding("note", f"versions unlike the lock: {', '.join(other)}", "`make clean book` installs the locked ones")
    return Finding("ok", f"versions agree with the lock ({len(lock)} pins)")


def locked_versions(root: Path) -> dict[str, str]:
    """Pins of requirements/lock.txt and requirements/torch.txt, by normalised name."""
    pins = {}
    for name in ("lock.txt", "torch.txt"):
        path = root / "requirements" / name
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;#]+)", line):
                pins[_normal(match[1])] = match[2]
    return pins


def chromium_path() -> str | None:
    """A Chromium or Chrome on the path."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


def browser() -> Finding:
    path = chromium_path()
    if path:
        return Finding("ok", f"browser for the tests of the site: {path}")
    fix = "`sudo apt-get install chromium` (or your system's way); without it `make test` skips the browser tests"
    return Finding("note", "no Chromium: the site is not opened in a browser here", fix)


def oracles() -> list[Finding]:
    found = []
    for name in ORACLES:
        version = installed_version(name)
        if version and importlib.util.find_spec(_MODULES[name]):
            found.append(Finding("ok", f"oracle {name} {version}"))
        else:
            found.append(Finding("note", f"oracle {name}: not run here", "`make oracle` installs it"))
    return found


def compiler() -> Finding:
    path = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if path:
        return Finding("ok", f"C compiler: {path}")
    fix = "`sudo apt-get install gcc`, then `make clean book`, for sweeps at full speed"
    return Finding("note", "no C compiler; the two commands do not need one", fix)


def native_step() -> Finding:
    """The C code that trains the models of the learned chapters; without it they train in torch, several times slower."""
    from hybridseq.learning import native

    if native.available():
        return Finding("ok", "native training step: built for this processor")
    return Finding("note", f"sweeps train in torch, several times slower: {native.why_not()}", "as it says, or leave it so")


def cluster() -> Finding:
    version = installed_version("distributed")
    if version:
        return Finding("ok", f"sweeps can use a Dask cluster (distributed {version})")
    return Finding("note", "sweeps use the cores of this machine only", "`pip install 'hybridseq[cluster]'` for a Dask cluster")


def memory() -> Finding:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    except (ValueError, OSError):
        return Finding("note", "free memory unknown; a chapter needs up to 2 GB")
    if free < 2:
        return Finding("note", f"{free:.1f} GB of memory free; a chapter needs up to 2 GB", "run with --jobs 1, close programs")
    return Finding("ok", f"{free:.1f} GB of memory free")


def build_folder(book: Book) -> Finding:
    place = next(p for p in (book.build_dir, book.root) if p.exists())
    if not os.access(place, os.W_OK):
        return Finding("fail", f"{place} cannot be written", "check its owner and permissions")
    free = shutil.disk_usage(place).free / 1e9
    if free < 1:
        return Finding("note", f"{free:.1f} GB of disk free under {place}", "free some; a build needs about 0.2 GB")
    return Finding("ok", f"{free:.0f} GB of disk free")


def results(book: Book) -> list[Finding]:
    """Whether the executed chapters and the site belong to what is on disk now."""
    try:
        stale = [chapter.number for chapter in book.chapters if not find_execution(book, chapter, "quick")]
    except (BookFailed, OSError) as failure:
        return [Finding("fail", str(failure), "mend the file")]
    if stale:
        return [Finding("note", f"chapters without a current run: {', '.join(map(str, stale))}", "`make book` runs them")]
    return [Finding("ok", f"all {len(book.chapters)} chapters have a current run")]


def sweeps(book: Book) -> list[Finding]:
    """Whether the stored runs behind each learned figure are all there, and of the code that is here."""
    from hybridseq.learning import catalogue
    from hybridseq.learning.storage import read_results

    found, complete, incomplete = [], 0, []
    for name in catalogue.SWEEPS:
        sweep = catalogue.find(name)
        try:
            status = read_results(sweep, book.root / "book" / "results").status
        except (ValueError, OSError) as error:
            found.append(Finding("fail", f"sweep {name}: {error}", "mend the file"))
            continue
        complete += status.complete
        if not status.complete:
            stale = f", {len(status.stale)} stale" if status.stale else ""
            incomplete.append(f"{name} ({status.done} of {sweep.size} runs{stale})")
    if complete:
        found.append(Finding("ok", f"{complete} of {len(catalogue.SWEEPS)} sweeps have all their runs"))
    if incomplete:
        fix = "`hybridseq sweep NAME` trains what is missing"
        found.append(Finding("note", f"sweeps not complete: {', '.join(incomplete)}", fix))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
