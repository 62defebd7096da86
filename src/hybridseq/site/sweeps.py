"""What a person sees of sweeps: the list, the plan, and a bar (or one plain line a minute) while runs are trained."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hybridseq.learning.storage import Folder, Locked, Results, read_results, results_root
from hybridseq.learning.sweep import ROLES, Cell, Pace, Point, Row, Status, Sweep, remaining
from hybridseq.site.errors import BadInput, BookFailed

_LINE_EVERY_S = 60


@contextmanager
def plain_errors() -> Iterator[None]:
    """Wrong input and a folder in use, told as the command line tells them."""
    try:
        yield
    except (Locked, OSError) as error:
        raise BookFailed(str(error)) from error
    except ValueError as error:
        raise BadInput(str(error)) from error


def minutes(seconds: float) -> str:
    """A time left, to two digits at most.

    >>> minutes(20), minutes(400), minutes(9000)
    ('1 min', '7 min', '2 h 30 min')
    """
    whole = max(1, round(seconds / 60))
    return f"{whole} min" if whole < 120 else f"{whole // 60} h {whole % 60} min"


# ------------------------------------------------------------------------------------------------------------ list and plan


def list_lines(results: Path | None) -> list[str]:
    """One line a sweep of the catalogue: runs done, core-minutes left, what it is."""
    from hybridseq.learning import catalogue

    lines = [f"{'name':<22} {'runs done':>12}  {'left':>16}  what it is"]
    for name in catalogue.SWEEPS:
        sweep = catalogue.find(name)
        try:
            found = read_results(sweep, results or results_root())
        except ValueError as error:
            lines.append(f"{name:<22} {'unreadable':>12}  {error}")
            continue
        status = found.status
        left = remaining(status, sweep.points, ROLES, pace_of(found, "native"))
        work = f"{left / 60:.0f} core-minutes" if left else "complete"
        stale = f" ({len(status.stale)} stale)" if status.stale else ""
        lines.append(f"{name:<22} {f'{status.done} of {sweep.size}':>12}  {work:>16}  {sweep.title}{stale}")
    return lines


def pace_of(found: Results, backend: str) -> Pace:
    """Costs from the stored runs of the sweep."""
    return Pace(backend, [(found.status.cell_of(row), row) for row in found.rows])


def plan_lines(found: Results, points: Sequence[Point], roles: Sequence[str], jobs: int, backend: str) -> list[str]:
    """What a run of the sweep would train, point by point, what it would cost, and what is stale."""
    status, pace = found.status, pace_of(found, backend)
    head = f"{'point':<14} {'select':>9} {'report':>9}  {'learning rate':>13}  {'core-minutes left':>17}"
    lines = [found.sweep.title, head]
    for point in points:
        select, report = status.rows(point, "select"), status.rows(point, "report")
        rate = status.chosen(point)
        counts = (f"{len(select)}/{len(status.cells(point, 'select'))}", f"{len(report)}/{len(found.sweep.report_seeds)}")
        left = remaining(status, [point], roles, pace) / 60
        lines.append(f"{point.label:<14} {counts[0]:>9} {counts[1]:>9}  {f'{rate:.3g}' if rate else 'open':>13}  {left:>17.1f}")
    left = remaining(status, points, roles, pace)
    lines.append(f"{status.done} of {found.sweep.size} runs done. To train: {left / 60:.0f} core-minutes, "
                 f"{minutes(left / jobs) if left else 'nothing'} with --jobs {jobs}.")
    return lines + stale_lines(status)


def stale_lines(status: Status) -> list[str]:
    """Stored runs that do not count, by reason."""
    lines = []
    for kind, items in (("stale", status.stale), ("no longer part of the sweep", status.orphans)):
        groups: dict[str, list[Row]] = {}
        for item in items:
            groups.setdefault(item.reason, []).append(item.row)
        for reason, rows in sorted(groups.items()):
            labels = sorted({row.label for row in rows})
            lines.append(f"{kind}: {len(rows)} runs, {reason} ({', '.join(labels)})")
    return lines


# ----------------------------------------------------------------------------------------------------------------- progress


class SweepProgress:
    """A `Report` for `hybridseq.learning.execution`; use it as a context manager."""

    def __init__(self, sweep: Sweep, console: Console | None = None) -> None:
        self.sweep = sweep
        self.console = console or Console(file=sys.stderr, highlight=False)
        self._began = self._last_line = time.monotonic()
        self._left_s, self._left_at = 0.0, self._began
        self._bar: Any = None
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[runs]}"), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> SweepProgress:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, event: str, info: dict[str, Any]) -> None:
        getattr(self, f"_{event}")(**info)

    def _note(self, text: str) -> None:
        self.say(f"  {text}")

    def _started(self, status: Status, left_s: float) -> None:
        self._bar = self._progress.add_task(self.sweep.name, total=1.0, runs="", left="")
        self._draw(status, left_s)
        self.say(f"  {self._counted(status)}, about {minutes(left_s)} to go" if left_s else f"  {self._counted(status)}")

    def _cell(self, cell: Cell, row: Row, status: Status, left_s: float) -> None:
        self._draw(status, left_s)
        if cell.role == "report" and not status.missing(cell.point, "report"):
            rows = status.rows(cell.point, "report")
            mean = sum(r.accuracy for r in rows) / len(rows)
            self.say(f"  {cell.point.label}: mean accuracy {mean:.3f} of {len(rows)} runs, learning rate {row.learning_rate:.3g}")
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            self.say(f"  {self._counted(status)}, about {minutes(left_s)} to go (now {cell.point.label}, {cell.role})")

    def _failed(self, cell: Cell, why: str) -> None:
        self.say(f"  {cell.name}: {why.splitlines()[0]}")

    def _draw(self, status: Status, left_s: float) -> None:
        elapsed = time.monotonic() - self._began
        part = elapsed / (elapsed + left_s) if elapsed + left_s else 1.0
        left = f"{minutes(left_s)} left" if left_s else ""
        self._progress.update(self._bar, completed=part, runs=f"{status.done} of {self.sweep.size} runs", left=left)

    def _counted(self, status: Status) -> str:
        return f"{status.done} of {self.sweep.size} runs"

    def say(self, line: str) -> None:
        """One line of its own, above the bar where there is one."""
        self.console.print(line, markup=False, soft_wrap=True)


# ------------------------------------------------------------------------------------------------------------------ command


def finish_command(name: str, options: dict[str, Any]) -> str:
    """The command with the options that a person gave.

    >>> finish_command("b-fig-6", {"--jobs": 2, "--points": None, "--phase": "select", "--fresh": True})
    'hybridseq sweep b-fig-6 --jobs 2 --phase select --fresh'
    """
    words = ["hybridseq", "sweep", name]
    for option, value in options.items():
        if value is True:
            words.append(option)
        elif value not in (None, False):
            words += [option, shlex.quote(str(value))]
    return " ".join(words)


def run_sweep(
    sweep: Sweep, *, results: Path | None, jobs: int | None, cluster: str | None, pattern: str | None, phase: str | None,
    limit: float | None, backend: str, fresh: bool, renew: int | None, dry_run: bool, command: str,
) -> int:  # fmt: skip
    """The command `hybridseq sweep NAME`; returns the exit code."""
    from hybridseq.learning.execution import BackendTrain, Execution, Workers

    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs}: must be an integer >= 1, or left out for all cores")
    if renew is not None and renew < 1:
        raise ValueError(f"renew={renew}: must be >= 1, the number of runs to train again")
    if limit is not None and not limit > 0:
        raise ValueError(f"limit: {limit:g} minutes; must be > 0")
    if fresh and renew is not None:
        raise ValueError("fresh, renew: --renew keeps stale runs, --fresh puts them aside; give one of them")
    root = results or results_root()
    points = sweep.select_points(pattern)
    roles = (phase,) if phase else ROLES
    train = BackendTrain(backend)
    used, slower = train.check(sweep, points)
    if dry_run:
        found = read_results(sweep, root)
        for line in plan_lines(found, points, roles, jobs or _cores(), used):
            click.echo(line)
        if slower:
            click.echo(f"Slower than the native trainer: {slower}")
        return 0
    folder = Folder(root / sweep.name)
    workers = Workers(jobs, cluster)
    try:
        with SweepProgress(sweep) as progress:
            if slower:
                progress.say(f"  slower than the native trainer: {slower}")
            execution = Execution(
                sweep, folder, train, workers=workers, points=points, roles=roles, command=command, report=progress,
                limit_s=None if limit is None else 60 * limit, backend=used,
            )  # fmt: skip
            if renew is not None:
                return _renewed(sweep, execution.renew(renew))
            if fresh and (aside := execution.fresh()):
                progress.say(f"  put aside: {aside}")
            summary = execution.run()
    finally:
        workers.close()
    return _told(sweep, folder, summary, command)


def _cores() -> int:
    from joblib import cpu_count

    return cpu_count()


def _told(sweep: Sweep, folder: Folder, summary: Any, command: str) -> int:
    """Say how it ended; the exit code."""
    click.echo(f"{sweep.name}: {summary.done} of {summary.of} runs, {summary.trained} of them now. {folder.path}")
    if summary.stopped == "interrupted":
        click.echo(f"hybridseq: interrupted; no finished run is lost. Go on with: {command}", err=True)
        return 130
    if summary.problems:
        raise BookFailed(summary.problems)
    if summary.done < summary.of:
        why = "the time given is over" if summary.stopped == "limit" else "the rest was not asked for"
        click.echo(f"Not complete: {why}. The whole of it: hybridseq sweep {sweep.name}")
    return 0


def _renewed(sweep: Sweep, summary: Any) -> int:
    if summary.stopped:
        click.echo("hybridseq: interrupted; nothing was changed", err=True)
        return 130
    if summary.problems:
        way_on = f"nothing was changed; `hybridseq sweep {sweep.name} --fresh` trains the stale runs again"
        raise BookFailed([*summary.problems, way_on])
    kept = f"{summary.trained} runs trained again came out digit for digit; all {summary.done} runs count under today's code"
    click.echo(f"{sweep.name}: {kept if summary.trained else 'no stale runs'}")
    return 0
