"""The sweeps behind the book's learned figures, by name: `hybridseq sweep b-fig-6`.

`b-fig-4` and `b-fig-6` are Figures 4 and 6 of paper B. Sweeps whose names go on behind the figure change one thing that the paper
leaves open (an ablation) or repeat another protocol; they hold only the points that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe
from hybridseq.learning.stack import Stack
from hybridseq.learning.sweep import Point, Sweep, nearest
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

LEARNING_RATES = (1e-3, 10**-2.5, 1e-2, 10**-1.5)
"""Steps of sqrt(10), the middle of the paper's nine; the others never train one of these models."""

SELECT_SEEDS = tuple(range(11))
REPORT_SEEDS = tuple(range(100, 133))
FEW_SELECT_SEEDS = tuple(range(5))
FEW_REPORT_SEEDS = tuple(range(100, 111))

RECALL_WIDTHS = (4, 8, 12, 16, 20, 24)
COPYING_WIDTHS = (*RECALL_WIDTHS, 32)
COPYING_WINDOW = 20


def multi_key_recall() -> Framed:
    """Figure 6's task: 8 words, keys of two, the first key never stored (the released generator)."""
    return Framed(MultiKeyRecall(8, 2, skip_first=True))


def selective_copying(count_from: str) -> Framed:
    """Figure 4's task: 26 words, the numbers #5, ..., #9, a number at one position in five."""
    return Framed(SelectiveCopying(5, 26, count_from=count_from, first_number=5), density=0.2)


def points(task: Framed, names: Iterable[str], widths: Iterable[int], **options: Any) -> tuple[Point, ...]:
    """Stacks of these names and widths on one task, the narrow ones of each name first; other options as in `Stack`."""
    widths = tuple(widths)
    stacks = [Stack.parse(name, width=width, vocab_size=task.vocab_size, **options) for name in names for width in widths]
    return tuple(Point(f"{stack.name}-{stack.width}", stack, task) for stack in stacks)


def _figure_6() -> Sweep:
    names = ("SSM-TF", "TF-TF", "SSM-SSM", "TF-SSM")
    return Sweep(
        "b-fig-6", "Multi-key recall against parameters (paper B, Figure 6)", points(multi_key_recall(), names, RECALL_WIDTHS),
        LEARNING_RATES, SELECT_SEEDS, REPORT_SEEDS, Recipe(), rule="mean accuracy", representative="SSM-TF-16",
    )  # fmt: skip


def _figure_6_audit() -> Sweep:
    names = ("SSM-TF", "TF-TF", "SSM-SSM", "TF-SSM")
    return Sweep(
        "b-fig-6-audit", "Figure 6 by the protocol of a public audit: rates chosen from two runs of 1,000 steps",
        points(multi_key_recall(), names, RECALL_WIDTHS), LEARNING_RATES, (0, 1), FEW_REPORT_SEEDS, Recipe(),
        select_recipe=Recipe(steps=1000, total=4000), rule="mean accuracy",
    )  # fmt: skip


def _figure_6_convolution() -> Sweep:
    return _few(
        "b-fig-6-convolution", "Figure 6 without the recurrent layers' short convolution",
        points(multi_key_recall(), ("SSM-TF",), (8, 16, 24), convolution=False), Recipe(),
    )  # fmt: skip


def _figure_6_marked() -> Sweep:
    marked = Framed(MultiKeyRecall(8, 2, skip_first=True), marked=True)
    return _few(
        "b-fig-6-marked", "Figure 6 with a token before the words and one behind them",
        points(marked, ("TF-TF", "SSM-TF"), (24,)), Recipe(),
    )  # fmt: skip


def _figure_6_dropout() -> Sweep:
    chosen = points(multi_key_recall(), ("TF-TF", "SSM-TF"), (16, 24))
    return _few("b-fig-6-dropout", "Figure 6 without dropout", chosen, Recipe(dropout=0.0))


def _figure_4() -> Sweep:
    names = ("SSM-TF", "TF-TF", "SSM-SSM", "TF-SSM")
    return Sweep(
        "b-fig-4", "Selective copying against parameters (paper B, Figure 4), counted as the released generator does",
        points(selective_copying("previous"), names, COPYING_WIDTHS, window=COPYING_WINDOW),
        LEARNING_RATES, SELECT_SEEDS, REPORT_SEEDS, Recipe(), rule="mean accuracy", representative="SSM-TF-8",
    )  # fmt: skip


def _figure_4_definition() -> Sweep:
    return Sweep(
        "b-fig-4-definition", "Figure 4 counted as Definition 4.1 does",
        points(selective_copying("current"), ("SSM-TF", "TF-TF"), (8, 12, 24), window=COPYING_WINDOW),
        LEARNING_RATES, SELECT_SEEDS, REPORT_SEEDS, Recipe(), rule="mean accuracy",
    )  # fmt: skip


def _figure_4_convolution() -> Sweep:
    copying = selective_copying("previous")
    return _few(
        "b-fig-4-convolution", "Figure 4 without the recurrent layers' short convolution",
        points(copying, ("SSM-TF",), (8, 16, 24), window=COPYING_WINDOW, convolution=False), Recipe(),
    )  # fmt: skip


def _figure_4_marked() -> Sweep:
    marked = Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5), density=0.2, marked=True)
    return _few(
        "b-fig-4-marked", "Figure 4 with a token before the words and one behind them",
        points(marked, ("TF-TF", "SSM-TF"), (24,), window=COPYING_WINDOW), Recipe(),
    )  # fmt: skip


def _few(name: str, title: str, chosen: tuple[Point, ...], recipe: Recipe) -> Sweep:
    return Sweep(name, title, chosen, LEARNING_RATES, FEW_SELECT_SEEDS, FEW_REPORT_SEEDS, recipe, rule="mean accuracy")


_SWEEPS: dict[str, Callable[[], Sweep]] = {
    "b-fig-6": _figure_6,
    "b-fig-4": _figure_4,
    "b-fig-4-definition": _figure_4_definition,
    "b-fig-6-convolution": _figure_6_convolution,
    "b-fig-6-marked": _figure_6_marked,
    "b-fig-6-dropout": _figure_6_dropout,
    "b-fig-4-convolution": _figure_4_convolution,
    "b-fig-4-marked": _figure_4_marked,
    "b-fig-6-audit": _figure_6_audit,
}

SWEEPS = tuple(_SWEEPS)
"""Names, in the order in which one would train them."""


def find(name: str) -> Sweep:
    """The sweep called `name`.

    Raises:
        ValueError: no such sweep; the message names the nearest one and all there are.

    Example:
        >>> find("b-fig-6").size
        1848
    """
    if not isinstance(name, str):
        raise ValueError(f"sweep {name!r}: must be a name; there are {', '.join(SWEEPS)}")
    if name not in _SWEEPS:
        raise ValueError(f"sweep {name!r}: unknown{nearest(name, SWEEPS)}; there are {', '.join(SWEEPS)}")
    return _made(name)


@cache
def _made(name: str) -> Sweep:
    return _SWEEPS[name]()
