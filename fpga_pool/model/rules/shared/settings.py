"""Limits and times used by the rules; set from configuration, experiment files and tests."""

from dataclasses import dataclass, field, fields

from fpga_pool.model.rules.shared.sharding import ShardRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Parameters of the pool's rules."""

    #: Largest batch that is accepted; a larger one is refused, with this number in the message.
    max_batch_jobs: int = 10_000
    #: Largest input of one job.
    max_input_bytes: int = 1 << 40
    #: How often a job is planned before it is given up.
    max_attempts: int = 10
    #: A host without a heartbeat for longer is lost, and its jobs are planned elsewhere.
    host_timeout_s: float = 10.0
    #: How long past its planned transfer a job may wait for its input before it is given up.
    input_timeout_s: float = 3600.0
    #: Time between the commit of a plan and its time 0, in which agents and clients learn of it.
    dispatch_lead_s: float = 0.25
    #: What begins within this time stays as it was planned when the rest is planned again.
    replan_horizon_s: float = 1.0
    #: What is later than planned by more has the rest planned again.
    replan_late_s: float = 1.0
    #: Batches are planned so that their results are back early, and results are sent at planned rates; otherwise their
    #: way back is taken to be free.
    plan_results: bool = False
    #: How long an online job waits for a slot before it may go to a CPU; 0 = as long as it would compute on a slot.
    online_patience_s: float = 0.0
    #: Share of a shard's slots that online jobs of one project may have at a time.
    tenant_share: float = 1.0
    #: Slots without work load what online jobs are expected to ask for.
    load_ahead: bool = True
    #: How long a virtual machine's claim waits for work that cannot be taken off a slot.
    claim_patience_s: float = 5.0
    #: Slots of each card and kind that no virtual machine gets: they stay the pool's.
    floor_slots: int = 0
    #: What a migration of a gang is expected to take (two-tier paper, section 2.3.2).
    gang_migration_s: float = 20.0
    #: How long a task waits for its slots before they are kept for it.
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
