"""Sweeps as data: which runs, in which order, and how the learning rate of each point is chosen.

A *point* is one place on a figure's curve: an architecture of one width on one task. Its runs come in two phases. First the
whole matrix of learning rates x selection seeds; a rule, called by its name, picks one rate from these runs. Then the report
seeds at that rate. The two sets of seeds share no element, so that no reported run has had a say in how it was made.

A *cell* is one run with its role. Cells follow from the sweep alone, except that the cells of the second phase have to wait for
the learning rate of their point.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from hybridseq.evidence.provenance import canonical_json
from hybridseq.learning.recipe import Outcome, Recipe, Run
from hybridseq.learning.stack import Stack

if TYPE_CHECKING:
    from hybridseq.learning.batches import Framed

ROLES = ("select", "report")
"""What a run is for: choosing its point's learning rate, or the figure."""

CURVE_STEPS = 100
"""Steps over which a stored training curve averages; the final loss is its last stretch."""


@dataclass(frozen=True)
class Point:
    """One architecture on one task, called by a label such as "SSM-TF-16"."""

    label: str
    stack: Stack
    task: Framed


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    point: Point
    role: str
    run: Run

    @cached_property
    def key(self) -> str:
        """Content hash of the run, 16 hexadecimal digits.

        Options of stack and recipe that have their default values do not enter, so that an option added later, with a default
        that changes nothing, leaves the key as it is.
        """
        run = self.run
        shared = _shared_config(run.stack, run.task, run.recipe)
        config = shared | {"seed": run.seed, "learning_rate": float(run.learning_rate)}
        return hashlib.sha256(canonical_json(config).encode()).hexdigest()[:16]

    @cached_property
    def cost(self) -> float:
        """Floating-point operations of training and evaluation, see `step_flops`."""
        seq_len = getattr(self.run.task, "seq_len", 100)
        forward = step_flops(self.run.stack, 1024, seq_len) / 3
        return self.run.recipe.steps * step_flops(self.run.stack, self.run.recipe.batch, seq_len) + forward

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.point.label}, learning rate {self.run.learning_rate:.3g}, seed {self.run.seed} ({self.role})"


@cache
def _shared_config(stack: Stack, task: Framed, recipe: Recipe) -> dict[str, Any]:
    """What the runs of one phase of a point have in common; options at their defaults are left out."""
    return {"stack": _without_defaults(Stack, stack.config), "task": task.config,
            "recipe": _without_defaults(Recipe, recipe.config)}


def _without_defaults(kind: type, config: dict[str, Any]) -> dict[str, Any]:
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return {name: value for name, value in config.items()
            if name not in defaults or canonical_json(value) != canonical_json(defaults[name])}


@dataclass(frozen=True)
class Row:
    """What is kept of one run; one line of runs.csv.

    `final_loss` is the mean training loss of the last 100 steps, `curve` that of every 100 steps (four digits, blanks between),
    `code` the hash of the sources that made the run (`hybridseq.learning.sources`), `seconds` wall time of one worker.
    """

    key: str
    role: str
    task: str
    label: str
    layers: str
    width: int
    parameters: int
    window: int | None
    heads: int
    state_dim: int
    learning_rate: float
    seed: int
    steps: int
    backend: str
    accuracy: float
    correct: int
    valid: int
    final_loss: float
    curve: str
    seconds: float
    code: str

    @classmethod
    def of(cls, cell: Cell, outcome: Outcome, code: str) -> Row:
        """The row of a finished cell."""
        stack, run, losses = cell.run.stack, cell.run, [float(loss) for loss in outcome.losses]
        curve = [_mean(losses[start : start + CURVE_STEPS]) for start in range(0, len(losses), CURVE_STEPS)]
        return cls(
            key=cell.key, role=cell.role, task=run.task.name, label=cell.point.label, layers=stack.name, width=stack.width,
            parameters=stack.size, window=stack.window, heads=stack.heads, state_dim=stack.state_dim,
            learning_rate=float(run.learning_rate), seed=run.seed, steps=run.recipe.steps, backend=outcome.backend,
            accuracy=round(float(outcome.accuracy), 8), correct=int(outcome.correct), valid=int(outcome.valid),
            final_loss=float(f"{_mean(losses[-CURVE_STEPS:]):.6g}"), curve=" ".join(f"{loss:.4g}" for loss in curve),
            seconds=round(float(outcome.seconds), 2), code=code,
        )  # fmt: skip

    @property
    def losses(self) -> list[float]:
        """The training curve: mean loss of every 100 steps."""
        return [float(loss) for loss in self.curve.split()]

    @property
    def result(self) -> tuple:
        """What two runs of one cell must agree on, digit for digit."""
        return self.correct, self.valid, repr(self.final_loss), self.curve


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


# ---------------------------------------------------------------------------------------------------------- selection rules


def _or_worst(value: float) -> float:
    return value if value == value else -math.inf


def _mean_loss(rows: Sequence[Row]) -> float:
    return -_mean([row.final_loss for row in rows])


def _mean_accuracy(rows: Sequence[Row]) -> float:
    return _mean([row.accuracy for row in rows])


def _smallest_loss(rows: Sequence[Row]) -> float:
    return max(_or_worst(-_mean(row.losses)) for row in rows)


RULES: dict[str, Callable[[Sequence[Row]], float]] = {
    "mean loss": _mean_loss,
    "mean accuracy": _mean_accuracy,
    "smallest loss": _smallest_loss,
}
"""Score of one learning rate from its selection runs; the rate of the highest score is chosen, the smaller one of equals.

"mean loss": the final training loss (fresh sequences), mean over the seeds; held-out sequences have no say.
"mean accuracy": held-out accuracy, mean over the seeds. "smallest loss": the single run with the smallest training loss, averaged
over all its steps (the published choice).
"""


def choose(rows: Iterable[Row], rule: str) -> float:
    """The learning rate that `rule` picks from selection runs of one point.

    Raises:
        ValueError: unknown rule, or no rows.
    """
    if rule not in RULES:
        raise ValueError(f"rule={rule!r}: must be one of {', '.join(RULES)}{nearest(rule, RULES)}")
    by_rate: dict[float, list[Row]] = {}
    for row in rows:
        by_rate.setdefault(row.learning_rate, []).append(row)
    if not by_rate:
        raise ValueError("rows: no run to choose from")
    return max(sorted(by_rate), key=lambda rate: _or_worst(RULES[rule](by_rate[rate])))


# ------------------------------------------------------------------------------------------------------------------- sweeps


@dataclass(frozen=True)
class Sweep:
    """A figure's runs, declared.

    Args:
        name: of the results folder and of the command. title: one line for lists.
        points: in the order in which they are trained.
        learning_rates, select_seeds: the matrix. report_seeds: at the chosen rate.
        recipe: of the reported runs; `select_recipe` of the matrix where that differs (a calibration of 1,000 steps).
        rule: a name of `RULES`.
        representative: label of the point one of whose reported runs (that of the median accuracy) is kept with its parameters.

    Raises:
        ValueError: no points, labels used twice, learning rates that are not positive, seeds with two roles, an unknown rule.
    """

    name: str
    title: str
    points: tuple[Point, ...]
    learning_rates: tuple[float, ...]
    select_seeds: tuple[int, ...]
    report_seeds: tuple[int, ...]
    recipe: Recipe
    select_recipe: Recipe | None = None
    rule: str = "mean loss"
    representative: str | None = None

    def __post_init__(self):
        for name in ("points", "learning_rates", "select_seeds", "report_seeds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name}: the sweep {self.name!r} needs at least one")
            same = [point.label for point in values] if name == "points" else list(values)
            if twice := sorted({str(value) for value in same if same.count(value) > 1}):
                raise ValueError(f"{name}: {', '.join(twice)} stands twice in the sweep {self.name!r}")
        if bad := [rate for rate in self.learning_rates if not (0 < rate < math.inf)]:
            raise ValueError(f"learning_rates: {bad[0]!r} in the sweep {self.name!r}; must be finite and > 0")
        if both := sorted(set(self.select_seeds) & set(self.report_seeds)):
            raise ValueError(f"report_seeds: {both} also choose the learning rate in {self.name!r}; use other seeds to report")
        if self.rule not in RULES:
            raise ValueError(f"rule={self.rule!r}: must be one of {', '.join(RULES)}{nearest(self.rule, RULES)}")
        if self.representative is not None:
            self.point(self.representative)

    def point(self, label: str) -> Point:
        """The point called `label`; ValueError with the nearest label."""
        for point in self.points:
            if point.label == label:
                return point
        labels = [point.label for point in self.points]
        raise ValueError(f"point {label!r}: not in the sweep {self.name!r}{nearest(label, labels)}; it has {', '.join(labels)}")

    def select_points(self, pattern: str | None) -> tuple[Point, ...]:
        """Points whose label or architecture matches one of the comma-separated shell patterns, in the sweep's order.

        Raises:
            ValueError: a pattern that matches nothing.
        """
        if pattern is None:
            return self.points
        patterns = [part.strip() for part in pattern.split(",")]
        for part in patterns:
            if not any(_matches(point, part) for point in self.points):
                self.point(part)
        return tuple(point for point in self.points if any(_matches(point, part) for part in patterns))

    def select_cells(self, point: Point) -> tuple[Cell, ...]:
        """The matrix of a point: seeds outside, rates inside, so that an interrupted matrix is even over the rates."""
        recipe = self.select_recipe or self.recipe
        return tuple(Cell(point, "select", Run(point.stack, point.task, recipe, seed, rate))
                     for seed in self.select_seeds for rate in self.learning_rates)

    def report_cells(self, point: Point, learning_rate: float) -> tuple[Cell, ...]:
        """The reported runs of a point."""
        return tuple(Cell(point, "report", Run(point.stack, point.task, self.recipe, seed, learning_rate))
                     for seed in self.report_seeds)

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.points) * (len(self.learning_rates) * len(self.select_seeds) + len(self.report_seeds))

    @property
    def config(self) -> dict[str, Any]:
        """The sweep as plain data."""
        return {
            "name": self.name, "title": self.title,
            "points": [{"label": p.label, "stack": p.stack.config, "task": p.task.config} for p in self.points],
            "learning_rates": list(self.learning_rates), "recipe": self.recipe.config,
            "select_recipe": (self.select_recipe or self.recipe).config, "rule": self.rule,
            "representative": self.representative,
        }  # fmt: skip

    @property
    def seeds(self) -> dict[str, list[int]]:
        """Seeds by role."""
        return {"select": list(self.select_seeds), "report": list(self.report_seeds)}


def _matches(point: Point, pattern: str) -> bool:
    return fnmatchcase(point.label, pattern) or fnmatchcase(point.stack.name, pattern)


def nearest(word: str, words: Iterable[str]) -> str:
    """' (did you mean ...?)' for a word that is nearly one of `words`, else nothing.

    >>> nearest("b-fig6", ["b-fig-6", "b-fig-4"])
    " (did you mean 'b-fig-6'?)"
    """
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""


# ------------------------------------------------------------------------------------------------------------------- status

CodeOf = Callable[[str, Any], str]
"""(backend, framed task) -> hash of the sources that a run of it follows from."""


@dataclass(frozen=True)
class Stale:
    """A stored run that does not count, and why."""

    row: Row
    reason: str


class Status:
    """A sweep beside the rows that are stored for it.

    Args:
        sweep: as declared. rows: all that is stored. code_of: the code that is here now; a backend that it does not know raises
            ValueError and makes the row stale.
    """

    def __init__(self, sweep: Sweep, rows: Iterable[Row], code_of: CodeOf) -> None:
        self.sweep = sweep
        self.stale: list[Stale] = []
        """Runs of a cell of this sweep under other code."""
        self.orphans: list[Stale] = []
        """Runs that are no cell of this sweep (any more)."""
        self._current: dict[str, Row] = {}
        self._known: dict[str, Cell] = {}
        self._codes: dict[tuple[str, str], str | None] = {}
        self._code_of = code_of
        self._by_key: dict[str, list[Row]] = {}
        for row in rows:
            self._by_key.setdefault(row.key, []).append(row)
        self._cells: dict[tuple[str, str], tuple[Cell, ...]] = {}
        self._chosen: dict[str, float | None] = {}
        for point in sweep.points:
            self._match(point)
        for point in sweep.points if self._by_key.keys() - self._known.keys() else ():
            self._match_waiting(point)
        for key, stored in self._by_key.items():
            if key not in self._known:
                self.orphans += [Stale(row, "not a run of this sweep as it is declared now") for row in stored]

    def _match(self, point: Point) -> None:
        """Match the stored rows of a point to its cells; those of its second phase once the first is complete."""
        for role in ROLES:
            for cell in self.cells(point, role):
                self._look_up(cell)

    def _match_waiting(self, point: Point) -> None:
        """Reported runs whose learning rate has still to be confirmed: they are kept, and may be stale."""
        for rate in self.sweep.learning_rates if self.chosen(point) is None else ():
            for cell in self.sweep.report_cells(point, rate):
                self._look_up(cell)

    def _look_up(self, cell: Cell) -> None:
        self._known[cell.key] = cell
        for row in self._by_key.get(cell.key, ()):
            _check_same_run(cell, row)
            if reason := self._outdated(cell, row):
                self.stale.append(Stale(row, reason))
            else:
                self._current.setdefault(cell.key, row)

    def _outdated(self, cell: Cell, row: Row) -> str:
        task = cell.run.task
        place = (row.backend, repr(task))
        if place not in self._codes:
            try:
                self._codes[place] = self._code_of(row.backend, task)
            except ValueError:
                self._codes[place] = None
        code = self._codes[place]
        if code is None:
            return f"trained by a backend {row.backend!r} that is not here"
        return "" if code == row.code else f"code {row.code} of the {row.backend} trainer, now {code}"

    def add(self, cell: Cell, row: Row) -> None:
        """A cell has just been finished under the code that is here."""
        self._known[cell.key] = cell
        self._current[cell.key] = row

    def chosen(self, point: Point) -> float | None:
        """The point's learning rate; None while its matrix is not complete."""
        if point.label not in self._chosen:
            rows = self.rows(point, "select")
            if len(rows) < len(self.cells(point, "select")):
                return None
            self._chosen[point.label] = choose(rows, self.sweep.rule)
        return self._chosen[point.label]

    def cells(self, point: Point, role: str) -> tuple[Cell, ...]:
        """Cells of one phase of a point; none of the second while its learning rate is open."""
        if role == "report" and self.chosen(point) is None:
            return ()
        if (point.label, role) not in self._cells:
            made = self.sweep.select_cells(point) if role == "select" else self.sweep.report_cells(point, self.chosen(point))
            self._cells[point.label, role] = made
        return self._cells[point.label, role]

    def rows(self, point: Point, role: str) -> list[Row]:
        """The current rows of one phase of a point, in the order of its cells."""
        return [self._current[cell.key] for cell in self.cells(point, role) if cell.key in self._current]

    def missing(self, point: Point, role: str) -> list[Cell]:
        """Cells of one phase of a point that have no current row."""
        return [cell for cell in self.cells(point, role) if cell.key not in self._current]

    def waiting(self, point: Point) -> int:
        """How many report cells of the point wait for its learning rate."""
        return 0 if self.chosen(point) is not None else len(self.sweep.report_seeds)

    @property
    def done(self) -> int:
        """Cells that have a current row."""
        return sum(len(self.rows(point, role)) for point in self.sweep.points for role in ROLES)

    @property
    def complete(self) -> bool:
        """Every cell has a current row."""
        return self.done == self.sweep.size

    @property
    def current(self) -> list[Row]:
        """All rows that count, in the order of the sweep."""
        return [row for point in self.sweep.points for role in ROLES for row in self.rows(point, role)]

    def cell_of(self, row: Row) -> Cell:
        """The cell of a current or stale row."""
        return self._known[row.key]


def _check_same_run(cell: Cell, row: Row) -> None:
    """A row's key says which run it is; ValueError when its columns say another. Labels and names of tasks may change."""
    run, stack = cell.run, cell.run.stack
    wanted = {"role": cell.role, "layers": stack.name, "width": stack.width, "parameters": stack.size, "window": stack.window,
              "heads": stack.heads, "state_dim": stack.state_dim, "learning_rate": float(run.learning_rate), "seed": run.seed,
              "steps": run.recipe.steps}  # fmt: skip
    if wrong := [name for name, value in wanted.items() if getattr(row, name) != value]:
        said = ", ".join(f"{name}={getattr(row, name)!r}, not {wanted[name]!r}" for name in wrong)
        raise ValueError(f"runs.csv or journal: the row with key {row.key} is that of {cell.name}, but says {said}; "
                         "take it away, its run is then trained again")


# --------------------------------------------------------------------------------------------------------------------- cost

_SCAN_FLOPS = 22
"""Operations of the selective scan for one channel, state number and token: one exponential counted as 20."""
_SOFTMAX_FLOPS = 25


def step_flops(stack: Stack, batch: int, seq_len: int) -> float:
    """Floating-point operations of one training step: three times those of a forward pass."""
    seen = _mean_context(stack.window, seq_len)
    token = 2 * stack.vocab_size * stack.width + sum(_LAYER_FLOPS[letters](stack, seen) for letters in stack.layers)
    return 3.0 * batch * seq_len * token


def _mean_context(window: int | None, seq_len: int) -> float:
    window = min(window or seq_len, seq_len)
    return window - window * (window - 1) / 2 / seq_len


def _attention_flops(stack: Stack, seen: float) -> float:
    d, h, k = stack.width, stack.heads, stack.head_dim
    return 2 * (3 * h * k * d + 5 * d * d) + h * seen * (4 * k + _SOFTMAX_FLOPS)


def _mamba_flops(stack: Stack, seen: float) -> float:
    d, c, n, r = stack.width, stack.channels, stack.state_dim, stack.dt_rank
    return 2 * (3 * c * d + c * (2 * r + 2 * n)) + _SCAN_FLOPS * c * n


def _recurrent_flops(stack: Stack, seen: float) -> float:
    d, h, k = stack.width, stack.heads, stack.head_dim
    return 2 * 5 * h * k * d + 10 * h * k * k


_LAYER_FLOPS = {"TF": _attention_flops, "SSM": _mamba_flops, "GDN": _recurrent_flops, "GLA": _recurrent_flops}

_NOMINAL = {"native": 45e9, "ensemble": 3e9, "plain": 0.8e9}
"""Operations a second of one core, before anything has been measured."""


class Pace:
    """Seconds of a cell from its cost, by what the cells before it took.

    A cell takes the rate of finished cells of its own architecture and width, else of all finished cells, else the nominal one.
    Earlier cells of another backend have no say.
    """

    def __init__(self, backend: str = "native", earlier: Iterable[tuple[Cell, Row]] = ()) -> None:
        self._nominal = 1 / _NOMINAL.get(backend, 1e9)
        self._earlier = _Sums()
        self._now = _Sums()
        for cell, row in earlier:
            if row.backend == backend:  # another trainer is several times faster or slower
                self._earlier.add(cell, row.seconds)

    def add(self, cell: Cell, seconds: float) -> None:
        """A cell of this machine has taken `seconds`."""
        self._now.add(cell, seconds)

    def seconds(self, cell: Cell) -> float:
        """Expected wall seconds of a cell on one worker."""
        for rate in (self._now.of(cell), self._now.over_all, self._earlier.of(cell), self._earlier.over_all):
            if rate is not None:
                return cell.cost * rate
        return cell.cost * self._nominal


class _Sums:
    def __init__(self) -> None:
        self._sums: dict[tuple, list[float]] = {}
        self._all = [0.0, 0.0]

    def add(self, cell: Cell, seconds: float) -> None:
        for sums in (self._sums.setdefault(_shape(cell), [0.0, 0.0]), self._all):
            sums[0] += cell.cost
            sums[1] += seconds

    def of(self, cell: Cell) -> float | None:
        sums = self._sums.get(_shape(cell))
        return sums[1] / sums[0] if sums else None

    @property
    def over_all(self) -> float | None:
        return self._all[1] / self._all[0] if self._all[0] else None


def _shape(cell: Cell) -> tuple:
    stack = cell.run.stack
    return stack.name, stack.width, stack.window


def remaining(status: Status, points: Sequence[Point], roles: Sequence[str], pace: Pace) -> float:
    """Expected seconds of one worker for the missing cells of the given points and phases, those that wait included."""
    total = 0.0
    for point in points:
        for role in roles:
            total += sum(pace.seconds(cell) for cell in status.missing(point, role))
        if "report" in roles and status.waiting(point):
            like = Cell(point, "report", Run(point.stack, point.task, status.sweep.recipe, 0, status.sweep.learning_rates[0]))
            total += status.waiting(point) * pace.seconds(like)
    return total


def rounds(status: Status, points: Sequence[Point], roles: Sequence[str], least: int) -> Iterator[list[Cell]]:
    """Cells that can be trained side by side, round after round; each round is made when it is asked for.

    A round holds the report cells of the points whose matrix is complete, then whole matrices of the next points until there
    are `least` cells. Cells that came back without a row are not handed out again.
    """
    tried: set[str] = set()
    while True:
        batch: list[Cell] = []
        for point in points:
            if "report" in roles:
                batch += [cell for cell in status.missing(point, "report") if cell.key not in tried]
        for point in points:
            if "select" in roles and (not batch or len(batch) < least):
                batch += [cell for cell in status.missing(point, "select") if cell.key not in tried]
        if not batch:
            return
        tried |= {cell.key for cell in batch}
        yield batch
