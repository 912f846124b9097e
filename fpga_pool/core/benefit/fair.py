"""A limit per tenant: one tenant's useful jobs cannot push all others out for ever."""


class TenantLimit:
    """Decides which jobs a policy sees: of each tenant no more at a time than slots it may have.

    A job counts from when it is let in until it has left its slot, or has given up.  All others of its tenant are held
    back and let in as they came.  What that costs: slots stay unused, or do less useful work, while one tenant alone
    asks for more than its share.
    """

    def __init__(self, slots: int, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share: expected a number above 0, 1 at most, got {share!r}")
        self.most = max(1, int(slots * share + 1e-9))
        self._inside: dict[str, int] = {}
        self._held: dict[str, dict[int, None]] = {}

    def lets_in(self, job: int, tenant: str) -> bool:
        """Say whether a job that arrives may be seen; else it is held back."""
        inside = self._inside.get(tenant, 0)
        if inside < self.most:
            self._inside[tenant] = inside + 1
            return True
        self._held.setdefault(tenant, {})[job] = None
        return False

    def gives_up(self, job: int, tenant: str) -> bool:
        """Forget a job that is held back; False where it is not."""
        held = self._held.get(tenant, {})
        if job not in held:
            return False
        del held[job]
        return True

    def left(self, tenant: str) -> int | None:
        """Count a job of the tenant no more; return the next one to let in, which then counts."""
        if held := self._held.get(tenant):
            job = next(iter(held))
            del held[job]
            return job
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
            self._held.pop(tenant, None)
        return None
