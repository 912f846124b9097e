"""The common part of the admission of batches, tasks, gangs and pipelines: requesters and quotas among it."""

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

#: What is stored as a job.
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
    """Return a batch and its jobs as they are stored; each job belongs to its own of `shards`."""
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
    """Raise InvalidInput, or a subclass, unless a slot of the pool can hold a function; messages say `where` it is."""
    if name not in catalogue.functions:
        if is_design(name):
            raise UnknownFunction(f"{where}: {not_to_be_had(name)}")
        raise UnknownFunction(f"{where}: {name!r} is not in the catalogue; known: {some(catalogue.functions)}")
    # Without a time model a function can be simulated, not planned.
    boards = catalogue.functions[name].fpga_time
    if not any(slot.board in boards and catalogue.fits(name, slot.board, slot.kind) for slot in slots):
        kinds, on = ", ".join(catalogue.functions[name].slot_kinds), some(boards)
        raise NoSlotFits(
            f"{where}: no slot of the pool can hold {name} (it requires a slot of kind {kinds} on board {on})"
        )


def some(names: Iterable[str]) -> str:
    """Return some of the names there are, for a message."""
    return first(sorted(names)) or "none"


def first(names: Sequence[str], between: str = ", ") -> str:
    """Return the first of some names, for a message."""
    return between.join([*names[:20], "..."] if len(names) > 20 else names)


def emptiest(shards: Iterable[str], load: Mapping[str, float], size: Mapping[str, int]) -> str:
    """Return the shard with the least load for its size; ValueError if there are none."""
    return min(shards, key=lambda shard: (load.get(shard, 0) / size[shard], shard))


def owned(found: OwnedT, project_id: str | None, kind: str) -> OwnedT:
    """Return an object of this project (None: of any); another project's looks as if it did not exist."""
    if project_id not in (None, found.project_id):
        raise NotFound(f"no {kind} {found.uuid}")
    return found


# ---- Requesters: hosts, and the servers of Nova that hosts report


class _Sent(Protocol):
    @property
    def requester(self) -> str: ...


def note_servers(tx: Transaction, heartbeat: Heartbeat) -> None:
    """Store what a host says of its servers; those that it does not name have left it."""
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
    """Return the servers that run among the requesters of jobs, as jobs name them."""
    wanted = {uuid for job in jobs if (uuid := server_of(job.requester))}
    found = tx.servers(uuids=wanted) if wanted else ()
    # Of one that moves between hosts, where it is held.
    return {server.requester: server for server in sorted(found, key=attrgetter("held"))}


def known_requesters(tx: Transaction, hosts: Sequence[Host], jobs: Iterable[_Sent], project_id: str) -> set[str]:
    """Return what jobs of a project may name as their requesters: all hosts, and servers of the project."""
    servers = servers_among(tx, jobs).items()
    return {host.name for host in hosts} | {name for name, server in servers if server.project_id == project_id}


def sending_host(tx: Transaction, job: _Sent) -> str:
    """Return the host by which the input of a job leaves; "" = its server runs nowhere."""
    if not server_of(job.requester):
        return job.requester
    return next((server.host for server in servers_among(tx, [job]).values()), "")


def can_hold(tx: Transaction, job: _Sent) -> bool:
    """Return whether the flow of a job's requester can be held to its plan where it leaves."""
    if not server_of(job.requester):
        return bool(tx.host(job.requester).egress_driver)
    return any(server.held for server in servers_among(tx, [job]).values())


# ---- Quotas: whether a project may have more of the pool


def check_quota(project_id: str, limits: QuotaLimits, used: Amounts, requested: Amounts) -> None:
    """Raise QuotaExceeded, naming each resource of which a project would have more than its limit."""
    exceeded = [
        f"{resource}: {requested[resource]} requested, {used[resource]} of {limits.of(resource)} used"
        for resource in limits.exceeded(used, requested)
    ]
    if exceeded:
        raise QuotaExceeded(f"the quota of project {project_id} does not allow it: {'; '.join(exceeded)}")


def quota_of(project_id: str, limits: ProjectLimits, used: Amounts) -> Quota:
    """Return the limits in force for a project, and what it uses of them."""
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
    """Tickets that have not expired, by project; used under its caller's lock.

    The time of expiry must not decrease from one call of `add` to the next.
    """

    def __init__(self) -> None:
        #: Tickets that expire together: when, whose and how many; the next to expire first.
        self._given: deque[tuple[float, str, int]] = deque()
        self._of: Counter[str] = Counter()

    def of(self, project_id: str, now_s: float) -> int:
        """Return how many a project has."""
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
