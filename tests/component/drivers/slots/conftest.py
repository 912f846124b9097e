import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.drivers.slots import bitstream
from fpga_pool.drivers.slots.base import SlotAddress
from fpga_pool.drivers.slots.simulated import SimulatedSlots
from fpga_pool.model.objects.pool import SlotState

PATIENCE_S = 60.0
#: Computation time of a job that no test waits for.
LONG_S = 300.0


@pytest.fixture(scope="session")
def catalogue(make_catalogue):
    """Return a catalogue of a board that loads in 1 ms. sha256 takes 10 ms, wordcount runs until it is stopped."""
    functions = {
        "sha256": (0.01, "small", "large"),
        "aes": (0.01, "small", "large"),
        "wordcount": (LONG_S, "small", "large"),
        "optical_flow": (0.01, "large"),
    }
    return make_catalogue(functions, slots=["small", "small", "small", "large"], load_s=0.001)


@pytest.fixture(scope="session")
def signing_key():
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="session")
def build(catalogue, signing_key):
    """Return a function that builds a bitstream of the fast board, signed with the trusted key."""

    def _build(function, kind="small"):
        return bitstream.build(catalogue.board("fast"), kind, catalogue.function(function), signing_key)

    return _build


@pytest.fixture
def simulated(catalogue, signing_key):
    """Return a function that makes a simulated driver of the fast board."""

    def _simulated(**options):
        return SimulatedSlots(catalogue, "fast", **{"cards": 1, "trusted_key": signing_key.public_key(), **options})

    return _simulated


@pytest.fixture
def slot():
    return SlotAddress("sim0", "slot0")


@pytest.fixture
def files(tmp_path):
    """Return the paths of an input of 1000 bytes and of the result."""
    source = tmp_path / "source"
    source.write_bytes(bytes(range(250)) * 4)
    return SimpleNamespace(source=source, sink=tmp_path / "sink", input_bytes=1000)


@pytest.fixture
def in_background():
    """Return a function that calls its argument in another thread and returns the future."""
    pool = ThreadPoolExecutor()
    yield pool.submit
    pool.shutdown(wait=True)


@pytest.fixture
def until():
    """Return a function that waits until a condition holds."""

    def _until(condition):
        give_up_s = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < give_up_s, "what the test waits for does not happen"
            pause.wait(0.002)

    return _until


@pytest.fixture
def until_busy(until):
    """Wait until the slot is BUSY."""
    return lambda driver, slot: until(lambda: driver.state(slot).state is SlotState.BUSY)
