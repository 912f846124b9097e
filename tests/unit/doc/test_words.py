"""The words to avoid that the glossary lists do not occur in code, messages or documentation."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIST = ROOT / "doc" / "source" / "words-to-avoid.csv"
PLACES = ("README.md", "CONTRIBUTING.md", "devstack", "doc/source", "etc", "fpga_pool", "releasenotes/changes", "tools")
KINDS = {"", ".cfg", ".conf", ".csv", ".ipynb", ".md", ".py", ".rst", ".sh", ".toml", ".yaml"}


#: Abbreviations that README need not explain: the subject, an algorithm and a model.
NAMES = {"EASY", "FPGA", "RTM"}


def test_readme_explains_its_abbreviations_where_they_are():
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|\w+\.md", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    used = set(re.findall(r"\b[A-Z]{3,}\b", prose)) - NAMES
    assert [name for name in sorted(used) if not re.search(rf"\b{name} \(", prose)] == []


def words_to_avoid():
    """Return the replacement of each word."""
    with LIST.open(newline="") as file:
        return {row["Word"]: row["Instead"] for row in csv.DictReader(file)}


def plain(text):
    """Return the text with names divided into words: `HistoryEntry` becomes "History Entry"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")


def texts():
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file != LIST and file.suffix in KINDS and "__pycache__" not in file.parts:
                yield file, file.read_text(errors="replace")


def found_in(text, words):
    pattern = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return [match.group() for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", plain(text), re.IGNORECASE)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one word, thrice", ["thrice"]),
        ("def count_Thrice(ThriceCounted): ...", ["Thrice", "Thrice"]),
        ("thricely", []),
    ],
)
def test_words_are_found_in_prose_and_in_names(text, found):
    assert found_in(text, ["thrice"]) == found


def test_words_to_avoid_are_nowhere():
    words = words_to_avoid()
    bad = [
        f"{file.relative_to(ROOT)}: {word!r}; instead: {words[word.lower()]}"
        for file, text in texts()
        for word in found_in(text, words)
    ]
    assert bad == []
