"""Constructions as affine maps by name, of which single weights may be changed: what every model made by hand has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from hybridseq.residual import Affine

Change = tuple[str, str, str, object]
"""(map, target, source, weight); the source "1" is the bias."""


class NamedWeights(ABC):
    """Base of a frozen dataclass with a field `changes`: it gives `_maps`, all affine maps by name before any change."""

    changes: tuple[Change, ...]

    @abstractmethod
    def _maps(self) -> dict[str, Affine]: ...

    @cached_property
    def maps(self) -> Mapping[str, Affine]:
        """Every affine map by name, changes included. Raises ValueError for a change of a map that is not there."""
        maps = self._maps()
        for name, target, source, weight in self.changes:
            if name not in maps:
                raise ValueError(f"changes: {name!r} is no map of this construction; they are {', '.join(maps)}")
            maps[name] = maps[name].with_weight(target, source, weight)
        return maps

    def with_weight(self, name: str, target: str, source: str, weight) -> Self:
        """A copy with one weight changed (source "1" is the bias), for watching what breaks.

        >>> from hybridseq.constructions.hybrid_decoder import HybridDecoder
        >>> HybridDecoder(n=2, s=2).with_weight("L3.MLP out", "ANS", "both", 0).maps["L3.MLP out"].weight("ANS", "both")
        0
        """
        return replace(self, changes=(*self.changes, (name, target, source, weight)))

    def _with_changes(self, words: str) -> str:
        """A description, with the changes in words behind it."""
        changed = "; ".join(f"{name}: {target} <- {source} is {weight}" for name, target, source, weight in self.changes)
        return f"{words}, changed: {changed}" if changed else words


@dataclass(frozen=True)
class Removal:
    """One number set to zero: where it stood, what it was, and whether the construction's check then noticed."""

    name: str
    target: str
    source: str
    weight: object
    noticed: bool


def remove_each(model: NamedWeights, notices: Callable[[NamedWeights], bool], apart: Iterable[str] = ()) -> list[Removal]:
    """Set every non-zero weight and bias to zero in turn, those of the maps `apart` left out, and ask `notices` each time."""
    found = []
    for name in (name for name in model.maps if name not in apart):
        affine = model.maps[name]
        entries = [(r, affine.source.label(c), w) for r, c, w in affine.weights] + [(r, "1", w) for r, w in affine.bias]
        for row, source, weight in entries:
            target = affine.target.label(row)
            found.append(Removal(name, target, source, weight, notices(model.with_weight(name, target, source, 0))))
    return found
