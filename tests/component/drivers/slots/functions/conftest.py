import pytest

from fpga_pool.drivers.slots.functions import function_model


@pytest.fixture
def compute(tmp_path):
    """Return a function that runs a software model on bytes and returns the bytes of its result."""

    def run(name, data):
        source, sink = tmp_path / "source", tmp_path / "sink"
        source.write_bytes(data)
        function_model(name)(source, sink)
        return sink.read_bytes()

    return run
