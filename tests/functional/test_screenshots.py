"""The pictures of the dashboard in README and the user's guide are drawn by a command, from a pool that computes."""

import struct
from pathlib import Path

import pytest

from support.browser import CHROMIUM
from support.screenshots import draw


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed")
def test_every_picture_is_drawn(tmp_path):
    draw(tmp_path)
    sizes = {path.name: struct.unpack(">II", path.read_bytes()[16:24]) for path in tmp_path.iterdir()}
    assert sizes == dict.fromkeys(
        ("dashboard-pool-light.png", "dashboard-schedule-dark.png", "dashboard-schedule-light.png"), (1440, 760)
    )
