"""The site: built from exactly the executed notebooks, and not at all when anything on it is broken."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from click.testing import CliRunner

from hybridseq.site.build import build_site
from hybridseq.site.cli import main
from hybridseq.site.errors import BookFailed
from hybridseq.site.links import check_site
from hybridseq.site.stage import staged_config


def page(small, name: str) -> BeautifulSoup:
    return BeautifulSoup((small.root / "_build/html" / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


def refused(small) -> str:
    """Build, and say why not; the site that stood before must still stand, byte for byte."""
    before = {path: path.read_bytes() for path in small.index.parent.rglob("*.html")}
    assert before
    with pytest.raises(BookFailed) as failure:
        build_site(small.book)
    assert {path: path.read_bytes() for path in small.index.parent.rglob("*.html")} == before
    return str(failure.value)


# What a good build gives
def test_the_second_build_does_nothing(built_book):
    first = built_book.index.stat().st_mtime_ns
    assert not build_site(built_book.book).rebuilt
    assert built_book.index.stat().st_mtime_ns == first


def test_the_command_says_where_to_open_the_site(built_book):
    said = CliRunner().invoke(main, ["--root", str(built_book.root), "build"])
    assert said.exit_code == 0, said.output
    assert f"Open {built_book.index.as_uri()}" in said.stdout


def test_a_change_of_words_renders_without_executing(built_book):
    (built_book.root / "book/index.md").write_text("# A small book\n\n## What it is\n\nOther words.\n", encoding="utf-8")
    seen: list[str] = []
    assert build_site(built_book.book, report=lambda event, chapter, info: seen.append(event)).rebuilt
    assert seen == ["cached"]
    assert "Other words." in page(built_book, "book/index").get_text()
    assert not (built_book.root / "_build/stage").exists()


def test_the_box_stands_before_the_first_section_and_places_stay_right(built_book):
    text = "# A small chapter\n\nOne line about it.\n\n## First section\n\nSee {numref}`fig-line`.\n\n{ref}`nowhere`"
    built_book.source("title", text)
    assert re.search(r'cell 1 \[id title\] "# A small chapter", near line (9|10): ', refused(built_book))
    built_book.source("title", text.removesuffix("{ref}`nowhere`"))
    build_site(built_book.book)
    box = page(built_book, "chapters/04_small").select_one(".glance")
    assert box.find_next("h2").get_text().startswith("First section")


def test_the_box_at_the_top_tells_time_claims_and_download(built_book):
    box = page(built_book, "chapters/04_small").select_one(".glance")
    text = box.get_text(" ")
    assert re.search(r"Run time [\d.]+ s of one core.* \(quick profile", " ".join(text.split()))
    assert "1 of 1 checked" in " ".join(text.split())
    (download,) = [link["href"] for link in box.find_all("a") if link["href"].endswith(".ipynb")]
    stored = json.loads((built_book.root / "_build/html/chapters" / download).read_text(encoding="utf-8"))
    assert stored == json.loads((built_book.root / "chapters/04_small.ipynb").read_text(encoding="utf-8"))
    assert box.find_previous("h1").get_text().startswith("A small chapter")


def test_published_figures_are_numbered_with_caption_and_alt_text(built_book):
    chapter = page(built_book, "chapters/04_small")
    figure = chapter.select_one("figure#fig-line")
    assert figure.img["alt"] == "A rising line."
    caption = " ".join(figure.figcaption.get_text(" ").split())
    assert re.match(r"Fig\. 1 It rises\. Two points\.", caption)
    assert chapter.find("a", href="#fig-line", class_="reference").get_text() == "Fig. 1"
    # What the cell printed before the figure stays before it.
    assert "before the figure" in figure.find_previous(class_="stream").get_text()


def test_claims_page_and_chapter_link_to_each_other(built_book):
    row = page(built_book, "book/claims").find(id="ledger-A-lem-5-2").find_parent("tr")
    text = " ".join(row.get_text(" ").split())
    for words in ("holds", "exhaustive", "all strings to n = 2", "weight = 3", "Ties go to zero."):
        assert words in text
    assert row.find("a", href="../chapters/04_small.html#claim-A-lem-5-2")
    verdict = page(built_book, "chapters/04_small").find(id="claim-A-lem-5-2")
    assert verdict.find("a", href="../book/claims.html#ledger-A-lem-5-2")
    other = page(built_book, "book/claims").find(id="ledger-B-fig-4").find_parent("tr")
    assert "not built" in other.get_text()


def test_run_status_tells_time_memory_and_versions(built_book):
    text = " ".join(page(built_book, "book/run-status").get_text(" ").split())
    for words in ("A small chapter", "MB", "1 of 1", "numpy", "Python", "mamba-ssm", "quick"):
        assert words in text


def test_hand_written_pages_keep_their_words(built_book):
    (built_book.root / "book/claims.md").write_text("# Claims\n\nOwn words.\n\n<!-- generated: claims -->\n", encoding="utf-8")
    build_site(built_book.book)
    claims = page(built_book, "book/claims")
    assert "Own words." in claims.get_text()
    assert claims.find(id="ledger-A-lem-5-2")


def test_no_injected_cell_and_no_traces_of_papermill(built_book):
    html = (built_book.root / "_build/html/chapters/04_small.html").read_text(encoding="utf-8")
    assert "injected" not in html
    assert "# Parameters" not in html
    assert "papermill" not in html


def test_buttons_exist_only_with_an_address(small_book):
    config = staged_config(small_book.book)
    assert "repository" not in config
    assert "launch_buttons" not in config
    assert config["html"] == {"use_repository_button": False, "use_issues_button": False}
    assert config["execute"] == {"execute_notebooks": "off"}


def test_with_an_address_the_buttons_appear(built_book):
    config = yaml.safe_load((built_book.root / "_config.yml").read_text(encoding="utf-8"))
    config["repository"]["url"] = "https://github.com/someone/book"
    built_book.yaml("_config.yml", config)
    build_site(built_book.book)
    chapter = page(built_book, "chapters/04_small")
    links = {link["href"] for link in chapter.find_all("a", href=True)}
    notebook = "someone/book/blob/main/chapters/04_small.ipynb"
    assert f"https://colab.research.google.com/github/{notebook}" in links
    assert any(link.startswith("https://github.com/someone/book/issues/new") for link in links)
    # The theme's own buttons name the place without a stray dot.
    assert [link for link in links if "/./" in link] == []


# What stops it
def test_a_broken_reference_is_told_by_chapter_and_cell(built_book):
    built_book.source("section", "## The claim\n\nAs {numref}`fig-line` and {ref}`nowhere` show.")
    message = refused(built_book)
    assert "chapter 4 (04_small), cell 4 [id section]" in message
    assert "nowhere" in message


def test_a_reference_to_a_missing_figure_is_told_by_chapter_and_cell(built_book):
    built_book.source("figure", "print('no figure any more')")
    message = refused(built_book)
    assert "chapter 4 (04_small), cell 4 [id section]" in message
    assert "fig-line" in message


def test_a_broken_reference_in_a_page_is_told_by_page_and_line(built_book):
    (built_book.root / "book/index.md").write_text("# A small book\n\n## What\n\n{doc}`gone`\n", encoding="utf-8")
    assert "book/index.md, line 5: WARNING" in refused(built_book)


def test_a_picture_without_its_texts_stops_the_build(built_book):
    built_book.source("figure", "import matplotlib.pyplot as plt\nplt.plot([0, 1])\nplt.show()")
    message = refused(built_book)
    assert "chapter 4 (04_small), cell 6 [id figure]" in message
    assert "a picture without name, finding, caption and alt text" in message


def test_a_picture_with_an_empty_text_stops_the_build(built_book):
    record = {"name": "fig-line", "finding": "It rises.", "caption": "Two points.", "alt": ""}
    built_book.source("figure", "from IPython.display import display\npixel = 'iVBORw0KGgo='\n"
                      f"display({{'image/png': pixel}}, metadata={{'hybridseq': {{'figure': {record}}}}}, raw=True)")
    message = refused(built_book)
    assert "chapter 4 (04_small), cell 6 [id figure]" in message
    assert "figure 'fig-line' lacks alt" in message


def test_a_failing_cell_stops_the_build(built_book):
    built_book.source("weights", "weight = 1 / 0")
    assert "chapter 4 (04_small), cell 3 [id weights]" in refused(built_book)


def test_an_unexpected_verdict_stops_the_build(built_book):
    text = built_book.book.ledger_path.read_text(encoding="utf-8")
    built_book.book.ledger_path.write_text(text.replace("expect: holds", "expect: contradicted"), encoding="utf-8")
    message = refused(built_book)
    assert "chapter 4 (04_small), cell 5 [id claim]" in message
    assert "came out 'holds', the ledger expects 'contradicted'" in message


def test_an_undecided_claim_and_a_claim_outside_the_ledger_stop_the_build(built_book):
    text = built_book.book.ledger_path.read_text(encoding="utf-8")
    built_book.book.ledger_path.write_text(text.replace("A-lem-5.2", "A-lem-5.9"), encoding="utf-8")
    message = refused(built_book)
    assert "cell 5 [id claim]" in message
    assert "'A-lem-5.2' is not in the ledger" in message
    assert "no cell decides its claim A-lem-5.9" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "book/index.md: an empty page"), ("# Only a title\n", "book/index: an empty page: nothing stands below its title")],
)
def test_an_empty_page_stops_the_build(built_book, text, words):
    (built_book.root / "book/index.md").write_text(text, encoding="utf-8")
    assert words in refused(built_book)


def test_a_chapter_without_words_stops_the_build(built_book):
    built_book.source("title", "")
    built_book.source("section", "")
    assert "chapter 4 (04_small): an empty page" in refused(built_book)


def test_a_page_without_a_file_stops_the_build(built_book):
    toc = yaml.safe_load((built_book.root / "_toc.yml").read_text(encoding="utf-8"))
    toc["chapters"].append({"file": "book/gone"})
    built_book.yaml("_toc.yml", toc)
    assert "page 'book/gone' has no file" in refused(built_book)


def test_a_chapter_without_a_file_stops_the_build(built_book):
    (built_book.root / "chapters/04_small.ipynb").unlink()
    assert "chapter 4 (04_small): cannot read" in refused(built_book)


def test_an_unknown_profile_stops_the_build(built_book):
    before = built_book.index.read_bytes()
    said = CliRunner().invoke(main, ["--root", str(built_book.root), "build", "--profile", "huge"])
    assert said.exit_code == 2
    assert built_book.index.read_bytes() == before


def test_a_site_cut_off_between_two_renames_is_recovered(built_book):
    site = built_book.index.parent
    site.rename(site.with_name("html.previous"))
    assert not build_site(built_book.book).rebuilt
    assert built_book.index.is_file()


# The check of the finished pages
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('<a href="gone.html">x</a>', "broken reference to 'gone.html'"),
        ('<a href="#gone">x</a>', "broken reference to '#gone'"),
        ('<a href="page.html#gone">x</a>', "broken reference to 'page.html#gone'"),
        ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js from another host"),
        ('<link rel="stylesheet" href="https://cdn.example/x.css">', "fetches https://cdn.example/x.css from another host"),
        ('<img src="gone.png">', "gone.png is missing"),
        ("", ""),
        ('<a href="https://doi.org/10.1000/1">outside links may stand</a><a href="#here">x</a>', ""),
    ],
)
def test_links_are_checked_without_a_network(tmp_path: Path, body, words):
    html = f'<html><body><article><h1>T</h1><p id="here">Words.</p>{body}</article></body></html>'
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    problems = check_site(tmp_path, ["page"])
    assert problems == ([f"page: {words}"] if words else [])
