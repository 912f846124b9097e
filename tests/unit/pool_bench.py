"""A small pool in memory: the scheduler's calls on the real rules, and hosts with real data ports.

What makes it small: one transaction at a time, no outbox, no clock but the wall's, and jobs compute when a test says
so or at once.  `PoolBench.plan` stands for the planner, so that a test decides what is planned where and when.
"""

import contextlib
import functools
import hashlib
import threading
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.dataplane.handler import Admission, JobFailure, JobResult
from fpga_pool.dataplane.port import Limits
from fpga_pool.dataplane.server import DataServer
from fpga_pool.dataplane.tokens import TransferGrant, sign
from fpga_pool.model.exceptions import Conflict, NotFound, TransferRefused
from fpga_pool.model.exchange import Calibration, FunctionInfo, JobChanges, Ticket
from fpga_pool.model.gangs import Gang, Processor
from fpga_pool.model.lifecycle.job import Displaced, Planned, Retimed
from fpga_pool.model.messages import InputStaged, JobFailed, JobFinished, JobStarted, ResultDelivered
from fpga_pool.model.objects import ACTIVE_JOBS, Batch, Host, JobState, Shard, Slot
from fpga_pool.model.pool import admission, changes, gang_admission, operations, task_admission
from fpga_pool.model.pool.gangs import gang_detail
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.tasks import task_detail
from fpga_pool.model.tasks import Task
from fpga_pool.sim.store import MemoryStore, MemoryTransaction

CATALOGUE = Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml"


@functools.cache
def shipped_catalogue():
    """The catalogue that comes with the pool, read once for all tests: nobody changes it."""
    return load_catalogue(CATALOGUE)


class EndlessTransaction(MemoryTransaction):
    """The simulator's store, in one transaction that every call takes part in."""

    def __init__(self):
        super().__init__(MemoryStore(), Shard(name="default", owner="test", epoch=1, renewed_at=0.0))

    def batches(self):
        return self._all(Batch)

    def all_tasks(self):
        return self._all(Task)

    def all_gangs(self):
        return self._all(Gang)


class Responder:
    """The agent of one host, seen from its data port: computes a digest of what it gets."""

    def __init__(self, pool, host, directory):
        self._pool = pool
        self._host = host
        self._directory = directory
        self._used = set()
        self._results = {}
        self._waiting = []
        #: Without it a staged job waits until the test calls `compute`.
        self.computes_at_once = True
        self.refusals = []
        self.streams = []

    def use(self, tokens):
        return [token_id not in self._used and not self._used.add(token_id) for token_id, _ in tokens]

    def admit(self, grant):
        self.streams.append(grant.job)
        if self.refusals:
            raise TransferRefused(self.refusals.pop(0), "as the test wants it")
        return Admission(self._directory / f"{grant.job}-{grant.attempt}")

    def progress(self, grant, received_bytes):
        pass

    def staged(self, grant, sha256, size_bytes):
        self._pool.report(grant.job, InputStaged, attempt=grant.attempt)
        if self.computes_at_once:
            self.compute(grant.job, grant.attempt)

    def compute(self, job, attempt=1):
        """Do the job: its result is the digest of its input."""
        if self._pool.fails.get(job):
            self._end(job, JobFailure("slot_fault", self._pool.fails[job]))
            self._pool.report(job, JobFailed, attempt=attempt, code="slot_fault", message="broken", retryable=False)
            return
        self._pool.report(job, JobStarted, attempt=attempt)
        output = f"{hashlib.sha256((self._directory / f'{job}-{attempt}').read_bytes()).hexdigest()}\n".encode()
        path = self._directory / f"{job}-{attempt}.result"
        path.write_bytes(output)
        result = JobResult(path, len(output), hashlib.sha256(output).hexdigest(), output)
        self._pool.report(
            job, JobFinished, attempt=attempt, compute_s=0.25, result_bytes=len(output), result_sha256=result.sha256
        )
        self._end(job, result)

    def _end(self, job, end):
        self._results[job] = end
        for waiter, waits_for in self._waiting:
            if waits_for == job and waiter.set_running_or_notify_cancel():
                waiter.set_result(end)
        self._waiting = [(waiter, waits_for) for waiter, waits_for in self._waiting if waits_for != job]

    def result(self, grant):
        future = Future()
        if grant.job in self._results:
            future.set_result(self._results[grant.job])
        else:
            self._waiting.append((future, grant.job))
        return future

    def delivered(self, grants):
        for grant in grants:
            with contextlib.suppress(Conflict):
                self._pool.report(grant.job, ResultDelivered, attempt=grant.attempt)

    def stage_small(self, inputs):
        return [self._stage_small(one.grant, one.data) for one in inputs]

    def _stage_small(self, grant, data):
        try:
            self.admit(grant).spool_path.write_bytes(data)
        except TransferRefused as refused:
            return refused
        self.staged(grant, "", len(data))
        return None


class PoolBench:
    """The pool, and what a test may do to it."""

    def __init__(self, directory, max_batch_jobs):
        self.tx = EndlessTransaction()
        self.lock = threading.RLock()
        self.settings = PoolSettings(max_batch_jobs=max_batch_jobs)
        self.catalogue = shipped_catalogue()
        self.key = Ed25519PrivateKey.generate()
        self.directory = directory
        self.fails = {}
        self.flows = []
        #: Number of the newest change of a job that was asked for, and of each job's.
        self.generation, self.changed_in = 0, {}
        #: Plan each batch as soon as it comes, all jobs on the first host.
        self.plans_at_once = True
        #: What a test wants to happen instead of an answer, by the method's name.
        self.breaks = {}
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
        self.responders = {}

    def close(self):
        self._stack.close()

    # What a test does

    def open_data_port(self, host="node-1"):
        """Start the data port of a host, again after a stop on another port."""
        responder = self.responders.get(host)
        if responder is None:
            directory = self.directory / host
            directory.mkdir()
            responder = self.responders[host] = Responder(self, host, directory)
        server = DataServer(
            responder,
            responder,
            host=host,
            public_key=self.key.public_key(),
            bind_address="127.0.0.1",
            limits=Limits(linger_s=0.2, keepalive_s=1.0),
        )
        address, port = server.start()
        self._stack.callback(server.stop)
        with self.lock:
            self.tx.save(replace(self.tx.host(host), data_address=address, data_port=port))
        return responder

    def plan(self, batch_uuid, host="node-1", *, transfer=(), lead_s=0.0):
        """Give each pending job of a batch its place."""
        with self.lock:
            for job in self.tx.batch_jobs(batch_uuid):
                if job.state is JobState.PENDING:
                    planned = Planned(
                        host=host, slot=f"{host}/card-0/r0", order=job.index, dispatched_at=time.time() + lead_s,
                        start_s=0.0, end_s=1.0, transfer=transfer,
                    )  # fmt: skip
                    changes.change_job(self.tx, job, planned, time.time())

    def retime(self, job, transfer):
        """Give the input of a job another plan, whose time 0 is now."""
        with self.lock:
            retimed = Retimed(dispatched_at=time.time(), start_s=0.0, end_s=1.0, transfer=transfer)
            changes.change_job(self.tx, self.tx.job(job), retimed, time.time())

    def displace(self, job):
        with self.lock:
            changes.change_job(self.tx, self.tx.job(job), Displaced(reason="the slot is drained"), time.time())

    def report(self, job, kind, *, attempt, **content):
        with self.lock:
            found = self.tx.job(job)
            if found.attempt != attempt:
                return
            event = kind(job=job, attempt=attempt, at=time.time(), **content)
            changes.change_job(self.tx, found, event, time.time())

    def batch_uuids(self):
        with self.lock:
            return [batch.uuid for batch in self.tx.batches()]

    def first_jobs(self):
        with self.lock:
            return self.tx.batch_jobs(self.tx.batches()[0].uuid)

    # SchedulerAPI

    @contextlib.contextmanager
    def _answering(self, method):
        breaks = self.breaks.get(method, [])
        if breaks and (error := breaks.pop(0)):
            raise error
        with self.lock:
            yield

    def create_batch(self, request):
        with self._answering("create_batch"):
            now_s = time.time()
            batch = admission.create_batch(self.tx, request, self.catalogue, self.settings, now_s)
            if self.plans_at_once:
                self.plan(batch.uuid)
        if late := self.breaks.pop("create_batch answer", None):
            raise late
        return batch

    def batches(self, project_id, limit, marker=None):
        with self._answering("batches"):
            own = [batch for batch in self.tx.batches() if batch.project_id == project_id]
            own.sort(key=lambda batch: (batch.created_at, batch.uuid), reverse=True)
            begin = [batch.uuid for batch in own].index(marker) + 1 if marker else 0
            return own[begin : begin + limit]

    def batch(self, project_id, uuid):
        with self._answering("batch"):
            return admission.owned_batch(self.tx, uuid, project_id)

    def batch_jobs(self, project_id, uuid, states=(), changed_after=None, wait_s=0.0):
        until_s = time.monotonic() + wait_s
        while True:
            with self._answering("batch_jobs"):
                admission.owned_batch(self.tx, uuid, project_id)
                found = [job for job in self.tx.batch_jobs(uuid) if not states or job.state in states]
                found = [job for job in found if self._changed_in(job) > (changed_after or {}).get("default", -1)]
                if found or changed_after is None or time.monotonic() >= until_s:
                    return JobChanges(jobs=tuple(found), seen={"default": self.generation}, at=time.time())
            time.sleep(0.005)

    def _changed_in(self, job):
        """Number the changes of jobs, as a shard's generations do."""
        if self.changed_in.get(job.uuid, (None, 0))[0] != job.generation:
            self.generation += 1
            self.changed_in[job.uuid] = job.generation, self.generation
        return self.changed_in[job.uuid][1]

    def cancel_batch(self, project_id, uuid):
        with self._answering("cancel_batch"):
            admission.cancel_batch(self.tx, uuid, project_id, time.time())
            admission.cancel_jobs(self.tx, uuid, time.time())
            for job in self.tx.batch_jobs(uuid):
                if job.state in ACTIVE_JOBS:
                    changes.change_job(self.tx, job, Displaced(reason="cancelled"), time.time())
            return self.tx.batch(uuid)

    def tickets(self, project_id, batch_uuid, requests):
        with self._answering("tickets"):
            admission.owned_batch(self.tx, batch_uuid, project_id)
            return [self._ticket(request) for request in requests]

    def _ticket(self, request):
        job = self.tx.job(request.job)
        wanted = JobState.WAITING_INPUT if request.purpose == "send" else JobState.RESULT_HELD
        if job.state is not wanted:
            raise Conflict(f"job {job.uuid} is {job.state}")
        self.flows.append((request.purpose, request.job, request.source_address, request.source_port))
        host = self.tx.host(job.host)
        grant = TransferGrant(
            job=job.uuid, attempt=job.attempt, project_id=job.project_id, host=job.host, purpose=request.purpose,
            input_bytes=job.input_bytes, token_id=str(uuid.uuid4()), deadline_s=time.time() + 60,
        )  # fmt: skip
        return Ticket(
            job=job.uuid, attempt=job.attempt, purpose=request.purpose, address=host.data_address, port=host.data_port,
            token=sign(grant, self.key), input_bytes=job.input_bytes, transfer=job.transfer,
            elapsed_s=time.time() - job.dispatched_at,
        )  # fmt: skip

    def create_gang(self, request):
        with self._answering("create_gang"):
            gang = gang_admission.create_gang(self.tx, request, time.time())
        if late := self.breaks.pop("create_gang answer", None):
            raise late
        return gang

    def gangs(self, project_id, limit, marker=None):
        with self._answering("gangs"):
            own = [gang for gang in self.tx.all_gangs() if gang.project_id == project_id][::-1]
            begin = [gang.uuid for gang in own].index(marker) + 1 if marker else 0
            return own[begin : begin + limit]

    def gang(self, project_id, uuid):
        with self._answering("gang"):
            gang_admission.owned_gang(self.tx, uuid, project_id)
            return gang_detail(self.tx, uuid, self.settings, Easy(), time.time())

    def cancel_gang(self, project_id, uuid):
        with self._answering("cancel_gang"):
            return gang_admission.cancel_gang(self.tx, uuid, project_id, time.time())

    def create_task(self, request):
        with self._answering("create_task"):
            return task_admission.create_task(self.tx, request, self.catalogue, self.settings, time.time())

    def tasks(self, project_id, limit, marker=None):
        with self._answering("tasks"):
            own = [task for task in self.tx.all_tasks() if task.project_id == project_id][::-1]
            begin = [task.uuid for task in own].index(marker) + 1 if marker else 0
            return own[begin : begin + limit]

    def task(self, project_id, uuid):
        with self._answering("task"):
            task_admission.owned_task(self.tx, uuid, project_id)
            return task_detail(self.tx, uuid, self.catalogue, time.time())

    def cancel_task(self, project_id, uuid):
        with self._answering("cancel_task"):
            return task_admission.cancel_task(self.tx, uuid, project_id, time.time())

    def slots(self):
        with self._answering("slots"):
            return self.tx.slots()

    def slot(self, uuid):
        with self._answering("slot"):
            return self._slot(uuid)

    def _slot(self, uuid):
        for slot in self.tx.slots():
            if slot.uuid == uuid:
                return slot
        raise NotFound(f"no slot {uuid}")

    def drain_slot(self, uuid, reason):
        with self._answering("drain_slot"):
            return operations.drain_slot(self.tx, self._slot(uuid).name, reason, time.time())

    def resume_slot(self, uuid):
        with self._answering("resume_slot"):
            return operations.resume_slot(self.tx, self._slot(uuid).name, time.time())

    def hosts(self):
        with self._answering("hosts"):
            return self.tx.hosts()

    def functions(self):
        with self._answering("functions"):
            return [
                FunctionInfo(
                    name="sha256", version="1.0", slot_kinds=("small", "large"), io_bps=float("inf"),
                    preemptible=True, speedup=12.5, slots=2,
                )
            ]  # fmt: skip

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
