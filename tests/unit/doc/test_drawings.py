"""The drawings of the documentation are readable in light and dark mode, and agree with the code."""

import re
from xml.etree import ElementTree

import pytest

from support.pages import ROOT, SOURCE

SVG = "{http://www.w3.org/2000/svg}"
#: Images drawn by hand; the other images are made by programs.
DRAWINGS = sorted(path for path in SOURCE.rglob("images/*.svg"))
LAYERS = SOURCE / "contributor" / "images" / "layers.svg"


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_has_a_description_and_colours_for_both_schemes(path):
    drawing = ElementTree.parse(path).getroot()
    assert all(drawing.find(f"{SVG}{name}").text.strip() for name in ("title", "desc"))
    style = drawing.find(f"{SVG}style").text
    light, dark = style.split("prefers-color-scheme: dark")
    names = set(re.findall(r"(--[\w-]+):", light))
    assert len(names) > 3
    assert set(re.findall(r"(--[\w-]+):", dark)) == names
    # Every colour is a variable, and the first shape is the background.
    assert not re.search(r'(?:fill|stroke)="#|style="', path.read_text())
    assert next(mark for mark in drawing if mark.tag == f"{SVG}rect").get("class") == "back"


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_on_a_page_with_a_description(path):
    name = f"images/{path.name}"
    shown = [page for page in path.parents[1].glob("*.rst") if name in page.read_text()]
    assert shown
    for page in shown:
        assert re.search(rf"figure:: {name}\n   :alt: \w", page.read_text())


def test_the_layers_are_those_of_the_test_of_layers():
    namespace = {}
    table = re.search(r"^LAYERS.*?^\)$", (ROOT / "tests/unit/test_layers.py").read_text(), re.MULTILINE | re.DOTALL)
    exec(table[0], namespace)
    texts = [one.text for one in ElementTree.parse(LAYERS).getroot().iter(f"{SVG}text")]
    drawn = [re.findall(r"\w+", re.sub(r"\(.*?\)", "", text)) for text in texts[2:-1:3]]
    assert [set(rooms) for rooms in reversed(drawn)] == [set(rooms) for rooms in namespace["LAYERS"]]
