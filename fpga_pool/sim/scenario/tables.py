"""The tables of a scenario."""

# ruff: noqa: RUF009  # `key` makes a field

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.flavor import MAX_COUNT, Topology
from fpga_pool.model.objects.links import NOT_LINKED
from fpga_pool.model.objects.tasks import TaskShape
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.engine import Delays
from fpga_pool.sim.scenario import values as v

_DEFAULTS, _PATIENCE, _DELAYS = PoolSettings(), AgentParameters(), Delays()
_CABLES = v.choice(*(topology.name.lower() for topology in Cables), NOT_LINKED)
_TOPOLOGY = v.choice(*(str(topology) for topology in Topology))
_ONE = v.Spread(1.0, 1.0)
_NOTHING = v.Spread(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTable:
    """`[pool]`."""

    seed: int = v.key(v.COUNT, 0)
    until_s: float = v.key(v.POSITIVE, 86_400.0)
    catalogue: str = v.key(v.TEXT, "", shown_default="the installed one")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerTable:
    """`[scheduler]`: those options of `[scheduler]` in fpga_pool.conf that apply to a simulated pool."""

    default_policy: str = v.key(v.NAME, "makespan")
    online_policy: str = v.key(v.NAME, "benefit_plus")
    gang_policy: str = v.key(v.NAME, "measy_plus")
    task_policy: str = v.key(v.NAME, "lattice_plus")
    interval_s: float = v.key(v.seconds(0.01), 1.0)
    online_interval_s: float = v.key(v.seconds(0.01), 0.5)
    planning_share: float = v.key(v.share(0.001), 0.02)
    dispatch_lead_s: float = v.key(v.SECONDS, _DEFAULTS.dispatch_lead_s)
    replan_horizon_s: float = v.key(v.SECONDS, _DEFAULTS.replan_horizon_s)
    replan_late_s: float = v.key(v.seconds(0.1), _DEFAULTS.replan_late_s)
    plan_results: bool = v.key(v.FLAG, _DEFAULTS.plan_results)
    online_patience_s: float = v.key(v.SECONDS, _DEFAULTS.online_patience_s)
    load_ahead: bool = v.key(v.FLAG, _DEFAULTS.load_ahead)
    tenant_share: float = v.key(v.share(0.001), _DEFAULTS.tenant_share)
    task_patience_s: float = v.key(v.SECONDS, _DEFAULTS.task_patience_s)
    gang_migration_s: float = v.key(v.SECONDS, _DEFAULTS.gang_migration_s)
    claim_patience_s: float = v.key(v.SECONDS, _DEFAULTS.claim_patience_s)
    max_batch_jobs: int = v.key(v.COUNT_OF_SOME, _DEFAULTS.max_batch_jobs)
    max_input_bytes: int = v.key(v.COUNT, _DEFAULTS.max_input_bytes)
    max_attempts: int = v.key(v.COUNT_OF_SOME, _DEFAULTS.max_attempts)
    host_timeout_s: float = v.key(v.seconds(0.1), _DEFAULTS.host_timeout_s)
    input_timeout_s: float = v.key(v.seconds(0.1), _DEFAULTS.input_timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTable:
    """`[agent]`: those options of `[agent]` in fpga_pool.conf that apply to simulated agents."""

    heartbeat_s: float = v.key(v.seconds(0.05), 1.0)
    hang_factor: float = v.key(v.AT_LEAST_ONE, _PATIENCE.hang_factor)
    hang_grace_s: float = v.key(v.SECONDS, _PATIENCE.hang_grace_s)
    fault_pause_s: float = v.key(v.seconds(0.01), _PATIENCE.fault_pause_s[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysTable:
    """`[delays]`: delays around the decisions."""

    command_s: float = v.key(v.SECONDS, _DELAYS.command_s)
    staging_s: float = v.key(v.SECONDS, _DELAYS.staging_s)
    turnaround_s: float = v.key(v.SECONDS, _DELAYS.turnaround_s)
    migration_s: float | None = v.key(v.SECONDS, None, shown_default="``gang_migration_s``")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    """`[hosts.NAME]`: one host, or `count` identical ones."""

    name: str
    count: int = v.key(v.whole(1), 1)
    board: str = v.key(v.NAME, "", shown_default="no cards")
    cards: int = v.key(v.whole(1), 1)
    links: str = v.key(_CABLES, "ring")
    enclosures: tuple[str, ...] = v.key(v.LINES, ())
    slot_links: str = v.key(_CABLES, "full")
    cpu_workers: int = v.key(v.whole(0), 0)
    gang_processors: int = v.key(v.whole(0), 0)
    egress_mbps: float = v.key(v.POSITIVE, float("inf"), shown_default="no limit")
    ingress_mbps: float = v.key(v.POSITIVE, float("inf"), shown_default="no limit")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return numbered(self.name, self.count)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Common fields of all kinds of work: name, project and arrival times."""

    #: Position in the file, for messages.
    place: str
    name: str = v.key(v.NAME)
    project: str = v.key(v.NAME, "demo")
    arrives_s: float = v.key(v.SECONDS, 0.0)
    count: int = v.key(v.whole(1), 1)
    every_s: float | None = v.key(v.SECONDS, None, shown_default="all at once")
    rate_per_s: float | None = v.key(v.POSITIVE, None, shown_default="not random")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the single pieces of work."""
        return numbered(self.name, self.count)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Common fields of work on slots: function, inputs, and deviations from the plan."""

    function: Mapping[str, float] = v.key(v.MIX)
    input_bytes: v.Spread = v.key(v.COUNT_SPREAD)
    requester: tuple[str, ...] = v.key(v.NAMES)
    takes: v.Spread = v.key(v.POSITIVE_SPREAD, _ONE, shown_default="1")
    late_s: v.Spread = v.key(v.SECONDS_SPREAD, _NOTHING, shown_default="0")


@dataclass(frozen=True, kw_only=True)
class JobsTable(Inputs):
    """`[[batches.jobs]]`: similar jobs of a batch."""

    count: int = v.key(v.whole(1), 1)
    group: int = v.key(v.COUNT, 0)


@dataclass(frozen=True, kw_only=True)
class BatchGroup(Group):
    """`[[batches]]`."""

    policy: str = v.key(v.NAME, "", shown_default="``default_policy``")
    held: bool = v.key(v.FLAG, default=False)
    priority: int = v.key(v.whole(-100, 100), 0)
    deadline_s: float | None = v.key(v.POSITIVE, None, shown_default="none")
    after: tuple[str, ...] = v.key(v.NAMES, (), shown_default="none")
    jobs: tuple[Any, ...] = v.key(v.TABLES)
    #: The parsed `jobs`.
    parts: tuple[JobsTable, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OnlineGroup(Inputs, Group):
    """`[[online]]`: jobs for the online policy, each in a separate batch."""


@dataclass(frozen=True, kw_only=True)
class TaskGroup(Inputs, Group):
    """`[[tasks]]`."""

    slots: v.Spread = v.key(v.WIDTH_SPREAD)
    topology: str = v.key(_TOPOLOGY, "any")
    shapes: tuple[TaskShape, ...] = v.key(v.SHAPES, (), shown_default="``slots`` slots")


@dataclass(frozen=True, kw_only=True)
class SubtaskTable:
    """`[[pipelines.subtasks]]`: one subtask."""

    name: str = v.key(v.NAME)
    function: str = v.key(v.NAME)
    after: tuple[str, ...] = v.key(v.NAMES, (), shown_default="none")
    input_bytes: v.Spread | None = v.key(v.COUNT_SPREAD, None, shown_default="by ``after``")
    requester: str = v.key(v.NAME, "", shown_default="by ``after``")
    takes: v.Spread = v.key(v.POSITIVE_SPREAD, _ONE, shown_default="1")
    late_s: v.Spread = v.key(v.SECONDS_SPREAD, _NOTHING, shown_default="0")


@dataclass(frozen=True, kw_only=True)
class PipelineGroup(Group):
    """`[[pipelines]]`."""

    subtasks: tuple[Any, ...] = v.key(v.TABLES)
    #: The parsed `subtasks`.
    parts: tuple[SubtaskTable, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GangGroup(Group):
    """`[[gangs]]`: gangs with the given parameters, or read from a file."""

    processes: v.Spread | None = v.key(v.WIDTH_SPREAD, None, shown_default="by ``swf``")
    runtime_s: v.Spread | None = v.key(v.POSITIVE_SPREAD, None, shown_default="by ``swf``")
    takes: v.Spread = v.key(v.POSITIVE_SPREAD, _ONE, shown_default="1")
    cpu_usage: float = v.key(v.SHARE, 1.0)
    swf: str = v.key(v.TEXT, "", shown_default="no file")
    most: int | None = v.key(v.whole(1), None, shown_default="all")


@dataclass(frozen=True, kw_only=True)
class InstanceGroup(Group):
    """`[[instances]]`: virtual machines with slots."""

    function: str = v.key(v.NAME)
    slots: int = v.key(v.whole(1, MAX_COUNT), 1)
    topology: str = v.key(_TOPOLOGY, "any")
    host: str = v.key(v.NAME, "", shown_default="the best one")
    stays_s: v.Spread | None = v.key(v.POSITIVE_SPREAD, None, shown_default="to the end")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable:
    """`[[events]]`."""

    place: str
    at_s: float = v.key(v.SECONDS)
    kind: str = v.key(v.choice("fail", "drain", "leave", "slow", "takeover", "cancel", "hold", "release"))
    target: str = v.key(v.PLACE, "")
    for_s: float | None = v.key(v.POSITIVE, None, shown_default="to the end")
    delay_s: float | None = v.key(v.POSITIVE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The content of a scenario file."""

    path: str
    pool: PoolTable
    scheduler: SchedulerTable
    agent: AgentTable
    delays: DelaysTable
    #: Parameters of policies by policy name, as given in the file.
    policies: Mapping[str, Mapping[str, Any]]
    hosts: tuple[HostTable, ...]
    batches: tuple[BatchGroup, ...] = ()
    online: tuple[OnlineGroup, ...] = ()
    pipelines: tuple[PipelineGroup, ...] = ()
    tasks: tuple[TaskGroup, ...] = ()
    gangs: tuple[GangGroup, ...] = ()
    instances: tuple[InstanceGroup, ...] = ()
    events: tuple[EventTable, ...] = field(default=())

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of all hosts, in the order of the file."""
        return tuple(name for host in self.hosts for name in host.names)

    @property
    def groups(self) -> tuple[Group, ...]:
        """All work, by kind and in the order of the file."""
        return (*self.batches, *self.online, *self.pipelines, *self.tasks, *self.gangs, *self.instances)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Return the names of `count` objects: `name` itself if there is only one, else NAME-1, NAME-2, ..."""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(1, count + 1))
