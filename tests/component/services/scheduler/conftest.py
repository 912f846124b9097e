import itertools
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from oslo_config import cfg

from fpga_pool.conf.policies import load_policy
from fpga_pool.model.codec import read
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable
from fpga_pool.model.messages.agents import (
    AssignJob,
    Command,
    FreeSlot,
    Heartbeat,
    HoldSlot,
    InputStaged,
    JobFinished,
    JobReleased,
    JobStarted,
    LoadFunction,
    ObservedJob,
    ObservedSlot,
    Outcome,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.messages.requests import TicketRequest
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.rpc import scheduler_api
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Identity, Role, key_text
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import AGENT_TOPIC, SCHEDULER_TOPIC, TARGET, answers, server, transport
from fpga_pool.services.scheduler.dry_runs.turns import DryRuns
from fpga_pool.services.scheduler.endpoint import SchedulerEndpoint
from fpga_pool.services.scheduler.enrolment import approve
from fpga_pool.services.scheduler.planner import log_cycle
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.services.scheduler_settings import SchedulerSettings
from fpga_pool.store import Store
from support.peers import Callers, agent_gate, scheduler_gate

#: Timeout of calls to agents. Tests with an unavailable agent wait for it.
ANSWER_S = 1.0
KINDS = {"r0": "small", "r1": "small", "r2": "large"}


class Agent:
    """An agent across the process boundary. It accepts commands, and reports what a test lets it report."""

    target = TARGET

    def __init__(self, name):
        self.name = name
        #: The links of its slots, by region.
        self.links = {}
        self.commands = []
        self.held = {}
        self.kept = {}
        #: The slots and functions that it was told to load ahead of jobs.
        self.ahead = []
        self.owners = []
        self.beats = itertools.count(1)
        self.refuses = None
        #: Names of actions that it does not know, as if they belonged to a later release.
        self.unknown = set()
        #: Whether it raises ServiceUnavailable for all calls.
        self.unavailable = False
        #: If cleared, answers to commands are delayed.
        self.answers = threading.Event()
        self.answers.set()

    @answers
    def bitstreams(self, context, board):
        if self.unavailable:
            raise ServiceUnavailable("its disk is full")
        return [BitstreamInfo(function="sha256", version="1.0", board=board, kind="small", verified=True)]

    @answers
    def execute(self, context, shard, epoch, commands):
        self.owners.append((shard, epoch))
        if self.unavailable:
            raise ServiceUnavailable("its disk is full")
        if found := [plain["action"]["type"] for plain in commands if plain["action"]["type"] in self.unknown]:
            raise InvalidInput(f"message.action.type: found {found[0]!r}")
        taken = read(list[Command], commands)
        self.answers.wait(5.0)
        return [self._take(command) for command in taken]

    def _take(self, command):
        if self.refuses:
            return Outcome(command=command.id, outcome="refused", reason=self.refuses)
        if command in self.commands:
            return Outcome(command=command.id, outcome="repeated")
        self.commands.append(command)
        if isinstance(command.action, AssignJob):
            self.held[command.action.job] = command
        elif isinstance(command.action, HoldSlot):
            self.kept[command.slot] = command.action.instance
        elif isinstance(command.action, FreeSlot):
            self.kept.pop(command.slot, None)
        elif isinstance(command.action, LoadFunction):
            self.ahead.append((command.slot, command.action.function))
        else:
            self.held.pop(command.action.job, None)
        return Outcome(command=command.id, outcome="accepted")

    def heartbeat(self, at, unreported=0):
        sequences = {command.slot: command.sequence for command in self.commands}
        return Heartbeat(
            host=self.name, agent_id=self.name, boot=1, beat=next(self.beats), at=at,
            egress_bps=1e10, ingress_bps=1e10, data_address="192.0.2.1", data_port=7000, unreported=unreported,
            slots=tuple(
                ObservedSlot(
                    slot=f"{self.name}/c/{region}", card="c", region=region, board="fast", kind=kind,
                    state=SlotState.EMPTY, sequence=sequences.get(f"{self.name}/c/{region}", 0),
                    instance=self.kept.get(f"{self.name}/c/{region}", ""), links=self.links.get(region, ""),
                )
                for region, kind in KINDS.items()
            ),
            jobs=tuple(
                ObservedJob(job=uuid, attempt=command.action.attempt, slot=command.slot)
                for uuid, command in list(self.held.items())
            ),
        )  # fmt: skip


class StoppedPlanner:
    """The planner of one family, which makes a step only when a test calls it."""

    def __init__(self, bench, family, clock=None, owner="me", epoch=1):
        self.family = family
        #: Names of the policies that have decided.
        self.asked = []
        store = bench.service.store
        self._cycle = Cycle(
            family,
            reading=lambda: store.reading("default"),
            transactions=lambda: store.transaction("default", owner, epoch),
            dispatch=lambda: None,
            clock=clock or bench.clock,
            timer=time.monotonic,
            rng=np.random.default_rng(0),
        )

    def step(self):
        """Run one cycle; return whether anything was changed, or another cycle is required."""
        result = self._cycle.run()
        log_cycle(result)
        if result.policy is not None:
            self.asked.append(result.policy.name)
        return result.again or result.outcome.changed


class Bench:
    """A scheduler on a real database behind a real transport, and its agents."""

    def __init__(self, stack, servers, connection, catalogue, key, clock):
        self._stack = stack
        self._servers = servers
        self.catalogue, self.key, self.clock = catalogue, key, clock
        self.transport = transport(cfg.CONF, "inprocess://")
        self.api = Callers(self.transport, key, timeout_s=60.0)
        self.identity = Identity(Role.SCHEDULER, "me", key)
        self.store = Store(connection)
        stack.callback(self.store.close)
        self.agents = {}
        self.numbers = itertools.count(1)
        #: Notifications that its schedulers have published.
        self.published = []
        self.service = self.new_service()

    def new_service(
        self, name="me", policies=lambda name: load_policy("batch", name), shard_timeout_s=1.0, placement=None, **pool
    ):
        settings = SchedulerSettings(
            name=name,
            interval_s=0.1,
            refit_interval_s=0.1,
            shard_timeout_s=shard_timeout_s,
            # Tests control when heartbeats arrive.
            pool=PoolSettings(**{"dispatch_lead_s": 0.0, "host_timeout_s": 300.0} | pool),
        )
        agents = AgentAPI(self.transport, self.identity, timeout_s=ANSWER_S)
        peers = SchedulerAPI(self.transport, self.identity)
        online = OnlineRule(load_policy("online", "benefit_plus"), {"benefit_plus"}.__contains__)
        gangs = load_policy("gang", "measy_plus")
        tasks = load_policy("task", "lattice_plus")
        parts = settings, self.store, self.catalogue, policies, agents, peers, self.key
        publish = self.published.extend
        return SchedulerService(*parts, {}, self.clock, online, gangs, tasks, placement, publish=publish)

    def start(self, service=None, gate=None):
        """Start the service and serve it until the test ends, to peers that its gate accepts (default: for `api`)."""
        self.service = service or self.service
        self.service.dry_runs = DryRuns(lambda: 0.0)  # no dry run is too long, even on a slow machine
        endpoint = SchedulerEndpoint(self.service)
        gate = gate or scheduler_gate(self.key)
        self._serve(SCHEDULER_TOPIC, self.service.settings.name, endpoint, gate, self.service.refusals)
        self.service.start()
        self._stack.callback(self.service.stop)
        return self

    def _serve(self, topic, name, endpoint, gate, refusals=None):
        one = server(self.transport, topic, name, [endpoint], gate, refusals)
        one.start()
        self._stack.callback(self._servers.submit, lambda: (one.stop(), one.wait()))

    def host(self, name=None, *, served=True):
        """Bring up a host. The fake transport keeps messages to absent hosts, so names are never reused."""
        agent = self.agent(name, served=served)
        self.agents[agent.name] = agent
        self.api.heartbeat(agent.heartbeat(self.clock()))
        return agent

    def agent(self, name=None, *, served=True):
        """Return the agent of an enrolled host that has not sent a heartbeat yet."""
        agent = Agent(name or f"h-{uuid.uuid4().hex[:8]}")
        approve(self.store, agent.name, key_text(self.key.public_key()), self.clock())
        if served:
            self.serve(agent)
        return agent

    def serve(self, agent):
        self._serve(AGENT_TOPIC, agent.name, agent, agent_gate(self.key))

    def request(self, agent, *functions, project="p", policy="", input_bytes=1000):
        return BatchRequest(
            uuid=str(uuid.uuid4()), project_id=project, user_id="u", name="n", policy=policy,
            jobs=tuple(
                JobRequest(
                    uuid=str(uuid.uuid4()), name="", function=name, requester=agent.name, input_bytes=input_bytes
                )
                for name in functions
            ),
        )  # fmt: skip

    def create(self, agent, *functions, **options):
        return self.api.create_batch(self.request(agent, *functions, **options)).batch

    def jobs(self, batch):
        return self.api.batch_jobs(batch.project_id, batch.uuid).jobs

    def states(self, batch):
        return [job.state.value for job in self.jobs(batch)]

    def observe(self, agent, slot, *states):
        """Report states of a slot, each with its function and a reason."""
        seen = [
            SlotChanged(slot=slot, at=self.clock(), state=state, function=function, reason=reason)
            for state, function, reason in states
        ]
        self.api.report(agent.name, agent.name, [(next(self.numbers), one) for one in seen])

    def report(self, job, *kinds):
        about = {"job": job.uuid, "attempt": job.attempt, "at": self.clock()}
        every = {
            "staged": InputStaged(**about),
            "started": JobStarted(**about),
            "finished": JobFinished(**about, compute_s=0.02, result_bytes=1, result_sha256="ab" * 32),
            "delivered": ResultDelivered(**about),
        }
        self.api.report(job.host, job.host, [(next(self.numbers), every[kind]) for kind in kinds])

    def released(self, job):
        about = {"job": job.uuid, "attempt": job.attempt, "at": self.clock()}
        self.api.report(job.host, job.host, [(next(self.numbers), JobReleased(**about))])

    def tickets(self, batch, *jobs, purpose="send", project="p"):
        wanted = [TicketRequest(job=job, purpose=purpose, source_address="192.0.2.9", source_port=5) for job in jobs]
        return self.api.tickets(project, batch.uuid, wanted)

    def waiting(self):
        return self.store.undelivered("default", 10_000)


@pytest.fixture(scope="session")
def servers():
    """Yield an executor that stops servers in the background, because each takes seconds to stop."""
    with ThreadPoolExecutor(32) as stopping:
        yield stopping


@pytest.fixture
def bench(tmp_path, new_database, servers, catalogue, key, clock, monkeypatch):
    # The fake transport is shared by the process. With a separate exchange, no server of another test listens.
    exchange = uuid.uuid4().hex
    for place in ("transport", "gathering"):
        monkeypatch.setattr(f"fpga_pool.rpc.{place}.EXCHANGE", exchange)
    # An agent would send another heartbeat, but a test sends one, which must not time out on a busy machine.
    monkeypatch.setitem(scheduler_api._TIMEOUTS_S, "heartbeat", 60.0)
    with ExitStack() as stack:
        yield Bench(stack, servers, new_database(tmp_path / "pool.sqlite"), catalogue, key, clock)


class JumpingClock:
    """A clock that tests can let jump."""

    def __init__(self, clock):
        self._clock = clock
        self.ahead_s = 0.0

    def __call__(self):
        return self._clock() + self.ahead_s

    def advance_to(self, at):
        pass


@pytest.fixture
def jumping_clock(clock):
    return JumpingClock(clock)


@pytest.fixture
def new_agent(bench):
    """Return a function that brings up an agent that has not sent a heartbeat yet."""

    return bench.agent


@pytest.fixture
def running(bench):
    return bench.start()


class Allocations:
    """The allocations of Placement. Requests to report slots there fail."""

    def __init__(self):
        self.known = {}
        self.away = False

    def allocated(self, instance):
        if self.away:
            raise ServiceUnavailable("Placement does not answer")
        return self.known.get(instance, {})

    def ensure_class(self):
        raise ServiceUnavailable("this is no place to tell of slots")

    owned = ensure_class


@pytest.fixture
def placement():
    return Allocations()


@pytest.fixture
def with_placement(bench, placement):
    return bench.start(bench.new_service(placement=placement))
