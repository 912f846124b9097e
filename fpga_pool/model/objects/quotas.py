"""Quotas: limits of the resources that one project may have at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, structs

from fpga_pool.model.codec import Message

UNLIMITED = -1
QuotaLimit = Annotated[
    int, Meta(ge=UNLIMITED, le=2**63 - 1, description=f"a number of at least 0, or {UNLIMITED} for no limit")
]


class Resource(StrEnum):
    """Resource that a quota limits."""

    #: Jobs of batches, tasks and pipelines that have not ended.
    JOBS = "jobs"
    #: Inputs of all jobs of the batches, tasks and pipelines that have not ended.
    INPUT_BYTES = "input_bytes"
    #: Slots requested by tasks that have not ended.
    TASK_SLOTS = "task_slots"
    #: Processes of gangs that have not ended, each of which takes one processor.
    GANG_PROCESSORS = "gang_processors"
    #: Transfer tickets that have not expired, used or not; each scheduler counts those that it has issued.
    TICKETS = "tickets"
    #: Requests to the API per second; each process of the API counts those that it receives.
    REQUESTS_PER_S = "requests_per_s"
    #: Bitstreams of stored designs in any state.
    DESIGN_BYTES = "design_bytes"


#: Amounts by resource; a missing resource is not requested, or has the amount 0.
Amounts = Mapping[Resource, int]


class QuotaLimits(Message, frozen=True, kw_only=True):
    """Limits of a project; null = the default limit, or in a change: unchanged."""

    jobs: QuotaLimit | None = None
    input_bytes: QuotaLimit | None = None
    task_slots: QuotaLimit | None = None
    gang_processors: QuotaLimit | None = None
    tickets: QuotaLimit | None = None
    requests_per_s: QuotaLimit | None = None
    design_bytes: QuotaLimit | None = None

    def of(self, resource: Resource) -> int | None:
        """Return the limit of a resource."""
        limit: int | None = getattr(self, resource)
        return limit

    def exceeded(self, used: Amounts, requested: Amounts) -> list[Resource]:
        """Return the requested resources whose limits would be exceeded."""
        limited = ((one, limit) for one in requested if (limit := self.of(one)) is not None and limit != UNLIMITED)
        return [one for one, limit in limited if used[one] + requested[one] > limit]

    def over(self, others: "QuotaLimits") -> "QuotaLimits":
        """Return these limits, completed by those of `others` for resources without a limit here."""
        own = {one: limit for one in Resource if (limit := self.of(one)) is not None}
        return structs.replace(others, **own)


#: Limits of projects if nothing else is configured.
DEFAULT_LIMITS = QuotaLimits(
    jobs=100_000,
    input_bytes=64 << 40,
    task_slots=1_000,
    gang_processors=10_000,
    tickets=500_000,
    requests_per_s=500,
    design_bytes=256 << 20,
)


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """Limits of a project: its own limits, and the defaults for other resources."""

    own: QuotaLimits
    defaults: QuotaLimits

    @property
    def in_force(self) -> QuotaLimits:
        """The effective limit of each resource."""
        return self.own.over(self.defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """One resource of a project: its limit, whether that is the default one, and the amount in use."""

    resource: str
    limit: int
    default: bool
    #: None = unknown to the scheduler.
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of a project, and the amounts in use."""

    project_id: str
    resources: tuple[ResourceQuota, ...]

    @property
    def own(self) -> QuotaLimits:
        """The project's own limits, without the defaults."""
        return QuotaLimits(**{one.resource: one.limit for one in self.resources if not one.default})
