"""Certificates and manifests: plain data that says where a result comes from, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hybridseq.evidence.checks import plain


def canonical_json(data: Any) -> str:
    """``data`` as JSON with sorted keys and no spaces: equal data give equal text."""
    return json.dumps(plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(data: Any) -> str:
    """SHA-256 of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def write_atomically(path: Path | str, text: str) -> Path:
    """Write ``text`` to ``path`` so that a reader sees the old or the new content, never half of one.

    The text goes to a temporary file beside ``path``, is flushed to disk, and replaces ``path`` in one step; on any error the
    temporary file is removed and ``path`` is as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


@dataclass(frozen=True)
class Certificate:
    """Plain data that an independent replayer can check.

    ``kind`` names the argument (and so the replayer), ``data`` holds everything that the replay needs.
    """

    kind: str
    data: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical content."""
        return content_hash({"kind": self.kind, "data": self.data})

    def to_json(self) -> str:
        """JSON text with the content and its hash."""
        return json.dumps({"kind": self.kind, "data": plain(self.data), "hash": self.hash}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read :meth:`to_json`'s text; ``ValueError`` if it is no certificate or its content does not match its hash."""
        stored = json.loads(text)
        missing = {"kind", "data", "hash"} - set(stored if isinstance(stored, dict) else ())
        if missing:
            raise ValueError(f"not a certificate: the text lacks {', '.join(sorted(missing))}; write it with to_json()")
        certificate = cls(stored["kind"], stored["data"])
        if certificate.hash != stored["hash"]:
            raise ValueError(f"certificate of kind {certificate.kind!r}: content and hash disagree; it was changed")
        return certificate


@dataclass(frozen=True)
class Manifest:
    """Where a computed result comes from: command, configuration, sources, seeds, versions, machine.

    ``sources`` maps a file name to its SHA-256; ``roles`` says what each group of seeds was used for.
    """

    command: str
    config: Mapping[str, Any]
    seeds: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    selection: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the hash of the configuration and the versions and machine of this process."""
        return {
            "command": self.command,
            "config": plain(self.config),
            "config_hash": content_hash(self.config),
            "seeds": plain(self.seeds),
            "sources": dict(self.sources),
            "selection": self.selection,
            "versions": package_versions(),
            "machine": machine(),
        }


def package_versions(names: tuple[str, ...] = ("numpy", "torch", "matplotlib", "z3-solver", "python-flint")) -> dict[str, str]:
    """Installed versions, ``"not installed"`` where a package is missing; Python itself first."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Processor model, logical cores and operating system of this machine (no host name)."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            model = next((line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
