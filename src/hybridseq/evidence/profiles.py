"""How large the scopes of a run are: ``quick`` (what CI and a first-time reader run) or ``full``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

PROFILES = ("quick", "full")
Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Profile:
    """The profile of a run.

    Raises
    ------
    ValueError
        If ``name`` is not one of :data:`PROFILES`.

    Examples
    --------
    >>> Profile("quick").pick(quick=8, full=12)
    8
    """

    name: str

    def __post_init__(self):
        if self.name not in PROFILES:
            raise ValueError(f"profile={self.name!r} is unknown; choose one of {', '.join(PROFILES)}")

    def pick(self, *, quick: Choice, full: Choice) -> Choice:
        """The value that belongs to this profile."""
        return quick if self.name == "quick" else full

    def __str__(self) -> str:
        return self.name
