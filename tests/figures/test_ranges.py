"""Ranges can fail: none is wider than the spread of the seeds."""

import tomllib
from pathlib import Path

import pytest

from .measure import ends

FILES = sorted(Path(__file__).parent.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_range_is_wider_than_the_spread_of_several_seeds(path):
    known = tomllib.loads(path.read_text())
    assert len(known["provenance"]["seeds"]) > 1
    wide = []
    for one in known["range"]:
        least, most = ends(one["found"], one.get("also", ()), one["unit"], one["error"])
        if one["most"] - one["least"] > 1.01 * (most - least):
            wide.append(f"figure {one['figure']}: {one['claim']}: {one['curve']}")
    assert wide == []
