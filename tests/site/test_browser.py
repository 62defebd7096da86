"""The built site as a reader meets it, in a real Chromium: offline, light and dark, on a desk and on a phone.

Each page is visited twice, over a local web server and straight from the disk; what was seen is kept, and the tests judge it.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hybridseq.site.book import Book

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOOK = Book(Path(__file__).resolve().parents[2])
CHAPTERS = [f"chapters/{chapter.slug}" for chapter in BOOK.chapters]
PHONE_WIDTHS = (320, 390, 768)
# The theme's own logo link stands outside of a landmark; this is of moderate weight and not ours to mend.
GRAVE = {"serious", "critical"}

WAIT_FOR_MATHEMATICS = "() => window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => true) : true"
MATHEMATICS = """() => {
  const nodes = [...document.querySelectorAll('.math')];
  return {
    formulas: nodes.length,
    unrendered: nodes.filter(n => !n.querySelector('mjx-container')).map(n => n.textContent.slice(0, 80)),
    errors: [...document.querySelectorAll('mjx-merror, [data-mjx-error]')].map(n => n.textContent.slice(0, 80)),
  };
}"""
PICTURES = """() => [...document.querySelectorAll('article img')].map(img => {
  const box = img.getBoundingClientRect(), style = getComputedStyle(img);
  return {src: img.getAttribute('src'), alt: img.alt.trim(), loaded: img.complete && img.naturalWidth > 0,
          width: box.width, background: style.backgroundColor, filter: style.filter};
})"""
CORNERS = """() => [...document.querySelectorAll('article img')].map(img => {
  const canvas = document.createElement('canvas');
  canvas.width = img.naturalWidth; canvas.height = img.naturalHeight;
  const pen = canvas.getContext('2d');
  pen.drawImage(img, 0, 0);
  const [w, h] = [canvas.width - 1, canvas.height - 1];
  return [[0, 0], [w, 0], [0, h], [w, h]].map(([x, y]) => [...pen.getImageData(x, y, 1, 1).data]);
})"""
# What sticks out of the page or is cut off: nothing may be hidden behind an edge that cannot be scrolled to.
CLIPPED = """() => {
  const cut = [];
  const kinds = ['mjx-container', 'table', 'img', 'svg', 'pre', '.hybridseq-claim'].map(kind => `article ${kind}`).join(', ');
  for (const node of document.querySelectorAll(kinds)) {
    const box = node.getBoundingClientRect();
    if (box.width === 0 || node.closest('.toggle-hidden, mjx-assistive-mml')) continue;
    let reachable = false, hidden = false;
    for (let up = node; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up), edge = up.getBoundingClientRect().right;
      if (['auto', 'scroll'].includes(style.overflowX) && up.scrollWidth > up.clientWidth) { reachable = true; break; }
      if (up !== node && ['hidden', 'clip'].includes(style.overflowX) && box.right > edge + 1) { hidden = true; break; }
    }
    if (hidden || (!reachable && box.right > innerWidth + 1)) cut.push(node.tagName + ': ' + node.textContent.slice(0, 60));
  }
  return {scroll: document.documentElement.scrollWidth, inner: innerWidth, cut};
}"""
FOLDED = """() => [...document.querySelectorAll('.solution.dropdown, .admonition.dropdown')].map(box => {
  const inside = [...box.children].filter(node => !node.matches('.admonition-title, button, .toggle-button'));
  const seen = node => {
    const style = getComputedStyle(node);
    return node.getBoundingClientRect().height > 1 && style.visibility !== 'hidden' && style.opacity !== '0';
  };
  return {title: box.querySelector('.admonition-title').textContent.trim(), solution: box.classList.contains('solution'),
          shown: inside.some(seen)};
})"""
# Contrast of every visible text with the ground it stands on, as WCAG 2 defines both (opacity and see-through colours included);
# axe measures the same, too slowly for pages of thousands of coloured words.
FAINT = """() => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const over = (top, below) => below.map((x, i) => top[i] * top[3] + x * (1 - top[3]));
  const channel = x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ground = node => {
    const layers = [];
    for (let up = node; up; up = up.parentElement) {
      layers.push(rgba(getComputedStyle(up).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opacity = node => (node ? getComputedStyle(node).opacity * opacity(node.parentElement) : 1);
  const faint = [];
  let texts = 0;
  for (const node of document.body.querySelectorAll('*')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.nodeValue.trim())) continue;
    if (node.closest('mjx-container, svg, script, style, noscript')) continue;
    if (!node.checkVisibility({visibilityProperty: true})) continue;
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (box.width < 2 || box.height < 2) continue;
    texts += 1;
    const below = ground(node), ink = rgba(style.color);
    const a = luminance(over([...ink.slice(0, 3), ink[3] * opacity(node)], below)), b = luminance(below);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5) - 0.005) faint.push(`${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 40)}`);
  }
  return {texts, faint};
}"""
CONTRAST = ["color-contrast", "link-in-text-block"]
THEME = "theme => { document.documentElement.dataset.theme = theme; document.documentElement.dataset.mode = theme; }"


# What a visit sees
@dataclass
class Visit:
    """One page, visited once over the local server: what it asked for, said, showed and how it fitted."""

    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    mathematics: dict = field(default_factory=dict)
    pictures: list[dict] = field(default_factory=list)
    corners: list = field(default_factory=list)
    dark_pictures: list[dict] = field(default_factory=list)
    fit: dict[int, dict] = field(default_factory=dict)
    folded: list[dict] = field(default_factory=list)
    unfolded: list[dict] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    contrast: dict[str, dict] = field(default_factory=dict)


def listen(page, visit: Visit, home: str) -> None:
    """Note every request to another host, every failure and every complaint of the page."""
    page.on("request", lambda request: _outside(request.url, home) and visit.outside.append(request.url))
    page.on("response", lambda response: response.status >= 400 and visit.failed.append(f"{response.status} {response.url}"))
    page.on("requestfailed", lambda request: visit.failed.append(f"failed {request.url}"))
    page.on("console", lambda message: message.type == "error" and visit.complaints.append(message.text))
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))


def _outside(address: str, home: str) -> bool:
    return not address.startswith((home, "data:", "blob:", "about:"))


def open_page(page, address: str) -> None:
    page.goto(address, wait_until="load")
    page.wait_for_function(WAIT_FOR_MATHEMATICS)


def grave_violations(page, **options) -> list[str]:
    """Serious and critical violations that axe finds, each with the first places."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"], "preload": False, **options}
    response = Axe().run(page, options=options).response
    return [
        f"{found['id']} ({found['impact']}): " + "; ".join(str(node["target"]) for node in found["nodes"][:3])
        for found in response["violations"]
        if found["impact"] in GRAVE
    ]


def visit_page(browser, address: str, home: str) -> Visit:
    visit = Visit()
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    listen(page, visit, home)
    open_page(page, address)
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important; }")
    visit.mathematics = page.evaluate(MATHEMATICS)
    visit.pictures, visit.corners = page.evaluate(PICTURES), page.evaluate(CORNERS)
    visit.folded = page.evaluate(FOLDED)
    visit.violations = grave_violations(page, rules={rule: {"enabled": False} for rule in CONTRAST})
    for theme in ("light", "dark"):
        page.evaluate(THEME, theme)
        visit.contrast[theme] = page.evaluate(FAINT)
    visit.dark_pictures = page.evaluate(PICTURES)
    for width in PHONE_WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        visit.fit[width] = page.evaluate(CLIPPED)
    page.set_viewport_size({"width": 1280, "height": 900})
    for title in page.locator(".admonition.dropdown > .admonition-title").all():
        title.click()
    visit.unfolded = page.evaluate(FOLDED)
    context.close()
    return visit


# The browser, the server, the visits
class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def server(built_site: Path) -> Iterator[str]:
    """Address of a local web server that serves the built site."""
    handler = functools.partial(_Quiet, directory=str(built_site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


@pytest.fixture(scope="module", params=BOOK.pages)
def page_name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def visit(page_name, browser, server) -> Visit:
    return visit_page(browser, f"{server}/{page_name}.html", server)


# Every page
def test_nothing_is_asked_of_another_host(visit):
    assert visit.outside == []


def test_everything_asked_for_is_there(visit):
    assert visit.failed == []


def test_the_console_stays_silent(visit):
    assert visit.complaints == []


def test_every_formula_is_drawn(visit, page_name):
    assert visit.mathematics["unrendered"] == []
    assert visit.mathematics["errors"] == []
    if page_name in CHAPTERS:
        assert visit.mathematics["formulas"] > 0


def test_no_grave_barrier_for_any_reader(visit):
    assert visit.violations == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(visit, theme):
    assert visit.contrast[theme]["texts"] > 20
    assert visit.contrast[theme]["faint"] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_agrees_on_the_contrast_of_two_pages(browser, server, theme):
    page = browser.new_page()
    for name in ("book/index", "book/how-to-read"):
        open_page(page, f"{server}/{name}.html")
        page.add_style_tag(content="*, *::before, *::after { transition: none !important; }")
        page.evaluate(THEME, theme)
        assert grave_violations(page, runOnly=CONTRAST) == []
    page.close()


def test_figures_say_what_they_show_and_are_opaque(visit, page_name):
    assert [picture["src"] for picture in visit.pictures if not picture["alt"]] == []
    assert [picture["src"] for picture in visit.pictures if not picture["loaded"]] == []
    for picture, corners in zip(visit.pictures, visit.corners, strict=True):
        assert all(alpha == 255 and min(rgb) >= 230 for *rgb, alpha in corners), f"{picture['src']}: not on opaque white"
    if page_name in CHAPTERS:
        assert len(visit.pictures) >= 2


def test_figures_stay_legible_in_dark_mode(visit):
    for picture in visit.dark_pictures:
        assert picture["background"] == "rgb(255, 255, 255)", picture["src"]
        assert picture["filter"] == "none", picture["src"]


@pytest.mark.parametrize("width", PHONE_WIDTHS)
def test_nothing_is_cut_off_on_a_narrow_screen(visit, width):
    assert visit.fit[width]["cut"] == []
    assert visit.fit[width]["scroll"] <= visit.fit[width]["inner"]


def test_solutions_and_hints_are_folded_until_asked_for(visit, page_name):
    assert [box["title"] for box in visit.folded if box["shown"]] == []
    assert [box["title"] for box in visit.unfolded if not box["shown"]] == []
    if page_name in CHAPTERS:
        assert sum(box["solution"] for box in visit.folded) >= 4


def test_a_page_reads_the_same_from_disk(page_name, browser, built_site):
    seen = Visit()
    page = browser.new_page()
    listen(page, seen, "file://")
    open_page(page, (built_site / f"{page_name}.html").as_uri())
    mathematics = page.evaluate(MATHEMATICS)
    page.close()
    assert (seen.outside, seen.failed, seen.complaints) == ([], [], [])
    assert mathematics["unrendered"] == mathematics["errors"] == []


# Searching
def telling_word(site: Path, name: str) -> str:
    """A word of a page's text that the other pages do not have."""
    from bs4 import BeautifulSoup

    def words(page: str) -> Counter:
        text = BeautifulSoup((site / f"{page}.html").read_bytes(), "html.parser").find("article").get_text(" ")
        return Counter(re.findall(r"\b[a-z]{8,}\b", text))

    others = set().union(*(words(page) for page in BOOK.pages if page != name))
    return min((-count, word) for word, count in words(name).items() if word not in others)[1]


@pytest.mark.parametrize("way", ["over a server", "from disk"])
def test_search_finds_a_word_of_a_chapter(way, browser, built_site, server):
    home = server if way == "over a server" else built_site.as_uri()
    chapter = CHAPTERS[-1]
    seen = Visit()
    page = browser.new_page()
    listen(page, seen, server if way == "over a server" else "file://")
    page.goto(f"{home}/search.html?q={telling_word(built_site, chapter)}")
    # results are written one after the other: wait for the one that is asked for
    page.wait_for_selector(f'#search-results ul.search li a[href*="{chapter}"]', timeout=20_000)
    found = page.locator("#search-results ul.search li a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    page.close()
    assert any(chapter in link for link in found), found
    assert (seen.outside, seen.complaints) == ([], [])


# The theme's switch, and the start page
def test_the_switch_turns_the_page_dark(browser, server):
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    open_page(page, f"{server}/book/index.html")
    for _ in range(3):  # auto, light, dark in some order
        page.locator("button.theme-switch-button").first.click()
        if page.evaluate("document.documentElement.dataset.mode") == "dark":
            break
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150


def test_the_site_opens_at_its_landing_page(browser, built_site):
    page = browser.new_page()
    page.goto((built_site / "index.html").as_uri())
    page.wait_for_selector("figure.one-step svg")
    title = page.title()
    page.close()
    assert title.startswith("Hybrid Sequence Models, Executed")


def states_of_the_package(bits: tuple[int, ...]) -> list[list[int]]:
    """The parity row after each token of a prompt, by the package's own delta rule at s = 4."""
    import numpy as np

    from hybridseq.arithmetic import FixedPoint
    from hybridseq.mixers.delta_rule import DeltaInputs, DeltaRule

    ar = FixedPoint(4)
    hold, first, second = ((12, 4, (16, 0), 0), (12, 8, (11, 11), 6), (4, 12, (-11, 11), 0))
    tokens = [token for bit in bits for token in ((first, second) if bit else (hold, hold))] + [hold] * len(bits)
    alpha, beta, keys, values = (np.array(column) for column in zip(*tokens, strict=True))
    values = np.stack([values, np.zeros_like(values)], axis=-1)
    core = DeltaRule(2, 2, order="A", initial_state=((0, Fraction(1, 16)), (0, 0)))
    inputs = DeltaInputs(q=np.tile([16, 0], (len(tokens), 1)), k=keys, v=values, alpha=alpha, beta=beta)
    state, rows = core.init_state(ar), []
    for t in range(len(tokens)):
        state = core.step(ar, state, inputs.at(t))
        rows.append([int(x) for x in state[0]])
    return rows


def test_the_picture_computes_what_the_package_computes(browser, server):
    page = browser.new_page()
    open_page(page, f"{server}/book/index.html")
    for bits in itertools.product((0, 1), repeat=4):
        rows = states_of_the_package(bits)
        for mark in range(4):
            drawn = page.evaluate("([bits, mark]) => hybridseqOneStep(bits, mark)", [list(bits), mark])
            assert drawn["states"] == rows
            assert drawn["parity"] == sum(bits) % 2
            assert drawn["answer"] == bits[mark] ^ (sum(bits) % 2)
    page.close()


def test_the_picture_follows_its_buttons(browser, server):
    page = browser.new_page()
    open_page(page, f"{server}/book/index.html")
    answer = page.locator(".one-step-answer")
    before = answer.text_content()
    page.get_by_role("button", name="bit 2 is 0").click()
    page.get_by_role("button", name="mark bit 2").click()
    after = answer.text_content()
    page.close()
    assert before == "bit 3 is 1, the parity is 1: 1 ⊕ 1 = 0, next token NO"
    assert after == "bit 2 is 1, the parity is 0: 1 ⊕ 0 = 1, next token YES"


# The tests must notice what they look for
FAULTY = """<!doctype html><html lang="en"><title>Faulty</title><main><article>
<p style="color: #bbb; background: #fff">faint</p>
<p>a formula <span class="math">\\(x\\)</span></p>
<div style="overflow: hidden; width: 100px"><table style="width: 400px"><tr><td>cut</td></tr></table></div>
<div style="width: 2000px">wide</div>
<img src="http://elsewhere.invalid/a.png">
<div class="admonition dropdown solution"><p class="admonition-title">Solution</p><p>seen too early</p></div>
</article></main></html>"""


def test_a_faulty_page_is_caught(browser):
    seen = Visit()
    page = browser.new_page()
    page.route("http://elsewhere.invalid/**", lambda route: route.abort())
    listen(page, seen, "http://127.0.0.1")
    page.set_content(FAULTY)
    page.wait_for_timeout(50)
    assert seen.outside == ["http://elsewhere.invalid/a.png"]
    assert seen.failed and seen.complaints
    assert page.evaluate(MATHEMATICS)["unrendered"] == ["\\(x\\)"]
    assert [(picture["alt"], picture["loaded"]) for picture in page.evaluate(PICTURES)] == [("", False)]
    fit = page.evaluate(CLIPPED)
    assert [cut.split(":")[0] for cut in fit["cut"]] == ["TABLE"]
    assert fit["scroll"] > fit["inner"]
    assert page.evaluate(FOLDED) == [{"title": "Solution", "solution": True, "shown": True}]
    assert page.evaluate(FAINT)["faint"] == ["1.92 faint"]
    found = grave_violations(page)
    assert all(any(line.startswith(rule) for line in found) for rule in ("color-contrast", "image-alt"))
    page.close()
