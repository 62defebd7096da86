"""The book's own Sphinx extension: what it drops, mends and warns about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def book_ext():
    spec = importlib.util.spec_from_file_location("book_ext", ROOT / "book/_ext/book_ext.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(filename=None, **attributes):
    return SimpleNamespace(filename=filename, attributes=attributes)


def test_scripts_for_live_code_are_dropped(book_ext):
    ours = script("search-from-disk.js")
    context = {
        "script_files": [script("sphinx-thebe.js"), script(None, body="const THEBE_JS_URL = 'x'"), ours],
        "body": "<p>text</p><script type='text/x-thebe-config'>{thebe: 1}</script>",
    }
    book_ext.drop_live_code_scripts(None, "page", "page.html", context, None)
    assert context["script_files"] == [ours]
    assert context["body"] == "<p>text</p>"


def test_markup_is_mended_and_nothing_else(book_ext):
    body = '<div class="proof" id="proof"><section id="proof-content">x</section></div><div role="list" class="citation-list">'
    context = {"body": body + '<h2 id="proofs">'}
    book_ext.mend_markup(None, "page", "page.html", context, None)
    assert context["body"] == (
        '<div class="proof"><section>x</section></div><div class="citation-list"><h2 id="proofs">'
    )


def test_a_link_of_a_formula_alone_gets_a_name(book_ext):
    bare = nodes.reference("", "", nodes.math("", "x_t"), refuri="a")
    worded = nodes.reference("", "", nodes.Text("state "), nodes.math("", "S_t"), refuri="b")
    tree = nodes.paragraph("", "", bare, worded)
    book_ext.name_symbol_links(None, tree, "page")
    assert bare["reftitle"] == "Notation: x_t"
    assert "reftitle" not in worded


@pytest.mark.parametrize("url", ["", None])
def test_buttons_vanish_without_an_address(book_ext, url):
    config = SimpleNamespace(
        html_theme_options={"repository_url": url, "use_issues_button": True, "launch_buttons": {"a": "x"}, "toc_title": "y"}
    )
    book_ext.hide_buttons_without_address(None, config)
    assert not config.html_theme_options["use_issues_button"]
    assert config.html_theme_options["launch_buttons"] == {}
    assert config.html_theme_options["toc_title"] == "y"


def test_buttons_stay_with_an_address(book_ext):
    options = {"repository_url": "https://example.org/book", "use_issues_button": True, "launch_buttons": {"colab_url": "x"}}
    config = SimpleNamespace(html_theme_options=dict(options))
    book_ext.hide_buttons_without_address(None, config)
    assert config.html_theme_options == options


@pytest.mark.parametrize(("ledger", "shown"), [("# Claims\n\n70 claims: 69 a, 1 b.\n", True), ("# Claims\n", False)])
def test_the_landing_page_repeats_the_counts(book_ext, tmp_path, ledger, shown):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/claims.md").write_text(ledger, encoding="utf-8")
    source = ["before\n\n<!-- counts of the claims -->\n"]
    book_ext.repeat_counts(SimpleNamespace(srcdir=str(tmp_path)), "book/index", source)
    assert ("70 claims: 69 a, 1 b." in source[0]) == shown
    assert "<!--" not in source[0]


def role(book_ext, text):
    """What {claim}`text` gives on the page book/index: nodes and messages."""
    builder = SimpleNamespace(get_relative_uri=lambda here, there: "claims.html")
    app = SimpleNamespace(srcdir=str(ROOT), builder=builder)
    env = SimpleNamespace(app=app, docname="book/index")
    reporter = SimpleNamespace(warning=lambda message, line: message)
    document = SimpleNamespace(settings=SimpleNamespace(env=env))
    inliner = SimpleNamespace(reporter=reporter, document=document)
    return book_ext.ClaimRole()("claim", f"{{claim}}`{text}`", text, 1, inliner)


def test_the_claim_role_links_to_the_row(book_ext):
    [link], messages = role(book_ext, "A-thm-5.3")
    assert messages == []
    assert link["refuri"] == "claims.html#ledger-A-thm-5-3"
    assert link.astext() == "A-thm-5.3"


def test_an_unknown_claim_is_a_warning(book_ext):
    [shown], [message] = role(book_ext, "A-thm-99")
    assert isinstance(shown, nodes.literal)
    assert "A-thm-99" in message


def test_every_claim_has_words_of_its_own():
    entries = yaml.safe_load((ROOT / "book/claims.yml").read_text(encoding="utf-8"))
    statements = [entry["statement"] for entry in entries]
    assert len(entries) == 70
    assert len(set(statements)) == 70
    assert all(text.rstrip().endswith(".") and text.count("$") % 2 == 0 for text in statements)
