"""The content key of an execution: two executions with one key would do the same work on the same inputs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from functools import cache
from pathlib import Path

from hybridseq.site.book import Book, Chapter

ORACLES = ("mamba-ssm", "fla-core", "transformers")
_VERSIONS_THAT_MATTER = ("numpy", "torch", "matplotlib", "python-flint", "z3-solver", *ORACLES)
_SOURCE_SUFFIXES = {".py", ".c", ".h", ".json", ".mplstyle"}
# Rendering, ledger and command line cannot change what a chapter computes: only the part that executes it counts.
_SITE_FILES_THAT_EXECUTE = {"worker.py"}


@cache
def installed_version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def execution_key(book: Book, chapter: Chapter, profile: str, parameters: dict | None = None) -> str:
    """sha256 over the chapter, the package, the lock, the data a chapter may read, parameters, profile and versions.

    The ledger enters by this chapter's own entries, so that a change to one claim runs one chapter again.
    """
    digest = hashlib.sha256()
    _add(digest, "notebook", chapter.path.read_bytes())
    for path in _inputs(book):
        _add(digest, path.relative_to(book.root).as_posix(), path.read_bytes())
    settings = {
        "profile": profile,
        "parameters": parameters or {},
        "ledger": _own_entries(book, chapter),
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in _VERSIONS_THAT_MATTER},
    }
    _add(digest, "settings", json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, content: bytes) -> None:
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)


def _inputs(book: Book) -> list[Path]:
    site = book.root / "src" / "hybridseq" / "site"
    source = [
        path
        for path in (book.root / "src").rglob("*")
        if path.suffix in _SOURCE_SUFFIXES and (site not in path.parents or path.name in _SITE_FILES_THAT_EXECUTE)
    ]
    locks = list((book.root / "requirements").glob("*.txt"))
    # A journal is how a sweep remembers; what a chapter reads lies beside it.
    stored = book.root / "book" / "results"
    results = [p for p in stored.rglob("*") if p.is_file() and "journal" not in p.relative_to(stored).parts]
    return sorted(path for path in source + locks + results if ".egg-info" not in str(path))


def _own_entries(book: Book, chapter: Chapter) -> list:
    from hybridseq.site.ledger import entries_of

    return [entry for entry in entries_of(book) if isinstance(entry, dict) and entry.get("chapter") == chapter.number]
