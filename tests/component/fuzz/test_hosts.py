"""Whatever a host reports, work is planned for the others: a compromised agent cannot stop its shard."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.messages.agents import Heartbeat, JobFinished, ObservedServer, ObservedSlot
from fpga_pool.model.messages.gangs import ObservedProcessor
from fpga_pool.model.messages.work import (
    BatchRequest,
    GangRequest,
    JobRequest,
    PipelineRequest,
    ShareRequest,
    SubtaskRequest,
    TaskRequest,
)
from fpga_pool.model.objects.gangs import processor_name
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.batch.admission import create_batch
from fpga_pool.model.rules.gang.admission import create_gang
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.pipeline.admission import create_pipeline
from fpga_pool.model.rules.shared.families import PoolPolicies, new_families
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.admission import create_task
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.scheduler import SimulatedScheduler
from fpga_pool.sim.store import MemoryStore
from support.fuzzing import changed_leaves

SERVER = str(UUID(int=9))


def heartbeat(host: str) -> Heartbeat:
    """Return the heartbeat of a host with one card and two processors, and with a server if it is the host "bad"."""
    return Heartbeat(
        host=host, agent_id=host, boot=1, beat=1, at=1.0, egress_bps=1e9, ingress_bps=1e9, data_address="192.0.2.1",
        data_port=9, jobs=(),
        slots=tuple(
            ObservedSlot(
                slot=f"{host}/c/{n}", card="c", region=f"{n}", board="kintex7", kind=kind, state=SlotState.EMPTY,
            )
            for n, kind in enumerate(("large", "small", "small", "small"))
        ),
        processors=tuple(ObservedProcessor(processor=processor_name(host, n), number=n) for n in range(2)),
        servers=(ObservedServer(uuid=SERVER, project_id="p", egress_bps=1e8, held=True),) if host == "bad" else (),
    )  # fmt: skip


class Shard:
    """A shard with work of each kind, and with two hosts: one sends `beat`, and the other a valid heartbeat."""

    def __init__(self, catalogue, policies, beat):
        self.settings = PoolSettings()
        self.store = MemoryStore()
        self.scheduler = SimulatedScheduler(Engine(), self.store, self.settings, lambda: None, tuple)
        for each in (heartbeat("good"), beat):
            with contextlib.suppress(FpgaPoolError):  # the heartbeat is refused
                self.scheduler.apply_heartbeat(each)
        self._submit(catalogue)
        self.scheduler.begin(new_families(catalogue, self.settings, policies), 0)

    def _submit(self, catalogue):
        numbers = iter(range(10, 100))

        def owned(name):
            return {"uuid": str(UUID(int=next(numbers))), "project_id": "p", "user_id": "u", "name": name}

        def sent(requester="good"):
            return {"uuid": str(UUID(int=next(numbers))), "name": "a", "requester": requester, "input_bytes": 10**7}

        def batch(requester, policy):
            job = JobRequest(**sent(requester), function="sha256")
            return BatchRequest(**owned("b"), policy=policy, jobs=(job,))

        now_s, settings = 1.0, self.settings
        gang = GangRequest(**owned("g"), processes=2, runtime_s=60.0, cpu_usage=0.5, command="x")
        task = TaskRequest(**owned("t"), function="sha256", shares=(ShareRequest(**sent()), ShareRequest(**sent())))
        pipeline = PipelineRequest(**owned("l"), subtasks=(SubtaskRequest(**sent(), function="sha256"),))
        with self.scheduler.transaction() as tx:
            create_gang(tx, gang, now_s)
            create_task(tx, task, catalogue, settings, now_s)
            create_pipeline(tx, pipeline, catalogue, settings, now_s)
            for requester in ("good", f"server:{SERVER}"):
                for policy in ("", "benefit_plus"):
                    with contextlib.suppress(FpgaPoolError):  # no such server
                        create_batch(tx, batch(requester, policy), catalogue, settings, now_s)


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue(installed_catalogue())


@pytest.fixture(scope="module")
def policies():
    return PoolPolicies(
        batches=lambda _: load_policy("batch", "ect"),
        default_batch="ect",
        online=OnlineRule(load_policy("online", "benefit_plus"), {"benefit_plus"}.__contains__),
        gangs=load_policy("gang", "measy_plus"),
        tasks=load_policy("task", "lattice_plus"),
    )


@given(data=st.data())
def test_no_heartbeat_and_no_report_stops_planning(catalogue, policies, data):
    try:
        beat = read(Heartbeat, data.draw(changed_leaves(to_plain(heartbeat("bad")))))
    except FpgaPoolError:
        return
    shard = Shard(catalogue, policies, beat)
    shard.scheduler.plan()  # raises the errors of policies
    with shard.scheduler.transaction() as tx:
        placed = [job for job in tx.active_jobs() if job.host == beat.host]
    for number, job in enumerate(placed, 1):
        done = JobFinished(
            job=job.uuid, attempt=job.attempt, at=2.0, compute_s=0.5, result_bytes=3, result_sha256="ab" * 32
        )
        with contextlib.suppress(FpgaPoolError):
            report = read(JobFinished, data.draw(changed_leaves(to_plain(done))))
            shard.scheduler.apply_reports(beat.host, [(number, report)])
    shard.scheduler.plan()


def test_what_is_changed_is_planned_without_a_change(catalogue, policies):
    shard = Shard(catalogue, policies, heartbeat("bad"))
    shard.scheduler.plan()
    with shard.scheduler.transaction() as tx:
        assert len(tx.active_jobs()) >= 5  # two shares, a subtask, and a job of each requester
        assert len({job.host for job in tx.active_jobs()}) == 2
