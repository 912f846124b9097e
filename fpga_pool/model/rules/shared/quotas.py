"""Whether a project may have more of the pool."""

from fpga_pool.model.exceptions import QuotaExceeded
from fpga_pool.model.objects.quotas import UNLIMITED, Amounts, Quota, QuotaLimits, Resource, ResourceQuota


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


def quota_of(project_id: str, own: QuotaLimits, defaults: QuotaLimits, used: Amounts) -> Quota:
    """Return the limits in force for a project, and what it uses of them."""
    limits = own.over(defaults)
    return Quota(
        project_id=project_id,
        resources=tuple(
            ResourceQuota(
                resource=resource,
                limit=UNLIMITED if (limit := limits.of(resource)) is None else limit,
                default=own.of(resource) is None,
                used=used[resource],
            )
            for resource in Resource
        ),
    )
