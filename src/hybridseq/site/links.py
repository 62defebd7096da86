"""Check a built site without a network: local links and anchors resolve, no page is empty, nothing is fetched from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src"}
_FETCHED_LINKS = {"stylesheet", "preload", "icon", "shortcut", "modulepreload", "prefetch", "preconnect", "dns-prefetch"}
_NO_PAGES = {"_static", "_sources"}  # the theme leaves templates there
_GENERATED = {"genindex.html", "search.html", "py-modindex.html"}


@dataclass
class Page:
    """What one HTML file offers and asks for."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    words: int = 0


def check_site(site: Path, pages: Iterable[str]) -> list[str]:
    """Problems of the built site; `pages` are those of the table of contents, each of which must exist and say something."""
    files = (path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] not in _NO_PAGES)
    read = {path.resolve(): read_page(path) for path in files}
    problems = []
    for name in pages:
        page = read.get((site / f"{name}.html").resolve())
        if page is None:
            problems.append(f"{name}: the page was not built")
        elif page.words == 0:
            problems.append(f"{name}: an empty page: nothing stands below its title")
    for page in read.values():
        where = page.path.relative_to(site).with_suffix("").as_posix()
        problems += [f"{where}: fetches {address} from another host" for address in page.fetched if _is_outside(address)]
        problems += [f"{where}: {address} is missing" for address in page.fetched if _is_missing(page, address)]
        problems += [f"{where}: broken reference to {link!r}" for link in page.links if _is_broken(page, link, read)]
    return list(dict.fromkeys(problems))


def read_page(path: Path) -> Page:
    """Ids, links and fetched addresses of one file; `words` counts the article's words below its title."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(path.read_bytes(), "html.parser")
    page = Page(path)
    page.ids = {str(tag[key]) for key in ("id", "name") for tag in soup.find_all(attrs={key: True})}
    page.links = [str(tag["href"]) for tag in soup.find_all("a", href=True)]
    page.fetched = [str(tag[key]) for name, key in _FETCHED.items() for tag in soup.find_all(name) if tag.get(key)]
    page.fetched += [str(tag["href"]) for tag in soup.find_all("link", href=True) if set(tag.get("rel", ())) & _FETCHED_LINKS]
    article = soup.find("article")
    if article:
        for heading in article.find_all("h1"):
            heading.decompose()
        page.words = len(article.get_text(" ").split()) + len(article.find_all("img"))
    return page


def _is_outside(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _is_missing(page: Page, address: str) -> bool:
    parts = urlsplit(address)
    return not parts.scheme and not parts.netloc and not (page.path.parent / unquote(parts.path)).exists()


def _is_broken(page: Page, link: str, read: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or link in ("", "#") or page.path.name in _GENERATED:
        return False
    target = page.path if not parts.path else page.path.parent / unquote(parts.path)
    if not target.exists():
        return True
    found = read.get(target.resolve())
    return bool(parts.fragment) and found is not None and unquote(parts.fragment) not in found.ids
