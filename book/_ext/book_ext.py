"""What the book asks of Sphinx beyond its configuration.

Citations are looked up once instead of once a use; scripts that would call other hosts are left out of the pages; buttons
that need the repository's public address vanish while it is not known; the role {claim}`A-thm-5.3` links to a claim's row
in the ledger; a chapter has the number of its file, also while an earlier one is not written yet.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pybtex.plugin
import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxRole
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles as TocTreeCollector

# pybtex asks the package index for its plugins at every citation; one question is enough.
pybtex.plugin._load_entry_point = functools.lru_cache(maxsize=None)(pybtex.plugin._load_entry_point)

_LIVE_CODE = re.compile(r"thebe|require(js|\.min)", re.IGNORECASE)


def _names(script) -> str:
    """File name and body of a script entry, whatever of the two it has."""
    body = getattr(script, "attributes", {}).get("body") or ""
    return f"{getattr(script, 'filename', script) or ''} {body}"


def drop_live_code_scripts(app, pagename, templatename, context, doctree):
    """Live code would load its parts from another host and start a remote machine: not in a book that reads offline."""
    for key in ("script_files", "css_files"):
        if key in context:
            context[key] = [entry for entry in context[key] if not _LIVE_CODE.search(_names(entry))]
    # The theme adds its own copy of the bootstrap to the page's head or body.
    if "body" in context:
        context["body"] = re.sub(
            r"<script[^>]*>[^<]*(?:thebe|THEBE)[^<]*</script>", "", context["body"], flags=re.IGNORECASE
        )


def mend_markup(app, pagename, templatename, context, doctree):
    """Two slips of other people's HTML that confuse screen readers and links.

    docutils calls a bibliography a list and its entries something else; sphinx-proof gives every proof of a page the same id.
    """
    if "body" in context:
        body = context["body"].replace('<div role="list" class="citation-list">', '<div class="citation-list">')
        context["body"] = re.sub(r' id="(?:proof|[a-z]+)-content"| id="proof"(?=[ >])', "", body)


def name_symbol_links(app, doctree, docname):
    """A link that shows nothing but a formula gets a title, so that it has a name where formulas are not read."""
    for link in doctree.findall(nodes.reference):
        formulas = list(link.findall(nodes.math))
        if formulas and link.astext() == "".join(formula.astext() for formula in formulas):
            link["reftitle"] = f"Notation: {link.astext()}"


_COUNTS = re.compile(r"^\d+ claims: .*$", re.MULTILINE)


def repeat_counts(app, docname, source):
    """The landing page repeats the count of verdicts on the generated page of claims; without one it says nothing."""
    if "<!-- counts of the claims -->" in source[0]:
        found = _COUNTS.search((Path(app.srcdir) / "book" / "claims.md").read_text(encoding="utf-8"))
        sentence = f"This site was made by one run of the book. {found[0]} The [ledger](claims.md) has them all." if found else ""
        source[0] = source[0].replace("<!-- counts of the claims -->", sentence)


def hide_buttons_without_address(app, config):
    """Without a public address there is nothing that a launch, issue or source button could point to."""
    options = dict(config.html_theme_options)
    if not options.get("repository_url"):
        options.pop("repository_url", None)
        for button in ("use_issues_button", "use_repository_button", "use_edit_page_button", "use_source_button"):
            options[button] = False
        options["launch_buttons"] = {}
    config.html_theme_options = options


_CHAPTER = re.compile(r"chapters/(\d+)_\w+")


def number_chapters_by_file(app):
    """Sphinx counts the chapters of the table of contents; ours keep the number of their file, so links to it stay true."""
    counted = TocTreeCollector.assign_section_numbers
    if getattr(counted, "by_file", False):
        return

    def assign_section_numbers(collector, env):
        before = env.toc_secnumbers
        counted(collector, env)
        for docname, numbers in env.toc_secnumbers.items():
            if match := _CHAPTER.fullmatch(docname):
                chapter = int(match[1])
                numbers.update({anchor: (chapter, *number[1:]) for anchor, number in numbers.items() if number})
                for node in (env.titles[docname], *env.tocs[docname].findall(nodes.reference)):
                    if node.get("secnumber"):
                        node["secnumber"] = [chapter, *node["secnumber"][1:]]
        return [docname for docname, numbers in env.toc_secnumbers.items() if numbers != before.get(docname)]

    assign_section_numbers.by_file = True
    TocTreeCollector.assign_section_numbers = assign_section_numbers


@functools.cache
def _claims(ledger: Path) -> dict[str, dict]:
    """The hand-written ledger by id."""
    return {entry["id"]: entry for entry in yaml.safe_load(ledger.read_text(encoding="utf-8"))}


class ClaimRole(SphinxRole):
    """{claim}`A-thm-5.3`: a link to the row of that claim in the ledger. An id that the ledger lacks is a warning."""

    def run(self):
        name = self.text.strip()
        entry = _claims(Path(self.env.app.srcdir) / "book" / "claims.yml").get(name)
        if entry is None:
            message = self.inliner.reporter.warning(f"no claim {name!r} in book/claims.yml", line=self.lineno)
            return [nodes.literal(self.rawtext, name)], [message]
        page = self.env.app.builder.get_relative_uri(self.env.docname, "book/claims")
        row = "ledger-" + re.sub(r"[^A-Za-z0-9-]", "-", name)
        link = nodes.reference(
            self.rawtext, name, internal=True, refuri=f"{page}#{row}", classes=["claim-ref"],
            reftitle=f"{entry['place']} ({entry['kind']})",
        )
        return [link], []


def setup(app):
    app.add_role("claim", ClaimRole())
    app.connect("config-inited", hide_buttons_without_address, priority=100)
    app.connect("builder-inited", number_chapters_by_file, priority=900)
    app.connect("source-read", repeat_counts)
    app.connect("doctree-resolved", name_symbol_links, priority=900)
    app.connect("html-page-context", drop_live_code_scripts, priority=900)
    app.connect("html-page-context", mend_markup, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
