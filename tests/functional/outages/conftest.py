"""Pools with work, parts of which a test takes away; the database is checked before, during and after the outage."""

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fpga_pool.client import JobSpec, RunSettings
from fpga_pool.client.outcome import BatchProgress, BatchResult
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.objects.pool import BatchState, Job, JobState, SlotState
from fpga_pool.store import Store
from support.deployment import Deployment
from support.servers import RabbitMQ
from support.waiting import SOON_S, wait_until

#: Two slots per host, and a board on which a job computes 1 ms for each byte of its input.
CATALOGUE = """\
format_version = 1

[functions.sha256]
version = "1.0"
slot_kinds = ["small"]
io_bps = 8e3
preemptible = false
speedup = 1.0
source = "a second for a kilobyte, so that a test knows what is going on when"

[functions.sha256.fpga_time]
slow = { a_s = 0.0, b_s_per_byte = 1e-3 }

[boards.slow]
slots = ["small", "small"]
configuration_bps = 1e9
dma_bps = 1e9
source = "no real board"

[boards.slow.regions]
small = { bitstream_bytes = 1024 }
"""
SLOTS_PER_HOST = 2

#: Timeouts are short, but longer than the stalls of a busy machine.  A network that is cut for 2 s may appear cut for
#: twice as long, as TCP doubles the pause between two retransmissions.
OPTIONS = {
    "driver_simulated": {"board": "slow", "cards": 1},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05, "host_timeout_s": 8.0, "shard_timeout_s": 6.0},
    "agent": {"heartbeat_s": 0.5, "hang_grace_s": 30.0, "fault_pause_s": 0.3},
}

#: Factors for the duration of jobs.  A stalling machine may miss a state that lasts for seconds; then the attempt is
#: repeated with longer jobs.
LONGER = (1, 2, 4, 8)
#: States of a job that is not done.
TO_DO = {JobState.PENDING, JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING}


class Work:
    """One batch of sha256 jobs with these computation times, run by a client in a separate thread."""

    def __init__(self, pool: Deployment, store: Store, directory: Path, seconds: Sequence[float], requester: str):
        self._payloads = [os.urandom(round(1000 * one)) for one in seconds]
        specs = [
            JobSpec("sha256", payload, requester, name=f"job-{number}") for number, payload in enumerate(self._payloads)
        ]
        # This policy does not move jobs, as tests check that they wait and continue.
        self._runner = pool.client().runner(
            specs, policy="ect", output_dir=directory, on_progress=self._note, settings=RunSettings(patience_s=300)
        )
        self._store = store
        #: Number of results that the client has.
        self.results = 0
        self._ended: list[BatchResult | Exception] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, progress: BatchProgress) -> None:
        self.results = progress.results

    def _run(self) -> None:
        try:
            self._ended.append(self._runner.run())
        except Exception as error:
            self._ended.append(error)

    def jobs(self) -> list[Job]:
        """Return the jobs as stored in the database."""
        with self._store.reading() as tx:
            return list(tx.batch_jobs(self._runner.batch_uuid))

    def states(self) -> Counter[JobState]:
        return Counter(job.state for job in self.jobs())

    def attempts(self) -> set[int]:
        return {job.attempt for job in self.jobs()}

    def until(self, **states: int) -> None:
        """Wait until exactly this many jobs are in each of these states, and none in another."""
        wanted = Counter({JobState[state]: number for state, number in states.items()})
        wait_until(lambda: self.states() == wanted, lambda: f"{dict(wanted)}: {self._ended or self.states()}")

    def fills(self, slots: int) -> bool:
        """Return True once this many jobs compute and as many wait; False once that can no longer be observed."""
        wanted = {JobState.RUNNING: slots, JobState.STAGED: slots}

        def look() -> str:
            jobs = self.jobs()
            if any(job.state not in TO_DO or job.attempt > 1 for job in jobs) or self._ended:
                return "passed"
            return "full" if Counter(job.state for job in jobs) == wanted else ""

        return wait_until(look, lambda: f"{wanted}: {self.states()}") == "full"

    def finish(self, *, in_order: bool = True) -> None:
        """Wait until every job is done; assert that results are correct, jobs finish once, and nothing remains of them.

        `in_order` says that pool time cannot have gone back meanwhile.
        """
        self._thread.join(SOON_S)
        assert self._ended, f"the batch does not end: {self.states()}"
        (outcome,) = self._ended
        assert isinstance(outcome, BatchResult), outcome
        found = [job.result.read_bytes() if job.result else job.reason for job in outcome.jobs]
        assert found == [hashlib.sha256(payload).hexdigest().encode() + b"\n" for payload in self._payloads]
        assert outcome.batch.state is BatchState.COMPLETED
        self.until(COMPLETED=len(self._payloads))
        for job in self.jobs():
            assert [entry.event for entry in job.history].count("JobFinished") == 1
            times = ("created_at", "transfer_began_at", "staged_at", "started_at", "finished_at", "ended_at")
            happened = [at for name in times if (at := getattr(job, name)) is not None]
            assert not in_order or happened == sorted(happened), job
        wait_until(self._nothing_is_left, "slots without a lease, an empty outbox")

    def _nothing_is_left(self) -> bool:
        with self._store.reading() as tx:
            return not tx.leases() and not tx.commands()


@dataclass(frozen=True)
class Scene:
    """A pool, and the state in its database."""

    pool: Deployment
    store: Store
    directory: Path
    #: Length of each log when the latest work began, in characters.
    _logged: dict[str, int] = field(default_factory=dict)

    def begin(self, seconds: Sequence[float], requester: str = "node-1") -> Work:
        directory = self.directory / f"results-{time.monotonic_ns()}"
        return Work(self.pool, self.store, directory, seconds, requester)

    def begin_twice_full(self, seconds: float) -> Work:
        """Start twice as many jobs as there are slots; return when half of them compute and half wait in slots."""
        slots = SLOTS_PER_HOST * len(self.pool.hosts)
        for longer in LONGER:
            self._logged.update({name: len(self.pool.log_file(name).read_text()) for name in self.pool.names})
            work = self.begin([longer * seconds] * 2 * slots)
            if work.fills(slots):
                return work
            work.finish()
            print(f"jobs of {longer * seconds:g} s were not seen to fill the slots twice")
        raise AssertionError("no jobs were seen to fill the slots twice")

    def logs(self) -> dict[str, str]:
        """Return what each process has logged since slots were filled twice."""
        return {name: self.pool.log_file(name).read_text()[self._logged.get(name, 0) :] for name in self.pool.names}

    def alive(self) -> dict[str, bool]:
        with self.store.reading() as tx:
            return {host.name: host.alive for host in tx.hosts()}

    def owners(self) -> dict[str, tuple[str, int]]:
        """Return owner and epoch of every shard."""
        with self.store.reading() as tx:
            return {shard.name: (shard.owner, shard.epoch) for shard in tx.shards()}

    def slot_states(self, host: str) -> list[SlotState]:
        with self.store.reading() as tx:
            return [slot.state for slot in tx.slots(host)]

    def held(self, host: str) -> set[str]:
        """Return the jobs in the journal of an agent."""
        with contextlib.closing(sqlite3.connect(self.pool.directory / host / "journal.sqlite")) as journal:
            return {uuid for (uuid,) in journal.execute("SELECT uuid FROM jobs")}

    def now(self) -> float:
        """Return pool time in seconds, as last stored by the owner of a shard."""
        with self.store.reading() as tx:
            return max(shard.renewed_at for shard in tx.shards())

    def hosts_were_lost(self) -> bool:
        """Return whether a scheduler has considered a host lost since slots were filled twice."""
        return any("no heartbeat for" in log for log in self.logs().values())


@contextlib.contextmanager
def running(directory: Path, rabbitmq: RabbitMQ, database_url: str, **parts) -> Iterator[Scene]:
    """Run a pool during a fixture."""
    directory.mkdir(parents=True)
    catalogue = directory / "catalogue.toml"
    catalogue.write_text(CATALOGUE)
    given = parts.pop("options", {})
    options = {**OPTIONS, "functions": {"catalogue": catalogue}, **given}
    with (
        Deployment(directory / "pool", rabbitmq.url, database_url, options=options, forked=True, **parts) as pool,
        contextlib.closing(Store(database_url)) as store,
    ):
        try:
            yield Scene(pool, store, directory)
        finally:
            for name in pool.names:
                print(f"--- {name}\n{pool.last_lines(name)}")


@pytest.fixture(scope="package")
def run_pool(tmp_path_factory):
    """Run a pool: `with run_pool(rabbitmq, database_url, ...)`; see Deployment."""

    def run(*servers, **parts):
        return running(tmp_path_factory.mktemp("outage") / "scene", *servers, **parts)

    return run


@pytest.fixture(scope="package")
def broker(run_server, servers_directory):
    """A separate RabbitMQ for these tests, which they stop and kill."""
    yield from run_server(RabbitMQ(servers_directory / "outages"))


def unreachable(call: Callable[[], object]) -> str:
    """Return the message of a call that is refused because the service is unavailable."""
    with pytest.raises(ServiceUnavailable) as refused:
        call()
    return str(refused.value)


@pytest.fixture(scope="session")
def refusal():
    return unreachable
