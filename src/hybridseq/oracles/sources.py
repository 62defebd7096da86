"""Other people's reference code, taken as text from the installed distribution and executed without importing the package.

On a CPU `import mamba_ssm` cannot succeed and `import fla` wants triton, yet both ship reference functions in plain PyTorch.
An `Excerpt` names such functions. Loading it parses the installed file, checks that the text of each function is the one
that was pinned, and executes exactly that text; nothing else of the package runs. What it shows is agreement with
upstream's reference code, unmodified; it says nothing about upstream's kernels.
"""

from __future__ import annotations
import __future__ as future

import ast
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

FIX = "make oracle"


class OracleMissing(RuntimeError):
    """An oracle cannot run on this machine; the message says what would change that."""


class OracleChanged(RuntimeError):
    """The installed text is not the one that was pinned: renamed, moved or edited."""


@dataclass(frozen=True)
class Excerpt:
    """Functions and classes of one installed file.

    Attributes:
        distribution, version: as on the package index; another version is not used.
        path: file inside the distribution.
        names: what to take, in an order in which it can be executed. Decorators of a taken function are left out.
        sha256: of the taken texts, joined by newlines.
        stand_ins: names that the text refers to and that are not worth loading, with what replaces them (no decorators, no
            dispatch to kernels).
    """

    distribution: str
    version: str
    path: str
    names: tuple[str, ...]
    sha256: str
    stand_ins: Mapping[str, Callable[[], Any]] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "stand_ins", MappingProxyType(dict(self.stand_ins)))

    def __hash__(self):
        return hash((self.distribution, self.version, self.path, self.names, self.sha256))

    def installed_version(self) -> str | None:
        """Version of the installed distribution, or None."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None

    def file(self) -> Path:
        """The installed file.

        Raises:
            OracleMissing: the distribution is not installed, or in another version.
            OracleChanged: it is installed in the pinned version and lacks the file.
        """
        found = self.installed_version()
        if found is None:
            raise OracleMissing(f"{self.distribution} is not installed; `{FIX}` installs version {self.version}")
        if found != self.version:
            raise OracleMissing(f"{self.distribution} is {found}, the pinned text is that of {self.version}; `{FIX}` installs it")
        path = Path(str(metadata.distribution(self.distribution).locate_file(self.path)))
        if not path.is_file():
            raise OracleChanged(f"{self.distribution} {found} has no file {self.path}; it was there in the pinned version")
        return path

    def texts(self) -> dict[str, str]:
        """Source text by name, decorators left out.

        Raises:
            OracleChanged: a name is gone, or the texts are not the pinned ones.
        """
        source = self.file().read_text(encoding="utf-8")
        found = excerpts(source, self.names)
        absent = [name for name in self.names if name not in found]
        if absent:
            raise OracleChanged(f"{self.distribution} {self.version}, {self.path}: {', '.join(absent)} is not defined any more")
        digest = fingerprint(found[name] for name in self.names)
        if digest != self.sha256:
            raise OracleChanged(
                f"{self.distribution} {self.version}, {self.path}: the text of {', '.join(self.names)} has sha256 {digest}, "
                f"pinned was {self.sha256}; reinstall with `{FIX}`, or read the change and pin it"
            )
        return {name: found[name] for name in self.names}

    def load(self) -> Mapping[str, Any]:
        """The executed names. Executes upstream's text with torch, einops and the stand-ins as its only surroundings.

        Raises:
            OracleMissing, OracleChanged.
        """
        return _load(self)


def excerpts(source: str, names) -> dict[str, str]:
    """Texts of the top-level functions and classes called `names`, from `def` or `class` to their last line."""
    lines = source.splitlines()
    wanted = set(names)
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = (node for node in ast.parse(source).body if isinstance(node, kinds) and node.name in wanted)
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes}


def fingerprint(texts) -> str:
    """sha256 of texts joined by newlines."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@cache
def _load(excerpt: Excerpt) -> Mapping[str, Any]:
    texts = excerpt.texts()
    surroundings = _surroundings()
    surroundings |= {name: make() for name, make in excerpt.stand_ins.items()}
    for name, text in texts.items():
        where = f"<{excerpt.distribution} {excerpt.version}: {name}>"
        # annotations stay unevaluated, so that types which only annotate need no stand-in
        code = compile(text, where, "exec", flags=future.annotations.compiler_flag, dont_inherit=True)
        exec(code, surroundings)
    return MappingProxyType({name: surroundings[name] for name in texts})


def _surroundings() -> dict[str, Any]:
    try:
        import torch
        import torch.nn.functional
        from einops import rearrange, repeat
    except ImportError as error:
        raise OracleMissing(f"{error.name} is not installed; `{FIX}` installs it") from error
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "rearrange": rearrange, "repeat": repeat}
    return {"__name__": "hybridseq.oracles.excerpt", **names}
