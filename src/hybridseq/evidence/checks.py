"""One executed check: what was tested, over which cases, and the first counter-example when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np


class ClaimFailed(AssertionError):
    """A claim's check did not pass; the message carries the counter-example."""


def plain(value: Any) -> Any:
    """``value`` as data that JSON can hold: numpy scalars and arrays, Fractions, tuples and sets become plain types."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, set | frozenset):
        return sorted(plain(v) for v in value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Fraction):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    return str(value)


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Parameters
    ----------
    name : what was checked, as a sentence fragment.
    passed : the outcome.
    scope : the cases that were looked at, for example ``"all 2^16 bit strings, s = 2, 3, 4, 8"``.
    cases : how many cases that is (>= 1; a check that looked at nothing is refused).
    counterexample : the first failing case, or None.
    value : numbers that decide the matter, by name.

    Raises
    ------
    ValueError
        If ``cases`` is below 1 or ``scope`` is empty.
    """

    name: str
    passed: bool
    scope: str
    cases: int = 1
    counterexample: Any = None
    value: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if not self.name.strip() or not self.scope.strip():
            raise ValueError("a Check needs a name and a scope in words")
        if int(self.cases) < 1:
            raise ValueError(f"cases={self.cases!r} in check {self.name!r}: a check must look at one case or more")
        object.__setattr__(self, "passed", bool(self.passed))
        object.__setattr__(self, "cases", int(self.cases))
        object.__setattr__(self, "value", dict(self.value or {}))

    @classmethod
    def true(cls, name, condition, scope, cases=1, counterexample=None, value=None) -> Check:
        """A check of one condition."""
        passed = bool(condition)
        return cls(name, passed, scope, cases, None if passed else counterexample, value or {})

    @classmethod
    def equal(cls, name, got, expected, scope, inputs=None, value=None) -> Check:
        """A check that two arrays agree everywhere, exactly.

        ``inputs`` (same leading length) names the failing case in the counter-example. A shape mismatch is a failure.
        """
        got, expected = np.asarray(got), np.asarray(expected)
        if got.shape != expected.shape:
            report = {"got shape": got.shape, "expected shape": expected.shape}
            return cls(name, False, scope, max(got.size, 1), plain(report), value or {})
        wrong = np.atleast_1d(got != expected)
        if not wrong.any():
            return cls(name, True, scope, got.size, None, value or {})
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        report = {
            "index": first,
            "got": np.atleast_1d(got)[first],
            "expected": np.atleast_1d(expected)[first],
            "wrong": int(wrong.sum()),
        }
        if inputs is not None:
            report["input"] = inputs[first[0]]
        return cls(name, False, scope, got.size, plain(report), value or {})

    @classmethod
    def close(cls, name, got, expected, scope, tolerance, value=None) -> Check:
        """A check that two float arrays differ by at most ``tolerance`` (absolute); the largest difference is its value."""
        got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
        if got.shape != expected.shape:
            report = {"got shape": got.shape, "expected shape": expected.shape}
            return cls(name, False, scope, max(got.size, 1), plain(report), value or {})
        if not tolerance >= 0:
            raise ValueError(f"tolerance={tolerance!r} in check {name!r}: it must be a number >= 0; for 0 use Check.equal")
        with np.errstate(invalid="ignore"):  # equal infinities have no gap, but their difference is a NaN
            gaps = np.atleast_1d(np.where(got == expected, 0.0, np.abs(got - expected)))
        worst = tuple(int(i) for i in np.unravel_index(np.argmax(gaps), gaps.shape)) if gaps.size else ()
        gap = float(gaps[worst]) if gaps.size else 0.0  # argmax finds a NaN first
        found = {"largest difference": gap, "tolerance": tolerance, **(value or {})}
        passed = bool(gap <= tolerance)  # a NaN compares False and therefore fails
        report = None if passed else {"index": worst, "largest difference": gap}
        return cls(name, passed, scope, got.size, plain(report), found)

    @classmethod
    def replayed(cls, stored: Iterable[Any], replay: Callable[[str], Check], what: str) -> Check:
        """Every certificate, written out as text, is accepted by `replay`; none at all is a failure. The value counts them."""
        stored = list(stored)
        name = "each certificate replayed from its text"
        if not stored:
            return cls(name, False, what, 1, "no certificate was found")
        wrong = [verdict.counterexample for verdict in (replay(c.to_json()) for c in stored) if not verdict.passed]
        return cls.true(name, not wrong, what, len(stored), wrong[:1], {"certificates": len(stored)})

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the record."""
        return {
            "name": self.name,
            "passed": self.passed,
            "scope": self.scope,
            "cases": self.cases,
            "counterexample": plain(self.counterexample),
            "value": plain(self.value),
        }

    def __str__(self) -> str:
        mark = "pass" if self.passed else "FAIL"
        text = f"[{mark}] {self.name}: {self.scope} ({self.cases:,} case{'s' if self.cases != 1 else ''})"
        return text if self.passed else f"{text}\n       counter-example: {plain(self.counterexample)}"

    def _repr_html_(self) -> str:
        from hybridseq.evidence.display import check_html

        return check_html(self)
