"""Each chapter runs under papermill, quick profile, and decides its claims; what ran here is what the site shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridseq.site.book import Book, cell_name
from hybridseq.site.execute import run_chapters
from hybridseq.site.figures import check_figures
from hybridseq.site.ledger import check_claims, load_ledger, merge

BOOK = Book(Path(__file__).resolve().parents[2])
CHAPTERS = pytest.mark.parametrize("chapter", BOOK.chapters, ids=lambda chapter: chapter.slug)


@CHAPTERS
def test_chapter_runs_and_decides_its_claims(chapter):
    (execution,) = run_chapters(BOOK, [chapter], jobs=1)
    assert check_claims(load_ledger(BOOK), execution) == []
    assert check_figures([execution]) == []
    noisy = [cell_name(chapter, index, cell) for index, cell in enumerate(execution.notebook["cells"])
             if any(output.get("name") == "stderr" for output in cell.get("outputs", ()))]
    assert noisy == [], "cells that print warnings"
    assert execution.record["peak_mb"] < 2000
    # Its time is printed on the page and never asserted: it depends on the machine.
    print(f"{chapter.slug}: {execution.record['wall_s']} s, {execution.record['peak_mb']} MB")


def test_every_claim_of_these_chapters_has_its_expected_verdict():
    run_chapters(BOOK, jobs=1)
    present = {chapter.number for chapter in BOOK.chapters}
    mine = [claim for claim in merge(BOOK) if claim.entry.chapter in present and not claim.entry.deferred]
    assert mine
    assert {claim.entry.id: claim.verdict for claim in mine} == {claim.entry.id: claim.entry.expect for claim in mine}
