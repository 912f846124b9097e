"""Reading of scenario files, which are checked completely before the simulation begins."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.scenario.arrivals import simulated_hosts
from fpga_pool.sim.scenario.tables import (
    AgentTable,
    BatchGroup,
    DelaysTable,
    EventTable,
    GangGroup,
    Group,
    HostTable,
    Inputs,
    InstanceGroup,
    JobsTable,
    OnlineGroup,
    PipelineGroup,
    PoolTable,
    Scenario,
    SchedulerTable,
    SubtaskTable,
    TaskGroup,
)
from fpga_pool.sim.scenario.values import (
    MOST_THINGS,
    NAME,
    naming,
    read_table,
    read_toml,
    read_value,
    require_known,
    shown,
)

GroupT = TypeVar("GroupT", bound=Group)

#: Prefix of the tables with parameters of policies.
_POLICY = "policy_"
#: Single tables, and lists of tables.
_TABLES: Mapping[str, Any] = {
    "pool": PoolTable, "scheduler": SchedulerTable, "agent": AgentTable, "delays": DelaysTable,
}  # fmt: skip
_LISTS: Mapping[str, Any] = {
    "batches": BatchGroup, "online": OnlineGroup, "pipelines": PipelineGroup, "tasks": TaskGroup, "gangs": GangGroup,
    "instances": InstanceGroup, "events": EventTable,
}  # fmt: skip
#: By kind of event: the kind of its target, and whether it has `delay_s` and `for_s`.
_EVENTS: Mapping[str, tuple[str, bool, bool]] = {
    "fail": ("slots", False, True),
    "drain": ("slots", False, True),
    "leave": ("host", False, True),
    "slow": ("host", True, True),
    "takeover": ("", False, True),
    "cancel": ("work", False, False),
    "hold": ("batch", False, False),
    "release": ("batch", False, False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Names of the installed policies, by family."""

    batch: Collection[str]
    online: Collection[str]
    gang: Collection[str]
    task: Collection[str]


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a TOML file; raises InvalidInput, which names file, table, key and expected value."""
    content = read_toml(path)
    with naming(path):
        return _scenario(path, content)


def check_scenario(scenario: Scenario, catalogue: Catalogue, policies: Policies) -> None:
    """Raise InvalidInput if the scenario refers to an unknown name, such as a board, host, function or policy."""
    with naming(scenario.path):
        _check_policies(scenario, policies)
        for host in scenario.hosts:
            if host.board:
                require_known(host.board, catalogue.boards, f"hosts.{host.name}: board", "board of the catalogue")
        hosts = scenario.host_names
        for group in scenario.groups:
            for place, work in _parts(group):
                if isinstance(work, Inputs):
                    for name in work.requester:
                        require_known(name, hosts, f"{place}: requester", "host")
                    for name in work.function:
                        require_known(name, catalogue.functions, f"{place}: function", "function of the catalogue")
            if isinstance(group, PipelineGroup):
                for index, part in enumerate(group.parts):
                    place = f"{group.place}: subtasks[{index}]"
                    require_known(part.function, catalogue.functions, f"{place}: function", "function of the catalogue")
                    if part.requester:
                        require_known(part.requester, hosts, f"{place}: requester", "host")
            if isinstance(group, InstanceGroup):
                require_known(
                    group.function, catalogue.functions, f"{group.place}: function", "function of the catalogue"
                )
                if group.host:
                    require_known(group.host, hosts, f"{group.place}: host", "host")
        _check_targets(scenario, catalogue)


def _scenario(path: Path, content: dict[str, Any]) -> Scenario:
    parameters = {name: content.pop(name) for name in list(content) if name.startswith(_POLICY)}
    for name in content:
        if name not in ("hosts", *_TABLES, *_LISTS):
            known = ", ".join(("format_version", *_TABLES, "hosts", *_LISTS, f"{_POLICY}NAME"))
            raise InvalidInput(f"{name}: unknown table; tables are {known}")
    tables: dict[str, Any] = {name: read_table(kind, content.get(name, {}), name) for name, kind in _TABLES.items()}
    lists = {name: tuple(_listed(name, kind, content.get(name, []))) for name, kind in _LISTS.items()}
    found = Scenario(
        path=str(path),
        policies={name.removeprefix(_POLICY): _parameters(name, values) for name, values in parameters.items()},
        hosts=_hosts(content.get("hosts")),
        **(tables | lists),
    )
    for group in found.groups:
        _refuse_too_many(group.place, "jobs, shares and processes", group.count * _size(group))
    _refuse_too_many("scenario", "pieces of work", sum(group.count for group in found.groups))
    _refuse_repeated((group.place, name) for group in found.groups for name in {group.name, *group.names})
    return found


def _parameters(name: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidInput(f"{name}: expected a table, found {shown(values)}")
    for parameter, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"{name}: {parameter}: expected a finite number, found {value!r}")
        if isinstance(value, int) and abs(value) > 2**63:
            raise InvalidInput(f"{name}: {parameter}: expected a whole number of 64 bits, found {shown(value)}")
    return values


def _hosts(content: Any) -> tuple[HostTable, ...]:
    if not isinstance(content, Mapping) or not content:
        raise InvalidInput("hosts: missing; expected a table [hosts.NAME] for each host, or kind of host")
    hosts = []
    for name, values in content.items():
        place = f"hosts.{name}"
        host = read_table(HostTable, values, place, name=read_value(NAME, name, "hosts: name of a table"))
        for given in ("cards", "links", "enclosures", "slot_links"):
            if not host.board and given in values:
                raise InvalidInput(f"{place}: {given}: has no effect without a board")
        hosts.append(host)
    _refuse_too_many("hosts", "hosts", sum(host.count for host in hosts))
    parts = (host.cpu_workers + host.gang_processors + (host.cards if host.board else 0) for host in hosts)
    what = "cards, CPU workers and gang processors"
    _refuse_too_many("hosts", what, sum(host.count * part for host, part in zip(hosts, parts, strict=True)))
    _refuse_repeated((f"hosts.{host.name}", name) for host in hosts for name in host.names)
    return tuple(hosts)


def _listed(name: str, kind: Any, content: Any) -> Iterable[Any]:
    if not isinstance(content, list):
        raise InvalidInput(f"{name}: expected a list of tables [[{name}]], found {shown(content)}")
    for number, values in enumerate(content):
        called = values.get("name") if isinstance(values, Mapping) else None
        place = f"{name}[{number}]" + (f" ({called})" if isinstance(called, str) else "")
        found = read_table(kind, values, place, place=place)
        if isinstance(found, Group):
            _check_arrivals(found)
        if isinstance(found, BatchGroup):
            parts = [read_table(JobsTable, part, f"{place}: jobs[{i}]") for i, part in enumerate(found.jobs)]
            found = replace(found, parts=tuple(parts))
        elif isinstance(found, PipelineGroup):
            subtasks = [
                read_table(SubtaskTable, part, f"{place}: subtasks[{i}]") for i, part in enumerate(found.subtasks)
            ]
            found = replace(found, parts=tuple(subtasks))
            _check_inputs(found)
        elif isinstance(found, GangGroup):
            _check_gangs(found, values)
        elif isinstance(found, EventTable):
            _check_event(found)
        yield found


def _check_arrivals(group: Group) -> None:
    if group.every_s is not None and group.rate_per_s is not None:
        raise InvalidInput(f"{group.place}: every_s: excludes rate_per_s")
    for name in ("every_s", "rate_per_s"):
        if group.count == 1 and getattr(group, name) is not None:
            raise InvalidInput(f"{group.place}: {name}: has no effect if count is 1")


def _check_inputs(group: PipelineGroup) -> None:
    for index, part in enumerate(group.parts):
        for name, given in (("requester", bool(part.requester)), ("input_bytes", part.input_bytes is not None)):
            if given is bool(part.after):
                problem = "excluded by after" if given else "missing; expected it or after"
                raise InvalidInput(f"{group.place}: subtasks[{index}]: {name}: {problem}")


def _check_gangs(group: GangGroup, values: Mapping[str, Any]) -> None:
    needed = ("processes", "runtime_s")
    for name in values:
        if group.swf and name in (*needed, "takes", "count", "every_s", "rate_per_s"):
            raise InvalidInput(f"{group.place}: {name}: excluded by swf, whose file contains it")
    if not group.swf:
        for name in needed:
            if getattr(group, name) is None:
                raise InvalidInput(f"{group.place}: {name}: missing; expected it or swf")
        if group.most is not None:
            raise InvalidInput(f"{group.place}: most: has no effect without swf")


def _check_event(event: EventTable) -> None:
    target, delayed, lasts = _EVENTS[event.kind]
    if bool(target) != bool(event.target):
        problem = f"missing; expected the name of {target}" if target else f"not allowed for a {event.kind}"
        raise InvalidInput(f"{event.place}: target: {problem}")
    if delayed != (event.delay_s is not None):
        problem = "missing; expected seconds" if delayed else f"has no effect on a {event.kind}"
        raise InvalidInput(f"{event.place}: delay_s: {problem}")
    if not lasts and event.for_s is not None:
        raise InvalidInput(f"{event.place}: for_s: not allowed, as a {event.kind} is permanent")


def _size(group: Group) -> int:
    """Return the largest number of jobs, shares or processes of a piece of work."""
    if isinstance(group, BatchGroup):
        return sum(part.count for part in group.parts)
    if isinstance(group, PipelineGroup):
        return len(group.parts)
    if isinstance(group, TaskGroup):
        return int(group.slots.high)
    return int(group.processes.high) if isinstance(group, GangGroup) and group.processes else 1


def _refuse_too_many(place: str, what: str, count: int) -> None:
    if count > MOST_THINGS:
        raise InvalidInput(f"{place}: expected {MOST_THINGS} {what} at most, found {count}")


def _refuse_repeated(names: Iterable[tuple[str, str]]) -> None:
    first: dict[str, str] = {}
    for place, name in names:
        if name in first:
            raise InvalidInput(f"{place}: name: {name!r} is also used by {first[name]}")
        first[name] = place


def _parts(group: Group) -> Iterable[tuple[str, object]]:
    """Yield the tables that describe inputs, each with its position in the file."""
    if isinstance(group, BatchGroup):
        yield from ((f"{group.place}: jobs[{i}]", part) for i, part in enumerate(group.parts))
    else:
        yield group.place, group


def _check_policies(scenario: Scenario, policies: Policies) -> None:
    chosen = scenario.scheduler
    require_known(chosen.online_policy, policies.online, "scheduler: online_policy", "online policy")
    require_known(chosen.gang_policy, policies.gang, "scheduler: gang_policy", "gang policy")
    require_known(chosen.task_policy, policies.task, "scheduler: task_policy", "task policy")
    for_batches = {*policies.batch, chosen.online_policy}
    require_known(chosen.default_policy, for_batches, "scheduler: default_policy", "policy for batches")
    for group in scenario.batches:
        if group.policy:
            require_known(group.policy, for_batches, f"{group.place}: policy", "policy for batches")
    all_there_are = {*policies.batch, *policies.online, *policies.gang, *policies.task}
    for name in scenario.policies:
        require_known(name, all_there_are, f"{_POLICY}{name}", "policy")


def _check_targets(scenario: Scenario, catalogue: Catalogue) -> None:
    """Raise InvalidInput if the target of an event does not exist."""
    slots = {slot.slot for host in simulated_hosts(scenario, catalogue) for slot in host.slots}
    known: dict[str, set[str]] = {
        "host": set(scenario.host_names),
        # The name of a host or card denotes all its slots.
        "slots": {"/".join(name.split("/")[:parts]) for name in slots for parts in (1, 2, 3)},
        "work": {name for group in scenario.groups for name in {group.name, *group.names}},
        "batch": {
            name
            for group in (*scenario.batches, *scenario.online, *scenario.pipelines)
            for name in {group.name, *group.names}
        },
    }
    for event in scenario.events:
        wanted = _EVENTS[event.kind][0]
        if wanted == "slots" and event.target not in known[wanted]:
            raise InvalidInput(
                f"{event.place}: target: no host with cards, card or slot {event.target!r}; expected HOST,"
                " HOST/simCARD or HOST/simCARD/slotSLOT, counted from 0"
            )
        if wanted:
            require_known(event.target, known[wanted], f"{event.place}: target", wanted)
