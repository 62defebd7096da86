"""A residual stream R^d as an ordered direct sum of named subspaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Stream"]

_REFERENCE = re.compile(r"^(?P<name>[A-Za-z_]\w*)(?:\[(?P<body>[^\[\]]+)\])?$")


@dataclass(frozen=True)
class Stream:
    """Named coordinates: `Stream({"g": 1, "A": 3})` is R^4 with coordinates g, A[0], A[1], A[2] in this order.

    spaces: a mapping (or a tuple of pairs) from name to dimension >= 1; names are Python identifiers.
    Raises ValueError for a name that is no identifier, a repeated name or a dimension below 1.

    >>> stream = Stream({"g": 1, "A": 3})
    >>> stream.dim, stream.slice("A"), stream.label(2)
    (4, slice(1, 4, None), 'A[1]')
    >>> list(stream.coordinates("A[::2]"))
    [1, 3]
    """

    spaces: tuple[tuple[str, int], ...]

    def __post_init__(self):
        pairs = self.spaces.items() if isinstance(self.spaces, Mapping) else self.spaces
        pairs = tuple((name, dim) for name, dim in pairs)
        for name, dim in pairs:
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"spaces: the name {name!r} must be a Python identifier, such as 'A' or 'PAR'")
            if isinstance(dim, bool) or int(dim) != dim or dim < 1:
                raise ValueError(f"spaces: the dimension of {name!r} must be an integer >= 1, got {dim!r}")
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError(f"spaces: names must differ, got {[name for name, _ in pairs]}")
        object.__setattr__(self, "spaces", tuple((name, int(dim)) for name, dim in pairs))

    @property
    def dim(self) -> int:
        """The dimension of the whole stream."""
        return sum(dim for _, dim in self.spaces)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the subspaces, in order."""
        return tuple(name for name, _ in self.spaces)

    def slice(self, name: str) -> slice:
        """The coordinates of one subspace as a slice. Raises ValueError for an unknown name."""
        start = 0
        for space, dim in self.spaces:
            if space == name:
                return slice(start, start + dim)
            start += dim
        raise ValueError(f"name must be one of {', '.join(self.names)}, got {name!r}")

    def read(self, x, name: str):
        """The coordinates of one subspace: x of shape (..., dim) -> (..., dimension of the subspace)."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"x must have {self.dim} coordinates in its last axis, got {x.shape[-1]}")
        return x[..., self.slice(name)]

    def coordinates(self, reference: str) -> range:
        """The coordinates a reference means: "A", "A[2]", "A[-1]", "A[1:]", "A[::2]" as in Python.

        Raises ValueError for an unknown name, a malformed reference or an index outside the subspace.
        """
        match = _REFERENCE.match(reference)
        if match is None:
            raise ValueError(f"reference must look like 'A', 'A[2]' or 'A[::2]', got {reference!r}")
        place = self.slice(match["name"])
        inside = range(place.start, place.stop)
        if match["body"] is None:
            return inside
        try:
            if ":" in match["body"]:
                return inside[slice(*(int(part) if part.strip() else None for part in match["body"].split(":")))]
            coordinate = inside[int(match["body"])]
            return range(coordinate, coordinate + 1)
        except (ValueError, TypeError, IndexError) as problem:
            raise ValueError(
                f"reference {reference!r} must index the {len(inside)} coordinates of {match['name']!r}"
            ) from problem

    def label(self, coordinate: int) -> str:
        """The name of one coordinate: "g" in a subspace of dimension 1, "A[1]" in a larger one."""
        if not 0 <= coordinate < self.dim:
            raise ValueError(f"coordinate must lie in 0..{self.dim - 1}, got {coordinate}")
        for name, dim in self.spaces:
            if coordinate < dim:
                return name if dim == 1 else f"{name}[{coordinate}]"
            coordinate -= dim
        raise AssertionError("unreachable")

    def labels(self) -> list[str]:
        """The names of all coordinates, in order."""
        return [name if dim == 1 else f"{name}[{i}]" for name, dim in self.spaces for i in range(dim)]
