"""Where a sweep's results lie: one folder a sweep, plain text, written so that no finished run is ever lost.

    runs.csv             one row a run, sorted: what a chapter reads, and what is kept under version control
    manifest.json        command, configuration, seeds by role, sources, versions, machines, what is missing and how to finish it
    representative.json  the parameters of one reported run, float32 in plain digits
    journal/             one small file a finished run, written in one step; not under version control
    journal/archive/     rows that were put aside

A sweep goes on from journal and runs.csv together, so it resumes after a kill as well as in a fresh copy of the project.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import math
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridseq.evidence.provenance import Manifest, write_atomically
from hybridseq.learning.sources import code_hash, sources
from hybridseq.learning.stack import Stack
from hybridseq.learning.sweep import ROLES, CodeOf, Row, Status, Sweep

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
"""Version of the files of a results folder."""

COLUMNS = tuple(field.name for field in fields(Row))
_READERS = {"int": int, "float": float, "str": str, "int | None": lambda text: int(text) if text else None}


class Locked(RuntimeError):
    """Another process is writing the folder: the message names it."""


def results_root(start: Path | str | None = None) -> Path:
    """`book/results` of the project that `start` (default: the working folder) lies in, else of this package's project.

    Raises:
        ValueError: neither lies in a project.
    """
    here = Path(start or Path.cwd()).resolve()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "_toc.yml").is_file() and (folder / "book").is_dir():
            return folder / "book" / "results"
    raise ValueError(f"start={str(here)!r}: no project here or above (a folder with _toc.yml and book/); name the results folder")


# --------------------------------------------------------------------------------------------------------------------- rows


def rows_to_csv(rows: Iterable[Row]) -> str:
    """runs.csv of these rows, sorted; numbers in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=_order):
        writer.writerow(["" if value is None else repr(value) if isinstance(value, float) else value
                         for value in asdict(row).values()])
    return text.getvalue()


def _order(row: Row) -> tuple:
    return (row.task, row.layers, row.width, row.window or 0, row.label, row.role, row.learning_rate, row.seed, row.key, row.code)


def rows_from_csv(text: str, name: str = "runs.csv") -> list[Row]:
    """The rows of a runs.csv.

    Raises:
        ValueError: other columns than this version writes, or a line that does not fit.
    """
    lines = csv.reader(io.StringIO(text))
    header = tuple(next(lines, ()))
    if header != COLUMNS:
        raise ValueError(f"{name}: its columns are not those of this version ({_difference(header)}); read it with the version "
                         "that wrote it, or let `--results` name another folder")
    rows = []
    for number, line in enumerate(lines, 2):
        if len(line) > len(COLUMNS):
            raise ValueError(f"{name}, line {number}: {len(line)} values for {len(COLUMNS)} columns; take the line away, "
                             "its run is then trained again")
        rows.append(_row(dict(zip(COLUMNS, line, strict=False)), f"{name}, line {number}"))
    return rows


def _difference(header: tuple[str, ...]) -> str:
    parts = [f"{word} {', '.join(names)}" for word, names in (
        ("missing:", [c for c in COLUMNS if c not in header]), ("unknown:", [c for c in header if c not in COLUMNS])) if names]
    return "; ".join(parts) or "another order"


def _row(values: dict[str, Any], place: str) -> Row:
    try:
        row = Row(**{f.name: _READERS[f.type](values[f.name]) for f in fields(Row)})
        _check_values(row)
        return row
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place}: not a row of this version ({type(error).__name__}: {error}); "
                         "take the line or file away, its run is then trained again") from error


def _check_values(row: Row) -> None:
    """A finished run has a share of correct answers, whatever its losses are; ValueError for what no run can have written."""
    if row.role not in ROLES:
        raise ValueError(f"role={row.role!r}, must be one of {', '.join(ROLES)}")
    if not (0 <= row.correct <= row.valid and 0 <= row.accuracy <= 1):
        raise ValueError(f"accuracy={row.accuracy!r}, {row.correct} correct of {row.valid}")
    if row.valid and abs(row.accuracy - row.correct / row.valid) > 1e-7:
        raise ValueError(f"accuracy={row.accuracy!r}, but {row.correct} of {row.valid} are correct")
    if not (0 <= row.seconds < math.inf):
        raise ValueError(f"seconds={row.seconds!r}, must be finite and >= 0")
    if not row.losses and row.steps:
        raise ValueError("curve holds no numbers")


# ------------------------------------------------------------------------------------------------------------------- folder


@dataclass(frozen=True)
class Folder:
    """The results folder of one sweep; nothing is created before something is written."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs.csv"

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    @property
    def representative_path(self) -> Path:
        return self.path / "representative.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    def check(self, name: str) -> None:
        """Refuse a folder of another version, or of another sweep.

        Raises:
            ValueError: with what to do.
        """
        manifest = self.manifest()
        if manifest and manifest.get("format") != FORMAT:
            raise ValueError(
                f"{self.path}: written in format {manifest.get('format')!r}, this version reads format {FORMAT}; use the version "
                "that wrote it, or let `--results` name another folder"
            )
        if manifest and manifest.get("config", {}).get("name") != name:
            raise ValueError(f"{self.path}: holds the sweep {manifest.get('config', {}).get('name')!r}, not {name!r}; "
                             "let `--results` name another folder")

    def manifest(self) -> dict[str, Any]:
        """manifest.json as plain data, empty when there is none; ValueError when it is not JSON."""
        if not self.manifest_path.exists():
            return {}
        try:
            manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.manifest_path}: not JSON ({error}); take it away, the sweep writes it again") from error
        if not isinstance(manifest, dict):
            raise ValueError(f"{self.manifest_path}: not an object; take it away, the sweep writes it again")
        for name, kind in (("config", dict), ("machines", list), ("sessions", list), ("renewed", list)):
            if not isinstance(manifest.get(name, kind()), kind):
                raise ValueError(f"{self.manifest_path}: {name} is no {kind.__name__}; take the file away, the sweep writes "
                                 "it again")
        return manifest

    def rows(self) -> list[Row]:
        """All that is stored, runs.csv first; one row for each key and code."""
        try:
            text = self.runs.read_text(encoding="utf-8") if self.runs.exists() else ""
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.runs}: not text ({error}); take it away, what the journal does not hold is then trained "
                             "again") from error
        stored = rows_from_csv(text, str(self.runs)) if self.runs.exists() else []
        for path in sorted(self.journal.glob("[0-9a-f]*.json")):
            stored.append(_journal_row(path))
        return list({(row.key, row.code): row for row in reversed(stored)}.values())[::-1]

    def add(self, row: Row) -> None:
        """Keep a finished run: one file, there whole or not at all."""
        write_atomically(self.journal / f"{row.key}-{row.code}.json", json.dumps(asdict(row), indent=0) + "\n")

    def write(self, rows: Iterable[Row], manifest: dict[str, Any]) -> None:
        """Write runs.csv and manifest.json; the journal stays."""
        write_atomically(self.manifest_path, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        write_atomically(self.runs, rows_to_csv(rows))

    def archive(self, rows: Iterable[Row]) -> Path | None:
        """Put rows aside: they leave runs.csv and the journal, and lie in a file of their own under journal/archive/."""
        aside = {(row.key, row.code): row for row in rows}
        if not aside:
            return None
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
        path = next(p for n in range(1000) if not (p := self.journal / "archive" / f"{stamp}{f'-{n}' if n else ''}.csv").exists())
        write_atomically(path, rows_to_csv(aside.values()))
        write_atomically(self.runs, rows_to_csv(row for row in self.rows() if (row.key, row.code) not in aside))
        for key, code in aside:
            (self.journal / f"{key}-{code}.json").unlink(missing_ok=True)
        return path

    @contextmanager
    def lock(self) -> Iterator[str]:
        """Be the only writer. Yields a note about an earlier writer that was killed, or ''.

        The system gives the lock back when its holder ends, however it ends.

        Raises:
            Locked: another process holds it.
        """
        self.journal.mkdir(parents=True, exist_ok=True)
        path = self.journal / "lock"
        with open(path, "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Locked(f"{self.path}: another sweep is writing here ({_holder(path)}); let it end, or stop it") from error
            note = f"an earlier sweep ({_holder(path)}) was killed; going on from what it finished" if path.stat().st_size else ""
            _write_holder(file)
            self._sweep_up()
            try:
                yield note
            finally:
                file.seek(0)
                file.truncate()

    def _sweep_up(self) -> None:
        """Take away half-written files that a killed writer left."""
        for folder in (self.path, self.journal):
            for path in folder.glob(".*.json.*"):
                path.unlink(missing_ok=True)
            for path in folder.glob(".*.csv.*"):
                path.unlink(missing_ok=True)


def _journal_row(path: Path) -> Row:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); take it away, its run is then trained again") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: not a row; take it away, its run is then trained again")
    return _row({name: value if value is not None else "" for name, value in values.items()}, str(path))


def _write_holder(file) -> None:
    file.seek(0)
    file.truncate()
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    file.write(json.dumps(holder))
    file.flush()


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "process unknown"


# ----------------------------------------------------------------------------------------------------------------- manifest


def make_manifest(
    status: Status, command: str, previous: dict[str, Any], session: dict[str, Any] | None = None,
    renewed: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """What manifest.json says about the rows that count.

    `previous` is the manifest before; the machines, sessions and renewals it names are kept. `session` is the call that writes:
    began, minutes, jobs, trained; it replaces the one that began at the same time.
    """
    sweep, rows = status.sweep, status.current
    backends = sorted({row.backend for row in rows})
    files: dict[str, str] = {}
    for backend in backends:
        for point in sweep.points:
            try:
                files |= sources(backend, point.task)
            except ValueError:
                continue
    manifest = Manifest(command, sweep.config, sweep.seeds, dict(sorted(files.items())), sweep.rule).as_dict()
    here = manifest.pop("machine")
    machines = previous.get("machines", [])
    machines = machines if here in machines else [*machines, here]
    sessions = previous.get("sessions", [])
    if session and session["trained"]:
        others = [s for s in sessions if s["began"] != session["began"]]
        sessions = [*others, session | {"machine": machines.index(here)}]
    return {
        "format": FORMAT,
        **manifest,
        "machines": machines,
        "sessions": sessions,
        "complete": status.complete,
        "cells": {"done": status.done, "of": sweep.size},
        "missing": _missing(status),
        "finish": None if status.complete else f"hybridseq sweep {sweep.name}",
        "stale": len(status.stale),
        "chosen": {point.label: status.chosen(point) for point in sweep.points},
        "code": {backend: sorted({row.code for row in rows if row.backend == backend}) for backend in backends},
        "core_minutes": round(sum(row.seconds for row in rows) / 60, 1),
        "renewed": [*previous.get("renewed", []), *renewed],
    }


def _missing(status: Status) -> dict[str, int]:
    missing = {}
    for point in status.sweep.points:
        count = sum(len(status.missing(point, role)) for role in ROLES) + status.waiting(point)
        if count:
            missing[point.label] = count
    return missing


# ----------------------------------------------------------------------------------------------------------- representative


def representative_row(status: Status) -> Row | None:
    """The reported run of median accuracy of the sweep's representative point; None while that point is not complete."""
    if status.sweep.representative is None:
        return None
    point = status.sweep.point(status.sweep.representative)
    rows = status.rows(point, "report")
    if len(rows) < len(status.sweep.report_seeds):
        return None
    ordered = sorted(rows, key=lambda row: (row.accuracy, row.seed))
    return ordered[(len(ordered) - 1) // 2]


def representative_to_json(row: Row, again: Row, stack: Stack, task: dict[str, Any], parameters: np.ndarray) -> str:
    """The text of representative.json: the row, whether training it again gave the same, and a line a parameter tensor.

    Values are float32 in the shortest digits that give them back.
    """
    flat = np.asarray(parameters, dtype=np.float32)
    tensors = [f"  {json.dumps(name)}: [{', '.join(_digits(value.ravel()))}]" for name, value in stack.unpack(flat).items()]
    head = {
        "format": FORMAT, "row": asdict(row), "trained_again": {"same": again.result == row.result, "correct": again.correct,
                                                              "final_loss": again.final_loss, "backend": again.backend},
        "stack": stack.config, "task": task, "shapes": {name: list(shape) for name, shape in stack.shapes()},
    }  # fmt: skip
    return json.dumps(head, indent=1)[:-2] + ',\n "parameters": {\n' + ",\n".join(tensors) + "\n }\n}\n"


def _digits(values: np.ndarray) -> list[str]:
    """Shortest digits of float32 values, in JSON's spelling."""
    spelled = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [spelled.get(text, text) for text in map(str, values)]


@dataclass(frozen=True)
class Representative:
    """One trained model: its row, its architecture and its parameters (size,) in float32."""

    row: Row
    stack: Stack
    parameters: np.ndarray


def read_representative(path: Path) -> Representative:
    """What representative.json holds.

    Raises:
        ValueError: no such file, another format, or a number of parameters that is not the architecture's.
    """
    if not path.exists():
        raise ValueError(f"{path}: not there; the sweep writes it when its representative point's reported runs are complete")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); take it away, the sweep writes it again") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise ValueError(f"{path}: written in format {found!r}, this version reads format {FORMAT}")
    try:
        config = dict(data["stack"])
        stack = Stack.parse(config.pop("layers"), **config)
        parts = [np.array(data["parameters"][name], dtype=np.float32) for name, _ in stack.shapes()]
        if bad := [name for part, (name, shape) in zip(parts, stack.shapes(), strict=True) if part.shape != (math.prod(shape),)]:
            raise ValueError(f"{bad[0]} has another number of values than its shape")
        row = _row({k: "" if v is None else v for k, v in data["row"].items()}, str(path))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not a stored model ({type(error).__name__}: {error}); take it away, then make it "
                         "again") from error
    return Representative(row, stack, np.concatenate(parts))


# ------------------------------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class Results:
    """A sweep with its stored runs, for reading: `status` has the rows by point and phase."""

    sweep: Sweep
    folder: Folder
    status: Status
    manifest: dict[str, Any]

    @property
    def rows(self) -> list[Row]:
        """The rows that count, in the order of the sweep; stale ones are not among them."""
        return self.status.current

    def table(self) -> pd.DataFrame:
        """`rows` as a table with the columns of runs.csv, for `hybridseq.learning.reports`."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows], columns=COLUMNS)

    @property
    def complete_points(self) -> list[str]:
        """Labels of the points with a chosen learning rate and every run to report, in the order of the sweep."""
        status = self.status
        return [p.label for p in self.sweep.points if status.chosen(p) and not status.missing(p, "report")]

    def complete_runs(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The runs of the complete points as two tables, those that choose a learning rate and those that are reported."""
        runs = self.table()
        runs = runs[runs["label"].isin(self.complete_points)]
        return tuple(runs[runs["role"] == role] for role in ROLES)

    def representative(self) -> Representative:
        """The stored model. Raises ValueError when there is none."""
        return read_representative(self.folder.representative_path)

    @property
    def notice(self) -> str:
        """'' when every run is there and current; else a sentence that says what is missing, and the command that mends it."""
        command, parts = f"hybridseq sweep {self.sweep.name}", []
        if not self.status.complete:
            parts.append(f"{self.status.done} of {self.sweep.size} runs are there; `{command}` trains the rest")
        if self.status.stale:
            parts.append(f"{len(self.status.stale)} stored runs were made by other code and are left out; "
                         f"`{command} --dry-run` says which")
        return ". ".join(parts)


def read_results(sweep: Sweep, root: Path | str | None = None, code_of: CodeOf = code_hash) -> Results:
    """The stored runs of a sweep; `root` is the folder of all results, by default `results_root()`.

    Raises:
        ValueError: a folder of another version or of another sweep, or a file in it that cannot be read.
    """
    folder = Folder(Path(root or results_root()) / sweep.name)
    folder.check(sweep.name)
    return Results(sweep, folder, Status(sweep, folder.rows(), code_of), folder.manifest())
