"""What several rooms of tests share: the project's folder, and the site that the tests open."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("book", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("book")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds pyproject.toml, `book/` and `chapters/`."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def built_site(project_root: Path) -> Path:
    """The folder of the built site: chapters execute, and the site renders, only where something changed."""
    from hybridseq.site.book import Book
    from hybridseq.site.build import build_site

    return build_site(Book(project_root), jobs=2).index.parent
