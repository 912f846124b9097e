"""The families of work of a shard, and the policies that decide for each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fpga_pool.core.cluster.policies import EarliestHost
from fpga_pool.core.cluster.slowdown import SlowdownModel
from fpga_pool.core.policy import BatchPolicy, GangPolicy, Proving, TaskPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Family
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.work import BatchRequest
from fpga_pool.model.objects.pool import PIPELINE_POLICY
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.gang.family import GangFamily
from fpga_pool.model.rules.online.family import OnlineFamily, OnlineRule
from fpga_pool.model.rules.pipeline.family import PipelineFamily
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.family import TaskFamily

AnyFamily = Family[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicies:
    """The policies of each family of work."""

    #: Returns a batch policy by its name.
    batches: Callable[[str], BatchPolicy]
    #: Name of the policy of batches that do not name one.
    default_batch: str
    online: OnlineRule
    gangs: GangPolicy
    tasks: TaskPolicy
    pipelines: EarliestHost = field(default_factory=EarliestHost)
    #: Returns the model of how functions slow each other down on a card; None = there is no model.
    slowdown: Callable[[], SlowdownModel | None] = lambda: None

    def check_groups(self, request: BatchRequest) -> None:
        """Raise InvalidInput if jobs are in several groups, but the policy of their batch does not use groups."""
        policy = request.policy or self.default_batch
        several = len({job.group for job in request.jobs}) > 1
        if several and (self.online.is_online(policy) or isinstance(self.batches(policy), Proving)):
            raise InvalidInput(
                f"jobs: several groups, but policy {policy!r} serves all jobs of a batch alike; "
                "choose another policy, or one group for all jobs"
            )


class Families(NamedTuple):
    """The families of one shard; they have state that lasts from cycle to cycle, so each shard has separate ones."""

    batches: BatchFamily
    online: OnlineFamily
    gangs: GangFamily
    tasks: TaskFamily
    pipelines: PipelineFamily


def new_families(catalogue: Catalogue, settings: PoolSettings, policies: PoolPolicies) -> Families:
    """Return new families for a shard."""

    def is_planned(name: str) -> bool:
        return name not in (TASK_POLICY, PIPELINE_POLICY) and not policies.online.is_online(name)

    return Families(
        batches=BatchFamily(
            catalogue, settings, policies.batches, policies.default_batch, is_planned, policies.slowdown
        ),
        online=OnlineFamily(catalogue, settings, policies.online),
        gangs=GangFamily(settings, policies.gangs),
        tasks=TaskFamily(catalogue, settings, policies.tasks),
        pipelines=PipelineFamily(catalogue, settings, policies.pipelines),
    )
