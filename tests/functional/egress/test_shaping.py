"""Flows limited to their plans by the requester's agent: scheduler, agent, tc and kernel, in network namespaces."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from fpga_pool.drivers.egress.tc import netlink
from fpga_pool.model.exceptions import NotFound, UnknownRequester
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import BatchState, Job, JobState, RateSegment
from fpga_pool.services.agent.journal import Journal
from fpga_pool.transfer.schedule import RateSchedule
from support import environment
from support.deployment import Deployment
from support.nova_domain import domain
from support.servers import RabbitMQ
from support.testbed import network as testbed
from support.testbed.cases import Nic
from support.testbed.network import Endpoint, Network, inside, switched_network
from support.waiting import SOON_S, wait_until

REQUESTER = "requester-1"
RESPONDERS = ("node-1", "node-2")
#: The links carry ten times the configured rates of the hosts, so anything slower is limited by tc.
CABLE_BPS = 1e9
EGRESS_MBPS, INGRESS_MBPS = 100, 60
#: Two inputs of this size, one for each responder: the first is sent at 60 Mbit/s and is complete after 8 s; the second
#: is sent at the remaining 40 Mbit/s, then at 60: after 8 s 40 MB have arrived, and the rest takes 2.67 s.
INPUT_BYTES = 60_000_000
#: Bytes per second on the wire for this many Mbit/s of payload, at MTU 1500 with IPv4.
WIRE_RATE = {mbps: round(mbps * 1e6 / 8 * 1514 / 1448) for mbps in (40, 60)}
#: Addresses of the guest and of its tap, here a veth named after its port.
GUEST, GUEST_NET, TAP_ADDRESS = "10.78.0.2", "10.78.0.0/24", "10.78.0.1"
SERVER, PORT = str(uuid4()), str(uuid4())
TAP = f"tap{PORT[:11]}"
FOREIGN = "root handle 7: tbf rate 2gbit burst 1mb latency 50ms"


def shell(namespace: str, command: str) -> str:
    words = ["ip", "netns", "exec", namespace, "sh", "-ec", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


class Transfers:
    """A batch of two jobs, whose inputs are sent by separate programs, which do not end with an agent."""

    def __init__(self, pool: Deployment, source: Path, namespace: str, requester: str) -> None:
        self._api = pool.client()
        requests = [
            JobRequest(uuid=str(uuid4()), name=name, function="sha256", requester=requester, input_bytes=INPUT_BYTES)
            for name in ("first", "second")
        ]
        self._programs = [
            subprocess.Popen(
                [
                    sys.executable, "-P", "-m", "support.testbed.send", "--api", pool.endpoint,
                    "--namespace", namespace, "--job", request.name,
                    "--source", str(source), "--sink", str(source.with_name(request.name)),
                ],
                env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for request in requests
        ]  # fmt: skip
        assert [program.stdout.readline() for program in self._programs] == ["ready\n"] * 2
        # This policy sends to both responders concurrently.
        self._batch = wait_until(lambda: self._submitted(requests), "the requester is in the pool")
        for program in self._programs:
            program.stdin.write(f"{self._batch}\n")
            program.stdin.flush()

    def _submitted(self, requests: list[JobRequest]) -> str:
        """Submit the batch; return its uuid, or "" if the agent has not reported the server yet."""
        with contextlib.suppress(UnknownRequester):
            return self._api.create_batch(requests, policy="ect").uuid
        return ""

    def jobs(self) -> dict[str, Job]:
        """Return the jobs by name."""
        return {job.name: job for job in self._api.jobs(self._batch)}

    @contextlib.contextmanager
    def held_up(self, name: str) -> Iterator[None]:
        """Stop one program during the context."""
        program = self._programs[("first", "second").index(name)]
        program.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            program.send_signal(signal.SIGCONT)

    def running(self) -> bool:
        return any(program.poll() is None for program in self._programs)

    def finish(self) -> None:
        """Assert that both results arrive, and the batch is complete."""
        said = [program.communicate(timeout=SOON_S)[0] for program in self._programs]
        assert [program.returncode for program in self._programs] == [0, 0], said
        wait_until(lambda: self._api.batch(self._batch).state is BatchState.COMPLETED, "the batch is complete")
        assert [job.attempt for job in self._api.jobs(self._batch)] == [1, 1]

    def kill(self) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()


@dataclass
class Scene:
    """A pool on a network: one requester, two responders."""

    network: Network
    pool: Deployment

    @property
    def namespace(self) -> str:
        """The namespace of the requester's host."""
        return self.network.hosts[REQUESTER].namespace

    def kernel(self) -> str:
        """Return all queues and devices of the requester's host."""
        return shell(self.namespace, "tc qdisc show | sed 's/direct_packets_stat [0-9]*//'; ip -o link | cut -d: -f2")

    def rates(self, device: str = Endpoint.nic) -> list[int]:
        """Return the rates of all classes of a device, in bytes per second; empty if there is no such device."""
        with inside(self.namespace):
            try:
                return sorted(netlink.class_rates(netlink.link(device).index).values())
            except NotFound:
                return []

    def ifb(self) -> str:
        """Return the device through which the guest's packets pass; "" if there is none."""
        names = shell(self.namespace, "ip -o link | cut -d: -f2").split()
        return next((name for name in names if name.startswith("fpi")), "")

    def noted(self) -> int:
        """Return how many flows the requester's agent would limit again after a restart."""
        return len(self.noted_plans())

    def noted_plans(self) -> list[tuple[RateSegment, ...]]:
        """Return the plans that the requester's agent has stored for its flows."""
        with contextlib.closing(Journal(self.pool.directory / REQUESTER / "journal.sqlite")) as journal:
            return [flow.transfer for flow in journal.flows()]

    def log(self) -> str:
        return self.pool.log_file(REQUESTER).read_text()

    def restart_agent(self) -> None:
        """Restart the requester's agent, and wait until it is ready."""
        ready = self.log().count("is ready")
        self.pool.restart(REQUESTER)
        wait_until(lambda: self.log().count("is ready") > ready, "the agent is ready")


def add_guest(network: Network) -> str:
    """Connect a guest to the requester's host by a veth in place of a tap; return the guest's namespace."""
    host = network.hosts[REQUESTER]
    guest = f"{host.namespace}-guest"
    subprocess.run(["ip", "netns", "add", guest], check=True, timeout=60)
    shell(host.namespace, f"ip link add {TAP} type veth peer name eth0 netns {guest}; ip link set {TAP} up")
    shell(host.namespace, f"ip address add {TAP_ADDRESS}/24 dev {TAP}; echo 1 > /proc/sys/net/ipv4/ip_forward")
    shell(guest, f"ip address add {GUEST}/24 dev eth0; ip link set eth0 up; ip route add default via {TAP_ADDRESS}")
    for responder in RESPONDERS:
        shell(network.hosts[responder].namespace, f"ip route add {GUEST_NET} via {host.data_address}")
    return guest


@pytest.fixture(scope="module")
def scene(mariadb, servers_directory, tmp_path_factory) -> Iterator[Scene]:
    for problem in (testbed.missing(), RabbitMQ.missing()):
        if problem:
            pytest.skip(problem)
    nics = [Nic(host=host, egress_bps=CABLE_BPS, ingress_bps=CABLE_BPS) for host in (REQUESTER, *RESPONDERS)]
    with (
        switched_network(nics) as network,
        RabbitMQ(servers_directory / "shaping", [network.control_address]) as broker,
    ):
        guest = add_guest(network)
        guests = tmp_path_factory.mktemp("guests")
        (guests / f"{SERVER}.xml").write_text(domain(server=SERVER, port=PORT, address=GUEST))
        shell(network.hosts[REQUESTER].namespace, f"tc qdisc add dev control {FOREIGN}")
        own = {
            host: {"agent": {"data_address": endpoint.data_address, "ingress_mbps": INGRESS_MBPS}}
            for host, endpoint in network.hosts.items()
        }
        own[REQUESTER]["agent"] |= {
            "egress_driver": "tc",
            "egress_mbps": EGRESS_MBPS,
            "guest_driver": "simulated",
            "simulated_guests_dir": guests,
            "hook_socket": guests / "hook.sock",
        }
        address = network.hosts[REQUESTER].data_address
        own[REQUESTER]["driver_tc"] = {"devices": f"{Endpoint.nic}={address}/32"}
        pool = Deployment(
            tmp_path_factory.mktemp("shaping") / "pool",
            broker.url,
            mariadb.new_database(),
            agents=len(RESPONDERS),
            requesters=1,
            # Leave the programs time to learn of the plan, and to be late on a busy machine without replanning.
            options={
                "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 2.0, "replan_late_s": 3.0},
                "agent": {"heartbeat_s": 0.5},
            },
            own=own,
            launchers={host: endpoint.command() for host, endpoint in network.hosts.items()},
        )
        try:
            with pool:
                yield Scene(network, pool)
                for name in pool.names:
                    print(f"--- {name}\n{pool.last_lines(name)}")
        finally:
            subprocess.run(["ip", "netns", "del", guest], check=True, timeout=60)


@pytest.fixture
def begin(scene, tmp_path) -> Iterator:
    """Start the two transfers, from the requester's host or from its guest."""
    begun = []

    def begin_from(namespace: str, requester: str = REQUESTER) -> Transfers:
        source = tmp_path / "input"
        source.write_bytes(os.urandom(INPUT_BYTES))
        begun.append(Transfers(scene.pool, source, namespace, requester))
        return begun[-1]

    yield begin_from
    for transfers in begun:
        transfers.kill()


def seen_rates(scene: Scene, transfers: Transfers, device=lambda: Endpoint.nic) -> list[list[int]]:
    """Poll the class rates of a device while the transfers last; return the distinct states in order."""
    seen = [[]]
    while transfers.running():
        rates = scene.rates(device())
        if rates != seen[-1]:
            seen.append(rates)
        time.sleep(0.02)
    return seen


#: The kernel's class rates: while both inputs are sent, while the first is late, and after it has arrived.
BOTH, LATER, REST = [WIRE_RATE[40], WIRE_RATE[60]], [WIRE_RATE[60]] * 2, [WIRE_RATE[60]]


def test_classes_follow_the_plan_and_go_with_their_streams(scene, begin):
    transfers = begin(scene.namespace)
    seen = seen_rates(scene, transfers)
    transfers.finish()
    assert BOTH in seen
    assert REST in seen[seen.index(BOTH) :]
    assert {rate for rates in seen for rate in rates} <= {0, *WIRE_RATE.values(), 12_500}
    wait_until(lambda: scene.rates() == [] and scene.noted() == 0, "both flows are released")


def planned_rates(transfers: Transfers) -> list[int]:
    """Return the planned rates of the flows at this moment, in bytes per second on the wire."""
    under_way = [job for job in transfers.jobs().values() if job.state is JobState.WAITING_INPUT]
    rates = [RateSchedule(job.transfer).rate_at(time.time() - job.dispatched_at) for job in under_way]
    return sorted(round(bps / 8 * 1514 / 1448) for bps in rates)


@pytest.mark.long
def test_classes_follow_a_plan_that_is_changed_because_an_input_is_late(scene, begin):
    """A stalled input gets new times and rates for its remaining bytes, and its classes in the kernel follow."""
    transfers = begin(scene.namespace)
    wait_until(lambda: scene.rates() == BOTH, "both flows are held")
    planned = transfers.jobs()["first"].transfer
    with transfers.held_up("first"):
        wait_until(lambda: transfers.jobs()["first"].transfer != planned, "what is late has another plan")
        # The stopped transfer cannot end before these checks; its plan may change again when it is twice as late.
        wait_until(
            lambda: transfers.jobs()["first"].transfer in scene.noted_plans(), "the requester's agent has it, too"
        )
        # Rates change with time, so the kernel's rates are compared with the plan at the same moment.
        wait_until(lambda: scene.rates() == planned_rates(transfers) != [], "the classes are as in the new plan")
    transfers.finish()
    wait_until(lambda: scene.rates() == [] and scene.noted() == 0, "both flows are released")


@pytest.mark.long
def test_guest_is_held_at_its_tap(scene, begin):
    """The same rates for flows of a server of Nova, without configuration: at its tap, which the agent has found."""
    transfers = begin(f"{scene.namespace}-guest", f"server:{SERVER}")
    seen = seen_rates(scene, transfers, scene.ifb)
    transfers.finish()
    assert BOTH in seen
    assert REST in seen[seen.index(BOTH) :]
    assert scene.rates() == []
    wait_until(lambda: scene.rates(scene.ifb()) == [] and scene.noted() == 0, "both flows are released")


@pytest.mark.long
def test_limits_outlive_an_agent_that_is_killed_and_the_next_one_tidies_up(scene, begin):
    transfers = begin(scene.namespace)
    wait_until(lambda: scene.rates() == BOTH, "both flows are held")
    scene.pool.kill(REQUESTER)
    held = scene.rates()
    assert held in (BOTH, LATER, REST)  # or the next state, if this machine is slow
    transfers.finish()
    assert scene.rates() == held
    scene.restart_agent()
    wait_until(lambda: scene.rates() == [] and scene.noted() == 0, "both flows are released")


@pytest.mark.long
def test_agent_that_starts_again_holds_what_still_flows(scene, begin):
    transfers = begin(scene.namespace)
    wait_until(lambda: scene.rates() == BOTH, "both flows are held")
    scene.pool.kill(REQUESTER)
    shell(scene.namespace, f"tc qdisc del dev {Endpoint.nic} root")
    scene.restart_agent()
    if transfers.running():
        wait_until(lambda: scene.rates() in (BOTH, LATER, REST) or not transfers.running(), "they are held again")
    transfers.finish()
    wait_until(lambda: scene.rates() == [] and scene.noted() == 0, "both flows are released")


@pytest.mark.long
def test_end_of_the_agent_leaves_the_kernel_as_it_was(scene, begin):
    assert scene.pool.terminate(REQUESTER) == 0
    before = scene.kernel()
    assert "qdisc tbf 7: dev control" in before
    assert "f940:" not in before
    assert scene.ifb() == ""
    scene.restart_agent()
    transfers = begin(scene.namespace)
    wait_until(lambda: scene.rates() == BOTH, "both flows are held")
    assert scene.pool.terminate(REQUESTER) == 0
    assert scene.kernel() == before
    transfers.finish()
    scene.restart_agent()
    wait_until(lambda: scene.noted() == 0, "both flows are released")


@pytest.mark.long
def test_queue_of_someone_else_is_left_alone_and_its_device_not_shaped(scene, begin):
    assert scene.pool.terminate(REQUESTER) == 0
    shell(scene.namespace, f"tc qdisc add dev {Endpoint.nic} {FOREIGN}")
    before = scene.kernel()
    scene.restart_agent()
    begin(scene.namespace).finish()
    assert f"device {Endpoint.nic}: its root queue is tbf 7:, configured by another program" in scene.log()
    assert scene.kernel() == before
    wait_until(lambda: scene.noted() == 0, "both flows are released")
    shell(scene.namespace, f"tc qdisc del dev {Endpoint.nic} root")
