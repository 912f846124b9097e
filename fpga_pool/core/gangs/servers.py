"""Choice of the servers that move to the foreground of another host, among those whose tier the pool may choose.

A server is treated as a gang of one process.  Its processor is a place on a host, with as many pCPUs as the server has
vCPUs, in both tiers.  The gang policy decides which servers move and in which order; this module offers it those for
which a migration is worth its cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.gangs.gangs import Gangs, How, Move
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import IN_FRONT, Tiers
from fpga_pool.core.policy import GangPolicy

#: Usage of a pCPU by both tiers at or above which its background is held back: the threshold of section 2.1.
USAGE_THRESHOLD = ProgressParams().usage_threshold


def share_lost(in_use: Sequence[float], in_front: Sequence[float]) -> float:
    """Return the share of its progress that a server loses in the background, 0 to 1.

    The arguments are (vCPUs,) shares of its pCPUs that are in use, and that the foreground uses.  As with gangs, its
    slowest vCPU counts; a pCPU of which less than USAGE_THRESHOLD is in use holds no server back.
    """
    held = (front for used, front in zip(in_use, in_front, strict=True) if used >= USAGE_THRESHOLD)
    return max(held, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingServer:
    """A server in the background, with the cost and gain of a migration."""

    name: str
    vcpus: int
    #: Time at which it began to run.
    since_s: float
    #: Result of `share_lost`, and the expected remaining run time.
    lost: float
    remaining_s: float
    #: Duration of a migration; all of it counts as lost.
    migration_s: float

    @property
    def gain_s(self) -> float:
        """Return how much sooner it is expected to end after a migration; 0 or less if that is not worth it."""
        return self.lost * self.remaining_s - self.migration_s


def remaining_s(now_s: float, since_s: float, runtime_s: float | None) -> float:
    """Return the expected remaining run time of a server.

    If no run time is declared, this is its age: the median of the remaining time if life times are distributed like
    those of processes that Harchol-Balter and Downey measured (Exploiting Process Lifetime Distributions for Dynamic
    Load Balancing, 1997).
    """
    age_s = max(0.0, now_s - since_s)
    return age_s if runtime_s is None else max(0.0, runtime_s - age_s)


def migrations(
    servers: Sequence[WaitingServer],
    free: Mapping[str, int],
    policy: GangPolicy,
    now_s: float,
    rng: np.random.Generator,
) -> list[tuple[WaitingServer, str]]:
    """Return the servers to move now and their new hosts, in the policy's order for each number of vCPUs.

    `free` is the number of pCPUs of each host that are free in both tiers.  Narrow servers come first, since most of
    them can move.
    """
    left = dict(free)
    found = []
    for vcpus in sorted({server.vcpus for server in servers}):
        waiting = sorted(
            (server for server in servers if server.vcpus == vcpus and server.gain_s > 0),
            key=lambda server: (server.since_s, server.name),
        )
        places = [
            host for host in sorted(left, key=lambda host: (-left[host], host)) for _ in range(left[host] // vcpus)
        ]
        for move in _moves(waiting, len(places), policy, now_s, rng):
            host = places[int(move.processors[0]) - len(waiting)]
            left[host] -= vcpus
            found.append((waiting[move.gang], host))
    return found


def _moves(
    waiting: Sequence[WaitingServer], places: int, policy: GangPolicy, now_s: float, rng: np.random.Generator
) -> list[Move]:
    """Return the policy's migrations; gang i is server i, behind a blocked foreground; the free places come after."""
    if not waiting or not places:
        return []
    gangs = Gangs(
        width=np.ones(len(waiting), np.int64),
        estimate_s=np.array([server.remaining_s for server in waiting]),
        usage=np.ones(len(waiting)),
    )
    longest_s = max(server.migration_s for server in waiting)
    view = Tiers(len(waiting) + places, gangs, migration_s=longest_s, patience=policy.patience)
    for number, server in enumerate(waiting):
        view.block(number, IN_FRONT)
        view.arrive(number, server.since_s)
        view.apply(Move(number, How.START_BEHIND, np.array([number])), now_s)
    found = []
    for move in policy.decide(view, None, now_s, rng):
        view.apply(move, now_s)
        if move.how is How.MIGRATE:
            found.append(move)
    return found
