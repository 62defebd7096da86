"""How anything in the package says what it claims, how it was checked, and over which scope (floor 0)."""

from hybridseq.evidence.checks import Check, ClaimFailed
from hybridseq.evidence.profiles import PROFILES, Profile
from hybridseq.evidence.provenance import Certificate, Manifest, write_atomically
from hybridseq.evidence.verdicts import EVIDENCE_KINDS, VERDICTS, Verdict, anchor, decide

__all__ = [
    "EVIDENCE_KINDS",
    "PROFILES",
    "VERDICTS",
    "Certificate",
    "Check",
    "ClaimFailed",
    "Manifest",
    "Profile",
    "Verdict",
    "anchor",
    "decide",
    "write_atomically",
]
