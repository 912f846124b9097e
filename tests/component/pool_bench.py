"""A small pool in memory: the scheduler's calls on the real rules, and hosts with real agents and data ports.

What makes it small: one transaction at a time, commands and reports that arrive at once, no clock but the wall's, and
slots that compute when a test says so or at once.  `PoolBench.plan` stands for the planner, so that a test decides what
is planned where and when.
"""

import contextlib
import functools
import hashlib
import threading
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.makespan import Ect
from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, TransferRefused
from fpga_pool.model.lifecycle.job import Displaced, Planned, Retimed
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.counters import CardCounters, GuestCounters, HostCounters, HostLoad
from fpga_pool.model.messages.requests import (
    SMALL_INPUT_BYTES,
    Calibration,
    CardCount,
    FunctionInfo,
    JobChanges,
    LeaseCount,
    PipelineDetail,
    PoolCounts,
    Service,
    SlotCount,
    Ticket,
    Usage,
    WorkCount,
)
from fpga_pool.model.messages.work import DesignContent
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design
from fpga_pool.model.objects.gangs import Gang, Processor
from fpga_pool.model.objects.history import last_event_at
from fpga_pool.model.objects.pool import ENDED_JOBS, PIPELINE_POLICY, Batch, Host, JobState, LeaseKind, Shard, Slot
from fpga_pool.model.objects.progress import flow_of
from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, ProjectLimits, QuotaLimits, Resource
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.preconditions import require_seen
from fpga_pool.model.rules.batch import admission
from fpga_pool.model.rules.batch.dry_run import DryRun, batch_detail
from fpga_pool.model.rules.gang import admission as gang_admission
from fpga_pool.model.rules.gang.decisions import gang_detail
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.pipeline import admission as pipeline_admission
from fpga_pool.model.rules.shared import cards, changes, designs
from fpga_pool.model.rules.shared.admission import quota_of
from fpga_pool.model.rules.shared.events import classes_of, events_of, newest_events
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task import admission as task_admission
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.model.values import changed
from fpga_pool.rpc.hardware_calls import EVERYTHING
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.services.agent.streams import Streams
from fpga_pool.sim.store import MemoryStore, MemoryTransaction
from fpga_pool.transfer.handler import JobResult
from fpga_pool.transfer.port import Limits
from fpga_pool.transfer.server import DataServer
from fpga_pool.transfer.tokens import TransferGrant, sign, source_of

CATALOGUE = Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml"


POLICIES = PoolPolicies(
    batches=lambda name: Ect(),
    default_batch="ect",
    online=OnlineRule(load_policy("online", "benefit_plus"), {"benefit_plus"}.__contains__),
    gangs=Easy(),
    tasks=load_policy("task", "lattice_plus"),
)


@functools.cache
def shipped_catalogue():
    """The catalogue that comes with the pool, read once for all tests: nobody changes it."""
    return load_catalogue(CATALOGUE)


class EndlessTransaction(MemoryTransaction):
    """The simulator's store, in one transaction that every call takes part in."""

    def batches(self):
        return self._all(Batch)

    def all_tasks(self):
        return self._all(Task)

    def all_gangs(self):
        return self._all(Gang)

    def all_designs(self):
        return self._all(Design)


class SlotAgent(Streams):
    """The agent of a host with one slot, which computes digests; its executor is whichever thread brings it work."""

    def __init__(self, slot, fails, directory):
        directory.mkdir()
        self.journal = Journal(directory / "journal.sqlite")
        facts = {name: getattr(slot, name) for name in ("card", "region", "board", "kind", "state")}
        machine = Agent(slot.host, [ObservedSlot(slot=slot.name, **facts)])
        # The API shows times in microseconds; tests compare them with what is stored.
        super().__init__(AgentShell(machine, self.journal, directory, lambda: round(time.time(), 6)))
        self._jobs.restore()
        self._slot, self._fails = slot.name, fails
        self._executing = threading.Lock()
        #: Without it the slot does nothing until the test calls `compute`.
        self.computes_at_once = True
        #: Jobs whose inputs were offered, and why the next ones are refused.
        self.streams, self.refusals = [], []

    def execute(self, shard, command):
        (outcome,) = self._jobs.execute(shard.name, shard.epoch, [command])
        assert outcome.outcome == "accepted", outcome
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

    def compute(self):
        """Have the slot do all that it has to do now."""
        with self._executing:
            while instructions := self._jobs.feed(e.SlotFree(slot=self._slot)):
                for instruction in instructions:
                    self._jobs.feed(self._carry_out(instruction))

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


#: What the first of the two hosts has measured.
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


class PoolBench:
    """The pool, and what a test may do to it."""

    def __init__(self, directory, max_batch_jobs):
        self.store = MemoryStore()
        self.tx = EndlessTransaction(self.store, Shard(name="default", owner="test", epoch=1, renewed_at=0.0))
        self.lock = threading.RLock()
        self.settings = PoolSettings(max_batch_jobs=max_batch_jobs)
        self.catalogue = shipped_catalogue()
        self.key = Ed25519PrivateKey.generate()
        self.directory = directory
        self.fails = {}
        #: Bitstreams of designs.
        self.files = {}
        self.quotas = {}
        #: By project and function.
        self.used = []
        self.asked_flows = []
        #: Number of the newest change of a job that was asked for, and of each job's.
        self.generation, self.changed_in = 0, {}
        #: Plan each batch as soon as it comes, all jobs on the first host.
        self.plans_at_once = True
        #: What a test wants to happen instead of an answer, by the method's name.
        self.breaks = {}
        #: Requesters' hosts hold streams with tokens of this source; "" = that of the request; None = they do not.
        self.shaped_from = None
        self._stack = contextlib.ExitStack()
        board, kind = next((b, k) for b in self.catalogue.boards for k in self.catalogue.boards[b].regions)
        for name in ("node-1", "node-2"):
            self.tx.add(
                Host(
                    name=name, egress_bps=1e9, ingress_bps=float("inf"), data_address="127.0.0.1", data_port=9,
                    heard_at=1000.0,
                )
            )  # fmt: skip
            self.tx.add(Slot(name=f"{name}/card-0/r0", host=name, card="card-0", region="r0", board=board, kind=kind))
            self.tx.add(Processor(name=f"{name}/pcpu/0", host=name, number=0))
        self.agents = {}

    def close(self):
        self._stack.close()

    # What a test does

    def have_used(self, projects, functions):
        """Let each of these projects have used each of these functions."""
        self.used = [
            Usage(
                project_id=project, function=function, begin_at=0.0, end_at=0.0, jobs=2, slot_s=1.5, cpu_s=0.0,
                vcpu_s=15.0, instance_slot_s=60.0, input_bytes=20, result_bytes=7,
            )
            for project in projects
            for function in functions
        ]  # fmt: skip

    def open_data_port(self, host="node-1"):
        """Start the data port of a host; return its agent."""
        with self._turn():
            agent = self._agent(host)
            server = DataServer(
                agent, agent.journal, host=host, public_keys=[self.key.public_key()], bind_address="127.0.0.1",
                limits=Limits(linger_s=0.2, keepalive_s=1.0),
            )  # fmt: skip
            address, port = server.start()
            self._stack.callback(server.stop)
            self.tx.save(replace(self.tx.host(host), data_address=address, data_port=port))
        return agent

    def plan(self, batch_uuid, host="node-1", *, transfer=(), lead_s=0.0):
        """Give each pending job of a batch its place."""
        with self._turn():
            for job in self.tx.batch_jobs(batch_uuid):
                if job.state is JobState.PENDING:
                    planned = Planned(
                        host=host, slot=f"{host}/card-0/r0", order=job.index, dispatched_at=time.time() + lead_s,
                        start_s=0.0, end_s=1.0, transfer=transfer,
                    )  # fmt: skip
                    changes.change_job(self.tx, job, planned, time.time())

    def retime(self, job, transfer):
        """Give the input of a job another plan, whose time 0 is now."""
        with self._turn():
            retimed = Retimed(dispatched_at=time.time(), start_s=0.0, end_s=1.0, transfer=transfer)
            changes.change_job(self.tx, self.tx.job(job), retimed, time.time())

    def displace(self, job):
        with self._turn():
            changes.change_job(self.tx, self.tx.job(job), Displaced(reason="the slot is drained"), time.time())

    def batch_uuids(self):
        with self._turn():
            return [batch.uuid for batch in self.tx.batches()]

    def first_jobs(self):
        with self._turn():
            return self.tx.batch_jobs(self.tx.batches()[0].uuid)

    # Agents

    @contextlib.contextmanager
    def _turn(self):
        """Do something between two exchanges of all reports and commands that wait."""
        with self.lock:
            self._exchange()
            yield
            self._exchange()

    def _exchange(self):
        for host, agent in self.agents.items():
            if reports := agent.journal.reports(1000):
                apply_reports(self.tx, host, self.tx.host(host).agent_id, reports, time.time())
                agent.journal.taken(reports[-1][0])
        commands, self.store.outbox = self.store.outbox, []
        for command in commands:
            self._agent(command.host).execute(self.tx.shard, command)

    def _agent(self, host):
        """Return the agent of a host, which starts when it is first needed."""
        if host not in self.agents:
            (slot,) = self.tx.slots(host)
            agent = self.agents[host] = SlotAgent(slot, self.fails, self.directory / host)
            self._stack.callback(agent.journal.close)
        return self.agents[host]

    # SchedulerAPI

    @contextlib.contextmanager
    def _answering(self, method):
        breaks = self.breaks.get(method, [])
        if breaks and (error := breaks.pop(0)):
            raise error
        with self._turn():
            yield

    def _page(self, things, page):
        """The things of a list, which are in the order of their creation or of their names."""
        found = [thing for thing in things if page.project_id in (None, getattr(thing, "project_id", None))]
        for name, values in page.where.items():
            found = [thing for thing in found if getattr(thing, name) in values]
        found = [thing for thing in found if page.since is None or thing.created_at >= page.since]
        found = found[::-1] if page.descending else found
        keys = [getattr(thing, "name" if isinstance(thing, Slot | Host) else "uuid") for thing in found]
        if page.marker is not None and page.marker not in keys:
            raise InvalidInput(f"marker: no {page.marker} in this list")
        begin = 0 if page.marker is None else keys.index(page.marker) + 1
        return found[begin:][: page.limit]

    def create_batch(self, request, wait_s=0.0):
        with self._answering("create_batch"):
            now_s = time.time()
            batch = admission.create_batch(self.tx, request, self.catalogue, self.settings, now_s)
            if self.plans_at_once and not batch.withheld:
                self.plan(batch.uuid)
        if late := self.breaks.pop("create_batch answer", None):
            raise late
        jobs = [job for job in self.tx.batch_jobs(batch.uuid) if wait_s and job.state is not JobState.PENDING]
        small = [job for job in jobs if job.state is JobState.WAITING_INPUT and job.input_bytes <= SMALL_INPUT_BYTES]
        return JobChanges(
            batch=batch, jobs=tuple(jobs), seen={"default": self.generation} if jobs else {}, at=time.time(),
            tickets=tuple(self._ticket(job, "send") for job in small),
        )  # fmt: skip

    def plan_batch(self, request):
        with self._answering("plan_batch"):
            wanted = changed(request, policy=request.policy or "ect")
            batch, jobs = admission.admit_batch(self.tx, wanted, self.catalogue, self.settings, time.time())
            planning = DryRun(
                batch, jobs, reading=lambda shard: contextlib.nullcontext(self.tx), catalogue=self.catalogue,
                settings=self.settings, policies=POLICIES, now_s=time.time(), rng=np.random.default_rng(0),
            )  # fmt: skip
            return planning.run()

    def batches(self, page):
        with self._answering("batches"):
            return self._page(self.tx.batches(), page)

    def jobs(self, page):
        with self._answering("jobs"):
            return self._page([job for batch in self.tx.batches() for job in self.tx.batch_jobs(batch.uuid)], page)

    def job(self, project_id, uuid):
        with self._answering("job"):
            job = self.tx.job(uuid)
            if job.project_id != project_id:
                raise NotFound(f"no job {uuid}")
            return job

    def batch(self, project_id, uuid):
        with self._answering("batch"):
            return admission.owned_batch(self.tx, uuid, project_id)

    def batch_detail(self, project_id, uuid):
        batch = self.batch(project_id, uuid)
        with self.lock:
            pending = {job.function for job in self.tx.batch_jobs(uuid) if job.state is JobState.PENDING}
            return batch_detail(self.tx, batch, pending, self.catalogue, time.time())

    def batch_jobs(self, project_id, uuid, states=(), changed_after=None, wait_s=0.0, *, with_batch=False):
        until_s = time.monotonic() + wait_s
        while True:
            with self._answering("batch_jobs"):
                admission.owned_batch(self.tx, uuid, project_id)
                found = [job for job in self.tx.batch_jobs(uuid) if not states or job.state in states]
                found = [job for job in found if self._changed_in(job) > (changed_after or {}).get("default", -1)]
                if found or changed_after is None or time.monotonic() >= until_s:
                    batch = self.tx.batch(uuid) if with_batch else None
                    seen = {"default": self.generation}
                    return JobChanges(jobs=tuple(found), seen=seen, at=time.time(), batch=batch)
            time.sleep(0.005)

    def _changed_in(self, job):
        """Number the changes of jobs, as a shard's generations do."""
        if self.changed_in.get(job.uuid, (None, 0))[0] != job.generation:
            self.generation += 1
            self.changed_in[job.uuid] = job.generation, self.generation
        return self.changed_in[job.uuid][1]

    def cancel_batch(self, project_id, uuid, seen=None):
        with self._answering("cancel_batch"):
            admission.cancel_batch(self.tx, uuid, project_id, time.time(), seen)
            admission.cancel_jobs(self.tx, uuid, time.time())
            return self.tx.batch(uuid)

    def change_batch(self, project_id, uuid, change, seen=None):
        with self._answering("change_batch"):
            admission.change_batch(self.tx, uuid, project_id, change, time.time(), seen)
            admission.hold_jobs(self.tx, uuid, time.time())
            batch = self.tx.batch(uuid)
        if self.plans_at_once and not batch.withheld:
            self.plan(uuid)
        return batch

    def tickets(self, project_id, batch_uuid, requests):
        with self._answering("tickets"):
            admission.owned_batch(self.tx, batch_uuid, project_id)
            return [self._requested_ticket(request) for request in requests]

    def confirm_results(self, project_id, batch_uuid, receipts):
        with self._answering("confirm_results"):
            batch = admission.owned_batch(self.tx, batch_uuid, project_id)
            admission.confirm_results(self.tx, receipts, time.time())
        if late := self.breaks.pop("confirm_results answer", None):
            raise late
        return batch

    def _requested_ticket(self, request):
        job = self.tx.job(request.job)
        wanted = JobState.WAITING_INPUT if request.purpose == "send" else JobState.RESULT_HELD
        if job.state is not wanted:
            raise Conflict(f"job {job.uuid} is {job.state}")
        self.asked_flows.append((request.purpose, request.job, request.source_address, request.source_port))
        return self._ticket(job, request.purpose, source_of(request.source_address, request.source_port))

    def _ticket(self, job, purpose, source=""):
        host = self.tx.host(job.host)
        grant = TransferGrant(
            job=job.uuid, attempt=job.attempt, project_id=job.project_id, host=job.host, purpose=purpose,
            input_bytes=job.input_bytes, token_id=str(uuid.uuid4()), deadline_s=time.time() + 60,
            source="" if self.shaped_from is None else self.shaped_from or source,
        )  # fmt: skip
        return Ticket(
            job=job.uuid, attempt=job.attempt, purpose=purpose, address=host.data_address, port=host.data_port,
            token=sign([grant], self.key)[0], input_bytes=job.input_bytes, transfer=job.transfer,
            elapsed_s=time.time() - job.dispatched_at, shaped=self.shaped_from is not None,
        )  # fmt: skip

    def create_gang(self, request):
        with self._answering("create_gang"):
            gang = gang_admission.create_gang(self.tx, request, time.time())
        if late := self.breaks.pop("create_gang answer", None):
            raise late
        return gang

    def gangs(self, page):
        with self._answering("gangs"):
            return self._page(self.tx.all_gangs(), page)

    def gang(self, project_id, uuid):
        with self._answering("gang"):
            gang_admission.owned_gang(self.tx, uuid, project_id)
            return gang_detail(self.tx, uuid, self.settings, Easy(), time.time())

    def cancel_gang(self, project_id, uuid, seen=None):
        with self._answering("cancel_gang"):
            return gang_admission.cancel_gang(self.tx, uuid, project_id, time.time(), seen)

    def create_task(self, request):
        with self._answering("create_task"):
            return task_admission.create_task(self.tx, request, self.catalogue, self.settings, time.time())

    def tasks(self, page):
        with self._answering("tasks"):
            return self._page(self.tx.all_tasks(), page)

    def task(self, project_id, uuid):
        with self._answering("task"):
            task_admission.owned_task(self.tx, uuid, project_id)
            return task_detail(self.tx, uuid, self.catalogue, time.time())

    def cancel_task(self, project_id, uuid, seen=None):
        with self._answering("cancel_task"):
            return task_admission.cancel_task(self.tx, uuid, project_id, time.time(), seen)

    def create_pipeline(self, request):
        with self._answering("create_pipeline"):
            return pipeline_admission.create_pipeline(self.tx, request, self.catalogue, self.settings, time.time())

    def pipelines(self, page):
        with self._answering("pipelines"):
            return self._page([batch for batch in self.tx.batches() if batch.policy == PIPELINE_POLICY], page)

    def pipeline(self, project_id, uuid):
        with self._answering("pipeline"):
            found = pipeline_admission.owned_pipeline(self.tx, uuid, project_id)
            return PipelineDetail(pipeline=found, subtask_list=tuple(self.tx.batch_jobs(uuid)))

    def cancel_pipeline(self, project_id, uuid, seen=None):
        return self.cancel_batch(project_id, uuid, seen)

    def instance_on(self, host):
        """Have an instance hold the slot of a host; returns its uuid."""
        (slot,) = self.tx.slots(host)
        instance = str(uuid.uuid4())
        self.tx.add(changes.new_lease(self.tx, slot.name, LeaseKind.INSTANCE, instance, 0.0, project_id="demo"))
        return instance

    def events(self, noun, project_id, name):
        with self._answering("events"):
            return list(events_of(self.tx, noun, self._slot(name).name if noun == "slot" else name, project_id))

    def pool_events(self, page):
        with self._answering("pool_events"):
            jobs = [job for batch in self.tx.batches() for job in self.tx.batch_jobs(batch.uuid)]
            things = [*self.tx.batches(), *self.tx.all_gangs(), *self.tx.all_tasks(), *jobs]
            things += [*self.tx.hosts(), *self.tx.slots()]
            things = [one for one in things if page.project_id in (None, getattr(one, "project_id", ""))]
            host_of = {id(one): one.name if isinstance(one, Host) else getattr(one, "host", "") for one in things}
            things = [one for one in things if not page.host or host_of[id(one)] in page.host]
            things = [one for one in things if not page.name or {one.name, getattr(one, "uuid", "")} & set(page.name)]
            classes = classes_of(page)
            found = sorted(things, key=last_event_at, reverse=True)
            return newest_events([iter([one for one in found if type(one) in classes])], page)

    def quota(self, project_id):
        with self._answering("quota"):
            batches = [one for one in self.tx.batches() if one.project_id == project_id and one.ended_at is None]
            used = dict.fromkeys(set(Resource) - {Resource.REQUESTS_PER_S}, 0)
            used[Resource.JOBS] = sum(batch.jobs for batch in batches)
            return quota_of(project_id, ProjectLimits(self.quotas.get(project_id, QuotaLimits()), DEFAULT_LIMITS), used)

    def usage(self, page):
        with self._answering("usage"):
            rows = [one for one in self.used if page.project_id in (None, one.project_id)]
            rows = [one for one in rows if page.after is None or (one.project_id, one.function) > tuple(page.after)]
            end_at = page.end_at or 1000.0
            begin_at = end_at - 86400.0 if page.begin_at is None else page.begin_at
            return [replace(one, begin_at=begin_at, end_at=end_at) for one in rows[: page.limit]]

    def set_quota(self, project_id, limits, seen=None):
        with self._answering("set_quota"):
            before = self.quotas.get(project_id, QuotaLimits())
            require_seen(before, seen)
            self.quotas[project_id] = limits.over(before)
        return self.quota(project_id)

    def unset_quota(self, project_id, seen=None):
        with self._answering("unset_quota"):
            require_seen(self.quotas.get(project_id, QuotaLimits()), seen)
            self.quotas.pop(project_id, None)
        return self.quota(project_id)

    def slots(self, page=EVERYTHING):
        with self._answering("slots"):
            return self._page(self.tx.slots(), page)

    def slot(self, uuid):
        with self._answering("slot"):
            return self._slot(uuid)

    def _slot(self, uuid):
        for slot in self.tx.slots():
            if slot.uuid == uuid:
                return slot
        raise NotFound(f"no slot {uuid}")

    def drain_slot(self, uuid, reason, seen=None):
        with self._answering("drain_slot"):
            return changes.drain_slot(self.tx, self._slot(uuid).name, reason, time.time(), seen)

    def resume_slot(self, uuid, seen=None):
        with self._answering("resume_slot"):
            return changes.resume_slot(self.tx, self._slot(uuid).name, time.time(), seen)

    def cards(self, page=EVERYTHING):
        with self._answering("cards"):
            return cards.cards(self.tx, page)

    def card(self, uuid):
        with self._answering("card"):
            return cards.card_detail(self.tx, uuid)

    def drain_card(self, uuid, reason, seen=None):
        with self._answering("drain_card"):
            return cards.drain_card(self.tx, uuid, reason, time.time(), seen)

    def resume_card(self, uuid, seen=None):
        with self._answering("resume_card"):
            return cards.resume_card(self.tx, uuid, time.time(), seen)

    def remove_card(self, uuid, seen=None):
        with self._answering("remove_card"):
            card, obstacles = cards.retire_card(self.tx, uuid, time.time(), seen)
            if obstacles:
                raise Conflict(f"not removed, but drained: {'; '.join(obstacles)}")
            for slot in card.slot_list:
                self.store.remove(Slot, slot.name)
            return card

    def hosts(self, page=EVERYTHING):
        with self._answering("hosts"):
            return self._page(self.tx.hosts(), page)

    def counters(self, host=None):
        with self._answering("counters"):
            return [HostLoad(host="node-1", counters=COUNTERS)] if host in (None, "node-1") else []

    def services(self):
        with self._answering("services"):
            agents = [
                Service(kind="agent", name=host.name, up=host.alive, heard_at=host.heard_at, shards=(host.shard,))
                for host in self.tx.hosts()
            ]
        return [Service(kind="scheduler", name="test", up=True, heard_at=time.time(), shards=("default",)), *agents]

    def pool_counts(self):
        with self._answering("pool_counts"):
            alive, slots = [host.alive for host in self.tx.hosts()], self.tx.slots()
            counted = Counter((slot.board, str(slot.state), slot.function) for slot in slots)
            cards = Counter(
                (slot.board, "in_service") for slot in {(slot.host, slot.card): slot for slot in slots}.values()
            )
            return PoolCounts(
                release="0.1.0",
                alive_hosts=sum(alive),
                lost_hosts=len(alive) - sum(alive),
                card_list=tuple(CardCount(board=board, state=state, cards=n) for (board, state), n in cards.items()),
                slot_list=tuple(
                    SlotCount(board=board, state=state, function=function, slots=n)
                    for (board, state, function), n in counted.items()
                ),
                lease_list=(LeaseCount(kind="instance", slots=1),),
            )

    def work_counts(self, project_id):
        with self._answering("work_counts"):
            jobs = [job for batch in self.tx.batches() for job in self.tx.batch_jobs(batch.uuid)]
            jobs = [job for job in jobs if job.state not in ENDED_JOBS and project_id in (None, job.project_id)]
            return [
                WorkCount(kind="job", state=str(state), count=n, oldest_at=min(job.created_at for job in jobs))
                for state, n in Counter(job.state for job in jobs).items()
            ]

    def flows(self, project_id):
        with self._answering("flows"):
            jobs = [job for batch in self.tx.batches() for job in self.tx.batch_jobs(batch.uuid)]
            jobs = [job for job in jobs if project_id in (None, job.project_id)]
            return [flow_of(job, 2.5e6, time.time()) for job in jobs if job.state is JobState.WAITING_INPUT]

    def functions(self, project_id=""):
        with self._answering("functions"):
            return [
                FunctionInfo(
                    name="sha256", version="1.0", slot_kinds=("small", "large"), io_bps=float("inf"),
                    preemptible=True, speedup=12.5, slots=2,
                )
            ]  # fmt: skip

    def bitstreams(self, host=None):
        with self._answering("bitstreams"):
            self.tx.host(host or "node-1")
            board = self.tx.slots()[0].board
            about = {"function": "sha256", "version": "1.0", "board": board, "host": host or "node-1"}
            return [
                BitstreamInfo(**about, kind="small", size_bytes=5, sha256="ab" * 32, signer="key", verified=True),
                BitstreamInfo(**about, kind="large", reason="not in the library"),
            ]

    def designs(self, page):
        with self._answering("designs"):
            return self._page(self.tx.all_designs(), page)

    def design(self, project_id, uuid):
        with self._answering("design"):
            return designs.visible_design(self.tx, uuid, project_id)

    def create_design(self, request):
        with self._answering("create_design"):
            self.files[request.uuid] = request.bitstream
            return designs.create_design(self.tx, request, self.catalogue, time.time(), approve=False)

    def design_content(self, uuid):
        with self._answering("design_content"):
            return DesignContent(sha256=self.tx.design(uuid).sha256, bitstream=self.files[uuid])

    def change_design(self, uuid, change, seen=None):
        with self._answering("change_design"):
            return designs.change_design(self.tx, uuid, change, time.time(), seen)

    def delete_design(self, project_id, uuid, seen=None):
        with self._answering("delete_design"):
            design = designs.unused_design(self.tx, uuid, project_id, lambda _: 0, seen)
            self.store.remove(Design, uuid)
            return design

    def calibration(self, function=None):
        with self._answering("calibration"):
            if function not in (None, "sha256"):
                raise NotFound(f"no function {function!r}")
            return [
                Calibration(
                    function="sha256", board="b", runs=3, catalogue_a_s=0.5, catalogue_b_s_per_byte=1e-9,
                    fitted_a_s=0.25, fitted_b_s_per_byte=2e-9, mean_relative_error=0.125, worst_relative_error=0.5,
                )
            ]  # fmt: skip
