"""Which trainer trains a run: the native one where it reaches, else the ensemble, else the plain one.

    native      the whole loop in C: TF and SSM layers, batches of 8, the two tasks it can draw; needs its extension
    ensemble    stacked torch: TF and SSM layers, any task and batch size; runs that differ in seed and rate go together
    plain       the definition, with a Python loop over tokens: every layer, slow

All three compute the same numbers up to rounding, so the choice changes the time that a run takes and the last digits of its
losses. Training amplifies those digits: two backends agree on a whole run in what it learns, not in every digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

import numpy as np

from hybridseq.learning.recipe import Outcome, Run

BACKENDS = ("native", "ensemble", "plain")
"""From the fastest to the one that reaches everything."""
REPLICAS = 11
"""Runs that an ensemble trains together; beyond that a core gains nothing."""


@dataclass(frozen=True)
class Choice:
    """A trainer's name, and the reason in words, for manifests and for `hybridseq doctor`."""

    backend: str
    reason: str


def unavailable(backend: str) -> str:
    """Why a trainer cannot be used on this machine, in words; empty if it can.

    Raises:
        ValueError: an unknown name.
    """
    _check_name(backend, BACKENDS)
    return _module("native").why_not() if backend == "native" else ""


def available() -> tuple[str, ...]:
    """The trainers that this machine has."""
    return tuple(backend for backend in BACKENDS if not unavailable(backend))


def why_not(backend: str, run: Run) -> str:
    """Why a trainer cannot train this run here, in words; empty if it can.

    Raises:
        ValueError: an unknown name.
    """
    missing = unavailable(backend)
    if missing or backend == "plain":
        return missing
    return _module(backend).supports(run if backend == "native" else run.stack) or ""


def choose(run: Run, backend: str = "auto") -> Choice:
    """The trainer for a run: the one asked for, or the fastest that can.

    Raises:
        ValueError: an unknown name, or a trainer that cannot train this run here.
    """
    _check_name(backend, ("auto", *BACKENDS))
    if backend != "auto":
        reason = why_not(backend, run)
        if reason:
            raise ValueError(f"backend={backend!r}: {reason}; backend='auto' takes what can")
        return Choice(backend, "asked for")
    refused = []
    for name in BACKENDS:
        reason = why_not(name, run)
        if not reason:
            return Choice(name, "; ".join(refused) or "the fastest, and it reaches this run")
        refused.append(f"not {name}: {reason}")
    raise RuntimeError("unreachable: the plain trainer takes every run")


def train(
    run: Run,
    parameters: np.ndarray | None = None,
    steps: int | None = None,
    record: Callable[[int, float], None] | None = None,
    *,
    backend: str = "auto",
    dtype: str = "float32",
) -> Outcome:
    """Train one run; the outcome says by which backend. Other arguments as in `hybridseq.learning.plain.train`.

    Raises:
        ValueError: as in `choose` and in the trainers.
    """
    if not isinstance(run, Run):
        raise ValueError(f"run={run!r}: must be a Run")
    _check_steps(run, steps)
    module = _module(choose(run, backend).backend)
    with _quiet(module):
        return module.train(run, parameters, steps, record, dtype=dtype)


def train_many(
    runs: Iterable[Run], backend: str = "auto", *, steps: int | None = None, dtype: str = "float32"
) -> Iterator[tuple[Run, Outcome]]:
    """Train runs one after the other on one core and give each with its outcome as it ends.

    Runs that go to the ensemble and differ in seed and learning rate alone are trained together, at most `REPLICAS` at a time.
    The others come in the order given.

    Raises:
        ValueError: as in `choose`, for any of the runs, before the first is trained.
    """
    return _trained(_groups(list(runs), backend), steps, dtype)


def _check_steps(run: Run, steps: int | None) -> None:
    whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if steps is not None and not (whole and 0 <= steps <= run.recipe.steps):
        raise ValueError(f"steps={steps!r}: must be an integer in 0..{run.recipe.steps}, the steps of the recipe")


def _groups(runs: list[Run], backend: str) -> list[tuple[str, list[Run]]]:
    """(backend, runs to train in one call), each group where its first run stands."""
    groups: list[tuple[str, list[Run]]] = []
    open_groups: dict[str, list[Run]] = {}
    for run in runs:
        name = choose(run, backend).backend
        shared = repr({key: value for key, value in run.config.items() if key not in ("seed", "learning_rate")})
        group = open_groups.get(shared) if name == "ensemble" else None
        if group is None or len(group) == REPLICAS:
            group = open_groups[shared] = []
            groups.append((name, group))
        group.append(run)
    return groups


def _trained(groups: list[tuple[str, list[Run]]], steps: int | None, dtype: str) -> Iterator[tuple[Run, Outcome]]:
    for name, runs in groups:
        module = _module(name)
        with _quiet(module):
            if name == "ensemble":
                outcomes = module.train_together(runs, steps=steps, dtype=dtype)
            else:
                outcomes = [module.train(run, steps=steps, dtype=dtype) for run in runs]
        yield from zip(runs, outcomes, strict=True)


def _module(backend: str) -> ModuleType:
    """Imported when first used: the native trainer needs no torch."""
    return import_module(f"hybridseq.learning.{backend}")


def _quiet(module: ModuleType) -> AbstractContextManager:
    """One torch thread for the trainers that use torch; more make their small operations wait for each other."""
    if module.BACKEND == "native":
        return nullcontext()
    return import_module("hybridseq.learning.torch_settings").one_quiet_thread()


def _check_name(backend: str, allowed: tuple[str, ...]) -> None:
    if backend not in allowed:
        near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(str(backend), allowed, 1))
        raise ValueError(f"backend={backend!r}: must be one of {', '.join(allowed)}{near}")
