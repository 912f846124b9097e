"""Typed calls of the REST API."""

import os
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

from fpga_pool.client import filters as f
from fpga_pool.client.calls.bodies import gang_body, task_body
from fpga_pool.client.calls.plans import DryRuns
from fpga_pool.client.lane import Lanes
from fpga_pool.client.resources import next_page, read, read_all, segment
from fpga_pool.client.session import CREATE_PATIENCE_S, DEFAULT_ENDPOINT, ApiSession, Login, create
from fpga_pool.model.codec import to_plain
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.requests import (
    BatchDetail,
    FunctionInfo,
    GangDetail,
    JobList,
    PipelineDetail,
    Receipt,
    Service,
    SlotDetail,
    TaskDetail,
    Ticket,
    TicketRequest,
)
from fpga_pool.model.messages.usage import Usage
from fpga_pool.model.messages.work import JobRequest, ShareRequest, SubtaskRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import Batch, Host, Job, JobState, Slot
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.objects.tasks import Task, TaskShape
from fpga_pool.model.rest import date

#: Type of the listed objects.
Listed = TypeVar("Listed")

_PAGE = 1000
#: Parameters that are UTC seconds here and dates in the API.
_MOMENTS = ("since", "until", "start", "end")


class PoolApi(DryRuns):
    """The API of one pool for one project; thread-safe."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        login: Login | None = None,
        project_id: str = "demo",
        user_id: str = "demo",
        timeout_s: float = 30.0,
        connect_retries: int = 2,
        cacert: str | None = None,
    ) -> None:
        """Use the given endpoint, by default the one in the catalogue of the `login`.

        Without a login the default is the variable FPGA_POOL_ENDPOINT, as for `fpga-pool`, or else DEFAULT_ENDPOINT.

        `cacert` is a file of the authorities that may have signed the endpoint's certificate; a login has its own.
        """
        self._hosts: Mapping[str, Host] = {}
        self.lanes = Lanes()
        if login is None:
            endpoint = endpoint or os.environ.get("FPGA_POOL_ENDPOINT") or DEFAULT_ENDPOINT
        self._http = ApiSession(
            endpoint, project_id, user_id,
            login=login, timeout_s=timeout_s, connect_retries=connect_retries, cacert=cacert,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the API and to hosts."""
        self.lanes.close()
        self._http.close()

    # Batches

    def create_batch(
        self,
        jobs: Sequence[JobRequest],
        *,
        name: str = "",
        uuid: str | None = None,
        patience_s: float = CREATE_PATIENCE_S,
        **options: Unpack[f.BatchOptions],
    ) -> Batch:
        """Create a batch; if an answer is lost, the batch is recognised by its uuid.

        If the pool does not answer, or has no room, the call is repeated for `patience_s`; then ServiceUnavailable is
        raised.
        """
        uuid = uuid or str(uuid4())
        body = {"uuid": uuid, "name": name, "jobs": to_plain(jobs), **f.as_body(options)}
        return create(self._http, Batch, "batch", body, lambda: self.batch(uuid), patience_s)

    def begin_batch(
        self,
        jobs: Sequence[JobRequest],
        *,
        wait_s: float,
        name: str = "",
        uuid: str | None = None,
        patience_s: float = CREATE_PATIENCE_S,
        **options: Unpack[f.BatchOptions],
    ) -> JobList:
        """Create a batch as `create_batch`, wait up to `wait_s` for jobs to be placed, and return the placed jobs.

        The answer includes the batch, and tickets for small inputs.
        """
        uuid = uuid or str(uuid4())
        body = {"uuid": uuid, "name": name, "jobs": to_plain(jobs), **f.as_body(options)}

        def find() -> JobList:
            return self.job_list(uuid, with_batch=True)

        return create(self._http, JobList, "", body, find, patience_s, params={"wait_s": wait_s})

    def batches(self, limit: int | None = None, **filters: Unpack[f.BatchFilters]) -> list[Batch]:
        """Return the project's batches (`limit` of them, those that match the filters), newest first."""
        return self._list(Batch, "batches", limit, filters)

    def job(self, uuid: str, project_id: str | None = None) -> Job:
        """Return one job, with its history."""
        return read(Job, self._one("GET", "jobs", uuid, project_id), "job")

    def events(
        self, nouns: str, name: str, limit: int | None = None, **filters: Unpack[f.EventFilters]
    ) -> list[HistoryEntry]:
        """Return the events of one object of `nouns` ("batches", "hosts", ...) by uuid or host name, newest first."""
        return self._list(HistoryEntry, "events", limit, filters, f"{segment(nouns)}/{segment(name)}/events")

    def _list(
        self, kind: type[Listed], name: str, limit: int | None, filters: Mapping[str, Any], path: str = ""
    ) -> list[Listed]:
        """Return a list of objects, requested page by page."""
        found: list[Listed] = []
        given = {key: value for key, value in filters.items() if value is not None}
        params = {key: date(value) if key in _MOMENTS else value for key, value in given.items()}
        while limit is None or len(found) < limit:
            params["limit"] = _PAGE if limit is None else min(limit - len(found), _PAGE)
            answer = self._http.call("GET", f"/v1/{path or name}", params=params)
            found += read_all(kind, answer, name)
            if not (page := next_page(answer)):
                break
            params |= page
        return found

    def _one(self, method: str, nouns: str, uuid: str, project_id: str | None) -> dict[str, Any]:
        """Request one object of the caller's project or, for admins, of another one ("all": of any)."""
        params = {} if project_id is None else {"project_id": project_id}
        return self._http.call(method, f"/v1/{nouns}/{segment(uuid)}", params=params)

    def batch(self, uuid: str) -> Batch:
        """Return one batch, with its history."""
        return self.batch_detail(uuid).batch

    def batch_detail(self, uuid: str, project_id: str | None = None) -> BatchDetail:
        """Return one batch, with its current status."""
        return read(BatchDetail, self._one("GET", "batches", uuid, project_id), "batch")

    def jobs(self, uuid: str, states: Sequence[JobState] = (), project_id: str | None = None) -> list[Job]:
        """Return the jobs of a batch (in some states), by index."""
        return list(self.job_list(uuid, states, project_id=project_id).jobs)

    def job_list(
        self,
        uuid: str,
        states: Sequence[JobState] = (),
        *,
        changed_after: str | None = None,
        wait_s: float = 0.0,
        with_batch: bool = False,
        project_id: str | None = None,
    ) -> JobList:
        """Return the jobs of a batch together with the time in the pool, and with the batch if `with_batch`.

        With `changed_after` ("" or the `seen` of an earlier answer), only jobs that have changed since are returned; if
        there are none, the answer waits for a change, for up to `wait_s`.
        """
        params: dict[str, object] = {"state": [str(state) for state in states]}
        params |= {"batch": "true"} if with_batch else {}
        params |= {} if project_id is None else {"project_id": project_id}
        params |= {} if changed_after is None else {"changed_after": changed_after, "wait_s": wait_s}
        return read(JobList, self._http.call("GET", f"/v1/batches/{segment(uuid)}/jobs", params=params))

    def cancel(self, uuid: str, project_id: str | None = None) -> Batch:
        """Request the cancellation of a batch; jobs that are complete are kept."""
        return read(Batch, self._one("DELETE", "batches", uuid, project_id), "batch")

    def change_batch(self, uuid: str, **changes: Unpack[f.BatchChanges]) -> Batch:
        """Change a batch, or a pipeline: hold it back, or release it; change its priority."""
        return read(Batch, self._http.call("PATCH", f"/v1/batches/{segment(uuid)}", body=changes), "batch")

    def tickets(self, uuid: str, requests: Sequence[TicketRequest]) -> list[Ticket]:
        """Return tickets to transfer the bytes of jobs; each ticket is valid for one stream."""
        path = f"/v1/batches/{segment(uuid)}/tickets"
        answer = self._http.call("POST", path, body={"tickets": to_plain(requests)}, secret=True)
        return read_all(Ticket, answer, "tickets")

    def confirm(self, uuid: str, receipts: Sequence[Receipt]) -> Batch:
        """Confirm that results of a batch were received, so that the pool no longer holds them; may be repeated."""
        path = f"/v1/batches/{segment(uuid)}/receipts"
        return read(Batch, self._http.call("POST", path, body={"receipts": to_plain(receipts)}), "batch")

    # Gangs

    def create_gang(
        self,
        processes: int,
        runtime_s: float,
        cpu_usage: float,
        *,
        name: str = "",
        work_s: float | None = None,
        image: str = "",
        command: str = "",
        uuid: str | None = None,
    ) -> Gang:
        """Queue a gang; if an answer is lost, the gang is recognised by its uuid.

        `image` is the name of its guests' image, "" = the default of their hosts; `command` is passed to the image.
        """
        uuid = uuid or str(uuid4())
        body = {"uuid": uuid, "name": name} | gang_body(processes, runtime_s, cpu_usage, work_s, image, command)
        return create(self._http, Gang, "gang", body, lambda: self.gang(uuid).gang, CREATE_PATIENCE_S)

    def gangs(self, limit: int | None = 100, **filters: Unpack[f.NamedWorkFilters]) -> list[Gang]:
        """Return the newest gangs of the project, newest first."""
        return self._list(Gang, "gangs", limit, filters)

    def gang(self, uuid: str, project_id: str | None = None) -> GangDetail:
        """Return one gang, with its current status."""
        return read(GangDetail, self._one("GET", "gangs", uuid, project_id), "gang")

    def cancel_gang(self, uuid: str, project_id: str | None = None) -> Gang:
        """Request the cancellation of a gang."""
        return read(Gang, self._one("DELETE", "gangs", uuid, project_id), "gang")

    # Pipelines

    def create_pipeline(
        self,
        subtasks: Sequence[SubtaskRequest],
        *,
        name: str = "",
        uuid: str | None = None,
        patience_s: float = CREATE_PATIENCE_S,
    ) -> Batch:
        """Queue a pipeline; see `create_batch`."""
        uuid = uuid or str(uuid4())
        body = {"uuid": uuid, "name": name, "subtasks": to_plain(subtasks)}
        return create(self._http, Batch, "pipeline", body, lambda: self.pipeline(uuid).pipeline, patience_s)

    def pipelines(self, limit: int | None = 100, **filters: Unpack[f.BatchFilters]) -> list[Batch]:
        """Return the newest pipelines of the project, newest first."""
        return self._list(Batch, "pipelines", limit, filters)

    def pipeline(self, uuid: str, project_id: str | None = None) -> PipelineDetail:
        """Return one pipeline, with its subtasks; these are jobs of the batch with its uuid."""
        return read(PipelineDetail, self._one("GET", "pipelines", uuid, project_id), "pipeline")

    def cancel_pipeline(self, uuid: str, project_id: str | None = None) -> Batch:
        """Request the cancellation of a pipeline; subtasks that have ended stay as they are."""
        return read(Batch, self._one("DELETE", "pipelines", uuid, project_id), "pipeline")

    # Tasks

    def create_task(
        self,
        function: str,
        shares: Sequence[ShareRequest],
        *,
        topology: Topology = Topology.ANY,
        shapes: Sequence[TaskShape] = (),
        name: str = "",
        uuid: str | None = None,
        patience_s: float = CREATE_PATIENCE_S,
    ) -> Task:
        """Queue a task; see `create_batch`.

        It gets one slot per share, or the number of slots of one of its `shapes`.
        """
        uuid = uuid or str(uuid4())
        body = {"uuid": uuid, "name": name} | task_body(function, shares, topology, shapes)
        return create(self._http, Task, "task", body, lambda: self.task(uuid).task, patience_s)

    def tasks(self, limit: int | None = 100, **filters: Unpack[f.TaskFilters]) -> list[Task]:
        """Return the newest tasks of the project, newest first."""
        return self._list(Task, "tasks", limit, filters)

    def task(self, uuid: str, project_id: str | None = None) -> TaskDetail:
        """Return one task, with its current status; its shares are jobs of the batch with its uuid."""
        return read(TaskDetail, self._one("GET", "tasks", uuid, project_id), "task")

    def cancel_task(self, uuid: str, project_id: str | None = None) -> Task:
        """Request the cancellation of a task; shares that are complete are kept."""
        return read(Task, self._one("DELETE", "tasks", uuid, project_id), "task")

    # Quotas

    def quota(self, project_id: str | None = None) -> Quota:
        """Return the quota of a project, and its use; None = the caller's project."""
        path = "/v1/quotas" if project_id is None else f"/v1/quotas/{segment(project_id)}"
        return read(Quota, self._http.call("GET", path), "quota")

    def set_quota(self, project_id: str, limits: QuotaLimits) -> Quota:
        """Change limits of a project; those that are None stay as they are."""
        return read(Quota, self._http.call("PUT", f"/v1/quotas/{segment(project_id)}", body=to_plain(limits)), "quota")

    def unset_quota(self, project_id: str) -> Quota:
        """Reset a project to the default limits."""
        return read(Quota, self._http.call("DELETE", f"/v1/quotas/{segment(project_id)}"), "quota")

    def usage(self, limit: int | None = None, **filters: Unpack[f.UsageFilters]) -> list[Usage]:
        """Return what a project has used in a period, by function."""
        return self._list(Usage, "usage", limit, filters)

    # The pool

    def slots(self, limit: int | None = None, **filters: Unpack[f.SlotFilters]) -> list[Slot]:
        """Return all slots (those that match the filters), by name."""
        return self._list(Slot, "slots", limit, filters)

    def slot(self, uuid: str) -> SlotDetail:
        """Return one slot, with its history and what holds it."""
        return read(SlotDetail, self._http.call("GET", f"/v1/slots/{segment(uuid)}"), "slot")

    def drain(self, uuid: str, reason: str = "") -> Slot:
        """Take a slot out of service; this is complete when its state is DRAINED."""
        return self._change_slot(uuid, {"drain": True, "reason": reason})

    def resume(self, uuid: str) -> Slot:
        """Put a slot back into service."""
        return self._change_slot(uuid, {"drain": False})

    def _change_slot(self, uuid: str, change: dict[str, object]) -> Slot:
        return read(Slot, self._http.call("PATCH", f"/v1/slots/{segment(uuid)}", body=change), "slot")

    def hosts(self, limit: int | None = None, **filters: Unpack[f.HostFilters]) -> list[Host]:
        """Return all hosts (those that match the filters), by name."""
        return self._list(Host, "hosts", limit, filters)

    def host(self, name: str) -> Host:
        """Return one host, with its history."""
        return read(Host, self._http.call("GET", f"/v1/hosts/{segment(name)}"), "host")

    def known_hosts(self, names: Collection[str]) -> Mapping[str, Host]:
        """Return hosts by name as listed last, or listed again if one of `names` is missing; addresses may be old."""
        if not self._hosts.keys() >= set(names):
            self._hosts = {host.name: host for host in self.hosts()}
        return self._hosts

    def forget_hosts(self) -> None:
        """Discard the known hosts, so that they are listed again when needed, as after a failed connection."""
        self._hosts = {}

    def services(self, limit: int | None = None, **filters: Unpack[f.NameFilters]) -> list[Service]:
        """Return the agents, API processes and schedulers of the pool, by kind and name."""
        return self._list(Service, "services", limit, filters)

    def functions(self, limit: int | None = None, **filters: Unpack[f.NameFilters]) -> list[FunctionInfo]:
        """Return the functions of the current catalogue, by name."""
        return self._list(FunctionInfo, "functions", limit, filters)
