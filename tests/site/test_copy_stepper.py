"""The stepper of chapter 11, in a browser: it moves by buttons and by keys, says what it shows, and reads without a script."""

from __future__ import annotations

import re
import shutil

import pytest

from hybridseq.site.book import Book, source_of


@pytest.fixture(scope="module")
def page_file(project_root, tmp_path_factory):
    """The figure of the chapter and the script of the book, as a page of their own."""
    cells = next(c for c in Book(project_root).chapters if c.number == 11).notebook()["cells"]
    text = next(source_of(cell) for cell in cells if "copy-steps" in source_of(cell))
    markup = re.search(r"```\{raw\} html\n(.*?)\n```", text, re.DOTALL)[1]
    folder = tmp_path_factory.mktemp("stepper")
    (folder / "chapters").mkdir()
    (folder / "_static").mkdir()
    shutil.copy(project_root / "book/_static/selective-copy.js", folder / "_static")
    (folder / "chapters/page.html").write_text(f"<!doctype html><title>t</title>{markup}", encoding="utf-8")
    return folder / "chapters/page.html"


def test_keys_and_buttons_step_through_the_frames(browser, page_file):
    page, problems, asked = browser.new_page(), [], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    said, slider = page.locator(".copy-steps-said"), page.locator("#copy-steps input")
    assert "Position 12 reads a. The register holds #1" in said.inner_text()
    slider.focus()
    page.keyboard.press("Home")
    assert said.inner_text() == "Position 1 reads b. The register is empty, so no answer is defined yet."
    page.keyboard.press("ArrowRight")
    assert said.inner_text().endswith("Copied: b.")
    assert slider.get_attribute("aria-valuetext") == said.inner_text()
    for frame in page.evaluate("hybridseqCopyFrames")[2:]:
        page.get_by_role("button", name="Next token").click()
        assert said.inner_text().endswith(f"Copied: {frame['label']}.")
    assert page.get_by_role("button", name="Next token").is_disabled()
    page.keyboard.press("Tab")
    assert problems == [] and all(url.startswith("file:") for url in asked)
    page.close()


def test_without_a_script_the_figure_says_where_to_look(browser, page_file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert "read the figure above" in page.locator(".copy-steps-picture").inner_text()
    assert not page.locator(".copy-steps-controls").is_visible()
    context.close()
