"""One browser for all tests of pages; a book of one chapter, small enough to render in a test, whole enough to be broken."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hybridseq.site.book import Book

CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CONFIG = {
    "title": "A small book",
    "author": "nobody",
    "only_build_toc_files": True,
    "exclude_patterns": [".*/**", "_build/**"],
    "parse": {"myst_enable_extensions": ["amsmath", "colon_fence", "dollarmath"]},
    "repository": {"url": "", "branch": "main", "path_to_book": ""},
    "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    "sphinx": {"extra_extensions": ["sphinx-mathjax-offline"], "config": {"nitpicky": True, "numfig": True}},
}
TOC = {
    "format": "jb-book",
    "root": "book/index",
    "chapters": [{"file": "chapters/04_small"}, {"file": "book/claims"}, {"file": "book/run-status"}],
}
LEDGER = [
    {"id": "A-lem-5.2", "paper": "A", "kind": "lemma", "place": "Lemma 5.2", "statement": "Parity of $|x|$ is kept.",
     "chapter": 4, "expect": "holds", "deviations": ["Ties go to zero."]},
    {"id": "B-fig-4", "paper": "B", "kind": "figure", "place": "Figure 4", "statement": "A figure.", "chapter": 13,
     "expect": "measured"},
]
CLAIM = """\
from hybridseq.evidence import Check, decide
check = Check.true("parity kept", weight == 3, "all strings to n = 2", cases=7, counterexample={"weight": weight})
decide("A-lem-5.2", check, verdict="holds", evidence="exhaustive", value={"weight": weight})"""
FIGURE = """\
import matplotlib.pyplot as plt
from hybridseq.figures import publish
fig, ax = plt.subplots(figsize=(2, 1))
ax.plot([0, 1], [0, 1])
print("before the figure")
publish(fig, name="fig-line", finding="It rises.", caption="Two points.", alt="A rising line.")"""


def markdown(identity: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": identity, "metadata": {}, "source": text}


def code(identity: str, text: str, *tags: str) -> dict:
    return {"cell_type": "code", "id": identity, "metadata": {"tags": list(tags)} if tags else {}, "source": text,
            "outputs": [], "execution_count": None}


def small_chapter() -> list[dict]:
    return [
        markdown("title", "# A small chapter\n\nOne line about it."),
        code("settings", 'profile = "quick"\nseed = 0', "parameters"),
        code("weights", "weight = 3"),
        markdown("section", "## The claim\n\nAs {numref}`fig-line` shows."),
        code("claim", CLAIM, "claim"),
        code("figure", FIGURE),
    ]


class SmallBook:
    """Writes the book under `root` unless one lies there; its methods change what is on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if root.exists():
            return
        for folder in ("book", "chapters", "src/hybridseq", "requirements"):
            (root / folder).mkdir(parents=True)
        (root / "src/hybridseq/a_module.py").write_text("x = 1\n", encoding="utf-8")
        (root / "requirements/lock.txt").write_text("numpy==2.4.6\n", encoding="utf-8")
        (root / "book/index.md").write_text("# A small book\n\n## What it is\n\nWords.\n", encoding="utf-8")
        self.yaml("_config.yml", CONFIG)
        self.yaml("_toc.yml", TOC)
        self.yaml("book/claims.yml", LEDGER)
        self.chapter(small_chapter())

    @property
    def book(self) -> Book:
        return Book(self.root)

    @property
    def index(self) -> Path:
        return self.root / "_build/html/index.html"

    def yaml(self, name: str, content: object) -> None:
        (self.root / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def chapter(self, cells: list[dict]) -> None:
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": cells,
        }
        (self.root / "chapters/04_small.ipynb").write_text(json.dumps(notebook, indent=1), encoding="utf-8")

    def source(self, identity: str, text: str) -> None:
        """Replace the text of one cell."""
        cells = json.loads((self.root / "chapters/04_small.ipynb").read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell["id"] == identity:
                cell["source"] = text
        self.chapter(cells)


@pytest.fixture
def small_book(tmp_path: Path) -> SmallBook:
    """A fresh small book of the test's own."""
    return SmallBook(tmp_path / "project")


@pytest.fixture
def light_book(small_book: SmallBook) -> SmallBook:
    """A small book that draws nothing: it runs faster, and its site would not build."""
    small_book.source("figure", "None")
    return small_book


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hybridseq.site.build import build_site

    small = SmallBook(tmp_path_factory.mktemp("built") / "project")
    build_site(small.book)
    return small.root


@pytest.fixture
def built_book(_built: Path, tmp_path: Path) -> SmallBook:
    """A copy of a small book whose chapter has run and whose site stands."""
    shutil.copytree(_built, tmp_path / "project")
    return SmallBook(tmp_path / "project")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """One Chromium for the session. Without one: skipped on a reader's machine, failed in CI."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        message = "no Chromium to look at the site with: install it, for example with 'apt-get install chromium'"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()
