"""The book as it lies on disk: table of contents, chapters, configuration, and where built things go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from hybridseq.site.errors import BadInput, BookFailed

PROFILES = ("quick", "full")
_CHAPTER_NAME = re.compile(r"(\d+)_\w+")


@dataclass(frozen=True)
class Chapter:
    """One executable page: `number` is its identity, `slug` its file name without the suffix."""

    number: int
    slug: str
    path: Path

    @property
    def label(self) -> str:
        return f"chapter {self.number} ({self.slug})"

    def notebook(self) -> dict:
        """The stored notebook as plain data; BookFailed when the file is missing or not a notebook."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BookFailed(f"{self.label}: cannot read {self.path}: {error.strerror}") from error
        except ValueError as error:
            raise BookFailed(f"{self.label}: {self.path} is not a notebook: {error}") from error
        if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
            raise BookFailed(f"{self.label}: {self.path} is not a notebook: it has no list of cells")
        return data


def cell_name(chapter: Chapter, index: int, cell: dict | None = None) -> str:
    """How messages name a cell: its position counted from 1, its id, and its first line of text.

    >>> cell_name(Chapter(4, "04_parity", Path("x")), 6, {"id": "ab12", "source": ["x = 1\\n", "y = 2"]})
    'chapter 4 (04_parity), cell 7 [id ab12] "x = 1"'
    """
    name = f"{chapter.label}, cell {index + 1}"
    if cell is None:
        return name
    lines = [line.strip() for line in source_of(cell).splitlines() if line.strip()]
    first = f' "{lines[0][:60]}"' if lines else ""
    return f"{name} [id {cell.get('id', '?')}]{first}"


def source_of(cell: dict) -> str:
    """The text of a cell, which a notebook may store as one string or as a list of lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


@dataclass(frozen=True)
class Book:
    """A project folder that holds `_toc.yml`, `_config.yml`, `book/` and `chapters/`."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Book:
        """The book that `start` (default: the working folder) lies in, else the one this package was installed from.

        Raises BadInput when neither place holds a `_toc.yml`.
        """
        here = Path(start or Path.cwd()).resolve()
        for folder in (here, *here.parents, *Path(__file__).resolve().parents):
            if (folder / "_toc.yml").is_file() and (folder / "chapters").is_dir():
                return cls(folder)
        raise BadInput(f"--root: no book in {str(here)!r} or above: a book is a folder with _toc.yml and chapters/")

    # Where things lie
    @property
    def build_dir(self) -> Path:
        return self.root / "_build"

    @property
    def site_dir(self) -> Path:
        return self.build_dir / "html"

    @property
    def ledger_path(self) -> Path:
        return self.root / "book" / "claims.yml"

    def executed_dir(self, profile: str) -> Path:
        return self.build_dir / "executed" / profile

    # What it holds
    @cached_property
    def pages(self) -> tuple[str, ...]:
        """Every page of the table of contents in reading order, as a path without suffix, seen from the root."""
        toc = _read_yaml(self.root / "_toc.yml")
        if not isinstance(toc, dict) or "root" not in toc:
            raise BookFailed(f"{self.root / '_toc.yml'}: the table of contents needs a 'root' page")
        return tuple(_toc_pages(toc))

    @cached_property
    def chapters(self) -> tuple[Chapter, ...]:
        """The executable chapters of the table of contents, in reading order."""
        found = []
        for page in self.pages:
            if not page.startswith("chapters/"):
                continue
            slug = page.removeprefix("chapters/")
            match = _CHAPTER_NAME.fullmatch(slug)
            if not match:
                raise BookFailed(f"_toc.yml: {page!r} is no chapter name: it must look like 'chapters/04_a_parity_bit'")
            found.append(Chapter(int(match[1]), slug, self.root / "chapters" / f"{slug}.ipynb"))
        numbers = [chapter.number for chapter in found]
        if repeated := sorted({n for n in numbers if numbers.count(n) > 1}):
            raise BookFailed(f"_toc.yml: chapter numbers {repeated} are used twice")
        return tuple(found)

    @cached_property
    def config(self) -> dict:
        return _read_yaml(self.root / "_config.yml") or {}

    @property
    def address(self) -> str:
        """The public address of the repository, or '' while it is not known. It stands in `_config.yml` alone."""
        return str((self.config.get("repository") or {}).get("url") or "").rstrip("/")

    @cached_property
    def expected_minutes(self) -> dict[int, float]:
        """Minutes that the full profile of a chapter takes on two cores (`book/minutes.yml`, measured)."""
        path = self.root / "book" / "minutes.yml"
        table = (_read_yaml(path) or {}) if path.is_file() else {}
        return {int(number): float(minutes) for number, minutes in table.items()}

    def select(self, names: Iterable[str] = ()) -> tuple[Chapter, ...]:
        """The chapters called by number, slug or path; all of them when none is named.

        Raises BadInput naming the value and the chapters there are.
        """
        wanted = [_normal_name(name) for name in names]
        if not wanted:
            return self.chapters
        chosen = []
        for name in wanted:
            hits = [c for c in self.chapters if name in (str(c.number), c.slug)]
            if not hits:
                known = ", ".join(f"{c.number} ({c.slug})" for c in self.chapters) or "none yet"
                raise BadInput(f"CHAPTER: {name!r} is unknown; allowed: {known}")
            chosen += [c for c in hits if c not in chosen]
        return tuple(chosen)


def check_profile(profile: str) -> str:
    """The profile itself when it is known; BadInput naming the allowed ones otherwise."""
    if profile not in PROFILES:
        raise BadInput(f"--profile: {profile!r} is unknown; allowed: {', '.join(PROFILES)}")
    return profile


def _normal_name(name: str) -> str:
    stem = Path(str(name)).name.removesuffix(".ipynb")
    return str(int(stem)) if stem.isdigit() else stem


def _toc_pages(node: dict | Sequence) -> Iterable[str]:
    if isinstance(node, Sequence):
        for entry in node:
            yield from _toc_pages(entry)
        return
    for key in ("root", "file"):
        if key in node:
            yield re.sub(r"\.(md|ipynb)$", "", str(node[key]))
    for key in ("parts", "chapters", "sections", "subtrees", "entries"):
        yield from _toc_pages(node.get(key) or ())


def _read_yaml(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BookFailed(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise BookFailed(f"{path} is not valid YAML: {error}") from error
