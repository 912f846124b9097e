"""A host and its neighbour as two network namespaces, a veth between them, and TCP streams that count what arrives."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import pytest
from pyroute2 import netns

from fpga_pool.drivers import privileged
from fpga_pool.drivers.egress.base import Flow

#: Addresses of the host's and of the neighbour's end of the veth.
HOST, NEIGHBOUR = "10.77.0.1", "10.77.0.2"
HOST_6, NEIGHBOUR_6 = "fd00:77::1", "fd00:77::2"


class Namespace:
    """A network namespace, and a thread that lives there: what `run` executes sees only its devices."""

    def __init__(self, name: str) -> None:
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        self._thread = ThreadPoolExecutor(1, initializer=netns.setns, initargs=(name,))

    def run(self, call: Callable, *args, **kwargs):
        return self._thread.submit(call, *args, **kwargs).result(120)

    def shell(self, command: str) -> str:
        """Run a command there; its output."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, "sh", "-ec", command], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def delete(self) -> None:
        self._thread.shutdown()
        subprocess.run(["ip", "netns", "del", self.name], check=True)


@dataclass
class Stream:
    """A TCP stream at full speed, and a receiver that counts."""

    near: socket.socket
    far: socket.socket
    received_bytes: int = 0
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> "Stream":
        for work in (self._send, self._receive):
            thread = threading.Thread(target=work)
            thread.start()
            self.threads.append(thread)
        return self

    def stop(self) -> None:
        # Whatever still waits for its turn in a queue shall not be waited for.
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        self.near.close()
        self.far.close()

    def flow(self, key: str) -> Flow:
        source, destination = self.near.getsockname(), self.near.getpeername()
        return Flow(
            key=key,
            source_address=source[0],
            source_port=source[1],
            destination_address=destination[0],
            destination_port=destination[1],
        )

    def _send(self) -> None:
        block = bytes(1 << 18)
        with contextlib.suppress(OSError):
            while True:
                self.near.sendall(block)

    def _receive(self) -> None:
        buffer = bytearray(1 << 18)
        with contextlib.suppress(OSError):
            while count := self.far.recv_into(buffer):
                self.received_bytes += count


@dataclass
class Net:
    """The two namespaces, and what a test opened between them."""

    host: Namespace
    neighbour: Namespace
    #: Each end's name of the veth.
    device: str = "nic0"
    streams: list[Stream] = field(default_factory=list)

    def stream(self, congestion: str = "cubic", *, from_neighbour: bool = False, version: int = 4) -> Stream:
        """Connect from the host to the neighbour, or back."""
        near_space, far_space = (self.neighbour, self.host) if from_neighbour else (self.host, self.neighbour)
        addresses = {4: (HOST, NEIGHBOUR), 6: (HOST_6, NEIGHBOUR_6)}[version]
        family = {4: socket.AF_INET, 6: socket.AF_INET6}[version]
        listener = far_space.run(socket.create_server, (addresses[not from_neighbour], 0), family=family)
        with listener:
            near = near_space.run(socket.socket, family)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
            near.connect(listener.getsockname())
            stream = Stream(near, listener.accept()[0])
        self.streams.append(stream)
        return stream


@pytest.fixture(scope="session")
def tc_tools():
    """Skip, with the reason, where this machine cannot shape."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} (iproute2)")


@pytest.fixture
def own_capabilities() -> Iterator[None]:
    """Let the privileged calls run in this process, in the namespace of the calling thread."""
    assert privileged.use_own_capabilities()
    yield
    privileged.tc_context.set_client_mode(True)


_numbers = itertools.count()


@pytest.fixture
def net(tc_tools, own_capabilities) -> Iterator[Net]:
    prefix = f"fptc{os.getpid()}-{next(_numbers)}"
    with contextlib.ExitStack() as stack:
        spaces = []
        for end in ("host", "peer"):
            spaces.append(Namespace(f"{prefix}-{end}"))
            stack.callback(spaces[-1].delete)
        net = Net(*spaces)
        net.host.shell(f"ip link add {net.device} type veth peer name {net.device} netns {net.neighbour.name}")
        for space, addresses in ((net.host, (HOST, HOST_6)), (net.neighbour, (NEIGHBOUR, NEIGHBOUR_6))):
            space.shell(
                f"ip address add {addresses[0]}/24 dev {net.device};"
                f"ip address add {addresses[1]}/64 dev {net.device} nodad;"
                f"ip link set {net.device} up; ip link set lo up"
            )
        yield net
        for stream in net.streams:
            stream.stop()


@pytest.fixture
def make_flow() -> Callable[[int], Flow]:
    """Make flows that nobody uses, told apart by a number below 50000."""

    def make(number: int) -> Flow:
        return Flow(
            key=f"idle-{number}",
            source_address=HOST,
            source_port=10_000 + number,
            destination_address="192.0.2.1",
            destination_port=7000,
        )

    return make


class Canary:
    """Notes how late a thread that sleeps 5 ms wakes up: a host that is busy elsewhere sends late too."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(30)

    def _watch(self) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            time.sleep(0.005)
            self.worst_s = max(self.worst_s, time.monotonic() - began_s - 0.005)


@pytest.fixture
def measure():
    """Goodput of running streams, in bit/s, as their receivers count it: `measure(streams, window_s)`."""

    def goodputs_bps(streams: list[Stream], window_s: float) -> tuple[list[float], float]:
        with Canary() as canary:
            before, began_s = [stream.received_bytes for stream in streams], time.monotonic()
            time.sleep(window_s)
            after, took_s = [stream.received_bytes for stream in streams], time.monotonic() - began_s
        return [8 * (end - begin) / took_s for begin, end in zip(before, after, strict=True)], canary.worst_s

    return goodputs_bps
