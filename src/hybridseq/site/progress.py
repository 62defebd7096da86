"""What a person sees while chapters run: a bar a chapter on a terminal, one plain line an event elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hybridseq.site.book import Chapter


class ChapterProgress:
    """A `Report` for `run_chapters`; use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False)
        self._bars: dict[str, Any] = {}
        self._began: dict[str, float] = {}
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("{task.description:<34}"), BarColumn(bar_width=30), TextColumn("{task.fields[state]:<14}"),
            TimeElapsedColumn(), console=self.console, disable=not self.console.is_terminal,
        )

    def __enter__(self) -> ChapterProgress:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, event: str, chapter: Chapter, info: dict[str, Any]) -> None:
        with self._lock:
            getattr(self, f"_{event}")(chapter, info)

    def _started(self, chapter: Chapter, info: dict[str, Any]) -> None:
        self._began[chapter.slug] = time.monotonic()
        self._bars[chapter.slug] = self._progress.add_task(chapter.slug, total=None, state="starting")
        self._say(f"  {chapter.slug}: running")

    def _cell(self, chapter: Chapter, info: dict[str, Any]) -> None:
        state = f"cell {info['cell'] + 1} of {info['of']}"
        self._progress.update(self._bars[chapter.slug], total=info["of"], completed=info["cell"], state=state)

    def _done(self, chapter: Chapter, info: dict[str, Any]) -> None:
        bar = self._bars[chapter.slug]
        total = next(task.total for task in self._progress.tasks if task.id == bar) or 1
        self._progress.update(bar, total=total, completed=total, state="done")
        self._progress.stop_task(bar)
        self._say(f"  {chapter.slug}: done in {info['wall_s']:.1f} s, {info['peak_mb']:.0f} MB")

    def _failed(self, chapter: Chapter, info: dict[str, Any]) -> None:
        if bar := self._bars.get(chapter.slug):
            self._progress.update(bar, state="[red]failed")
            self._progress.stop_task(bar)
        self._say(f"  {chapter.slug}: failed")

    def _cached(self, chapter: Chapter, info: dict[str, Any]) -> None:
        self.say(f"  {chapter.slug}: unchanged")

    def say(self, line: str) -> None:
        """One line of its own, above the bars where there are any."""
        self.console.print(line, markup=False)

    def _say(self, line: str) -> None:
        # On a terminal the bar says it.
        if not self.console.is_terminal:
            self.say(line)
