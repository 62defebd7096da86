"""Execute chapters through papermill, several at a time, once per content key.

A finished execution is one folder `_build/executed/<profile>/<slug>-<key>/` with the notebook, the claims it recorded and
the record of the run. It is written beside its place and renamed into it, so that after an interrupt, a failure or a full
disk every older execution is still whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from hybridseq.site.book import Book, Chapter, cell_name, check_profile
from hybridseq.site.errors import BadInput, BookFailed
from hybridseq.site.keys import ORACLES, execution_key, installed_version

KEY_LENGTH = 16
CELL_SECONDS = {"quick": 900, "full": None}
Report = Callable[[str, Chapter, dict[str, Any]], None]


@dataclass(frozen=True)
class Execution:
    """One finished execution on disk."""

    chapter: Chapter
    profile: str
    key: str
    folder: Path

    @property
    def notebook_path(self) -> Path:
        return self.folder / f"{self.chapter.slug}.ipynb"

    @cached_property
    def notebook(self) -> dict:
        return json.loads(self.notebook_path.read_text(encoding="utf-8"))

    @cached_property
    def claims(self) -> list[dict]:
        """The verdicts that this execution recorded, as the evidence room wrote them."""
        return json.loads((self.folder / "claims.json").read_text(encoding="utf-8"))

    @cached_property
    def record(self) -> dict:
        """Time, memory, versions and machine of the run."""
        return json.loads((self.folder / "run.json").read_text(encoding="utf-8"))


def find_execution(book: Book, chapter: Chapter, profile: str, parameters: dict | None = None) -> Execution | None:
    """The execution that belongs to what is on disk now, or None when the chapter has to be run (again)."""
    if not chapter.path.is_file():
        return None
    key = execution_key(book, chapter, profile, parameters)
    folder = _place(book, chapter, profile, key, parameters)
    return Execution(chapter, profile, key, folder) if (folder / "run.json").is_file() else None


def has_stale_execution(book: Book, chapter: Chapter, profile: str) -> bool:
    """Whether an execution of an earlier state of the chapter or of what it reads lies there."""
    return any(book.executed_dir(profile).glob(f"{chapter.slug}-*/run.json"))


def run_chapters(
    book: Book,
    chapters: Sequence[Chapter] | None = None,
    profile: str = "quick",
    parameters: dict[str, Any] | None = None,
    jobs: int = 2,
    force: bool = False,
    report: Report | None = None,
) -> list[Execution]:
    """Execute what has no current execution, `jobs` chapters at a time; returns one execution a chapter, in order.

    All chapters are tried; then BookFailed lists every failure with chapter and cell. Unknown profile or parameter:
    BadInput, before anything runs.
    """
    check_profile(profile)
    if jobs < 1:
        raise BadInput(f"--jobs: {jobs} is not allowed; it must be 1 or more")
    chapters = list(book.chapters if chapters is None else chapters)
    for chapter in chapters:
        check_parameters(chapter, parameters or {})
    stop = threading.Event()
    runs = [_Run(book, chapter, profile, parameters or {}, force, report or _silent, stop) for chapter in chapters]
    pool = ThreadPoolExecutor(max_workers=jobs)
    futures = [pool.submit(run.execution) for run in runs]
    try:
        outcomes = [_outcome(future) for future in futures]
    except BaseException:
        # An interrupt: end the kernels first, or the pool would wait for them.
        stop.set()
        for run in runs:
            run.end()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    problems = [problem for outcome in outcomes if isinstance(outcome, BookFailed) for problem in outcome.problems]
    if problems:
        raise BookFailed(problems)
    return outcomes


def declared_parameters(chapter: Chapter) -> dict[str, Any]:
    """The names in the chapter's `parameters` cell with the text of their defaults, read by papermill, not run."""
    import papermill

    chapter.notebook()
    with _quiet_papermill():
        return {name: info["default"] for name, info in papermill.inspect_notebook(str(chapter.path)).items()}


def check_parameters(chapter: Chapter, parameters: dict[str, Any]) -> None:
    """Every given name must be declared; `profile` must be declared with the default "quick".

    Raises BadInput for a name the chapter lacks, BookFailed for a chapter whose parameters cell is not as agreed.
    """
    declared = declared_parameters(chapter)
    if str(declared.get("profile", "")).strip("\"'") != "quick":
        raise BookFailed(f'{chapter.label}: its cell tagged "parameters" must set profile = "quick"')
    if "profile" in parameters:
        raise BadInput("--parameter: 'profile' is set by --profile")
    for name in parameters:
        if name not in declared:
            allowed = ", ".join(sorted(set(declared) - {"profile"})) or "none"
            raise BadInput(f"--parameter: {name!r} is unknown to {chapter.label}; allowed: {allowed}")


class _Run:
    """The execution of one chapter: waits for its lock, looks for a finished one, else runs the worker."""

    def __init__(self, book: Book, chapter: Chapter, profile: str, parameters: dict, force: bool, report: Report,
                 stop: threading.Event) -> None:
        self.book, self.chapter, self.profile, self.parameters = book, chapter, profile, parameters
        self.force, self.report, self.stop = force, report, stop
        self.process: subprocess.Popen | None = None

    def execution(self) -> Execution:
        with chapter_lock(self.book, self.chapter, self.profile):
            found = None if self.force else find_execution(self.book, self.chapter, self.profile, self.parameters)
            if found:
                self.report("cached", self.chapter, found.record)
                return found
            try:
                return self._run()
            except BookFailed:
                self.report("failed", self.chapter, {})
                raise
            except OSError as error:
                raise BookFailed(f"{self.chapter.label}: cannot store the execution: {error.strerror or error} "
                                 f"({error.filename or self.book.build_dir}); earlier results are untouched") from error

    def _run(self) -> Execution:
        key = execution_key(self.book, self.chapter, self.profile, self.parameters)
        place = _place(self.book, self.chapter, self.profile, key, self.parameters)
        draft = place.parent / f".draft-{self.chapter.slug}"
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "claims").mkdir(parents=True)
        try:
            began = datetime.now(UTC)
            result = self._work(draft)
            if "error" in result:
                raise BookFailed(self._failure(result["error"], draft))
            if execution_key(self.book, self.chapter, self.profile, self.parameters) != key:
                raise BookFailed(f"{self.chapter.label}: its sources changed while it ran; the result was dropped, run again")
            _write_json(draft / "claims.json", read_claims(draft / "claims"))
            written = {name: file_sum(draft / name) for name in ("claims.json", f"{self.chapter.slug}.ipynb")}
            record = {**run_record(self.chapter, self.profile, self.parameters, key, began, result), "sha256": written}
            _write_json(draft / "run.json", record)
            shutil.rmtree(draft / "claims")
            shutil.rmtree(draft / "ipython", ignore_errors=True)
            _put_in_place(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _drop_older(place, self.chapter)
        self.report("done", self.chapter, record)
        return Execution(self.chapter, self.profile, key, place)

    def _work(self, draft: Path) -> dict[str, Any]:
        if self.stop.is_set():
            raise BookFailed(f"{self.chapter.label}: stopped before it ran")
        parameters = {**self.parameters, **({"profile": self.profile} if self.profile != "quick" else {})}
        spec = {
            "notebook": str(self.chapter.path),
            "output": str(draft / f"{self.chapter.slug}.ipynb"),
            "parameters": parameters,
            "cwd": str(self.chapter.path.parent),
            "timeout": CELL_SECONDS[self.profile],
        }
        self.report("started", self.chapter, {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hybridseq.site.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=kernel_environment(self.chapter, draft), start_new_session=True,
        )
        errors: list[str] = []
        listener = threading.Thread(target=lambda: errors.extend(self.process.stderr), daemon=True)
        listener.start()
        # The pipe stays open: that it closes tells the worker that this process is gone.
        self.process.stdin.write(json.dumps(spec) + "\n")
        self.process.stdin.flush()
        last: dict[str, Any] = {}
        for line in self.process.stdout:
            last = json.loads(line)
            if "cell" in last:
                self.report("cell", self.chapter, last)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        listener.join(timeout=5)
        if "ok" in last or "error" in last:
            return last
        reason = "stopped" if self.stop.is_set() else f"worker ended with code {self.process.returncode}"
        return {"error": {"cell": last.get("cell"), "name": reason, "value": "".join(errors[-5:]).strip(), "traceback": []}}

    def _failure(self, error: dict[str, Any], draft: Path) -> str:
        """One message that names chapter and cell, with the end of the traceback; keeps the half-run notebook to read."""
        kept = self.book.build_dir / "failed" / f"{self.chapter.slug}.ipynb"
        half = draft / f"{self.chapter.slug}.ipynb"
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(half, kept)
        index = error["cell"]
        # An injected cell for parameters shifts what comes after the parameters cell by one.
        cells = self.chapter.notebook()["cells"]
        shift = 1 if (self.parameters or self.profile != "quick") else 0
        place = next((i for i, c in enumerate(cells) if "parameters" in c.get("metadata", {}).get("tags", [])), len(cells))
        if index is not None and shift and index > place:
            index -= 1
        where = self.chapter.label if index is None else cell_name(self.chapter, index, cells[index])
        trace = [line for line in _plain("\n".join(error["traceback"])).splitlines() if line.strip()]
        lines = [f"{where}: {error['name']}: {error['value']}", *(f"    {line}" for line in trace[-12:])]
        if kept.is_file():
            lines.append(f"    the notebook up to there: {kept}")
        return "\n".join(lines)

    def end(self) -> None:
        """End the worker and the kernel that it started."""
        if self.process is None or self.process.poll() is not None:
            return
        import psutil

        with contextlib.suppress(psutil.Error):
            worker = psutil.Process(self.process.pid)
            for process in [*worker.children(recursive=True), worker]:
                with contextlib.suppress(psutil.Error):
                    process.kill()


def kernel_environment(chapter: Chapter, draft: Path) -> dict[str, str]:
    """One thread a chapter, a fixed hash seed, no user start-up files, and where claims are recorded."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
    drop = {"MPLBACKEND", "PYTHONSTARTUP"}
    return {
        **{name: value for name, value in os.environ.items() if name not in drop},
        **threads,
        "PYTHONHASHSEED": "0",
        "IPYTHONDIR": str(draft / "ipython"),
        "HYBRIDSEQ_CLAIMS": str(draft / "claims"),
        "HYBRIDSEQ_CHAPTER": str(chapter.number),
    }


def run_record(chapter: Chapter, profile: str, parameters: dict, key: str, began: datetime, result: dict) -> dict:
    """What the run-status page and the box at the top of a chapter show."""
    packages = ("numpy", "torch", "matplotlib", "python-flint", "z3-solver", "papermill", "jupyter-book")
    return {
        "chapter": chapter.number,
        "slug": chapter.slug,
        "profile": profile,
        "parameters": parameters,
        "key": key,
        "began": began.isoformat(timespec="seconds"),
        "wall_s": round(result["wall_s"], 2),
        "cpu_s": round(result["cpu_s"], 2),
        "peak_mb": round(result["peak_mb"], 1),
        "python": platform.python_version(),
        "platform": platform.system(),
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "versions": {name: installed_version(name) for name in packages},
        "oracles": {name: installed_version(name) for name in ORACLES},
    }


def file_sum(path: Path) -> str:
    """sha256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def read_claims(folder: Path) -> list[dict]:
    """The records that the evidence room wrote into the folder, as one list."""
    found: list[dict] = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found += content if isinstance(content, list) else content.get("claims", [])
    return found


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; a second process, or a second thread, waits here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def chapter_lock(book: Book, chapter: Chapter, profile: str) -> contextlib.AbstractContextManager[None]:
    return file_lock(book.build_dir / "locks" / f"{profile}-{chapter.slug}.lock")


def _place(book: Book, chapter: Chapter, profile: str, key: str, parameters: dict | None) -> Path:
    # Runs with parameters of a reader's own lie apart: they never count for the ledger or the site.
    folder = book.executed_dir(f"{profile}-parameters" if parameters else profile)
    return folder / f"{chapter.slug}-{key[:KEY_LENGTH]}"


def _put_in_place(draft: Path, place: Path) -> None:
    """Rename the finished draft to its place; an execution that was there before (a forced run) makes way."""
    if place.exists():
        old = place.with_name(f".old-{place.name}")
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
        draft.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    else:
        draft.rename(place)


def _drop_older(place: Path, chapter: Chapter) -> None:
    for other in place.parent.glob(f"{chapter.slug}-*"):
        if other != place and len(other.name) == len(place.name):
            shutil.rmtree(other, ignore_errors=True)


def _write_json(path: Path, content: object) -> None:
    with path.open("w", encoding="utf-8") as handle:
        json.dump(content, handle, indent=1, ensure_ascii=False)
        handle.flush()
        os.fsync(handle.fileno())


def _outcome(future: Any) -> Execution | BookFailed:
    try:
        return future.result()
    except BookFailed as failure:
        return failure


def _plain(text: str) -> str:
    """Text without terminal colours."""
    import re

    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


def _silent(event: str, chapter: Chapter, info: dict[str, Any]) -> None:
    return None


@contextlib.contextmanager
def _quiet_papermill() -> Iterator[None]:
    import logging
    import warnings

    logger = logging.getLogger("papermill")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
