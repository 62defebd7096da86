"""Which source files decide the numbers of a run, and one hash of what they say.

A stored run is worth keeping as long as the code that made it is the code that is here. The hash reads Python as a syntax tree
without comments, docstrings, annotations of arguments and what is raised, and C without comments and line breaks: a better
sentence in a docstring makes no result stale, a changed constant does.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]

_EVERY = ("rng.py", "learning/stack.py", "learning/recipe.py", "learning/batches.py")
_MODEL = ("learning/modules.py", "learning/plain.py", "arithmetic/floating.py")
FILES = {
    "native": (*_EVERY, "learning/native/*.py", "learning/native/*.c", "learning/native/*.h"),
    "ensemble": (*_EVERY, "learning/ensemble.py", "learning/stacked_scan.py", "learning/torch_settings.py", *_MODEL),
    "plain": (*_EVERY, *_MODEL, "mixers/attention.py", "mixers/mamba*.py", "mixers/rotary.py", "mixers/convolution.py",
              "mixers/delta_rule.py", "mixers/linear_attention.py", "mixers/recurrence.py"),
}
"""By backend, the files that its numbers follow from, beside the task's own."""

_LENGTH = 12


def sources(backend: str, task: Any) -> dict[str, str]:
    """Path below the package -> hash of what the file says, for a backend of `FILES` and a framed task.

    Raises:
        ValueError: unknown backend.
    """
    if backend not in FILES:
        raise ValueError(f"backend={backend!r}: must be one of {', '.join(FILES)}")
    paths = {path for pattern in FILES[backend] for path in PACKAGE.glob(pattern)}
    paths |= set(_task_files(task))
    return {path.relative_to(PACKAGE).as_posix(): file_hash(path) for path in sorted(paths)}


@cache
def code_hash(backend: str, task: Any) -> str:
    """12 hexadecimal digits over `sources`, as they were when this process asked first: what it has imported stays what runs."""
    return hash_of(sources(backend, task))


def hash_of(files: dict[str, str]) -> str:
    """12 hexadecimal digits over a table of file hashes."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:_LENGTH]


def _task_files(task: Any) -> Iterator[Path]:
    """Files of the package that define what the task frames, inherited classes included."""
    for kind in type(getattr(task, "task", None)).__mro__[:-1]:
        path = Path(inspect.getsourcefile(kind) or "") if kind.__module__ not in ("builtins", "abc") else Path()
        if PACKAGE in path.parents:
            yield path


@cache
def _hash_at(path: Path, changed: int) -> str:
    text = path.read_text(encoding="utf-8")
    said = said_by_python(text) if path.suffix == ".py" else said_by_c(text)
    return hashlib.sha256(said.encode()).hexdigest()[:_LENGTH]


def file_hash(path: Path) -> str:
    """12 hexadecimal digits of what a Python or C file says; comments do not count."""
    return _hash_at(path, path.stat().st_mtime_ns)


def said_by_c(text: str) -> str:
    """C without comments and with every stretch of blanks as one.

    >>> said_by_c("a = 1; // one\\n  b = 2; /* two */")
    'a = 1; b = 2;'
    """
    text = re.sub(r'("(?:\\.|[^"\\])*")|/\*.*?\*/|//[^\n]*', lambda found: found[1] or " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()


def said_by_python(text: str) -> str:
    """The syntax tree of a module as text, the same in every version of Python for the code of this package.

    >>> said_by_python("x = 1  # one") == said_by_python("x   =   1")
    True
    >>> said_by_python("x = 1") == said_by_python("x = 2")
    False
    """
    return _written(ast.parse(text))


# ast.dump is no help here: what it leaves out changes from one version of Python to the next.
_SILENT = {"ctx", "kind", "type_comment", "type_params", "type_ignores", "returns", "lineno"}


def _written(node: Any) -> str:
    if isinstance(node, list):
        return "[" + " ".join(map(_written, node)) + "]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__}:{node!r}"
    if isinstance(node, ast.Raise):
        return "Raise"
    parts = []
    for name, value in ast.iter_fields(node):
        empty = (value is None or value == []) and not isinstance(node, ast.Constant)
        if name in _SILENT or empty or (name == "annotation" and isinstance(node, ast.arg)):
            continue
        if name == "body" and isinstance(value, list):
            value = [statement for statement in value if not _is_text(statement)]
        parts.append(f"{name}={_written(value)}")
    return f"{type(node).__name__}({' '.join(parts)})"


def _is_text(statement: ast.stmt) -> bool:
    """A string on its own: a docstring, or the text under a constant."""
    return (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str))
