"""Deciding a claim of the ledger from executed checks, and recording the decision."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridseq.evidence.checks import Check, ClaimFailed, plain
from hybridseq.evidence.provenance import write_atomically

VERDICTS = (
    "not built",
    "holds",
    "holds after repair",
    "contradicted",
    "measured",
    "measured at smaller scale",
    "undecided",
)
"""What the ledger can say of a claim; ``not built`` is the state before any chapter decided it."""

EVIDENCE_KINDS = (
    "proved here",
    "proved in the source",
    "machine-proved",
    "exhaustive",
    "certificate",
    "float with proved margin",
    "sampled",
    "trained",
)
"""What stands behind a verdict."""

RECORD_FOLDER = "HYBRIDSEQ_CLAIMS"
RECORD_CHAPTER = "HYBRIDSEQ_CHAPTER"


def anchor(claim: str) -> str:
    """The HTML id of a claim's box: ``claim-`` and the id with dots as dashes."""
    return "claim-" + claim.replace(".", "-")


@dataclass(frozen=True)
class Verdict:
    """A decided claim: verdict, evidence, scope and the checks behind it."""

    claim: str
    verdict: str
    evidence: tuple[str, ...]
    scope: str
    checks: tuple[Check, ...]
    value: Mapping[str, Any]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the record."""
        return {
            "id": self.claim,
            "verdict": self.verdict,
            "evidence": list(self.evidence),
            "scope": self.scope,
            "value": plain(self.value),
            "note": self.note,
            "checks": [check.as_dict() for check in self.checks],
        }

    def __str__(self) -> str:
        head = f"{self.claim}: {self.verdict} ({', '.join(self.evidence)})\n  scope: {self.scope}"
        lines = [f"  {check}" for check in self.checks]
        return "\n".join([head, *lines] + ([f"  note: {self.note}"] if self.note else []))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from hybridseq.evidence.display import verdict_html

        return verdict_html(self)


def decide(
    claim: str,
    *checks: Check,
    verdict: str = "holds",
    evidence: Sequence[str] = ("exhaustive",),
    scope: str | None = None,
    value: Mapping[str, Any] | None = None,
    note: str = "",
) -> Verdict:
    """Decide one claim of the ledger: every check must have passed.

    Parameters
    ----------
    claim : the claim's id in ``book/claims.yml``.
    checks : the executed checks; at least one, unless the verdict is ``undecided``.
    verdict : what passing checks establish (one of :data:`VERDICTS` but ``not built``). A claim that is ``contradicted`` has
        checks that pass when the contradiction is there.
    evidence : one or more of :data:`EVIDENCE_KINDS`.
    scope : in words; by default the scopes of the checks.
    value : the deciding numbers; by default those of the checks.

    When the builder runs the chapter, the verdict is appended to its record; elsewhere nothing is written.

    Raises
    ------
    ClaimFailed
        If a check did not pass; the message shows its counter-example. Nothing is recorded then.
    ValueError
        If ``verdict`` or ``evidence`` is unknown, or no check is given.
    """
    if verdict not in VERDICTS[1:]:
        raise ValueError(f"verdict={verdict!r} is unknown; choose one of {', '.join(VERDICTS[1:])}")
    evidence = (evidence,) if isinstance(evidence, str) else tuple(evidence)
    unknown = [kind for kind in evidence if kind not in EVIDENCE_KINDS]
    if unknown or not evidence:
        raise ValueError(f"evidence={evidence!r}: give one or more of {', '.join(EVIDENCE_KINDS)}")
    if verdict == "undecided":
        if not note.strip():
            raise ValueError(f"claim {claim}: verdict 'undecided' needs the reason in note=")
    elif not checks:
        raise ValueError(f"claim {claim}: a verdict needs at least one executed Check")
    failed = [check for check in checks if not check.passed]
    if failed:
        raise ClaimFailed(f"claim {claim} does not hold here:\n" + "\n".join(str(check) for check in failed))
    if value is None:
        value = {key: entry for check in checks for key, entry in check.value.items()}
    decided = Verdict(claim, verdict, evidence, scope or "; ".join(check.scope for check in checks), checks, value, note)
    _record(decided)
    return decided


def _record(decided: Verdict) -> None:
    folder = os.environ.get(RECORD_FOLDER)
    if not folder:
        return
    chapter = os.environ.get(RECORD_CHAPTER, "").strip()
    if not chapter:
        raise ValueError(f"{RECORD_FOLDER} is set but {RECORD_CHAPTER} is not: the builder must name the chapter")
    path = Path(folder) / f"{chapter}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"chapter": chapter, "claims": []}
    if any(entry["id"] == decided.claim for entry in record["claims"]):
        raise ValueError(f"claim {decided.claim} is decided twice in chapter {chapter}; decide it in one cell")
    record["claims"].append(decided.as_dict())
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
