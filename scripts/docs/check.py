"""What a built site must keep: links that lead somewhere, nothing from elsewhere, texts for figures, narrow pages."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.without_text: list[str] = []
        self.headings: list[int] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {str(values[key]) for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag in LOADED and values.get(LOADED[tag]):
            self.loaded.append(str(values[LOADED[tag]]))
        text, source = (values.get("alt") or "").strip(), str(values.get("src"))
        # the title of an example stands beside its thumbnail
        if tag == "img" and "_thumb." not in source and (not text or text.endswith((".png", ".svg"))):
            self.without_text.append(source)
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append(int(tag[1]))


def _is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def _target(page: Page, address: str) -> tuple[Path, str]:
    parts = urlsplit(address)
    path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    return path / "index.html" if path.is_dir() else path, unquote(parts.fragment)


def complaints(folder: Path) -> list[str]:
    """Everything that is wrong with a built site, one sentence each."""
    # the theme's own pieces are no pages
    paths = [path.resolve() for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for address in page.loaded:
            if address.startswith("data:"):
                continue
            if _is_elsewhere(address):
                found.append(f"{name} loads {address}")
            elif not _target(page, address)[0].exists():
                found.append(f"{name} loads {address}, which is not there")
        for address in page.links:
            if not _is_elsewhere(address):
                target, fragment = _target(page, address)
                if not target.exists():
                    found.append(f"{name} links to {address}, which is not there")
                elif fragment and target in pages and fragment not in pages[target].ids:
                    found.append(f"{name} links to {address}, which has no such place")
        found += [f"{name} shows {image} without a text" for image in page.without_text]
        if page.headings and page.headings.count(1) != 1 and name.name not in {"search.html", "genindex.html"}:
            found.append(f"{name} has {page.headings.count(1)} headings of the first level")
    return found
