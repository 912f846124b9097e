"""The dashboard on fixed answers of the API, without a pool, so that a page shows the same each time."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from flask import Flask, Response, abort, request

from fpga_pool.api.dashboard.routes import add_dashboard
from fpga_pool.api.http.server import ApiServer
from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.messages.requests import BatchDetail, GangDetail, PipelineDetail, SlotDetail, TaskDetail
from fpga_pool.model.messages.usage import Usage
from fpga_pool.model.objects.gangs import (
    Gang,
    GangProcessor,
    GangState,
    Process,
    Processor,
    ProcessState,
    processor_name,
    with_processes,
)
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.pool import (
    PIPELINE_POLICY,
    Batch,
    BatchState,
    Host,
    Job,
    JobState,
    LeaseKind,
    RateSegment,
    Slot,
    SlotState,
)
from fpga_pool.model.objects.progress import flow_of
from fpga_pool.model.objects.tasks import TASK_POLICY, Task, TaskState
from fpga_pool.model.rest import date, show

CARDS, REGIONS, REQUESTERS = 4, 4, 8
BATCH = "6d7b1f0e-0000-4000-8000-000000000001"
GANG = "6d7b1f0e-0000-4000-8000-000000000002"
OTHER_GANG = "6d7b1f0e-0000-4000-8000-000000000009"
HELD, WAITING = "6d7b1f0e-0000-4000-8000-000000000005", "6d7b1f0e-0000-4000-8000-000000000006"
PIPELINE, TASK = "6d7b1f0e-0000-4000-8000-000000000007", "6d7b1f0e-0000-4000-8000-000000000008"
#: Names of the pipeline's subtasks, each with the subtasks whose results it reads.
SUBTASKS = {"read": (), "left": ("read",), "right": ("read",), "join": ("left", "right")}
FUNCTIONS = ("aes", "fft", "sha256", "wordcount")
#: Measured rate of each flow, a tenth below the planned one.
MEASURED_BPS = 3.6e7
#: How long before its job begins an input is complete, and how long its transfer took.
STAGED_S, MOVED_S = 0.3, 0.8
#: Time at which the batch was dispatched.
NOW_S = 1_800_000_000.0

encode = msgspec.json.encode

#: Returns the JSON text for a path with its query; None if the path is unknown.
Answers = Callable[[str], str | bytes | None]


@contextlib.contextmanager
def served_answers(answers: Answers) -> Iterator[str]:
    """Serve the dashboard and these answers on a free port; yield the URL."""
    app = Flask("fpga_pool.tests", static_folder=None)
    add_dashboard(app)

    def answer(path: str) -> Response:
        query = request.query_string.decode()
        if (found := answers(f"/v1/{path}" + (f"?{query}" if query else ""))) is None:
            abort(404)
        return Response(found, mimetype="application/json")

    app.add_url_rule("/v1/<path:path>", view_func=answer)
    server = ApiServer(app, port=0)
    try:
        yield server.start()
    finally:
        server.stop()


class FixedPool:
    """Answers of the API of a pool with hosts of 16 slots each; one batch has twice as many jobs as are running.

    There are also two older batches that wait, a complete pipeline, and a running task.

    The answers stay the same until a test lets jobs end (`turn`) or changes a slot (`change`).
    """

    def __init__(self, hosts: int, running: int) -> None:
        self.running = running
        names = [f"node-{h}/card-{c}/r{r}" for h in range(hosts) for c in range(CARDS) for r in range(REGIONS)]
        self.slots = [
            Slot(
                name=name, host=name.split("/")[0], card=name.split("/")[1], region=name.split("/")[2], board="u250",
                kind="small", links=f"box0 ring 4 {place // REGIONS % CARDS} full 4 {place % REGIONS}",
                state=(SlotState.READY, SlotState.EMPTY, SlotState.READY)[place % 3],
                function=(FUNCTIONS[place % 4], "", FUNCTIONS[place % 4])[place % 3], reconfigurations=3,
                loaded_at=NOW_S - 100,
            )
            for place, name in enumerate(names)
        ]  # fmt: skip
        self.texts = [encode(show(slot)) for slot in self.slots]
        self.hosts = [
            Host(name=name, egress_bps=10e9, ingress_bps=10e9, data_address="10.0.0.1", data_port=9512, heard_at=NOW_S)
            for name in [f"node-{h}" for h in range(hosts)] + [f"requester-{r + 1}" for r in range(REQUESTERS)]
        ]
        self.rounds, self.elapsed_s = 0, 1.2
        self.jobs = [self._job(index) for index in range(2 * self.running)]
        for place in range(self.running):
            self._begin(place)
        self.changed_in, self.elapsed_s = [0] * len(self.jobs), 4.0

    def _job(self, index: int) -> Job:
        start_s = 5.0 * (index // self.running)
        slot = self.slots[self._place(index)]
        transfer = (RateSegment(begin_s=max(0.0, start_s - 4.0), end_s=start_s + 1.0, bps=4e7),)
        return Job(
            uuid=f"6d7b1f0e-0000-4000-9000-{index:012}", batch_uuid=BATCH, project_id="demo", user_id="demo",
            index=index, name=f"input-{index}", function=FUNCTIONS[index % 4],
            requester=f"requester-{index % REQUESTERS + 1}",
            input_bytes=10_000_000, created_at=NOW_S - 10, state=JobState.WAITING_INPUT, host=slot.host, slot=slot.name,
            dispatched_at=NOW_S, start_s=start_s + 1.0, end_s=start_s + 6.0, transfer=transfer,
        )  # fmt: skip

    def _place(self, index: int) -> int:
        apart = len(self.slots) // self.running
        return apart * (index % self.running) + apart // 2 * (index // self.running)

    def _begin(self, index: int) -> None:
        job = self.jobs[index]
        now_s = self.now_s()
        staged_at = now_s - STAGED_S
        moved = replace(job, transfer_began_at=staged_at - MOVED_S, staged_at=staged_at)
        self.jobs[index] = replace(moved, state=JobState.RUNNING, started_at=now_s)
        self.change(self._place(index), state=SlotState.BUSY, function=job.function, job=job.uuid)

    def change(self, place: int, **changes: Any) -> None:
        """Change fields of the slot with index `place`."""
        self.slots[place] = replace(self.slots[place], **changes)
        self.texts[place] = encode(show(self.slots[place]))

    def now_s(self) -> float:
        """Return the time of the pool."""
        return NOW_S + self.elapsed_s

    def turn(self, count: int) -> None:
        """Complete `count` jobs, and start as many in other slots."""
        self.rounds += 1
        for number in range(count):
            index = (self.rounds * count + number) % self.running
            pair = index, index + self.running
            ending, beginning = pair if self.jobs[index].state is JobState.RUNNING else pair[::-1]
            self.jobs[ending] = replace(self.jobs[ending], state=JobState.COMPLETED, finished_at=self.now_s())
            self.change(self._place(ending), state=SlotState.READY, job="")
            self._begin(beginning)
            self.changed_in[ending] = self.changed_in[beginning] = self.rounds

    def answer(self, path: str) -> bytes | None:
        """Return the answer to a request for a path; None if the path is unknown."""
        parts = urlsplit(path)
        match parts.path.split("/")[2:]:
            case ["slots"]:
                return b'{"slots":[' + b",".join(self.texts) + b'],"links":[]}'
            case ["slots", _]:
                slot = next((slot for slot in self.slots if path.endswith(slot.uuid)), self.slots[0])
                return encode({"slot": show(self.slot_detail(slot), detail=True)})
            case ["hosts"]:
                return encode({"hosts": [show(host) for host in self.hosts], "links": []})
            case ["hosts", name]:
                return encode({"host": next(show(host, detail=True) for host in self.hosts if host.name == name)})
            case ["functions"]:
                return encode({"functions": [{"name": name} for name in FUNCTIONS]})
            case ["batches"]:
                waiting = [detail.batch for detail in self.waiting()]
                shown = self.batch(), self.task_batch(), *waiting
                return encode({"batches": [show(batch) for batch in shown], "links": []})
            case ["batches", uuid]:
                (detail,) = (detail for detail in self.waiting() if detail.batch.uuid == uuid)
                return encode({"batch": show(detail, detail=True)})
            case ["batches", uuid, "jobs"] if uuid != BATCH:
                others = *self.subtasks(), *self.task().share_list
                jobs = [show(job) for job in others if job.batch_uuid == uuid]
                return encode({"jobs": jobs, "seen": "0", "at": date(self.now_s())})
            case ["pipelines"]:
                return encode({"pipelines": [show(self.pipeline().pipeline)], "links": []})
            case ["pipelines", _]:
                return encode({"pipeline": show(self.pipeline(), detail=True)})
            case ["tasks"]:
                return encode({"tasks": [show(self.task().task)], "links": []})
            case ["tasks", _]:
                return encode({"task": show(self.task(), detail=True)})
            case ["batches", _, "jobs"]:
                after = int(parse_qs(parts.query).get("changed_after", ["-1"])[0])
                jobs = [show(job) for job, changed in zip(self.jobs, self.changed_in, strict=True) if changed > after]
                return encode({"jobs": jobs, "seen": str(self.rounds), "at": date(self.now_s())})
            case ["flows"]:
                sent = [job for job in self.jobs if job.state is JobState.WAITING_INPUT]
                return encode({"flows": [show(flow_of(job, MEASURED_BPS, self.now_s())) for job in sent]})
            case ["usage"]:
                return encode({"usage": [show(row) for row in self.usage()], "links": []})
            case ["quotas"]:
                return encode({"quota": {"project_id": "demo", "resources": []}})
            case ["gangs"]:
                return encode({"gangs": [show(self.gang())], "links": []})
            case ["gangs", _]:
                return encode({"gang": show(self.gang_detail(), detail=True)})
            case ["jobs"]:
                return encode({"jobs": [show(job) for job in self.jobs[:20]], "links": []})
            case ["jobs", uuid]:
                (job,) = (job for job in (*self.jobs, *self.subtasks(), *self.task().share_list) if job.uuid == uuid)
                return encode({"job": show(replace(job, history=created(NOW_S - 10, "PENDING")), detail=True)})
            case ["processors"]:
                return encode({"processors": [show(one) for one in self.processors()], "links": []})
            case ["cards"]:
                return encode({"cards": [], "links": []})
            case ["counters"]:
                return encode({"counters": [], "links": []})
        return None

    def slot_detail(self, slot: Slot) -> SlotDetail:
        """Return a slot with its holder: the task, or the pool for the job that runs there."""
        if slot.name in self.task().slot_list:
            held, holder = LeaseKind.TASK, TASK
        elif slot.job:
            held, holder = LeaseKind.POOL, slot.job
        else:
            return SlotDetail(slot=slot)
        return SlotDetail(slot=slot, held_by=held, holder=holder, holder_project_id="demo", leased_at=NOW_S)

    def usage(self) -> list[Usage]:
        """Return the usage of each function by two projects, and of slots that the instances of one of them load."""
        of_functions = [
            Usage(
                project_id=project, function=name, begin_at=NOW_S - 86_400, end_at=NOW_S, jobs=100 * share + number,
                slot_s=500.0 * share + 70.0 * number, cpu_s=20.0 * number, vcpu_s=900.0 * share,
                instance_slot_s=3600.0 * number, input_bytes=10**9 * share, result_bytes=6500, loads=4 * share,
            )
            for share, project in ((3, "vision"), (1, "demo"))
            for number, name in enumerate(FUNCTIONS)
        ]  # fmt: skip
        of_none = Usage(
            project_id="demo", function="", begin_at=NOW_S - 86_400, end_at=NOW_S, jobs=0, slot_s=0.0, cpu_s=0.0,
            vcpu_s=None, instance_slot_s=1800.0, input_bytes=0, result_bytes=0, loads=0,
        )  # fmt: skip
        return [*of_functions, of_none]

    def gang(self) -> Gang:
        """Return its gang, which is in the foreground."""
        return Gang(
            uuid=GANG, project_id="demo", user_id="demo", name="solver", processes=2, runtime_s=60.0, cpu_usage=0.5,
            work_s=60.0, created_at=NOW_S - 10, state=GangState.FOREGROUND, started_at=NOW_S,
        )  # fmt: skip

    def gang_detail(self) -> GangDetail:
        """Return its gang with its two processes."""
        processes = [
            Process(
                uuid=f"{GANG[:-1]}{index + 3}", gang_uuid=GANG, index=index, attempt=1, host="node-0",
                processor=f"node-0/pcpu/{index}", tier=Tier.FOREGROUND, state=ProcessState.RUNNING,
            )
            for index in range(2)
        ]  # fmt: skip
        return GangDetail(
            gang=self.gang(), pending_reason="", expected_at=None, done_s=4.0, process_list=tuple(processes),
            migration_list=(),
        )  # fmt: skip

    def processors(self) -> list[GangProcessor]:
        """Return its processors: its gang shares one with another project's gang, and the last is no longer offered."""
        own = self.gang_detail().process_list
        other = replace(own[1], uuid=OTHER_GANG, gang_uuid=OTHER_GANG, index=5, tier=Tier.BACKGROUND)
        processors = [
            Processor(name=processor_name("node-0", number), host="node-0", number=number, offered=number < 4)
            for number in range(5)
        ]
        return with_processes(processors, [*own, other])

    def batch(self) -> Batch:
        """Return its batch."""
        return Batch(
            uuid=BATCH, project_id="demo", user_id="demo", name="wide", policy="ect", created_at=NOW_S - 10,
            jobs=len(self.jobs), state=BatchState.RUNNING, dispatched_at=NOW_S, planned_makespan_s=12.0,
            lower_bound_s=11.0, jobs_completed=sum(job.state is JobState.COMPLETED for job in self.jobs),
        )  # fmt: skip

    def waiting(self) -> tuple[BatchDetail, BatchDetail]:
        """Return a batch that its owner has put on hold, and one that waits for slots."""
        held, other = (
            Batch(
                uuid=uuid, project_id="demo", user_id="demo", name=name, policy="ect", created_at=NOW_S - 20, jobs=4,
                held=uuid == HELD,
            )
            for uuid, name in ((HELD, "nightly"), (WAITING, "next"))
        )  # fmt: skip
        return (
            BatchDetail(batch=held, pending_reason=held.withheld, expected_at=None),
            BatchDetail(batch=other, pending_reason="all slots are busy", expected_at=NOW_S + 60),
        )

    def subtasks(self) -> list[Job]:
        """Return the subtasks of its pipeline."""
        uuids = {name: f"{PIPELINE[:-4]}9{index:03}" for index, name in enumerate(SUBTASKS)}
        return [
            Job(
                uuid=uuids[name], batch_uuid=PIPELINE, project_id="demo", user_id="demo", index=index, name=name,
                function=FUNCTIONS[index], requester="" if before else "requester-1", input_bytes=1000,
                created_at=NOW_S - 30, predecessors=tuple(uuids[one] for one in before), state=JobState.COMPLETED,
            )
            for index, (name, before) in enumerate(SUBTASKS.items())
        ]  # fmt: skip

    def pipeline(self) -> PipelineDetail:
        """Return its pipeline."""
        pipeline = Batch(
            uuid=PIPELINE, project_id="demo", user_id="demo", name="diamond", policy=PIPELINE_POLICY,
            created_at=NOW_S - 30, jobs=len(SUBTASKS), jobs_completed=len(SUBTASKS), state=BatchState.COMPLETED,
        )  # fmt: skip
        return PipelineDetail(
            pipeline=pipeline, pending_reason="", expected_at=None, subtask_list=tuple(self.subtasks())
        )

    def task_batch(self) -> Batch:
        """Return the batch of the shares of its task."""
        return Batch(
            uuid=TASK, project_id="demo", user_id="demo", name="lattice", policy=TASK_POLICY, created_at=NOW_S - 30,
            jobs=2, state=BatchState.RUNNING, dispatched_at=NOW_S,
        )  # fmt: skip

    def task(self) -> TaskDetail:
        """Return its task, which has two slots."""
        task = Task(
            uuid=TASK, project_id="demo", user_id="demo", name="lattice", function="fft", slots=2, shares=2,
            topology=Topology.LINE, input_bytes=1000, created_at=NOW_S - 30, state=TaskState.RUNNING, started_at=NOW_S,
            attempt=1,
        )  # fmt: skip
        slots = tuple(slot.name for slot in self.slots[:2])
        shares = tuple(
            Job(
                uuid=f"{TASK[:-4]}8{index:03}", batch_uuid=TASK, project_id="demo", user_id="demo", index=index,
                name="", function="fft", requester="requester-1", input_bytes=1000, created_at=NOW_S - 30, slot=slot,
                state=JobState.RUNNING, dispatched_at=NOW_S, start_s=1.0, end_s=6.0, started_at=NOW_S + 1.5,
            )
            for index, slot in enumerate(slots)
        )  # fmt: skip
        return TaskDetail(task=task, pending_reason="", expected_at=None, slot_list=slots, share_list=shares)
