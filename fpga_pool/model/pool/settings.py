"""Limits and times the rules go by; filled alike from configuration, experiment files and tests."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Knobs of the pool's rules."""

    #: Largest batch that is accepted; a larger one is refused, with this number in the message.
    max_batch_jobs: int = 10_000
    #: Largest input of one job.
    max_input_bytes: int = 1 << 40
    #: How often a job is planned before it is given up.
    max_attempts: int = 10
    #: A host that was not heard of for longer is lost, and its jobs are planned elsewhere.
    host_timeout_s: float = 10.0
    #: How long past its planned transfer a job may wait for its input before it is given up.
    input_timeout_s: float = 3600.0
    #: Time between the commit of a plan and its time 0, in which agents and clients learn of it.
    dispatch_lead_s: float = 0.25

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name} must not be negative, found {getattr(self, field.name)}")
        if self.max_attempts < 1 or self.max_batch_jobs < 1:
            raise ValueError("max_attempts and max_batch_jobs must be at least 1")
