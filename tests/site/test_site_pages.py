"""The built site as files: links between chapters and ledger in both directions, downloads, figures, addresses."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup

from hybridseq.evidence import anchor
from hybridseq.site.book import Book
from hybridseq.site.ledger import NOT_BUILT, merge
from hybridseq.site.links import check_site
from hybridseq.site.pages import ledger_anchor

BOOK = Book(Path(__file__).resolve().parents[2])
pytestmark = pytest.mark.slow


@functools.cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_bytes(), "html.parser")


@pytest.fixture(scope="module")
def claims(built_site):
    return merge(BOOK)


def test_every_link_and_fragment_resolves(built_site):
    assert check_site(built_site, BOOK.pages) == []


def test_no_two_places_of_a_page_share_an_address(built_site):
    for name in BOOK.pages:
        ids = [tag["id"] for tag in soup(built_site / f"{name}.html").find_all(id=True)]
        assert sorted({i for i in ids if ids.count(i) > 1}) == [], name


def test_every_claim_has_a_row(built_site, claims):
    page = soup(built_site / "book/claims.html")
    assert [c.entry.id for c in claims if page.find(id=ledger_anchor(c.entry.id)) is None] == []


def test_a_decided_claim_and_its_cell_link_to_each_other(built_site, claims):
    ledger = built_site / "book/claims.html"
    decided = [claim for claim in claims if claim.verdict != NOT_BUILT]
    assert decided
    for claim in decided:
        chapter = next(c for c in BOOK.chapters if c.number == claim.entry.chapter)
        row = soup(ledger).find(id=ledger_anchor(claim.entry.id)).find_parent("tr")
        forward = f"../chapters/{chapter.slug}.html#{anchor(claim.entry.id)}"
        assert row.find("a", href=forward), f"{claim.entry.id}: the ledger does not lead to its cell"
        assert claim.verdict in row.get_text(), claim.entry.id
        box = soup(built_site / f"chapters/{chapter.slug}.html").find(id=anchor(claim.entry.id))
        assert box is not None, f"{claim.entry.id}: no box on its chapter's page"
        back = f"../book/claims.html#{ledger_anchor(claim.entry.id)}"
        assert box.find("a", href=back), f"{claim.entry.id}: its box does not lead to the ledger"


def test_the_landing_page_counts_the_claims(built_site, claims):
    text = " ".join(soup(built_site / "book/index.html").find("article").get_text(" ").split())
    assert f"{len(claims)} claims:" in text


def test_a_claim_that_no_run_decided_says_so(built_site, claims):
    page = soup(built_site / "book/claims.html")
    for claim in claims:
        if claim.verdict == NOT_BUILT:
            row = page.find(id=ledger_anchor(claim.entry.id)).find_parent("tr")
            assert row.select_one(".verdict").get_text() == NOT_BUILT, claim.entry.id


@pytest.mark.parametrize("chapter", BOOK.chapters, ids=lambda chapter: chapter.slug)
def test_a_chapter_offers_its_notebook_without_outputs(built_site, chapter):
    page = built_site / f"chapters/{chapter.slug}.html"
    links = [a["href"] for a in soup(page).find_all("a", href=re.compile(r"\.ipynb$"))]
    assert links
    for link in links:
        offered = json.loads((page.parent / link).resolve().read_text(encoding="utf-8"))
        assert offered["cells"] == chapter.notebook()["cells"], link


@pytest.mark.parametrize("chapter", BOOK.chapters, ids=lambda chapter: chapter.slug)
def test_figures_are_numbered_and_open_with_their_finding(built_site, chapter):
    figures = soup(built_site / f"chapters/{chapter.slug}.html").select("article figure:has(img)")
    numbers = [figure.select_one(".caption-number").get_text(strip=True) for figure in figures]
    assert numbers == [f"Figure {chapter.number}.{i}" for i in range(1, len(figures) + 1)]
    for figure in figures:
        assert figure.select_one("figcaption strong").get_text().rstrip().endswith((".", "!", "?"))


@pytest.mark.parametrize("name", BOOK.pages)
def test_addresses_outside_are_papers_or_projects(built_site, name):
    allowed = {"doi.org", "dx.doi.org", "arxiv.org", "transformer-circuits.pub"}
    allowed |= {"huggingface.co", "github.com", "flintlib.org", "jfly.uni-koeln.de"}
    if BOOK.address:
        allowed |= {urlsplit(BOOK.address).netloc, "colab.research.google.com", "mybinder.org"}
    links = [urljoin("page:", a["href"]) for a in soup(built_site / f"{name}.html").find("article").find_all("a", href=True)]
    outside = [urlsplit(link) for link in links if urlsplit(link).scheme in ("http", "https")]
    assert [link.geturl() for link in outside if link.scheme != "https" or link.netloc not in allowed] == []


def test_the_notation_page_gives_each_symbol_an_address(built_site):
    page = soup(built_site / "book/notation.html")
    symbols = [tag["id"] for tag in page.find_all(id=re.compile(r"^sym-"))]
    assert len(symbols) == len(set(symbols)) >= 30
    linked = {
        a["href"].partition("#")[2]
        for chapter in BOOK.chapters
        for a in soup(built_site / f"chapters/{chapter.slug}.html").find_all("a", href=re.compile(r"notation\.html#sym-"))
    }
    assert linked <= set(symbols)
    assert linked, "no chapter links to the notation page"
