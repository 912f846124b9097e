"""Broken links are found: in the built pages by a Sphinx extension, in Markdown pages such as README by this test."""

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("sphinx", reason="the documentation's extra is not installed")
ROOT = Path(__file__).parents[3]
#: Servers that pages name as examples: on the reader's machine, or nonexistent.
EXAMPLES = re.compile(r"127\.0\.0\.1|localhost|controller|([\w-]+\.)*example\.(org|com|net)|\[?::1\]?")
#: Addresses of other sites.  `tox -e linkcheck` checks that they respond, if there is a network.
SITES = {
    "https://doi.org/10.1109/TPDS.2018.2829860",
    "https://doi.org/10.1109/TPDS.2020.3008725",
    "https://doi.org/10.1155/2012/695757",
    "https://prometheus.io",
}


@pytest.fixture
def links():
    spec = importlib.util.spec_from_file_location("links", ROOT / "doc" / "source" / "_ext" / "links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_to_missing_files_and_anchors_are_found(links, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="inner/b.html#one"></a><a href="#top"></a>')
    (tmp_path / "inner" / "b.html").write_text(
        '<p id="one"></p><a href="../a.html#no"></a><img src="c.png"><a href="https://example.org/#x"></a>'
    )
    assert links.broken(tmp_path) == ["inner/b.html: ../a.html#no", "inner/b.html: c.png"]


def lost(page):
    """Return the links of a Markdown page that lead to no file of the repository, or to no heading of a page."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.is_file() and (not anchor or anchor in headings(target))):
            found.append(link)
    return found


def headings(page):
    """Return the anchors that forges create for the headings of a Markdown page."""
    titles = re.findall(r"^#+ (.+)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_a_markdown_page_lead_to_files_and_headings(page):
    assert lost(page) == []


def test_links_of_a_markdown_page_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# One: two\n")
    page = tmp_path / "a.md"
    page.write_text("# Top\n[1](b.md#one-two) [2](#top) ![3](c.png) [4](b.md#one) [5](#no) [6](https://a.example)\n")
    assert lost(page) == ["c.png", "b.md#one", "#no"]


def test_addresses_of_other_sites_are_complete_and_known():
    pages = [path for kind in ("rst", "ipynb") for path in (ROOT / "doc" / "source").rglob(f"*.{kind}")]
    found = set()
    for page in [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for address in re.findall(r"\bhttps?:[^\s<>`\"'|)\]}\\]*", page.read_text()):
            server = urlsplit(address.rstrip(".,;:")).hostname
            if not (server and EXAMPLES.fullmatch(server)):
                found.add(address.rstrip(".,;:"))
    assert found == SITES
