"""Expansion of a scenario: every piece of work with its arrival time and drawn values, and every host."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, Topology
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.work import (
    BatchRequest,
    GangRequest,
    JobRequest,
    PipelineRequest,
    ShareRequest,
    SubtaskRequest,
    TaskRequest,
)
from fpga_pool.model.objects.links import NOT_LINKED, SlotLinks, read_enclosures, wished_links
from fpga_pool.model.objects.pool import CPU, SlotState
from fpga_pool.model.rules.instance.explaining import explain_host
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.sim.gangs.trace import read_trace
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.scenario import tables
from fpga_pool.sim.scenario.tables import HostTable, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """A virtual machine to boot."""

    uuid: str
    project_id: str
    wanted: AcceleratorRequest
    #: Name of the host; empty = the best one.
    host: str
    #: Lifetime in seconds; None = to the end of the run.
    stays_s: float | None


Request = BatchRequest | PipelineRequest | TaskRequest | GangRequest | InstanceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A piece of work, and its deviations from the plan."""

    at_s: float
    #: Its position in the file, and the name of its group.
    place: str
    group: str
    request: Request
    #: By job: the ratio of actual to estimated computation time, and by how much later than planned its client sends.
    takes: Mapping[str, float] = field(default_factory=dict)
    late_s: Mapping[str, float] = field(default_factory=dict)
    #: Its name comes from a file of gangs, not from the scenario.
    is_of_file: bool = False


def arrivals(scenario: Scenario, seed: int) -> list[Arrival]:
    """Return all arrivals by time; those at the same time are in the order of the file.

    Each group draws from its own random generator, so a change of one group does not affect the others.  Raises
    InvalidInput if a file of gangs cannot be read, or a gang of a file has the name of other work.
    """
    found = [arrival for group in scenario.groups for arrival in _of_group(scenario, group, seed)]
    first: dict[str, str] = {}
    for group in scenario.groups:
        of_file = isinstance(group, tables.GangGroup) and group.swf
        first |= dict.fromkeys((group.name, *(() if of_file else group.names)), group.place)
    for arrival in found:
        name = arrival.request.uuid
        if arrival.is_of_file and name in first:
            raise InvalidInput(f"{scenario.path}: {arrival.place}: name: {name!r} is also used by {first[name]}")
        first[name] = arrival.place
    return _following(scenario, sorted(found, key=lambda arrival: arrival.at_s))


def _following(scenario: Scenario, found: Sequence[Arrival]) -> list[Arrival]:
    """Return the arrivals with groups in `after` replaced by their batches.

    Raises InvalidInput if a batch in `after` does not arrive earlier, or belongs to another project.
    """
    pieces = {group.name: group.names for group in scenario.batches}
    there: dict[str, str] = {}
    following: list[Arrival] = []
    for arrival in found:
        request = arrival.request
        if isinstance(request, BatchRequest):
            after = tuple(name for given in request.after for name in pieces.get(given, (given,)))
            for name in after:
                if there.get(name) != request.project_id:
                    raise InvalidInput(
                        f"{scenario.path}: {arrival.place}: after: no batch {name!r} of its project arrives before it"
                    )
            there[request.uuid] = request.project_id
            arrival = replace(arrival, request=changed(request, after=after))
        following.append(arrival)
    return following


def _of_group(scenario: Scenario, group: tables.Group, seed: int) -> Iterator[Arrival]:
    rng = np.random.default_rng([seed, zlib.crc32(group.name.encode())])
    if isinstance(group, tables.GangGroup) and group.swf:
        yield from _swf_gangs(scenario, group)
        return
    for name, at_s in zip(group.names, _times(group, rng), strict=True):
        drawn = _Draw(name, rng)
        request = _request(group, name, scenario, drawn)
        if isinstance(group, tables.BatchGroup) and group.deadline_s is not None:
            request = changed(request, deadline_at=at_s + group.deadline_s)
        yield Arrival(
            at_s=at_s, place=group.place, group=group.name, request=request, takes=drawn.takes, late_s=drawn.late_s
        )


def _times(group: tables.Group, rng: np.random.Generator) -> list[float]:
    """Return the arrival time of each piece of work of a group."""
    if group.rate_per_s is not None:
        gaps: list[float] = rng.exponential(1.0 / group.rate_per_s, group.count).cumsum().tolist()
        return [group.arrives_s + gap_s for gap_s in gaps]
    return [group.arrives_s + number * (group.every_s or 0.0) for number in range(group.count)]


class _Draw:
    """Draws the random values of one piece of work, job by job."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self._name, self._rng = name, rng
        self.takes: dict[str, float] = {}
        self.late_s: dict[str, float] = {}

    def job(self, said: tables.Inputs, function: str = "") -> JobRequest:
        """Return the next job, with drawn values."""
        number = len(self.takes)
        uuid = f"{self._name}.{number}"
        self.takes[uuid] = said.takes.draw(self._rng)
        self.late_s[uuid] = said.late_s.draw(self._rng)
        return JobRequest(
            uuid=uuid,
            name=uuid,
            function=function or self.function(said),
            requester=said.requester[number % len(said.requester)],
            input_bytes=said.input_bytes.draw_whole(self._rng),
        )

    def subtask(self, said: tables.SubtaskTable) -> SubtaskRequest:
        """Return a subtask of a pipeline, with drawn values."""
        uuid = f"{self._name}.{said.name}"
        self.takes[uuid] = said.takes.draw(self._rng)
        self.late_s[uuid] = said.late_s.draw(self._rng)
        return SubtaskRequest(
            uuid=uuid,
            name=said.name,
            function=said.function,
            after=said.after,
            requester=said.requester,
            input_bytes=0 if said.input_bytes is None else said.input_bytes.draw_whole(self._rng),
        )

    def function(self, said: tables.Inputs) -> str:
        """Draw a function according to the weights of the mix."""
        names, weights = list(said.function), np.array(list(said.function.values()))
        return names[0] if len(names) == 1 else names[int(self._rng.choice(len(names), p=weights / weights.sum()))]


def _request(group: tables.Group, name: str, scenario: Scenario, drawn: _Draw) -> Request:
    rng = drawn._rng  # noqa: SLF001  # the generator of the group
    who: dict[str, Any] = {"uuid": name, "project_id": group.project, "user_id": group.project, "name": name}
    if isinstance(group, tables.BatchGroup):
        jobs = tuple(changed(drawn.job(part), group=part.group) for part in group.parts for _ in range(part.count))
        policy = group.policy or scenario.scheduler.default_policy
        options = {name: getattr(group, name) for name in ("held", "priority", "after")}
        return BatchRequest(**who, policy=policy, **options, jobs=jobs)
    if isinstance(group, tables.OnlineGroup):
        return BatchRequest(**who, policy=scenario.scheduler.online_policy, jobs=(drawn.job(group),))
    if isinstance(group, tables.PipelineGroup):
        return PipelineRequest(**who, subtasks=tuple(drawn.subtask(part) for part in group.parts))
    if isinstance(group, tables.TaskGroup):
        function = drawn.function(group)
        jobs = tuple(drawn.job(group, function) for _ in range(group.slots.draw_whole(rng)))
        shares = tuple(
            ShareRequest(uuid=job.uuid, name=job.name, requester=job.requester, input_bytes=job.input_bytes)
            for job in jobs
        )
        return TaskRequest(
            **who, function=function, topology=Topology(group.topology), shares=shares, shapes=group.shapes
        )
    if isinstance(group, tables.GangGroup):
        if group.processes is None or group.runtime_s is None:
            raise AssertionError(group.place)  # checked as it was read
        runtime_s = group.runtime_s.draw(rng)
        return GangRequest(
            **who,
            processes=group.processes.draw_whole(rng),
            runtime_s=runtime_s,
            cpu_usage=group.cpu_usage,
            work_s=group.takes.draw(rng) * runtime_s,
        )
    assert isinstance(group, tables.InstanceGroup)  # noqa: S101  # there are no others
    wanted = AcceleratorRequest(function=group.function, count=group.slots, topology=Topology(group.topology))
    stays_s = None if group.stays_s is None else group.stays_s.draw(rng)
    return InstanceRequest(uuid=name, project_id=group.project, wanted=wanted, host=group.host, stays_s=stays_s)


def _swf_gangs(scenario: Scenario, group: tables.GangGroup) -> Iterator[Arrival]:
    """Yield the gangs of a file that fit into the pool's processors; the first one arrives at the group's time."""
    processors = sum(host.count * host.gang_processors for host in scenario.hosts)
    trace, _ = read_trace(Path(scenario.path).parent / group.swf, processors)
    count = len(trace.job) if group.most is None else group.most
    for number in range(min(count, len(trace.job))):
        name = f"{group.name}-{trace.job[number]}"
        user = group.project if trace.user[number] < 0 else f"user-{trace.user[number]}"
        request = GangRequest(
            uuid=name,
            project_id=user,
            user_id=user,
            name=name,
            processes=int(trace.width[number]),
            runtime_s=float(trace.estimate_s[number]),
            cpu_usage=group.cpu_usage,
            work_s=float(trace.run_s[number]),
        )
        at_s = group.arrives_s + float(trace.submit_s[number] - trace.submit_s[0])
        yield Arrival(at_s=at_s, place=group.place, group=group.name, request=request, is_of_file=True)


# ---- Hosts as their agents report them, and the choice of a host for an instance as in Nova


def simulated_hosts(scenario: Scenario, catalogue: Catalogue) -> list[SimulatedHost]:
    """Return all hosts; raises InvalidInput, which names the table, if its enclosures are invalid."""
    hosts = []
    for table in scenario.hosts:
        try:
            hosts += [_host(table, name, catalogue) for name in table.names]
        except InvalidInput as error:
            raise InvalidInput(f"hosts.{table.name}: enclosures: {error}") from None
    return hosts


def _host(table: HostTable, name: str, catalogue: Catalogue) -> SimulatedHost:
    workers = (
        ObservedSlot(
            slot=f"{name}/{CPU}/worker{number}", card=CPU, region=f"worker{number}", board=CPU, kind=CPU,
            state=SlotState.EMPTY,
        )
        for number in range(table.cpu_workers)
    )  # fmt: skip
    return SimulatedHost(
        name=name,
        egress_bps=table.egress_mbps * 1e6,
        ingress_bps=table.ingress_mbps * 1e6,
        slots=(*_slots(table, name, catalogue), *workers),
        gang_processors=table.gang_processors,
    )


def _slots(table: HostTable, name: str, catalogue: Catalogue) -> Iterator[ObservedSlot]:
    if not table.board:
        return
    cards = [f"sim{number}" for number in range(table.cards)]
    all_linked = [f"box {table.links} {','.join(cards)}"] if table.cards > 1 and table.links != NOT_LINKED else []
    links = read_enclosures(table.enclosures or all_linked, table.slot_links, cards)
    kinds = catalogue.board(table.board).slots
    for card in cards:
        for number, kind in enumerate(kinds):
            yield ObservedSlot(
                slot=f"{name}/{card}/slot{number}",
                card=card,
                region=f"slot{number}",
                board=table.board,
                kind=kind,
                state=SlotState.EMPTY,
                links=str(SlotLinks(card=links[card], slots=len(kinds), position=number)),
            )


def pool_columns(tx: Transaction) -> PoolColumns:
    """Return the pool view that is used to choose a host for an instance."""
    hosts = tx.hosts()
    held = {lease.slot: lease for lease in tx.leases()}
    slots = []
    for slot in tx.slots():
        lease = held.get(slot.name)
        slots.append(
            (
                slot.host, slot.shard, slot.name.partition("/")[2], slot.card, slot.board, slot.kind, slot.links,
                str(slot.state), slot.function, str(lease.kind) if lease else "", lease.holder if lease else "",
                lease.revocable if lease else False, slot.drain_requested, 0,
            )
        )  # fmt: skip
    rows = [(host.name, host.shard, host.availability_zone, host.alive, 0) for host in hosts]
    return PoolColumns.of({tx.shard.name: 0}, rows, slots, (len(rows), len(slots)))


def explanations(pool: PoolColumns, catalogue: Catalogue, wanted: AcceleratorRequest, stay_s: float) -> dict[str, str]:
    """Return by host why it cannot take an instance now, with slots on any of its cards; empty if it can."""
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s)
    links, why = wished_links(wanted), {}
    for word in pool.hosts["name"].tolist():
        passes, reason = explain_host(fitting, pool.words[word], wanted.count, together=False, links=links)
        why[pool.words[word]] = "" if passes else reason
    return why


def hosts_by_cost(pool: PoolColumns, catalogue: Catalogue, wanted: AcceleratorRequest, stay_s: float) -> list[str]:
    """Return the hosts that can take an instance now, by what their cheapest slots cost the pool, then by name."""
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s)
    able = [host for host, reason in explanations(pool, catalogue, wanted, stay_s).items() if not reason]
    names = [pool.words[word] for word in pool.hosts["name"].tolist()]

    def cost(host: str) -> float:
        of_host = np.flatnonzero(fitting.had & (pool.slot_host == names.index(host)))
        return float(np.sort(fitting.cost[of_host])[: wanted.count].sum())

    return sorted(able, key=lambda host: (cost(host), host))
