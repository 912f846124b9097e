"""Common parts of the admission of batches, tasks, gangs and pipelines, including requesters and quotas."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from fpga_pool.model.catalogue import Catalogue, not_to_be_had
from fpga_pool.model.exceptions import (
    InvalidInput,
    NoSlotFits,
    NotFound,
    QuotaExceeded,
    UnknownFunction,
    UnknownRequester,
)
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.messages.work import JobRequest, SubtaskRequest, WorkRequest
from fpga_pool.model.objects.bitstreams import is_design
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.hosts import Server, server_of
from fpga_pool.model.objects.pool import Batch, BatchState, Host, Job, Slot
from fpga_pool.model.objects.quotas import (
    UNLIMITED,
    Amounts,
    ProjectLimits,
    Quota,
    QuotaLimits,
    Resource,
    ResourceQuota,
)
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed, shared

#: The requests that are stored as jobs.
RequestedJob = JobRequest | SubtaskRequest


class _Owned(Protocol):
    @property
    def uuid(self) -> str: ...
    @property
    def project_id(self) -> str: ...


OwnedT = TypeVar("OwnedT", bound=_Owned)


def as_stored(
    request: WorkRequest, policy: str, requested: Sequence[RequestedJob], shards: Sequence[str], now_s: float
) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs as they are stored; `shards` has the shard of each job."""
    batch = Batch(
        uuid=request.uuid,
        project_id=request.project_id,
        user_id=request.user_id,
        name=request.name,
        policy=policy,
        created_at=now_s,
        jobs=len(requested),
        input_bytes=sum(job.input_bytes for job in requested),
        history=created(now_s, BatchState.PENDING),
    )
    jobs = [
        Job(
            **shared(job, Job),
            batch_uuid=batch.uuid,
            project_id=batch.project_id,
            user_id=batch.user_id,
            index=index,
            created_at=now_s,
            shard=shard,
        )
        for index, (job, shard) in enumerate(zip(requested, shards, strict=True))
    ]
    return batch, jobs


def check_input(job: RequestedJob, where: str, requesters: Iterable[str], settings: PoolSettings) -> None:
    """Raise InvalidInput, or a subclass, if the input of a job is too large, or its requester is not in the pool."""
    if not 0 <= job.input_bytes <= settings.max_input_bytes:
        raise InvalidInput(f"{where}.input_bytes: {job.input_bytes} is not between 0 and {settings.max_input_bytes}")
    if job.requester not in requesters:
        if uuid := server_of(job.requester):
            raise UnknownRequester(f"{where}.requester: no server {uuid} of this project runs on a host of the pool")
        raise UnknownRequester(f"{where}.requester: no host {job.requester!r} in the pool; known: {some(requesters)}")


def check_function(name: str, where: str, catalogue: Catalogue, slots: Sequence[Slot]) -> None:
    """Raise InvalidInput, or a subclass, unless a slot of the pool can hold a function; `where` names its field."""
    if name not in catalogue.functions:
        if is_design(name):
            raise UnknownFunction(f"{where}: {not_to_be_had(name)}")
        raise UnknownFunction(f"{where}: {name!r} is not in the catalogue; known: {some(catalogue.functions)}")
    # A function without a time model can be simulated, but not planned.
    boards = catalogue.functions[name].fpga_time
    if not any(slot.board in boards and catalogue.fits(name, slot.board, slot.kind) for slot in slots):
        kinds, on = ", ".join(catalogue.functions[name].slot_kinds), some(boards)
        raise NoSlotFits(
            f"{where}: no slot of the pool can hold {name} (it requires a slot of kind {kinds} on board {on})"
        )


def some(names: Iterable[str]) -> str:
    """Return the first names in alphabetical order, for a message; "none" if there are none."""
    return first(sorted(names)) or "none"


def first(names: Sequence[str], between: str = ", ") -> str:
    """Return at most 20 of the names, joined for a message."""
    return between.join([*names[:20], "..."] if len(names) > 20 else names)


def emptiest(shards: Iterable[str], load: Mapping[str, float], size: Mapping[str, int]) -> str:
    """Return the shard with the least load relative to its size. Raises ValueError if there are no shards."""
    return min(shards, key=lambda shard: (load.get(shard, 0) / size[shard], shard))


def owned(found: OwnedT, project_id: str | None, kind: str) -> OwnedT:
    """Return the object if it belongs to the project (None = any). Raises NotFound otherwise."""
    if project_id not in (None, found.project_id):
        raise NotFound(f"no {kind} {found.uuid}")
    return found


# ---- Requesters: hosts, and the servers of Nova that they report


class _Sent(Protocol):
    @property
    def requester(self) -> str: ...


def note_servers(tx: Transaction, heartbeat: Heartbeat) -> None:
    """Store the servers that a host reports, and remove those that it no longer reports."""
    if heartbeat.servers is None:
        return
    gone = {server.uuid: server for server in tx.servers(host=heartbeat.host)}
    for observed in heartbeat.servers:
        known = gone.pop(observed.uuid, None)
        facts = {name: getattr(observed, name) for name in ("uuid", "project_id", "egress_bps", "held")}
        if known is None:
            tx.add(Server(name=f"{heartbeat.host}/{observed.uuid}", host=heartbeat.host, **facts))
        elif changed(known, **facts) != known:
            tx.save(changed(known, **facts))
    if gone:
        tx.remove_servers([server.name for server in gone.values()])


def servers_among(tx: Transaction, jobs: Iterable[_Sent]) -> Mapping[str, Server]:
    """Return the running servers among the requesters of jobs, by the name of the requester."""
    wanted = {uuid for job in jobs if (uuid := server_of(job.requester))}
    found = tx.servers(uuids=wanted) if wanted else ()
    # Of a server that moves between two hosts, prefer the host that can limit its flows.
    return {server.requester: server for server in sorted(found, key=attrgetter("held"))}


def known_requesters(tx: Transaction, hosts: Sequence[Host], jobs: Iterable[_Sent], project_id: str) -> set[str]:
    """Return the names that jobs of a project may use as requester: all hosts, and the servers of the project."""
    servers = servers_among(tx, jobs).items()
    return {host.name for host in hosts} | {name for name, server in servers if server.project_id == project_id}


def sending_host(tx: Transaction, job: _Sent) -> str:
    """Return the host that sends the input of a job; "" = the job's server runs on no host."""
    if not server_of(job.requester):
        return job.requester
    return next((server.host for server in servers_among(tx, [job]).values()), "")


def can_hold(tx: Transaction, job: _Sent) -> bool:
    """Return whether the sending host can limit the input stream of a job to its planned rates."""
    if not server_of(job.requester):
        return bool(tx.host(job.requester).egress_driver)
    return any(server.held for server in servers_among(tx, [job]).values())


# ---- Quotas


def check_quota(project_id: str, limits: QuotaLimits, used: Amounts, requested: Amounts) -> None:
    """Raise QuotaExceeded, naming each resource of which a project would exceed its limit."""
    exceeded = [
        f"{resource}: {requested[resource]} requested, {used[resource]} of {limits.of(resource)} used"
        for resource in limits.exceeded(used, requested)
    ]
    if exceeded:
        raise QuotaExceeded(f"the quota of project {project_id} does not allow it: {'; '.join(exceeded)}")


def quota_of(project_id: str, limits: ProjectLimits, used: Amounts) -> Quota:
    """Return the limits in force for a project, and its usage."""
    in_force = limits.in_force
    return Quota(
        project_id=project_id,
        resources=tuple(
            ResourceQuota(
                resource=resource,
                limit=UNLIMITED if (limit := in_force.of(resource)) is None else limit,
                default=limits.own.of(resource) is None,
                used=used.get(resource),
            )
            for resource in Resource
        ),
    )


class ValidTickets:
    """Counts the tickets of each project that have not expired. The caller must hold a lock.

    The time of expiry must not decrease from one call of `add` to the next.
    """

    def __init__(self) -> None:
        #: Tickets that expire together: time of expiry, project and number; the next to expire first.
        self._given: deque[tuple[float, str, int]] = deque()
        self._of: Counter[str] = Counter()

    def of(self, project_id: str, now_s: float) -> int:
        """Return the number of valid tickets of a project."""
        while self._given and self._given[0][0] <= now_s:
            _, project, number = self._given.popleft()
            self._of[project] -= number
            if not self._of[project]:
                del self._of[project]
        return self._of[project_id]

    def add(self, project_id: str, number: int, expire_s: float) -> None:
        """Count tickets that expire together."""
        self._given.append((expire_s, project_id, number))
        self._of[project_id] += number
