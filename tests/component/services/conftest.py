"""A fast board with real components, for the tests of the services."""

import threading
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.drivers.slots.simulated import SimulatedSlots
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.clock import SteadyClock

PATIENCE_S = 60.0
#: Computation time of a job that no test waits for.
LONG_S = 300.0


@pytest.fixture(scope="session")
def catalogue(make_catalogue):
    """Return a catalogue of a board that loads in 1 ms. sha256 takes 5 ms, wordcount runs until it is stopped."""
    functions = {
        "sha256": (0.005, "small", "large"),
        "aes": (0.005, "small", "large"),
        "wordcount": (LONG_S, "small", "large"),
        "mvm": (0.005, "small", "large"),
        "optical_flow": (0.005, "large"),
    }
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.001)


@pytest.fixture(scope="session")
def key():
    return Ed25519PrivateKey.generate()


@pytest.fixture
def library(tmp_path, catalogue, key):
    library = BitstreamLibrary(tmp_path / "bitstreams")
    library.fill(catalogue, catalogue.board("fast"), key)
    return library


@pytest.fixture
def new_driver(catalogue, key):
    return lambda **options: SimulatedSlots(catalogue, "fast", 1, key.public_key(), **options)


@pytest.fixture
def agent_settings(tmp_path):
    known = {"egress_bps": 1e10, "ingress_bps": 1e10, "heartbeat_s": 0.05}
    # On a busy machine computations are late, so only tests that set a shorter grace time have jobs stopped.
    known |= {"hang_factor": 1.0, "hang_grace_s": PATIENCE_S}
    known |= {"fault_pause_s": (0.01, 0.05), "drain_timeout_s": 0.5}
    return lambda host="h0", **fields: AgentSettings(host=host, state_dir=tmp_path / "agents" / host, **known | fields)


@pytest.fixture(scope="session")
def clock():
    return SteadyClock()


@pytest.fixture
def until():
    """Return a function that waits until a condition holds."""

    def wait(condition):
        give_up_s = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < give_up_s, "what the test waits for does not happen"
            pause.wait(0.002)

    return wait
