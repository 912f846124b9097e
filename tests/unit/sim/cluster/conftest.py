import pytest

from fpga_pool.cli.sim.cluster import make_law
from fpga_pool.sim.cluster.tables import read_world


@pytest.fixture
def world(tmp_path):
    """Return a function that reads a world from text."""

    def read(text):
        path = tmp_path / "world.toml"
        path.write_text(text)
        return read_world(path, make_law)

    return read
