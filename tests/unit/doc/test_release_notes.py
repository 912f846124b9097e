"""Release notes in the form of reno."""

import pytest
import yaml

from support.pages import ROOT

NOTES = sorted((ROOT / "releasenotes" / "changes").glob("*"))
SECTIONS = {"features", "issues", "upgrade", "deprecations", "critical", "security", "fixes", "other"}


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_every_note_has_sections_that_reno_knows(path):
    assert path.suffix == ".yaml"
    sections = yaml.safe_load(path.read_text())
    assert isinstance(sections.pop("prelude", ""), str)
    assert set(sections) <= SECTIONS
    assert all(isinstance(one, str) for notes in sections.values() for one in notes)
