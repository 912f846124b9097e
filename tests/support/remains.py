"""What a drill leaves in the database and on the agents' hosts, for comparison with what the clients know."""

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.objects.pool import ENDED_BATCHES, Job, JobState
from fpga_pool.store import Store


@dataclass(frozen=True)
class Recorded:
    """Content of the database at the end."""

    jobs: list[Job]
    batches: set[str]
    unfinished: set[str]

    @property
    def finished(self) -> Counter[tuple[JobState, int]]:
        """Number of jobs by final state and by how often they finished.

        Not counted are ends whose result was lost with its host while it was still needed, so that the job ran again.
        """
        return Counter((job.state, happened(job, "JobFinished") - happened(job, "ResultLost")) for job in self.jobs)

    @property
    def held(self) -> set[str]:
        """uuids of the jobs whose results are still held by their agents."""
        return {job.uuid for job in self.jobs if job.state is JobState.RESULT_HELD}

    @property
    def finishes_of_completed(self) -> set[int]:
        """How often jobs that were not cancelled have finished; {1} is expected."""
        return {count for (state, count) in self.finished if state is not JobState.CANCELLED}


def happened(job: Job, event: str) -> int:
    """Return how often an event happened to a job."""
    return [entry.event for entry in job.history].count(event)


def recorded(database_url: str) -> Recorded:
    """Read the content of the database."""
    with contextlib.closing(Store(database_url)) as store, store.reading() as tx:
        batches = tx.batches()
        return Recorded(
            jobs=[tx.job(job.uuid) for batch in batches for job in tx.batch_jobs(batch.uuid)],
            batches={batch.uuid for batch in batches},
            unfinished={batch.uuid for batch in batches if batch.state not in ENDED_BATCHES},
        )


def files_left(directory: Path, hosts: Iterable[str], held: set[str]) -> list[str]:
    """Return the job files in the directories of agents, without results that are still held.

    A file of zeros in `scratch` is the erased file for the next input of a slot.
    """
    return [
        str(file.relative_to(directory))
        for host in hosts
        for kind in ("inputs", "results", "processes", "scratch")
        for file in (directory / host / kind).iterdir()
        if file.name not in held and (kind != "scratch" or any(file.read_bytes()))
    ]
