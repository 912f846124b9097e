"""What a policy that learns remembers of a shard: stored with the shard, so that the next owner goes on with it."""

import uuid
from dataclasses import dataclass

from fpga_pool.core.policy import PolicyState

_NAMESPACE = uuid.UUID("0d8a1f6e-53b0-5c86-9f3c-2a77f1f3b0c4")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMemory:
    """The memory of one policy of one family, on one shard."""

    uuid: str
    shard: str
    family: str
    policy: str
    state: PolicyState = None
    #: Work that got its place by the policy, and whose end it was not told yet, by uuid.
    watched: tuple[str, ...] = ()
    generation: int = 0


def memory_uuid(shard: str, family: str, policy: str) -> str:
    """Return the deterministic uuid of a memory."""
    return str(uuid.uuid5(_NAMESPACE, f"{shard} {family} {policy}"))
