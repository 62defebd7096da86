"""Training the cells of a sweep: on the cores of this machine, or on a Dask cluster, and back into the results folder.

joblib hands the cells out; this process alone writes, one small file a finished run. Whatever happens to it or to a worker, a
finished run stays finished: an interrupt waits for the file that is being written, a killed worker's cells are handed out again,
and a cell that raises is reported while the others go on.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from hybridseq.evidence.provenance import write_atomically
from hybridseq.learning.recipe import Outcome, Run
from hybridseq.learning.sources import FILES, code_hash
from hybridseq.learning.storage import Folder, make_manifest, representative_row, representative_to_json
from hybridseq.learning.sweep import ROLES, Cell, CodeOf, Pace, Point, Row, Status, Sweep, remaining, rounds

Train = Callable[[Run], Outcome]
Report = Callable[[str, dict[str, Any]], None]
"""Called with "note" {text}, "started" {status, left_s}, "cell" {cell, row, status, left_s}, "failed" {cell, why}."""

_CONNECT_S = 10
_BREAKS_IN_A_ROW = 3
_CELLS_A_WORKER = 8


@dataclass(frozen=True)
class BackendTrain:
    """The trainers of `hybridseq.learning.backends`, by name; a worker imports them at its first cell."""

    backend: str = "auto"

    def __call__(self, run: Run) -> Outcome:
        return _backends().train(run, backend=self.backend)

    def together(self, runs: Sequence[Run]) -> list[Outcome]:
        """Runs of one phase of a point, side by side where the trainer can."""
        return [outcome for _, outcome in _backends().train_many(runs, self.backend)]

    def group(self, cell: Cell) -> int:
        """How many cells like this one are best trained in one call."""
        return _backends().REPLICAS if _backends().choose(cell.run, self.backend).backend == "ensemble" else 1

    def check(self, sweep: Sweep, points: Iterable[Point]) -> tuple[str, str]:
        """The backend of the first of these points, and why "auto" does not give all to the native trainer ('' if it does).

        Raises:
            ValueError: an unknown backend, one that is not available here, or one that does not reach a point.
        """
        chosen = {}
        for point in points:
            try:
                chosen[point.label] = _backends().choose(sweep.select_cells(point)[0].run, self.backend)
            except ValueError as error:
                raise ValueError(f"{point.label}: {error}") from error
        others: dict[str, list[str]] = {}
        for label, choice in chosen.items():
            if self.backend == "auto" and choice.backend != "native":
                others.setdefault(f"on the {choice.backend} trainer ({choice.reason})", []).append(label)
        words = "; ".join(f"{', '.join(labels)} {where}" for where, labels in others.items())
        return next(iter(chosen.values())).backend, words


def _backends() -> Any:
    return import_module("hybridseq.learning.backends")


@dataclass
class Summary:
    """How a call ended. `problems`: one message a cell that failed; `stopped`: "", "limit" or "interrupted"."""

    done: int
    of: int
    trained: int = 0
    stopped: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Finished:
    outcome: Outcome | None
    code: str = ""
    why: str = ""


Call = tuple[tuple[Cell, ...], Train, CodeOf, bool]
"""What a worker gets: cells to train together, the trainer, `code_of`, whether the parameters come back too."""


def _train_cells(
    cells: tuple[Cell, ...], train: Train, code_of: CodeOf, keep: bool, shield: bool
) -> list[tuple[Cell, _Finished]]:
    """Cells in a worker: never raises, so that one bad cell does not end the others."""
    if shield:
        _follow_parent()
    try:
        for backend in FILES:  # read the sources now: what they say at the end may no longer be what runs here
            with suppress(ValueError):
                code_of(backend, cells[0].run.task)
        runs = [cell.run for cell in cells]
        outcomes = train.together(runs) if len(runs) > 1 else [train(runs[0])]
        codes = [code_of(outcome.backend, run.task) for outcome, run in zip(outcomes, runs, strict=True)]
    except Exception as error:
        failed = _Finished(None, why=f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
        return [(cell, failed) for cell in cells]
    if not keep:
        outcomes = [replace(outcome, parameters=outcome.parameters[:0]) for outcome in outcomes]
    return list(zip(cells, map(_Finished, outcomes, codes), strict=True))


@cache
def _follow_parent() -> None:
    """Make this worker leave Ctrl-C to the process that writes, and end when that process ends, however it ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------------------------------------------------------ workers


class Workers:
    """Trains cells side by side and gives the results in the order in which they finish.

    Args:
        jobs: local processes; None takes every core. cluster: address of a Dask scheduler, or "local" for one on this machine
            with `jobs` workers; the cells then run there.

    Raises:
        ValueError: jobs below 1, a cluster that does not answer, Dask not installed.
    """

    def __init__(self, jobs: int | None = None, cluster: str | None = None) -> None:
        if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
            raise ValueError(f"jobs={jobs!r}: must be an integer >= 1, or left out for all cores")
        self.cluster = cluster
        self.jobs = jobs or cpu_count()
        self._closing: list[Callable[[], None]] = []
        if cluster:
            self._client = self._connect(cluster)
            self.jobs = sum(self._client.nthreads().values())

    def _connect(self, address: str) -> Any:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ValueError("cluster: Dask is not installed; `pip install 'hybridseq[cluster]'`") from error
        if address == "local":
            local = LocalCluster(n_workers=self.jobs, threads_per_worker=1, processes=True, dashboard_address=None,
                                 silence_logs=logging.ERROR)
            self._closing.append(local.close)
            address = local
        elif not re.fullmatch(r"(\w+://)?.+:\d+", address):  # Dask would look for it for half a minute, and end in a traceback
            raise ValueError(f"cluster={address!r}: must be an address such as tcp://host:8786, or 'local'")
        try:
            client = Client(address, timeout=_CONNECT_S, set_as_default=False)
            client.wait_for_workers(1, timeout=30)
        except (OSError, ValueError, TimeoutError) as error:
            self.close()
            raise ValueError(f"cluster={self.cluster!r}: no scheduler with a worker answers there ({error}); "
                             "give an address such as tcp://host:8786, or 'local'") from error
        self._closing.insert(0, client.close)
        return client

    def close(self) -> None:
        """Let go of a cluster."""
        while self._closing:
            self._closing.pop(0)()

    def run(self, calls: Iterable[Call]) -> Iterator[tuple[Cell, _Finished]]:
        """Cells with their results; the calls are taken up one by one as workers become free."""
        if self.jobs == 1 and not self.cluster:
            for call in calls:
                yield from _train_cells(*call, False)
            return
        options = {"backend": "dask", "client": self._client} if self.cluster else {"backend": "loky", "inner_max_num_threads": 1}
        with parallel_config(n_jobs=self.jobs, **options):
            parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
            results = parallel(delayed(_train_cells)(*call, not self.cluster) for call in calls)
            try:
                for pairs in results:
                    yield from pairs
            finally:
                results.close()

    def stop(self) -> None:
        """End local workers at once, whatever they are doing."""
        if not self.cluster and self.jobs > 1:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)


# --------------------------------------------------------------------------------------------------------------- interrupts


class _Interrupts:
    """Ctrl-C and a polite kill raise KeyboardInterrupt, but never while a result is being written."""

    def __init__(self) -> None:
        self._busy = False
        self._pending = False

    def __call__(self, *signal_and_frame: object) -> None:
        self._pending = True
        if not self._busy:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, an interrupt waits for the end."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            if self._pending:
                raise KeyboardInterrupt

    @contextmanager
    def installed(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# --------------------------------------------------------------------------------------------------------------------- runs


class Execution:
    """One call of a sweep into one folder.

    Args:
        sweep, folder: what and where. train: run -> outcome; any callable that a worker can import.
        code_of: hash of the sources behind a backend's numbers. workers: see `Workers`.
        points, roles: the part of the sweep to train. limit_s: seconds after which no further cell is begun.
        command: what a person typed, for the manifest. report: see `Report`.
    """

    def __init__(
        self, sweep: Sweep, folder: Folder, train: Train | None = None, *, code_of: CodeOf = code_hash,
        workers: Workers | None = None, points: Sequence[Point] | None = None, roles: Sequence[str] = ROLES,
        limit_s: float | None = None, command: str = "", report: Report | None = None, backend: str = "native",
    ) -> None:  # fmt: skip
        if limit_s is not None and not limit_s > 0:
            raise ValueError(f"limit: {limit_s / 60:g} minutes; must be > 0")
        self.sweep, self.folder = sweep, folder
        self.train, self.code_of = train or BackendTrain(), code_of
        self.workers = workers or Workers()
        self.points, self.roles = tuple(points or sweep.points), tuple(roles)
        self.command = command or f"hybridseq sweep {sweep.name}"
        self._deadline = None if limit_s is None else time.monotonic() + limit_s
        self._report = report or (lambda event, info: None)
        self._backend = backend
        self._interrupts = _Interrupts()
        self._began = datetime.now(UTC)
        self._renewed: list[dict[str, Any]] = []

    # what a person asks for

    def run(self) -> Summary:
        """Train what is missing, in rounds, until all is there, the time is over, or a person interrupts.

        Raises:
            ValueError: the folder holds runs of other code, which `fresh` puts aside and `renew` examines.
            hybridseq.learning.storage.Locked: another process writes the folder.
        """
        self.folder.check(self.sweep.name)
        with self._interrupts.installed(), self.folder.lock() as note:
            if note:
                self._report("note", {"text": note})
            self._open()
            if self.status.stale:
                raise ValueError(stale_message(self.status))
            return self._work()

    def _open(self) -> None:
        self.status = Status(self.sweep, self.folder.rows(), self.code_of)
        self.summary = Summary(self.status.done, self.sweep.size)
        earlier = [(self.status.cell_of(row), row) for row in self.status.current]
        self.pace = Pace(self._backend, earlier)

    def _work(self) -> Summary:
        self._report("started", {"status": self.status, "left_s": self._left()})
        try:
            for batch in rounds(self.status, self.points, self.roles, _CELLS_A_WORKER * self.workers.jobs):
                if self._late():
                    break
                self._train(batch)
                self._write()
            if self._late() and self._left():
                self.summary.stopped = "limit"
            else:
                self._represent()
        except KeyboardInterrupt:
            self.workers.stop()
            self.summary.stopped = "interrupted"
        finally:
            with self._interrupts_off():
                self._write()
        self.summary.done = self.status.done
        return self.summary

    @contextmanager
    def _interrupts_off(self) -> Iterator[None]:
        """The last writing of a call: an interrupt that comes now has nothing left to stop."""
        self._interrupts._busy, self._interrupts._pending = True, False
        try:
            yield
        finally:
            self._interrupts._busy = self._interrupts._pending = False

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _train(self, cells: Sequence[Cell]) -> None:
        """Train cells; those that a dying worker took along are handed out again."""
        waiting = {cell.key: cell for cell in cells}
        breaks = 0
        while waiting and not self._late():
            before = len(waiting)
            try:
                for cell, finished in self.workers.run(self._calls(list(waiting.values()))):
                    waiting.pop(cell.key)
                    self._take(cell, finished)
                return
            except _broken_pools() as error:
                breaks = breaks + 1 if len(waiting) == before else 1
                text = f"a worker was killed ({type(error).__name__}); {len(waiting)} runs of this round are handed out again"
                if breaks >= _BREAKS_IN_A_ROW:
                    names = ", ".join(cell.name for cell in list(waiting.values())[: self.workers.jobs])
                    self.summary.problems.append(
                        f"workers were killed {breaks} times without finishing a run, the last time with {names}; "
                        "is there memory for so many? try fewer --jobs"
                    )
                    return
                self._report("note", {"text": text})

    def _calls(self, cells: Sequence[Cell]) -> Iterator[Call]:
        for together in self._groups(cells):
            if self._late():
                return
            yield together, self.train, self.code_of, False

    def _groups(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, ...]]:
        """Neighbours of one phase of a point, as many as the trainer takes in one call."""
        size_of = getattr(self.train, "group", lambda cell: 1)
        for _, some in groupby(cells, key=lambda cell: (cell.point.label, cell.role)):
            same = list(some)
            size = size_of(same[0])
            yield from (tuple(same[start : start + size]) for start in range(0, len(same), size))

    def _take(self, cell: Cell, finished: _Finished) -> None:
        """A result has come back: keep it first, then tell of it."""
        if finished.outcome is None:
            self.summary.problems.append(f"{cell.name}: {finished.why.strip()}")
            self._report("failed", {"cell": cell, "why": finished.why})
            return
        code = self.code_of(finished.outcome.backend, cell.run.task)
        if finished.code != code:
            raise ValueError(
                f"{cell.name}: trained by code {finished.code}, but the code here is {code}; the sources changed meanwhile, "
                "or a worker of the cluster has another version of the package; start the sweep again when they agree"
            )
        row = Row.of(cell, finished.outcome, code)
        with self._interrupts.held():
            self.folder.add(row)
            self.status.add(cell, row)
            self.pace.add(cell, row.seconds)
            self.summary.trained += 1
        self._report("cell", {"cell": cell, "row": row, "status": self.status, "left_s": self._left()})

    def _left(self) -> float:
        return remaining(self.status, self.points, self.roles, self.pace) / self.workers.jobs

    def _write(self) -> None:
        previous = self.folder.manifest()
        manifest = make_manifest(self.status, self.command, previous, self._session(), self._renewed)
        if {**manifest, "command": ""} == {**previous, "command": ""}:
            manifest = previous  # a call that found nothing to do leaves the file as it is
        self._renewed = []
        with self._interrupts.held():
            self.folder.write(self.folder.rows(), manifest)

    def _session(self) -> dict[str, Any]:
        minutes = (datetime.now(UTC) - self._began).total_seconds() / 60
        return {"began": self._began.isoformat(timespec="milliseconds"), "minutes": round(minutes, 1), "jobs": self.workers.jobs,
                "cluster": bool(self.workers.cluster), "trained": self.summary.trained}

    # the representative run

    def _represent(self) -> None:
        """Train the representative run once more, this time keeping its parameters, and say whether it came out the same."""
        row = representative_row(self.status)
        if row is None or self._represented(row):
            return
        cell = self.status.cell_of(row)
        for _, finished in self.workers.run([((cell,), self.train, self.code_of, True)]):
            if finished.outcome is None:
                self.summary.problems.append(f"{cell.name}, trained again: {finished.why.strip()}")
                return
            again = Row.of(cell, finished.outcome, finished.code)
            text = representative_to_json(row, again, cell.run.stack, cell.run.task.config, finished.outcome.parameters)
            with self._interrupts.held():
                write_atomically(self.folder.representative_path, text)
            same = "the same, digit for digit" if again.result == row.result else "NOT the same as the stored run"
            self._report("note", {"text": f"representative run kept ({cell.name}); trained again it came out {same}"})

    def _represented(self, row: Row) -> bool:
        if not self.folder.representative_path.exists():
            return False
        from hybridseq.learning.storage import read_representative

        try:
            kept = read_representative(self.folder.representative_path).row
        except (ValueError, KeyError):
            return False
        return (kept.key, kept.code) == (row.key, row.code)

    # runs of other code

    def fresh(self) -> Path | None:
        """Put aside what does not count any more: runs of other code and of cells that are gone. Returns the file."""
        self.folder.check(self.sweep.name)
        with self.folder.lock():
            self._open()
            return self.folder.archive(stale.row for stale in [*self.status.stale, *self.status.orphans])

    def renew(self, count: int) -> Summary:
        """Train `count` stale cells again; if every one comes out digit for digit, all stale rows count under today's code.

        A change of the sources that leaves the numbers alone so costs a few runs instead of all of them. Rows of each backend
        and code are judged by `count` runs of their own. The manifest keeps which runs were compared.

        Raises:
            ValueError: count below 1.
        """
        if count < 1:
            raise ValueError(f"renew={count}: must be >= 1, the number of runs to train again")
        self.folder.check(self.sweep.name)
        with self._interrupts.installed(), self.folder.lock():
            self._open()
            stale = [item.row for item in self.status.stale]
            try:
                again = self._compare([row for group in _by_code(stale) for row in spread(group, count)])
            except KeyboardInterrupt:
                self.workers.stop()
                self.summary.stopped = "interrupted"
                return self.summary
            if again and not self.summary.problems:
                self._restamp(stale, again)
            return self.summary

    def _compare(self, rows: Sequence[Row]) -> list[Row]:
        """The given stale rows, trained again; whatever differs becomes a problem."""
        stored = {row.key: row for row in rows}
        again = []
        calls = [((self.status.cell_of(row),), self._trainer_of(row), self.code_of, False) for row in rows]
        for cell, finished in self.workers.run(calls):
            if finished.outcome is None:
                self.summary.problems.append(f"{cell.name}: {finished.why.strip()}")
                continue
            row, old = Row.of(cell, finished.outcome, finished.code), stored[cell.key]
            again.append(row)
            self.summary.trained += 1
            if (row.result, row.backend) != (old.result, old.backend):
                self.summary.problems.append(
                    f"{cell.name}: {old.correct} of {old.valid} correct by code {old.code} ({old.backend}), "
                    f"{row.correct} by code {row.code} ({row.backend}); final loss {old.final_loss} and {row.final_loss}"
                )
        return again

    def _trainer_of(self, row: Row) -> Train:
        return BackendTrain(row.backend) if isinstance(self.train, BackendTrain) else self.train

    def _restamp(self, stale: Sequence[Row], compared: Sequence[Row]) -> None:
        renewed = [replace(row, code=self.code_of(row.backend, self.status.cell_of(row).run.task)) for row in stale]
        pairs = sorted({(old.code, new.code) for old, new in zip(stale, renewed, strict=True)})
        for row in renewed:
            self.folder.add(row)
        self.folder.archive(stale)
        self._renewed = [{
            "from": [old for old, _ in pairs], "to": [new for _, new in pairs], "rows": len(stale),
            "compared": [row.key for row in compared], "on": time.strftime("%Y-%m-%d", time.gmtime()),
        }]  # fmt: skip
        self._open_again()
        self._write()

    def _open_again(self) -> None:
        trained = self.summary.trained
        self._open()
        self.summary.trained = trained


def spread(rows: Sequence[Row], count: int) -> list[Row]:
    """`count` rows, evenly over the list in the order of storage: every architecture and width has its turn."""
    ordered = sorted(rows, key=lambda row: (row.layers, row.width, row.role, row.seed, row.learning_rate))
    count = min(count, len(ordered))
    return [ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count)]


def _by_code(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.backend, row.code), []).append(row)
    return list(groups.values())


def stale_message(status: Status) -> str:
    """What a person reads when stored runs were made by other code: nothing is used, nothing is lost, and two ways on."""
    reasons: dict[str, int] = {}
    for item in status.stale:
        reasons[item.reason] = reasons.get(item.reason, 0) + 1
    why = "; ".join(f"{count} by {reason}" for reason, count in sorted(reasons.items()))
    name = status.sweep.name
    return (f"{name}: {len(status.stale)} stored runs are stale: {why}. Nothing was trained and nothing is lost. "
            f"`hybridseq sweep {name} --renew 4` trains four of them again and keeps all if they come out digit for digit; "
            f"`hybridseq sweep {name} --fresh` puts them aside and trains them again")


def _broken_pools() -> tuple[type[BaseException], ...]:
    kinds: list[type[BaseException]] = [BrokenProcessPool]
    try:
        from distributed.scheduler import KilledWorker

        kinds.append(KilledWorker)
    except ImportError:
        pass
    return tuple(kinds)
