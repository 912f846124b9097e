"""Settings of a scheduler."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, QuotaLimits
from fpga_pool.model.rules.shared.settings import PoolSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Parameters of the scheduler service; the parameters of the rules are in `pool`."""

    #: Name of this scheduler: unique in the pool, and the same after a restart.
    name: str = "scheduler"
    default_policy: str = "makespan"
    #: Policy of the jobs of batches that request it, and the interval of its cycles if no event triggers one.
    online_policy: str = "benefit_plus"
    online_interval_s: float = 0.5
    #: Policy that assigns processors to gangs.
    gang_policy: str = "measy_plus"
    #: Policy that assigns slots to tasks.
    task_policy: str = "lattice_plus"
    #: Limit of the search time of a batch policy, as a share of the lower bound of the batch's makespan.
    planning_share: float = 0.02
    #: Seed of the policies' random generator.
    seed: int = 0
    #: Interval at which pending work, the outbox and silent hosts are checked if no event triggers a check.
    interval_s: float = 1.0
    #: How often time models are refitted.
    refit_interval_s: float = 5.0
    #: A scheduler without a sign of life for longer than this loses its shards to the others.
    shard_timeout_s: float = 5.0
    #: How long a token may be used to open a stream.
    token_lifetime_s: float = 300.0
    #: How long ended objects stay in the database; 0 = forever.
    retention_s: float = 0.0
    #: Limits of projects for which no others are set.
    quotas: QuotaLimits = DEFAULT_LIMITS
    #: Keys whose signatures of designs are trusted, and whether such a signature approves a design.
    design_signers: tuple[Ed25519PublicKey, ...] = ()
    signed_designs_are_approved: bool = False
    pool: PoolSettings = field(default_factory=PoolSettings)
