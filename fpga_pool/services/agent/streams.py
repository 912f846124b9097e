"""The agent's `transfer.handler.TransferHandler`, which its data port calls."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.transfer.handler import Admission, JobFailure, JobResult, SmallInput
from fpga_pool.transfer.tokens import TransferGrant


class Streams:
    """Admits or refuses streams according to the jobs that the agent holds."""

    def __init__(self, jobs: AgentShell) -> None:
        self._jobs = jobs

    def announcement(self, grant: TransferGrant) -> "Future[None] | None":
        """Return a future that resolves when the job is held here, at this attempt or a later one; None if it is."""
        return self._jobs.announcements.of(grant.job, grant.attempt)

    def admit(self, grant: TransferGrant) -> Admission:
        """Accept the input of a job that waits for it."""
        with self._jobs.changed:
            job = self._current(grant)
        if job.phase is not Phase.WAITING:
            raise TransferRefused("already_staged", "the input is complete; fetch the result")
        return Admission(self._path(job))

    def seen(self, grant: TransferGrant) -> None:
        """Report the source address of a job's stream."""
        self._current(grant)
        self._jobs.stream_seen(grant.job, grant.attempt, grant.source)

    def progress(self, grant: TransferGrant, received_bytes: int) -> None:
        """Record the received bytes; stop the stream of a job that was withdrawn."""
        self._current(grant)
        self._jobs.meter.received(grant.job, grant.attempt, received_bytes)

    def staged(self, grant: TransferGrant, sha256: str, size_bytes: int) -> None:
        """Queue the job for its slot."""
        self._current(grant)
        self._jobs.staged(grant.job, self._jobs.meter.age_s(grant.job, grant.attempt))

    def result(self, grant: TransferGrant) -> "Future[JobResult | JobFailure]":
        """Return a future of the job's result or failure."""
        self._current(grant)
        return self._jobs.end_of(grant.job)

    def delivered(self, grants: Sequence[TransferGrant]) -> None:
        """End the retention of results that clients have received."""
        self._jobs.delivered([(grant.job, grant.attempt) for grant in grants])

    def stage_small(self, inputs: Sequence[SmallInput]) -> list[TransferRefused | None]:
        """Queue small jobs for their slots; some inputs may have arrived before, over a lane that broke."""
        with self._jobs.changed:
            refusals = [self._refusal(one.grant) for one in inputs]
            accepted = [one for one, refusal in zip(inputs, refusals, strict=True) if refusal is None]
            self._jobs.staged_small([(one.grant.job, one.data) for one in accepted])
        return refusals

    def _refusal(self, grant: TransferGrant) -> TransferRefused | None:
        try:
            self._current(grant)
        except TransferRefused as refused:
            return refused
        return None

    def _current(self, grant: TransferGrant) -> HeldJob:
        job = self._jobs.get(grant.job)
        if job is None or job.assignment.project_id != grant.project_id:
            raise TransferRefused("unknown_job", f"job {grant.job} is not held by this host")
        if job.assignment.attempt != grant.attempt:
            raise TransferRefused(
                "wrong_attempt", f"job {grant.job} is at attempt {job.assignment.attempt}, not {grant.attempt}"
            )
        return job

    def _path(self, job: HeldJob) -> Path:
        return self._jobs.files.input_path(job.uuid)
