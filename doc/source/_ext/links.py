"""Checks the links of the built pages: one that leads to no file, or to no anchor of it, is a warning.

Addresses of other sites are for `tox -e linkcheck`, which needs a network.
"""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)


class Page(HTMLParser):
    """The links of a page, and the anchors that it offers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to, and what it can be referred to by."""
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.add(value)


def broken(root: Path) -> list[str]:
    """Return the links below a directory that lead nowhere, each with its page."""
    pages = {path.resolve(): Page(path) for path in root.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            if not target.is_file() or (target in pages and fragment not in pages[target].anchors):
                found.append(f"{path.relative_to(root.resolve())}: {link}")
    return found


def check(app: Sphinx, error: Exception | None) -> None:
    """Warn of each link that leads nowhere."""
    if error is None and app.builder.format == "html":
        for one in broken(Path(app.outdir)):
            LOG.warning("link leads nowhere: %s", one)


def setup(app: Sphinx) -> dict[str, bool]:
    """Check when the pages are there."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True}
