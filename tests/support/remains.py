"""What a drill leaves in the database and with the agents, to be held against what clients know."""

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.objects.pool import ENDED_BATCHES, Job, JobState
from fpga_pool.store import Store


@dataclass(frozen=True)
class Recorded:
    """What the database has at the end."""

    jobs: list[Job]
    batches: set[str]
    unfinished: set[str]

    @property
    def finished(self) -> Counter[tuple[JobState, int]]:
        """How many jobs ended in a state and were finished so many times.

        Not counted is an end whose result was lost with its host, and needed: the job was computed again then.
        """
        return Counter((job.state, happened(job, "JobFinished") - happened(job, "ResultLost")) for job in self.jobs)

    @property
    def held(self) -> set[str]:
        """The jobs whose results are with their agents."""
        return {job.uuid for job in self.jobs if job.state is JobState.RESULT_HELD}

    @property
    def finishes_of_completed(self) -> set[int]:
        """How many times jobs that were not cancelled were finished: once each."""
        return {count for (state, count) in self.finished if state is not JobState.CANCELLED}


def happened(job: Job, event: str) -> int:
    """Return how many times something happened to a job."""
    return [entry.event for entry in job.history].count(event)


def recorded(database_url: str) -> Recorded:
    """Read what the database has."""
    with contextlib.closing(Store(database_url)) as store, store.reading() as tx:
        batches = tx.batches()
        return Recorded(
            jobs=[tx.job(job.uuid) for batch in batches for job in tx.batch_jobs(batch.uuid)],
            batches={batch.uuid for batch in batches},
            unfinished={batch.uuid for batch in batches if batch.state not in ENDED_BATCHES},
        )


def files_left(directory: Path, hosts: Iterable[str], held: set[str]) -> list[str]:
    """Return the files of jobs in the directories of agents that are not results still held.

    A file of zeros in `scratch` is the place of a slot's next input, erased.
    """
    return [
        str(file.relative_to(directory))
        for host in hosts
        for kind in ("inputs", "results", "processes", "scratch")
        for file in (directory / host / kind).iterdir()
        if file.name not in held and (kind != "scratch" or any(file.read_bytes()))
    ]
