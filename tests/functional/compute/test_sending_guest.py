"""A virtual machine that sends as fast as it can; its rate is limited at its tap, which the host's agent finds."""

import contextlib
import math
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass

import pytest

from fpga_pool.drivers import privileged
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.drivers.guests.libvirt import LibvirtGuests
from fpga_pool.model.messages.agents import ObservedServer, ShapeFlow
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.services.agent.instances.supervisor import Taps
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shaper import FlowShaper
from support import guest_image as images
from support.streams import RAMP_S, Stream, check_rates

from . import hypervisor as hypervisors

HOST, GUEST = "10.79.13.1", "10.79.13.2"
BOOT_S = 240.0
#: An emulated guest sends several times as fast without limits.
RATES_BPS = (10e6, 30e6)
#: Limits the bytes in flight.  More than the queue at the tap would lose packets when the rate falls; and after a lost
#: packet is sent again, a receiver gets all that came after it at once.
RECEIVE_BYTES = 64 << 10


@dataclass
class Sender:
    """The server, its port, and its domain."""

    uuid: str
    port: str
    domain: object

    @property
    def tap(self) -> str:
        return f"tap{self.port[:11]}"


@pytest.fixture
def listener():
    with socket.create_server(("0.0.0.0", 0)) as listening:  # the address of the host is added with the tap
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        listening.settimeout(BOOT_S)
        yield listening


@pytest.fixture
def sender(hypervisor, connection, kernel, listener, tmp_path):
    """Start the guest."""
    assert privileged.use_own_capabilities()
    server, port, console = str(uuid.uuid4()), str(uuid.uuid4()), tmp_path / "console"
    words = f"address={GUEST} to={HOST} at={listener.getsockname()[1]}"
    xml = hypervisors.DOMAIN.format(
        name=f"sender-{server[:8]}",
        uuid=server,
        specs="",
        kernel=kernel,
        initrd=images.build_sending(kernel, tmp_path),
        console=console,
        devices=f"<interface type='ethernet'><target dev='tap{port[:11]}'/><model type='virtio'/></interface>",
        vcpus=1,
        cmdline=words,
        metadata="",
    )
    ports = f'<nova:ports><nova:port uuid="{port}"><nova:ip type="fixed" address="{GUEST}"/></nova:port></nova:ports>'
    made = Sender(server, port, connection.defineXML(xml.replace("</nova:instance>", f"{ports}</nova:instance>")))
    made.domain.create()
    subprocess.run(["ip", "address", "add", f"{HOST}/24", "dev", made.tap], check=True, timeout=60)
    yield made
    print(f"--- console\n{console.read_text() if console.exists() else ''}")
    with contextlib.suppress(Exception):
        made.domain.destroy()
    made.domain.undefine()
    privileged.tc_context.set_client_mode(True)


@pytest.fixture
def agent(sender, hypervisor, tmp_path):
    """The parts of an agent that find taps and limit flows."""
    journal, egress = Journal(tmp_path / "journal.sqlite"), TcEgress({})
    guests, shaper = LibvirtGuests(hypervisor.uri), FlowShaper(egress, journal, time.time)
    taps = Taps(guests.running, egress, math.inf)
    guests.watch(lambda _: taps.wake())
    shaper.start()
    taps.start()
    yield taps, shaper
    taps.stop()
    shaper.stop()
    guests.close()
    journal.close()


def ifbs() -> list[str]:
    return [name for _, name in socket.if_nameindex() if name.startswith("fpi")]


def test_a_guest_that_heeds_nobody_sends_at_the_planned_rate(sender, agent, listener, until):
    taps, shaper = agent
    until(taps.observed, "the agent finds the server")
    assert taps.observed() == (ObservedServer(uuid=sender.uuid, project_id="p1", egress_bps=math.inf, held=True),)
    stream = Stream(near=socket.socket(), far=listener.accept()[0])
    address, source_port = stream.far.getpeername()
    stream.receive()
    try:
        for rate_bps in (*RATES_BPS, RATES_BPS[0]):
            plan = ShapeFlow(
                job="job",
                attempt=1,
                source_address=address,
                source_port=source_port,
                destination_address=HOST,
                destination_port=listener.getsockname()[1],
                dispatched_at=time.time(),
                transfer=(RateSegment(0.0, 600.0, rate_bps),),
                server=sender.uuid,
            )
            shaper.take(plan)
            time.sleep(RAMP_S)
            check_rates([stream], [rate_bps])
    finally:
        stream.stop()
    sender.domain.destroy()
    until(lambda: not ifbs(), "what was at the tap is gone with the guest")
