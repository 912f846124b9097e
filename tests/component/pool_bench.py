"""A small pool: a scheduler that answers calls on SQLite, and hosts with real agents and data ports.

There is no message bus. `PoolBench.plan` replaces the planner. Slots compute at once, or when a test says so.
"""

import contextlib
import functools
import hashlib
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_messaging import ExpectedException

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.makespan import Ect
from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.model.lifecycle.job import Displaced, Planned, Retimed
from fpga_pool.model.messages.agents import ObservedFlow, ObservedSlot
from fpga_pool.model.messages.counters import CardCounters, GuestCounters, HostCounters
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.model.objects.gangs import Processor
from fpga_pool.model.objects.pool import PIPELINE_POLICY, Host, JobState, LeaseKind, Run, Slot
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.changes import change_job, new_lease
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.rpc.scheduler_api import SchedulerCalls
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.services.agent.streams import Streams
from fpga_pool.services.scheduler.dry_runs.turns import DryRuns
from fpga_pool.services.scheduler.endpoint import SchedulerEndpoint
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.services.scheduler.tickets import Tickets
from fpga_pool.services.scheduler_settings import SchedulerSettings
from fpga_pool.store import Store
from fpga_pool.store.store import LastBeat
from fpga_pool.store.tables import USAGE_DAYS
from fpga_pool.transfer.handler import JobResult
from fpga_pool.transfer.port import Limits
from fpga_pool.transfer.server import DataServer

CATALOGUE = Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml"
SHARD, OWNER = "default", "test"
DAY_S = 86_400

#: The measurements of the first of the two hosts.
COUNTERS = HostCounters(
    at=1000.0,
    cpus=8.0,
    busy_cpus=6.25,
    memory_bytes=1 << 34,
    used_bytes=1 << 33,
    received_bps=2.5e6,
    sent_bps=0.0,
    cpu_pressure=0.125,
    guests=(GuestCounters(uuid="00000000-0000-0000-0000-000000000009", cpus=1.5),),
    cards=(CardCounters(card="card-0", dma_bps=4e9),),
)


@functools.cache
def shipped_catalogue():
    return load_catalogue(CATALOGUE)


class SlotAgent(Streams):
    """The agent of a host with one slot, which computes digests in the thread that brings it work."""

    def __init__(self, slot, fails, directory, reported):
        directory.mkdir()
        self.journal = Journal(directory / "journal.sqlite")
        facts = {name: getattr(slot, name) for name in ("card", "region", "board", "kind", "state")}
        machine = Agent(slot.host, [ObservedSlot(slot=slot.name, **facts)])
        # The API shows times in microseconds, and tests compare them with the stored ones.
        super().__init__(AgentShell(machine, self.journal, directory, lambda: round(time.time(), 6)))
        self._jobs.restore()
        self._slot, self._fails, self._reported = slot.name, fails, reported
        self._executing = threading.Lock()
        #: If False, the slot computes only when the test calls `compute`.
        self.computes_at_once = True
        #: Jobs whose inputs were offered, and the reasons for which the next inputs are refused.
        self.streams, self.refusals = [], []

    def execute(self, shard, commands):
        outcomes = self._jobs.execute(shard.name, shard.epoch, commands)
        assert {outcome.outcome for outcome in outcomes} == {"accepted"}, outcomes
        self._work()

    def admit(self, grant):
        if refused := self._offered(grant):
            raise refused
        return super().admit(grant)

    def staged(self, grant, sha256, size_bytes):
        super().staged(grant, sha256, size_bytes)
        self._work()

    def stage_small(self, inputs):
        offered = [self._offered(one.grant) for one in inputs]
        taken = iter(super().stage_small([one for one, refused in zip(inputs, offered, strict=True) if not refused]))
        self._work()
        return [refused or next(taken) for refused in offered]

    def _offered(self, grant):
        self.streams.append(grant.job)
        return TransferRefused(self.refusals.pop(0), "as the test wants it") if self.refusals else None

    def _work(self):
        if self.computes_at_once:
            self.compute()
        else:
            self._reported()

    def compute(self):
        """Execute all pending work of the slot."""
        with self._executing:
            while instructions := self._jobs.feed(e.SlotFree(slot=self._slot)):
                for instruction in instructions:
                    self._jobs.feed(self._carry_out(instruction))
        self._reported()

    def _carry_out(self, instruction):
        if isinstance(instruction, i.LoadSlot):
            return e.Loaded(slot=self._slot)
        job, files = instruction.job, self._jobs.files
        about = {"slot": self._slot, "job": job.uuid, "attempt": job.attempt}
        if message := self._fails.get(job.uuid):
            return e.ComputationFailed(**about, code="slot_fault", message=message, retryable=False)
        data = files.small_input(job.uuid)
        data = files.input_path(job.uuid).read_bytes() if data is None else data
        output = f"{hashlib.sha256(data).hexdigest()}\n".encode()
        digest = hashlib.sha256(output).hexdigest()
        self._jobs.keep_result(job, JobResult(files.result_path(job.uuid), len(output), digest, output))
        return e.ComputationEnded(**about, compute_s=0.25, result_bytes=len(output), result_sha256=digest)


class WallClock:
    """The system clock, which a test can replace."""

    def __call__(self):
        return time.time()

    def advance_to(self, at):
        pass


class Library:
    """The contents of the bitstream libraries of all hosts."""

    def bitstreams(self, host, board):
        about = {"function": "sha256", "version": "1.0", "board": board}
        return [
            BitstreamInfo(**about, kind="small", size_bytes=5, sha256="ab" * 32, signer="key", verified=True),
            BitstreamInfo(**about, kind="large", reason="not in the library"),
        ]


class Scheduler(SchedulerService):
    """A scheduler that is never started. It notifies the bench of new work, and the bench plans it."""

    def __init__(self, arrived, *parts):
        super().__init__(*parts)
        self._arrived = arrived

    def work_arrived(self, *families):
        self._arrived()


class TicketsFromElsewhere(Tickets):
    """Tickets of streams that arrive from `seen_from`, as after address translation; "" = the client's own address."""

    seen_from = ""

    def tokens(self, wishes):
        return super().tokens((job, purpose, source and (self.seen_from or source)) for job, purpose, source in wishes)


class EachInTurn:
    """The methods of a transaction, each call of which runs in a separate transaction."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        writes = name in {"add", "save"}

        def call(*arguments, **named):
            with self._store.transaction(SHARD) if writes else self._store.reading(SHARD) as tx:
                return getattr(tx, name)(*arguments, **named)

        return call


class PoolBench(SchedulerCalls):
    """The pool as seen by the scheduler's callers, with additional methods for tests."""

    def __init__(self, database_url, directory, max_batch_jobs):
        self.store = Store(database_url)
        self.tx = EachInTurn(self.store)
        self.store.ensure_shards([SHARD], time.time())
        self.shard = self.store.acquire_shard(SHARD, OWNER, time.time())
        settings = SchedulerSettings(
            name=OWNER, default_policy="ect", gang_policy="easy", pool=PoolSettings(max_batch_jobs=max_batch_jobs)
        )
        self.catalogue = shipped_catalogue()
        self.key = Ed25519PrivateKey.generate()
        online = OnlineRule(load_policy("online", "benefit_plus"), {"benefit_plus"}.__contains__)
        self.scheduler = Scheduler(
            *(self._work_arrived, settings, self.store, self.catalogue, lambda name: Ect(), Library(), None),
            *(self.key, {}, WallClock(), online, Easy(), load_policy("task", "lattice_plus")),
        )
        self.scheduler.tickets = TicketsFromElsewhere(self.key, 60.0, WallClock())
        self.scheduler.dry_runs = DryRuns(lambda: 0.0)  # no dry run is too long, even on a slow machine
        self._endpoint = SchedulerEndpoint(self.scheduler)
        self._writing = self.scheduler.changes.noted(lambda: self.store.transaction(SHARD, OWNER, self.shard.epoch))
        self._directory = directory
        self._lock, self._is_exchanging = threading.RLock(), False
        #: Why the slot fails, by uuid of the job.
        self.fails = {}
        #: Purpose, job, address and port of each requested ticket.
        self.asked_flows = []
        #: Plan each batch as soon as it is created, with all jobs on the first host.
        self.plans_at_once = True
        #: Errors to raise instead of an answer, by method name; after the commit, by "METHOD answer".
        self.breaks = {}
        self._stack = contextlib.ExitStack()
        self._stack.callback(self.store.close)
        board, kind = next((b, k) for b in self.catalogue.boards for k in self.catalogue.boards[b].regions)
        with self._writing() as tx:
            for name in ("node-1", "node-2"):
                tx.add(
                    Host(
                        name=name, egress_bps=1e9, ingress_bps=float("inf"), data_address="127.0.0.1", data_port=9,
                        heard_at=1000.0,
                    ),
                    Slot(name=f"{name}/card-0/r0", host=name, card="card-0", region="r0", board=board, kind=kind),
                    Processor(name=f"{name}/pcpu/0", host=name, number=0),
                )  # fmt: skip
        self.store.note_alive({"node-1": LastBeat("", 0, 0, (), COUNTERS)}, 1000.0)
        self.store.beat(OWNER, time.time())
        self.agents = {}

    def close(self):
        self._stack.close()

    def _call(self, answer_type, method, **arguments):
        breaks = self.breaks.get(method, [])
        if breaks and (error := breaks.pop(0)):
            raise error
        try:
            answer = getattr(self._endpoint, method)({}, **to_plain(arguments))
        except ExpectedException as expected:
            raise expected.exc_info[1] from None
        if method == "tickets":
            asked = arguments["requests"]
            self.asked_flows += [(one.purpose, one.job, one.source_address, one.source_port) for one in asked]
        self.exchange()
        if late := self.breaks.pop(f"{method} answer", None):
            raise late
        return read(answer_type, answer, method)

    # Actions of tests

    def have_used(self, projects, functions, days=()):
        """Record the use of these functions by these projects today, and on `days` since 1970."""
        amounts = {
            "jobs": 2,
            "slot_s": 1.5,
            "cpu_s": 0.0,
            "instance_slot_s": 60.0,
            "input_bytes": 20,
            "result_bytes": 7,
            "loads": 3,
        }
        rows = [
            {"project_id": project, "function": function, "day": day, **amounts}
            for project in projects
            for function in functions
            for day in {*days, int(time.time()) // DAY_S}
        ]
        with self.store.admission() as tx:
            tx.connection.execute(USAGE_DAYS.insert(), rows)

    def open_data_port(self, host="node-1"):
        """Start the data port of a host; return its agent."""
        agent = self._agent(host)
        server = DataServer(
            agent, agent.journal, host=host, public_keys=[self.key.public_key()], bind_address="127.0.0.1",
            limits=Limits(linger_s=0.2, keepalive_s=1.0),
        )  # fmt: skip
        address, port = server.start()
        self._stack.callback(server.stop)
        with self._writing() as tx:
            tx.save(replace(tx.host(host), data_address=address, data_port=port))
        return agent

    def plan(self, batch_uuid, host="node-1", *, transfer=(), lead_s=0.0):
        """Assign each pending job of a batch to the slot of a host."""
        with self._writing() as tx:
            for job in tx.batch_jobs(batch_uuid):
                if job.state is JobState.PENDING:
                    planned = Planned(
                        host=host, slot=f"{host}/card-0/r0", order=job.index, dispatched_at=time.time() + lead_s,
                        start_s=0.0, end_s=1.0, transfer=transfer,
                    )  # fmt: skip
                    change_job(tx, job, planned, time.time())
        self.exchange()

    def retime(self, job, transfer):
        """Give the input of a job a new transfer plan, whose time 0 is now."""
        self._change_job(job, Retimed(dispatched_at=time.time(), start_s=0.0, end_s=1.0, transfer=transfer))

    def displace(self, job):
        self._change_job(job, Displaced(reason="the slot is drained"))

    def _change_job(self, uuid, event):
        with self._writing() as tx:
            change_job(tx, tx.job(uuid), event, time.time())
        self.exchange()

    def receives(self, job, bps):
        """Record that the input of a job arrives at its host at `bps` (bit/s)."""
        found = self.tx.job(job)
        flow = ObservedFlow(job=job, attempt=found.attempt, bps=bps)
        self.store.note_alive({found.host: LastBeat("", 0, 0, (flow,), None)}, time.time())

    def has_run(self, jobs):
        """Record a run of 0.25 s for each of these jobs, for the time models."""
        with self._writing() as tx:
            for job in jobs:
                about = {"job": job.uuid, "attempt": 1, "function": job.function, "input_bytes": job.input_bytes}
                tx.record_run(Run(**about, board=tx.slot(job.slot).board, compute_s=0.25, finished_at=time.time()))

    def instance_on(self, host, project_id="demo"):
        """Let an instance of a project hold the slot of a host; return its uuid."""
        instance = str(uuid.uuid4())
        with self._writing() as tx:
            (slot,) = tx.slots(host)
            tx.add(new_lease(tx, slot.name, LeaseKind.INSTANCE, instance, 0.0, project_id=project_id))
        return instance

    def batch_uuids(self):
        return [batch.uuid for batch in self.tx.batches()]

    def first_jobs(self):
        return self.tx.batch_jobs(self.batch_uuids()[0])

    # Planner and agents

    def _work_arrived(self):
        if self.plans_at_once:
            for batch in self.tx.batches():
                if not batch.withheld and batch.policy not in {PIPELINE_POLICY, TASK_POLICY}:
                    self.plan(batch.uuid)

    def exchange(self):
        """Deliver commands and reports until there are none left."""
        with self._lock:
            if not self._is_exchanging:
                self._is_exchanging = True
                try:
                    while self._carry():
                        pass
                finally:
                    self._is_exchanging = False

    def _carry(self):
        carried = False
        for host, agent in list(self.agents.items()):
            if reports := agent.journal.reports(1000):
                self.scheduler.heartbeat_intake.report(host, self.tx.host(host).agent_id, reports)
                agent.journal.taken(reports[-1][0])
                carried = True
        if commands := self.store.undelivered(SHARD, 1000):
            for command in commands:
                if command.slot:  # no driver executes the commands about flows
                    self._agent(command.host).execute(self.shard, [command])
            self.store.delivered(SHARD, OWNER, self.shard.epoch, [command.id for command in commands])
            carried = True
        return carried

    def _agent(self, host):
        """Return the agent of a host, which is started on first use."""
        with self._lock:
            if host not in self.agents:
                (slot,) = self.tx.slots(host)
                agent = self.agents[host] = SlotAgent(slot, self.fails, self._directory / host, self.exchange)
                self._stack.callback(agent.journal.close)
            return self.agents[host]
