"""`Client`: the pool in a few lines of Python, including runs of work from its creation to its results.

The shares of a task are jobs of a batch, and their data are transferred like those of any batch.
"""

import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack
from uuid import uuid4

from fpga_pool.client import filters as f
from fpga_pool.client.api import PoolApi
from fpga_pool.client.attach import AttachedRunner, PipelineRunner, TaskRunner, require_same
from fpga_pool.client.filters import BatchOptions, RunSettings, date
from fpga_pool.client.inputs import JobSpec, Source, Subtask, job_requests, read_inputs
from fpga_pool.client.outcome import BatchProgress, BatchResult
from fpga_pool.client.resources import read, segment
from fpga_pool.client.runner import BatchRunner
from fpga_pool.client.session import CREATE_PATIENCE_S, create
from fpga_pool.client.transfers import Goal
from fpga_pool.model.codec import to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.purge import Purge
from fpga_pool.model.messages.requests import Calibration, FunctionInfo, JobDetail, PoolCounts, Service, WorkCount
from fpga_pool.model.messages.work import DesignContent
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design
from fpga_pool.model.objects.cards import Card, Instance
from fpga_pool.model.objects.gangs import GangProcessor
from fpga_pool.model.objects.history import PoolEvent
from fpga_pool.model.objects.pool import PIPELINE_POLICY, Batch, Job, JobState
from fpga_pool.model.objects.progress import Flow
from fpga_pool.model.objects.tasks import TASK_POLICY, TaskShape
from fpga_pool.model.values import counted


class TaskOptions(TypedDict, total=False):
    """Options of the run of a task; `Client.runner` describes each."""

    output_dir: str | Path | None
    name: str
    on_progress: Callable[[BatchProgress], None]
    settings: RunSettings | None
    ssl_context: ssl.SSLContext | None


class RunOptions(TaskOptions, BatchOptions, total=False):
    """Options of the run of a batch."""


class Client(PoolApi):
    """Everything the pool offers: the calls of its API, and whole batches.

    ::

        client = Client()
        batch = client.run("sha256", ["a.bin", "b.bin"], requester="node-1")
        for job in batch.jobs:
            print(job.name, job.result.read_text())
    """

    @property
    def endpoint(self) -> str:
        """Endpoint of the API, for display."""
        return self._http.endpoint

    def job_detail(self, uuid: str, project_id: str | None = None) -> JobDetail:
        """Return one job, with the reason why it waits, and when it is expected to begin."""
        return read(JobDetail, self._one("GET", "jobs", uuid, project_id), "job")

    def project_jobs(self, limit: int | None = None, **filters: Unpack[f.JobFilters]) -> list[Job]:
        """Return the jobs of all batches of the project, newest first."""
        return self._list(Job, "jobs", limit, filters)

    def job_details(self, limit: int | None = None, **filters: Unpack[f.JobFilters]) -> list[JobDetail]:
        """Return the same jobs as `project_jobs`, each with the reason why it waits."""
        return self._list(JobDetail, "jobs", limit, filters)

    def pool_counts(self) -> PoolCounts:
        """Return how many hosts, cards and slots the pool has; for operators."""
        return read(PoolCounts, self._http.call("GET", "/v1/pool"), "pool")

    def work_counts(self, limit: int | None = None, **filters: Unpack[f.ProjectFilters]) -> list[WorkCount]:
        """Return how much work of a project has not ended, by kind and state."""
        return self._list(WorkCount, "work", limit, filters)

    def purge(self, ended_before: float, project_id: str | None = None, *, dry_run: bool = False) -> Purge:
        """Remove what ended before a time in UTC seconds, or count it; repeat until `complete`.  For operators."""
        body = {"ended_before": date(ended_before), "project_id": project_id, "dry_run": dry_run}
        return read(Purge, self._http.call("POST", "/v1/purges", body=body), "purge")

    def flows(self, limit: int | None = None, **filters: Unpack[f.ProjectFilters]) -> list[Flow]:
        """Return the inputs of a project that are being transferred, with planned and measured rates."""
        return self._list(Flow, "flows", limit, filters)

    def counters(
        self, host: str | None = None, limit: int | None = None, **filters: Unpack[f.NameFilters]
    ) -> list[HostLoad]:
        """Return the last load measurements of all hosts that are alive, or of one of them; for operators."""
        return self._list(HostLoad, "counters", limit, {"host": host, **filters})

    def pool_events(self, limit: int | None = 100, **filters: Unpack[f.PoolEventFilters]) -> list[PoolEvent]:
        """Return the newest events of all objects of the project (those that match the filters), newest first."""
        return self._list(PoolEvent, "events", limit, filters)

    def cards(self, limit: int | None = None, **filters: Unpack[f.CardFilters]) -> list[Card]:
        """Return all cards (those that match the filters), by name; for operators, as all calls on cards."""
        return self._list(Card, "cards", limit, filters)

    def function(self, name: str) -> FunctionInfo:
        """Return a function of the current catalogue."""
        return read(FunctionInfo, self._http.call("GET", f"/v1/functions/{segment(name)}"), "function")

    def card(self, uuid: str) -> Card:
        """Return one card, with its slots and what uses them."""
        return read(Card, self._http.call("GET", f"/v1/cards/{segment(uuid)}"), "card")

    def drain_card(self, uuid: str, reason: str = "") -> Card:
        """Take all slots of a card out of service; see `drain`."""
        return self._change_card(uuid, {"drain": True, "reason": reason})

    def resume_card(self, uuid: str) -> Card:
        """Put all slots of a card back into service."""
        return self._change_card(uuid, {"drain": False})

    def _change_card(self, uuid: str, change: dict[str, object]) -> Card:
        return read(Card, self._http.call("PATCH", f"/v1/cards/{segment(uuid)}", body=change), "card")

    def remove_card(self, uuid: str) -> Card:
        """Remove a card; if it is in use or its agent still reports it, it is only drained, and Conflict says why."""
        return read(Card, self._http.call("DELETE", f"/v1/cards/{segment(uuid)}"), "card")

    def processors(self, limit: int | None = None, **filters: Unpack[f.ProcessorFilters]) -> list[GangProcessor]:
        """Return all processors that hosts reserve for gangs (those that match the filters), by name; for operators."""
        return self._list(GangProcessor, "processors", limit, filters)

    def processor(self, uuid: str) -> GangProcessor:
        """Return one processor, with the processes in its tiers."""
        return read(GangProcessor, self._http.call("GET", f"/v1/processors/{segment(uuid)}"), "processor")

    def service(self, uuid: str) -> Service:
        """Return one scheduler, agent or process of the API; for operators."""
        return read(Service, self._http.call("GET", f"/v1/services/{segment(uuid)}"), "service")

    def instance(self, uuid: str, project_id: str | None = None) -> Instance:
        """Return an instance of Nova, with the slots that it holds."""
        return read(Instance, self._one("GET", "instances", uuid, project_id), "instance")

    def bitstreams(
        self, limit: int | None = None, *, host: str | None = None, **filters: Unpack[f.BitstreamFilters]
    ) -> list[BitstreamInfo]:
        """Return the bitstreams of the catalogue (those that match the filters) as a host has them, by name.

        Without a host, the bitstreams of each board are those of the first host with such a card.
        """
        return self._list(BitstreamInfo, "bitstreams", limit, {"host": host, **filters})

    def bitstream(self, uuid: str, host: str | None = None) -> BitstreamInfo:
        """Return one bitstream of the catalogue as a host has it; see `bitstreams`."""
        answer = self._http.call("GET", f"/v1/bitstreams/{segment(uuid)}", params={"host": host})
        return read(BitstreamInfo, answer, "bitstream")

    def create_design(
        self, manifest: Mapping[str, object], bitstream: bytes, signature: bytes = b"", uuid: str | None = None
    ) -> Design:
        """Submit a function with its bitstream; an operator decides on it.  See `DesignManifest` for the manifest."""
        uuid = uuid or str(uuid4())
        body = {**manifest, "uuid": uuid, **to_plain({"bitstream": bitstream, "signature": signature})}
        return create(self._http, Design, "design", body, lambda: self.design(uuid), CREATE_PATIENCE_S)

    def designs(self, limit: int | None = 100, **filters: Unpack[f.NamedWorkFilters]) -> list[Design]:
        """Return the newest designs of the project, newest first."""
        return self._list(Design, "designs", limit, filters)

    def design(self, uuid: str, project_id: str | None = None) -> Design:
        """Return one design, of the project or public; or of another project ("all": of any), for admins."""
        return read(Design, self._one("GET", "designs", uuid, project_id), "design")

    def design_bitstream(self, uuid: str) -> DesignContent:
        """Return the bitstream of a design of any project; for operators."""
        return read(DesignContent, self._http.call("GET", f"/v1/designs/{segment(uuid)}/bitstream"))

    def change_design(
        self, uuid: str, *, state: str | None = None, public: bool | None = None, reason: str = ""
    ) -> Design:
        """Approve, reject or revoke a design of any project (state), make it public, or private; for operators."""
        change = {"state": state, "public": public, "reason": reason}
        return read(Design, self._http.call("PATCH", f"/v1/designs/{segment(uuid)}", body=change), "design")

    def delete_design(self, uuid: str, project_id: str | None = None) -> Design:
        """Remove a design of the project or, for operators, of another one.

        Raises Conflict while its function is used by jobs that have not ended, or by instances.
        """
        params = {} if project_id is None else {"project_id": project_id}
        return read(Design, self._http.call("DELETE", f"/v1/designs/{segment(uuid)}", params=params), "design")

    def calibration(
        self, function: str | None = None, limit: int | None = None, **filters: Unpack[f.NameFilters]
    ) -> list[Calibration]:
        """Return how well the time models (of one function, if given) fit the observed runs."""
        return self._list(Calibration, "calibration", limit, {"function": function, **filters}, "functions/calibration")

    def run(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        header: bytes = b"",
        **options: Unpack[RunOptions],
    ) -> BatchResult:
        """Run one job for each file, and return when all have ended and their results are on disk.

        `header` is sent before each file (aes reads its key and counter block there).  `requester` is the host of the
        pool that this runs on.  The other options are those of `runner`.
        """
        return self.run_jobs((JobSpec(function, file, requester, header) for file in files), **options)

    def run_jobs(self, jobs: Iterable[JobSpec], **options: Unpack[RunOptions]) -> BatchResult:
        """Run jobs of any functions and requesters as one batch; see `run`."""
        return self.runner(jobs, **options).run()

    def runner(
        self,
        jobs: Iterable[JobSpec],
        *,
        output_dir: str | Path | None = None,
        name: str = "",
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
        settings: RunSettings | None = None,
        ssl_context: ssl.SSLContext | None = None,
        **options: Unpack[BatchOptions],
    ) -> BatchRunner:
        """Return a runner that runs these jobs as one batch.

        Without an `output_dir` the results are in a new temporary directory, which the caller has to remove.
        `on_progress` is called in the caller's thread, several times a second.
        """
        return BatchRunner(
            self,
            read_inputs(jobs),
            output_dir=_directory(output_dir),
            name=name,
            options=options,
            settings=settings,
            ssl_context=ssl_context,
            on_progress=on_progress,
        )

    def submit(self, jobs: Iterable[JobSpec], **options: Unpack[RunOptions]) -> Batch:
        """Create a batch and return when the pool holds its inputs; see `run` and, for its results, `fetch`."""
        return self.runner(jobs, **options).submit()

    def create(self, jobs: Iterable[JobSpec], *, name: str = "", **options: Unpack[BatchOptions]) -> Batch:
        """Create a batch and return at once; `attach` sends its inputs, with the same sources."""
        return self.create_batch(job_requests(read_inputs(jobs)), name=name, **options)

    def failed_jobs(self, batch_uuid: str, jobs: Iterable[JobSpec]) -> list[JobSpec]:
        """Return the failed jobs of a batch, to be run again by `run_jobs` or `submit` as another batch.

        The pool has not kept the inputs, so `jobs` must be all jobs of the batch, as for `attach`.  Raises InvalidInput
        if they do not match the batch, if none has failed, or if the batch is that of a task or pipeline.
        """
        batch, stored, given = self.batch(batch_uuid), self.jobs(batch_uuid), list(jobs)
        if batch.policy in (TASK_POLICY, PIPELINE_POLICY):
            raise InvalidInput(f"batch {batch_uuid} is that of a task or pipeline, of which no part runs alone")
        require_same(stored, read_inputs(given))
        failed = [
            replace(spec, function=job.function, requester=job.requester, name=job.name, group=job.group)
            for job, spec in zip(stored, given, strict=True)
            if job.state is JobState.FAILED
        ]
        if not failed:
            raise InvalidInput(f"batch {batch_uuid}: of {counted(len(stored), 'job')} none has failed")
        return failed

    def attach(self, batch_uuid: str, jobs: Iterable[JobSpec] = (), **options: Unpack[TaskOptions]) -> BatchResult:
        """Continue a batch whose client has left or was killed, and return when all its results are here.

        `jobs` are all jobs of the batch in order, and required while the pool does not hold all of their inputs; only
        their sources, headers and names are used.  Results that are in the output directory already are kept.
        """
        return self.attached_runner(batch_uuid, jobs, **options).run()

    def fetch(self, batch_uuid: str, output_dir: str | Path, /, **options: Unpack[TaskOptions]) -> BatchResult:
        """Fetch only the results of a batch that the pool holds now; see `attach`."""
        options["output_dir"] = output_dir
        return self.attached_runner(batch_uuid, goal=Goal.HELD, **options).run()

    def attached_runner(
        self,
        batch_uuid: str,
        jobs: Iterable[JobSpec] = (),
        *,
        goal: Goal = Goal.RESULTS,
        **options: Unpack[TaskOptions],
    ) -> AttachedRunner:
        """Return a runner that continues a batch; see `attach`."""
        output_dir = _directory(options.pop("output_dir", None))
        return AttachedRunner(self, batch_uuid, read_inputs(jobs), goal=goal, output_dir=output_dir, **options)

    def run_pipeline(self, subtasks: Iterable[Subtask], **options: Unpack[TaskOptions]) -> BatchResult:
        """Run one pipeline, and return when all of it has ended; see `run`.

        Results that other subtasks read stay in the pool, and are removed when the last of these subtasks has ended.
        """
        return self.pipeline_runner(subtasks, **options).run()

    def pipeline_runner(self, subtasks: Iterable[Subtask], **options: Unpack[TaskOptions]) -> PipelineRunner:
        """Return a runner that runs these subtasks as one pipeline; see `runner`."""
        output_dir = _directory(options.pop("output_dir", None))
        return PipelineRunner(self, list(subtasks), output_dir=output_dir, **options)

    def run_task(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        topology: Topology = Topology.ANY,
        shapes: Sequence[TaskShape] = (),
        header: bytes = b"",
        **options: Unpack[TaskOptions],
    ) -> BatchResult:
        """Run one task on slots of one host that are linked as `topology` says; see `run`.

        The task gets one slot per file, or the number of slots of one of its `shapes`; then slots may compute several
        files each.
        """
        return self.task_runner(
            function, files, requester=requester, topology=topology, shapes=shapes, header=header, **options
        ).run()

    def task_runner(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        topology: Topology = Topology.ANY,
        shapes: Sequence[TaskShape] = (),
        header: bytes = b"",
        **options: Unpack[TaskOptions],
    ) -> TaskRunner:
        """Return a runner that runs these files as one task; see `runner`."""
        inputs = read_inputs(JobSpec(function, file, requester, header) for file in files)
        output_dir = _directory(options.pop("output_dir", None))
        return TaskRunner(self, inputs, topology, shapes, output_dir=output_dir, **options)


def _directory(given: str | Path | None) -> Path:
    return Path(given or tempfile.mkdtemp(prefix="fpga-pool-"))
