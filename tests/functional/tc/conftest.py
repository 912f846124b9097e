"""A host and its neighbour as two network namespaces, linked by a veth, and TCP streams that count received bytes."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from pyroute2 import netns

from fpga_pool.drivers import privileged
from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.tc import netlink
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.drivers.guests.simulated import SimulatedGuests
from fpga_pool.model.messages.agents import ShapeFlow
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.services.agent.instances.supervisor import Taps
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shaper import FlowShaper
from support.nova_domain import domain
from support.streams import Stream, goodputs_bps

#: Addresses of the host's and of the neighbour's end of the veth.
HOST, NEIGHBOUR = "10.77.0.1", "10.77.0.2"
HOST_6, NEIGHBOUR_6 = "fd00:77::1", "fd00:77::2"


class Namespace:
    """A network namespace with a thread that runs in it: what `run` executes sees only its devices."""

    def __init__(self, name: str) -> None:
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        self._thread = ThreadPoolExecutor(1, initializer=netns.setns, initargs=(name,))

    def run(self, call: Callable, *args, **kwargs):
        return self._thread.submit(call, *args, **kwargs).result(120)

    def shell(self, command: str) -> str:
        """Run a command in the namespace; return its output."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, "sh", "-ec", command], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def delete(self) -> None:
        self._thread.shutdown()
        subprocess.run(["ip", "netns", "del", self.name], check=True)


@dataclass
class Net:
    """The two namespaces, and the streams of a test between them."""

    host: Namespace
    neighbour: Namespace
    #: Name of each end of the veth.
    device: str = "nic0"
    streams: list[Stream] = field(default_factory=list)

    def stream(self, congestion: str = "cubic", *, from_neighbour: bool = False, version: int = 4) -> Stream:
        """Connect from the host to the neighbour, or in the other direction."""
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
    """Skip the test, with the reason, if this machine cannot limit rates."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} (iproute2)")


@pytest.fixture
def own_capabilities() -> Iterator[None]:
    """Run the privileged calls in this process, in the namespace of the calling thread."""
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
    """Make unused flows, distinguished by a number below 50000."""

    def make(number: int, **other: str) -> Flow:
        usual = {
            "key": f"idle-{number}",
            "source_address": HOST,
            "source_port": 10_000 + number,
            "destination_address": "192.0.2.1",
            "destination_port": 7000,
        }
        return Flow(**usual | other)

    return make


@pytest.fixture
def measure():
    """Return the goodputs of running streams, in bit/s, as counted by their receivers: `measure(streams, window_s)`."""
    return goodputs_bps


class TappedAgent:
    """The parts of an agent that find servers and limit their flows; their threads run in the host's namespace.

    The neighbour is a guest, and the host's end of the veth is its tap.
    """

    port = "a1b2c3d4-e5f6-4711-8f00-000000000001"
    tap = f"tap{port[:11]}"

    def __init__(self, net: Net, directory: Path) -> None:
        self.net = net
        self.server = str(uuid4())
        self._guests = directory / "guests"
        self._guests.mkdir(exist_ok=True)
        self._directory = directory
        net.host.shell(f"ip link set {net.device} name {self.tap}")

    def describe(self, limits: str = "") -> None:
        """Let the hypervisor report that the server runs."""
        text = domain(server=self.server, port=self.port, address=NEIGHBOUR, limits=limits)
        (self._guests / f"{self.server}.xml").write_text(text)

    def end_server(self) -> None:
        """End the server."""
        (self._guests / f"{self.server}.xml").unlink()
        self.taps.wake()

    def start(self) -> None:
        self.journal = Journal(self._directory / "journal.sqlite")
        self.egress = TcEgress({})
        self.shaper = FlowShaper(self.egress, self.journal, time.time)
        self.taps = Taps(SimulatedGuests(self._guests).running, self.egress, 1e9)
        self.net.host.run(self.shaper.start)
        self.net.host.run(self.taps.start)

    def stop(self) -> None:
        self.net.host.run(self.taps.stop)
        self.net.host.run(self.shaper.stop)
        self.journal.close()

    def hold(self, stream: Stream, bps: float, job: str = "job") -> None:
        """Limit a stream of the server to a plan of one rate, dispatched now."""
        flow = stream.flow("")
        action = ShapeFlow(
            job=job,
            attempt=1,
            source_address=flow.source_address,
            source_port=flow.source_port,
            destination_address=flow.destination_address,
            destination_port=flow.destination_port,
            dispatched_at=time.time(),
            transfer=(RateSegment(0.0, 600.0, bps),),
            server=self.server,
        )
        self.shaper.take(action)

    def ifb(self) -> str:
        """Return the device through which the guest's packets pass; "" if there is none."""
        names = self.net.host.shell("ip -o link | cut -d: -f2").split()
        return next((name for name in names if name.startswith("fpi")), "")

    def rates(self) -> list[int]:
        """Return the rates of all limited flows, in bytes per second on the wire."""

        def ask() -> list[int]:
            names = [name for _, name in socket.if_nameindex() if name.startswith("fpi")]
            return sorted(rate for name in names for rate in netlink.class_rates(netlink.link(name).index).values())

        return self.net.host.run(ask)


@pytest.fixture
def tapped(net, tmp_path) -> Iterator[TappedAgent]:
    agent = TappedAgent(net, tmp_path)
    agent.describe()
    agent.start()
    yield agent
    agent.stop()
