"""Links that lead nowhere are found: in the built pages by an extension of their build, in README here."""

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("sphinx", reason="the documentation's extra is not installed")
ROOT = Path(__file__).parents[3]
#: Servers that pages name as examples; on a reader's machine, or nowhere.
EXAMPLES = re.compile(r"127\.0\.0\.1|localhost|controller|([\w-]+\.)*example\.(org|com|net)|\[?::1\]?")
#: Addresses of other sites.  That they still answer, `sphinx-build -b linkcheck` says, where there is a network.
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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_a_markdown_page_lead_to_files(name):
    targets = re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text())
    assert [target for target in targets if "://" not in target and not (ROOT / target).is_file()] == []


def test_addresses_of_other_sites_are_complete_and_known():
    pages = [path for kind in ("rst", "ipynb") for path in (ROOT / "doc" / "source").rglob(f"*.{kind}")]
    found = set()
    for page in [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for address in re.findall(r"\bhttps?:[^\s<>`\"'|)\]}\\]*", page.read_text()):
            server = urlsplit(address.rstrip(".,;:")).hostname
            if not (server and EXAMPLES.fullmatch(server)):
                found.add(address.rstrip(".,;:"))
    assert found == SITES
