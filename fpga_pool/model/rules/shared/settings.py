"""Limits and times used by the rules. They are set by the configuration, experiment files and tests."""

from dataclasses import dataclass, field, fields

from fpga_pool.model.rules.shared.sharding import ShardRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Parameters of the pool's rules."""

    #: Largest batch that is accepted; a larger one is refused, with this number in the message.
    max_batch_jobs: int = 10_000
    #: Largest input of one job.
    max_input_bytes: int = 1 << 40
    #: Number of counted attempts after which a job is given up.
    max_attempts: int = 10
    #: A host without a heartbeat for longer than this is lost, and its jobs are planned elsewhere.
    host_timeout_s: float = 10.0
    #: A job is given up if its input is still incomplete this long after the planned end of its transfer.
    input_timeout_s: float = 3600.0
    #: Time between the commit of a plan and its time 0, during which it is delivered to agents and clients.
    dispatch_lead_s: float = 0.25
    #: Jobs that begin within this time keep their plan when the others are planned again.
    replan_horizon_s: float = 1.0
    #: A job that is late by more than this causes the jobs that have not begun to be planned again.
    replan_late_s: float = 1.0
    #: Plan batches so that their results are returned early, and send the results at planned rates. Otherwise, plans
    #: ignore the time to return results.
    plan_results: bool = False
    #: How long an online job waits for a slot before it may run on a CPU; 0 = its computation time on a slot.
    online_patience_s: float = 0.0
    #: Share of a shard's slots that online jobs of one project may occupy at a time.
    tenant_share: float = 1.0
    #: Load the functions that online jobs are expected to need into slots without work.
    load_ahead: bool = True
    #: A virtual machine can claim a slot if the jobs that cannot be evicted are expected to leave it within this time.
    claim_patience_s: float = 5.0
    #: Number of slots of each card and kind that are reserved for the pool and never given to virtual machines.
    floor_slots: int = 0
    #: Expected duration of a migration of a gang (two-tier paper, section 2.3.2).
    gang_migration_s: float = 20.0
    #: How long a task waits for its slots before slots are reserved for it.
    task_patience_s: float = 30.0
    #: How the pool is divided.
    shards: ShardRule = field(default_factory=ShardRule)

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if parameter.name != "shards" and value < 0:
                raise ValueError(f"{parameter.name} must not be negative, found {value}")
        if not 0 < self.tenant_share <= 1:
            raise ValueError(f"tenant_share must be above 0 and at most 1, found {self.tenant_share}")
        if self.max_attempts < 1 or self.max_batch_jobs < 1:
            raise ValueError("max_attempts and max_batch_jobs must be at least 1")
