import contextlib
import hashlib
import random
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fpga_pool.client import Client, JobSpec, RunSettings
from fpga_pool.client.outcome import BatchResult
from fpga_pool.experiments.embedded import start_pool
from fpga_pool.model.objects.pool import BatchState, Job, JobState
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.audit import audit
from fpga_pool.store import Store
from support.deployment import Deployment
from support.forked import Forked
from support.servers.server import free_port

#: Options of a pool that responds fast: real boards, heartbeats and retries in fractions of a second.  A job that a
#: busy machine delays by seconds does not count as hung.
FAST = {
    "standalone": {"hosts": 3, "egress_mbps": 2000, "ingress_mbps": 4000},
    "driver_simulated": {"board": "kintex7", "cards": 1},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05, "host_timeout_s": 5.0},
    "agent": {"heartbeat_s": 0.5, "hang_factor": 2.0, "hang_grace_s": 20.0, "fault_pause_s": 0.3},
}


def merged(*options):
    """Merge options of several dicts; later values override earlier ones name by name."""
    names = {}
    for groups in options:
        for group, values in groups.items():
            names.setdefault(group, {}).update(values)
    return names


@dataclass
class Pool:
    """One embedded pool in a separate process, which tests may kill and restart with the same state."""

    directory: Path
    options: dict
    port: int = field(default_factory=free_port)
    forked: bool = True
    process: Forked | subprocess.Popen | None = None
    endpoint: str = ""
    clients: list[Client] = field(default_factory=list)

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    def start(self) -> "Pool":
        popen = Forked.popen if self.forked else subprocess.Popen
        self.process, self.endpoint = start_pool(self.directory, self.options, self.port, popen)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)

    def stop(self) -> int:
        for client in self.clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return 0 if self.process is None else self.process.returncode

    def client(self, project_id: str = "demo") -> Client:
        client = Client(self.endpoint, project_id=project_id)
        self.clients.append(client)
        return client

    def log(self) -> str:
        return (self.directory / "pool.log").read_text()


@pytest.fixture
def make_pool(tmp_path) -> Iterator:
    """Start pools for one test: `make_pool(options)`; options are added to FAST."""
    pools = []

    def make(options=None, directory: Path | None = None, forked: bool = True) -> Pool:
        directory = directory or tmp_path / f"pool-{len(pools)}"
        pools.append(Pool(directory, merged(FAST, options or {}), forked=forked))
        return pools[-1].start()

    yield make
    for pool in pools:
        pool.stop()


@pytest.fixture(scope="session")
def pool(tmp_path_factory) -> Iterator[Pool]:
    """A pool that tests share; they restore the state of its slots."""
    # Each worker has one while it runs; with the intervals of FAST it would use a seventh of a processor.
    options = merged(FAST, {"scheduler": {"interval_s": 1.0}, "agent": {"heartbeat_s": 2.0}})
    shared = Pool(tmp_path_factory.mktemp("shared-pool"), options).start()
    yield shared
    assert shared.stop() == 0


@pytest.fixture
def deployment(tmp_path) -> Iterator:
    """Start pools of processes: `deployment(rabbitmq.url, database_url, schedulers=2, agents=3)`; see Deployment."""
    pools = []
    with contextlib.ExitStack() as stack:

        def start(transport_url: str, database_url: str, **parts) -> Deployment:
            parts["options"] = merged(
                {group: FAST[group] for group in ("scheduler", "agent")}, parts.get("options", {})
            )
            parts.setdefault("forked", True)
            pools.append(Deployment(tmp_path / f"pool-{len(pools)}", transport_url, database_url, **parts))
            return stack.enter_context(pools[-1])

        yield start
        for pool in pools:  # pytest shows it if the test failed
            for name in pool.names:
                print(f"--- {name}\n{pool.last_lines(name)}")


class Work:
    """Small jobs with known results, run batch by batch, each by a client in a separate thread."""

    def __init__(self, directory: Path, requesters: Sequence[str], jobs: int, seed: int = 7) -> None:
        self._directory = directory
        self._requesters = requesters
        rng = random.Random(seed)
        self.payloads = [rng.randbytes(rng.randrange(0, 60_000)) for _ in range(jobs)]
        self._outcomes: dict[str, BatchResult | Exception] = {}
        self._threads: list[threading.Thread] = []
        self._numbers: dict[str, list[int]] = {}

    def start(self, client: Client, numbers: Sequence[int], settings: RunSettings | None = None) -> None:
        """Run these jobs as one batch."""
        name = f"batch-{len(self._threads)}"
        self._numbers[name] = list(numbers)
        self._threads.append(threading.Thread(target=self._run, args=(client, name, settings), daemon=True))
        self._threads[-1].start()

    def _run(self, client: Client, name: str, settings: RunSettings | None) -> None:
        specs = [
            JobSpec(
                self.function(number),
                self.payloads[number],
                requester=self._requesters[number % len(self._requesters)],
                name=f"job-{number}",
            )
            for number in self._numbers[name]
        ]
        try:
            self._outcomes[name] = client.run_jobs(
                specs, name=name, output_dir=self._directory / name, settings=settings
            )
        except Exception as error:  # reported by `wrong`
            self._outcomes[name] = error

    def wait(self, timeout_s: float) -> None:
        """Wait until all batches have ended."""
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))

    @property
    def running(self) -> int:
        """Number of batches that have not ended."""
        return sum(thread.is_alive() for thread in self._threads)

    def wrong(self) -> list[str]:
        """Return deviations from the expected outcome: every job has the right result, every batch is COMPLETED."""
        found = []
        for name, numbers in self._numbers.items():
            outcome = self._outcomes.get(name)
            if not isinstance(outcome, BatchResult):
                found.append(f"{name}: {outcome!r}")
                continue
            if outcome.batch.state is not BatchState.COMPLETED:
                found.append(f"{name}: {outcome.batch.state}")
            for number, job in zip(numbers, outcome.jobs, strict=True):
                if job.result is None or job.result.read_bytes() != self.expected(number):
                    found.append(f"{name}, {job.name}: {job.state} {job.reason or 'with a wrong result'}")
        return found

    def function(self, number: int) -> str:
        return "sha256" if number % 3 else "wordcount"

    def expected(self, number: int) -> bytes:
        payload = self.payloads[number]
        if self.function(number) == "sha256":
            return hashlib.sha256(payload).hexdigest().encode() + b"\n"
        return b"%d\n" % len(payload.split())


@pytest.fixture
def new_work(tmp_path) -> Iterator:
    """Make work: `new_work(requesters, jobs)`; see Work."""
    made = []

    def make(requesters: Sequence[str], jobs: int, seed: int = 7) -> Work:
        made.append(Work(tmp_path / f"work-{len(made)}", requesters, jobs, seed))
        return made[-1]

    return make


#: How long a pool may take to settle after its last job, e.g. until a lost host returns, or a result is released.
IDLE_S = 180.0


def idle_findings(database_url: str, timeout_s: float = IDLE_S) -> list[str]:
    """Return violations of the rules for idle pools in a running pool that had time to become idle."""
    store = Store(database_url)
    try:
        return _last_findings(lambda: audit(store, idle=True), timeout_s)
    finally:
        store.close()


def _last_findings(look: Callable[[], list[str]], timeout_s: float) -> list[str]:
    """Repeat a check until it finds nothing, or the time is over; return the last findings."""
    until_s = time.monotonic() + timeout_s
    while (found := look()) and time.monotonic() < until_s:
        time.sleep(0.3)
    return found


def findings_at_rest(database_url: str, state_dirs: Mapping[str, Path]) -> list[str]:
    """Return violations of the rules for idle pools in a running pool and its agents, after time to become idle.

    Agents release ended jobs after a heartbeat at the latest, which the database does not show.
    """
    return _last_findings(lambda: idle_findings(database_url, 0.0) + journal_findings(database_url, state_dirs), IDLE_S)


def journal_findings(database_url: str, state_dirs: Mapping[str, Path]) -> list[str]:
    """Return ended jobs that agents still hold, and commands and reports that the database does not know."""
    found = []
    store = Store(database_url)
    with store.reading() as tx:
        shards = {shard.name: shard.epoch for shard in tx.shards()}
        for host, directory in state_dirs.items():
            journal = Journal(directory / "journal.sqlite")
            for held in journal.jobs():
                job = tx.job(held.uuid)
                if (job.state, job.host, job.attempt) != (JobState.RESULT_HELD, host, held.assignment.attempt):
                    found.append(f"{host} holds job {job.uuid}: {job.state}, attempt {job.attempt} on {job.host}")
            for slot in tx.slots(host):
                epoch, sequence = journal.fence(slot.name)
                if epoch > shards[slot.shard] or sequence > slot.sequence:
                    found.append(f"slot {slot.name}: executed command {sequence} of epoch {epoch}, which was not sent")
            if unreported := journal.unreported():
                found.append(f"{host} has {unreported} reports to tell")
            journal.close()
    store.close()
    return found


def completed_jobs(database_url: str, also: Collection[JobState] = ()) -> list[Job]:
    """Return all jobs of the pool; assert that each is complete, or in one of the other given states."""
    store = Store(database_url)
    with store.reading() as tx:
        jobs = [job for batch in tx.batches() for job in tx.batch_jobs(batch.uuid)]
    store.close()
    assert Counter(job.state for job in jobs).keys() <= {JobState.COMPLETED, JobState.RESULT_HELD, *also}
    return jobs


@pytest.fixture
def end_and_audit():
    """Shut a deployment down in order, and audit its final state; return its jobs, all complete."""

    def end(pool: Deployment, database_url: str, also: Collection[JobState] = ()) -> list[Job]:
        state_dirs = {host: pool.directory / host for host in pool.hosts}
        assert findings_at_rest(database_url, state_dirs) == []
        assert pool.end() == dict.fromkeys(pool.names, 0)
        assert pool.unforeseen() == []
        assert idle_findings(database_url, timeout_s=0.0) == []
        assert journal_findings(database_url, state_dirs) == []
        return completed_jobs(database_url, also)

    return end


@pytest.fixture
def end_and_audit_embedded():
    """The same for an embedded pool."""

    def end(pool: Pool) -> list[Job]:
        database_url = f"sqlite:///{pool.state_dir / 'pool.sqlite'}"
        state_dirs = {path.name: path for path in (pool.state_dir / "agents").iterdir()}
        assert findings_at_rest(database_url, state_dirs) == []
        assert pool.stop() == 0
        assert journal_findings(database_url, state_dirs) == []
        return completed_jobs(database_url)

    return end


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket, forward: Callable[[bytes], None]) -> None:
    """Forward data until one side closes the connection; then close the other, too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            forward(data)
    _hang_up(source)
    _hang_up(sink)


class Line:
    """A relay to RabbitMQ that can hold up the messages of a process, so that they arrive late."""

    def __init__(self, transport_url: str) -> None:
        self._broker = urlsplit(transport_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        #: A connection is held up from the first data with this marker on.
        self._marker: bytes | None = None
        #: Data held up on the way to the broker, by connection.
        self._held: dict[socket.socket, bytes] = {}
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    @property
    def url(self) -> str:
        """The transport_url of processes that use this relay."""
        port = self._listener.getsockname()[1]
        return self._broker._replace(netloc=f"{self._broker.netloc.rsplit(':', 1)[0]}:{port}").geturl()

    @property
    def holds(self) -> bool:
        """Whether data is held up."""
        with self._lock:
            return bool(self._held)

    def hold(self, marker: bytes) -> None:
        """Hold up data to the broker from the first message with this marker on."""
        with self._lock:
            self._marker = marker

    def release(self) -> None:
        """Forward the data held up, and all further data."""
        with self._lock:
            self._marker = None
            while self._held:
                broker, data = self._held.popitem()
                broker.sendall(data)

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            _hang_up(end)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                process, _ = self._listener.accept()
                self._begin(self._serve, process)

    def _serve(self, process: socket.socket) -> None:
        with process, socket.create_connection((self._broker.hostname, self._broker.port)) as broker:
            self._ends += [process, broker]
            back = threading.Thread(target=_pump, args=(broker, process, process.sendall), daemon=True)
            back.start()
            _pump(process, broker, lambda data: self._send(broker, data))
            back.join()

    def _send(self, broker: socket.socket, data: bytes) -> None:
        with self._lock:
            if broker in self._held or (self._marker is not None and self._marker in data):
                self._held[broker] = self._held.get(broker, b"") + data
            else:
                broker.sendall(data)


@pytest.fixture
def line(rabbitmq) -> Iterator:
    """Make relays to RabbitMQ: `line()`; see Line."""
    with contextlib.ExitStack() as ends:
        yield lambda: ends.enter_context(contextlib.closing(Line(rabbitmq.url)))


@pytest.fixture
def mariadb_url(mariadb) -> str:
    """URL of a new database, which ends with its server."""
    return mariadb.new_database()


@pytest.fixture
def postgresql_url(postgresql) -> str:
    """URL of a new database, which ends with its server."""
    return postgresql.new_database()
