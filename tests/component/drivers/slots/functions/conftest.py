import importlib

import pytest


@pytest.fixture
def compute(tmp_path):
    """Run a software model on bytes and return the bytes of its result."""

    def run(name, data):
        source, sink = tmp_path / "source", tmp_path / "sink"
        source.write_bytes(data)
        importlib.import_module(f"fpga_pool.drivers.slots.functions.{name}").run(source, sink)
        return sink.read_bytes()

    return run
