"""Whether a project may have more of the pool."""

from collections import Counter, deque

from fpga_pool.model.exceptions import QuotaExceeded
from fpga_pool.model.objects.quotas import (
    UNLIMITED,
    Amounts,
    ProjectLimits,
    Quota,
    QuotaLimits,
    Resource,
    ResourceQuota,
)


def check_quota(project_id: str, limits: QuotaLimits, used: Amounts, requested: Amounts) -> None:
    """Raise QuotaExceeded, naming each resource of which a project would have more than its limit."""
    exceeded = [
        f"{resource}: {amount} requested, {used[resource]} of {limit} used"
        for resource, amount in requested.items()
        for limit in [limits.of(resource)]
        if limit is not None and limit != UNLIMITED and used[resource] + amount > limit
    ]
    if exceeded:
        raise QuotaExceeded(f"the quota of project {project_id} does not allow it: {'; '.join(exceeded)}")


def quota_of(project_id: str, limits: ProjectLimits, used: Amounts) -> Quota:
    """Return the limits in force for a project, and what it uses of them."""
    in_force = limits.in_force
    return Quota(
        project_id=project_id,
        resources=tuple(
            ResourceQuota(
                resource=resource,
                limit=UNLIMITED if (limit := in_force.of(resource)) is None else limit,
                default=limits.own.of(resource) is None,
                used=used.get(resource),
            )
            for resource in Resource
        ),
    )


class ValidTickets:
    """Tickets that have not expired, by project; used under its caller's lock.

    The time of expiry must not decrease from one call of `add` to the next.
    """

    def __init__(self) -> None:
        #: Tickets that expire together: when, whose and how many; the next to expire first.
        self._given: deque[tuple[float, str, int]] = deque()
        self._of: Counter[str] = Counter()

    def of(self, project_id: str, now_s: float) -> int:
        """Return how many a project has."""
        while self._given and self._given[0][0] <= now_s:
            _, project, number = self._given.popleft()
            self._of[project] -= number
            if not self._of[project]:
                del self._of[project]
        return self._of[project_id]

    def add(self, project_id: str, number: int, expire_s: float) -> None:
        """Count tickets that expire together."""
        self._given.append((expire_s, project_id, number))
        self._of[project_id] += number
