"""Tickets to move bytes of jobs: signed tokens, and their number per project."""

import threading
import uuid
from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.objects.hosts import server_of
from fpga_pool.model.objects.pool import Job
from fpga_pool.model.objects.quotas import ProjectLimits, Resource
from fpga_pool.model.rules.shared.admission import ValidTickets, check_quota
from fpga_pool.services.clock import Clock
from fpga_pool.transfer.tokens import Purpose, TransferGrant, sign


class Tickets:
    """Signs tokens, and counts the unexpired tickets that projects got from this process; thread-safe."""

    def __init__(self, key: Ed25519PrivateKey, lifetime_s: float, clock: Clock) -> None:
        self._key = key
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._valid, self._lock = ValidTickets(), threading.Lock()

    def tokens(self, wishes: Iterable[tuple[Job, Purpose, str]]) -> list[str]:
        """Return signed tokens, each for a job, a purpose and a `TransferGrant.source`, that are valid from now on."""
        return sign([self._grant(*wish) for wish in wishes], self._key)

    def _grant(self, job: Job, purpose: Purpose, source: str) -> TransferGrant:
        return TransferGrant(
            job=job.uuid,
            attempt=job.attempt,
            project_id=job.project_id,
            host=job.host,
            purpose=purpose,
            input_bytes=job.input_bytes,
            token_id=str(uuid.uuid4()),
            deadline_s=self._clock() + self._lifetime_s,
            source=source,
            tap=bool(source and server_of(job.requester)),
        )

    def count(self, limits: ProjectLimits, project_id: str, number: int) -> None:
        """Count tickets that a project with these limits gets now; raise QuotaExceeded if it would have too many."""
        with self._lock:
            valid = {Resource.TICKETS: self._valid.of(project_id, self._clock())}
            check_quota(project_id, limits.in_force, valid, {Resource.TICKETS: number})
            self._valid.add(project_id, number, self._clock() + self._lifetime_s)

    def valid(self, project_id: str) -> int:
        """Return the number of unexpired tickets that a project got from this process."""
        with self._lock:
            return self._valid.of(project_id, self._clock())
