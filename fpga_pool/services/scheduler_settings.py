"""Settings of a scheduler."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, QuotaLimits
from fpga_pool.model.rules.shared.settings import PoolSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Parameters of the service; those of the rules are in `pool`."""

    #: Name of this scheduler among all of the pool; stays the same when it is started again.
    name: str = "scheduler"
    default_policy: str = "makespan"
    #: Policy that runs the jobs of batches that ask for it, and how often it looks when nothing wakes it.
    online_policy: str = "benefit_plus"
    online_interval_s: float = 0.5
    #: Policy by which gangs get their processors.
    gang_policy: str = "measy_plus"
    #: Policy by which tasks that take several slots get them.
    task_policy: str = "lattice_plus"
    #: Share of the time a batch takes at least that its plan may take.
    planning_share: float = 0.02
    #: Seed of the policies' random generator.
    seed: int = 0
    #: How often pending work, the outbox and silent hosts are looked at when nothing wakes the loops.
    interval_s: float = 1.0
    #: How often time models are refitted.
    refit_interval_s: float = 5.0
    #: A scheduler that gave no sign of life for longer has lost its shards to the others.
    shard_timeout_s: float = 5.0
    #: How long a token may be used to open a stream.
    token_lifetime_s: float = 300.0
    #: How long what has ended stays in the database; 0 = for ever.
    retention_s: float = 0.0
    #: Limits of projects that have none of their own.
    quotas: QuotaLimits = DEFAULT_LIMITS
    #: Whose signatures of designs are trusted, and whether one of them is enough.
    design_signers: tuple[Ed25519PublicKey, ...] = ()
    signed_designs_are_approved: bool = False
    pool: PoolSettings = field(default_factory=PoolSettings)
