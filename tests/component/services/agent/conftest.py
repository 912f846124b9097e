import threading
import uuid

import pytest

from fpga_pool.drivers.slots.base import SlotAddress
from fpga_pool.drivers.slots.cpu import CpuWorkers
from fpga_pool.model.exceptions import HostTaken, NotEnrolled, ServiceUnavailable
from fpga_pool.model.messages.agents import AssignJob, Command, EvictJob, ReleaseJob, SlotChanged
from fpga_pool.model.messages.requests import HeartbeatAnswer
from fpga_pool.services.agent import service, slot_worker
from fpga_pool.services.agent.instances import channel, supervisor
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.service import AgentService

from .held import Jobs
from .node import Host

SLOT = "h0/sim0/slot0"
DATA = b"what the client sent"


class Commands:
    """A factory of commands, which are numbered like those of a scheduler."""

    def __init__(self):
        self.sequences = {}

    def command(self, action, slot=SLOT, epoch=1):
        sequence = self.sequences[slot] = self.sequences.get(slot, 0) + 1
        return Command(
            id=str(uuid.uuid4()), shard="s", epoch=epoch, host="h0", slot=slot, sequence=sequence, action=action
        )

    def assign(self, job, *, slot=SLOT, epoch=1, **fields):
        known = {"attempt": 1, "project_id": "p", "function": "sha256", "input_bytes": len(DATA), "order": 0}
        return self.command(AssignJob(**{"job": job, "expected_s": 0.01} | known | fields), slot, epoch)

    def release(self, job, *, slot=SLOT, epoch=1):
        return self.command(ReleaseJob(job=job), slot, epoch)

    def evict(self, job, *, attempt=1, keep_progress=True, slot=SLOT):
        return self.command(EvictJob(job=job, attempt=attempt, keep_progress=keep_progress), slot)


@pytest.fixture
def commands():
    return Commands()


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


@pytest.fixture
def new_jobs(tmp_path, journal, clock):
    """Return a function that makes the shell of an agent from the journal, as at its start."""

    def restore():
        jobs = Jobs(journal, tmp_path, clock)
        jobs.restore()
        return jobs

    return restore


@pytest.fixture
def jobs(new_jobs):
    return new_jobs()


@pytest.fixture
def reported(journal):
    """Return a function that lists the reports that wait, as (class, job or state, attempt or job)."""

    def read():
        return [
            (item.state.value, item.function)
            if isinstance(item, SlotChanged)
            else (type(item).__name__, item.job, item.attempt)
            for _, item in journal.reports(1000)
        ]

    return read


class Scheduler:
    """The peer of the agent across the process boundary. It records messages, and can be unavailable."""

    def __init__(self):
        self.away = False
        #: Whether another agent reports for the host.
        self.taken = False
        #: Whether the agent's key is approved for its host.
        self.enrolled = True
        #: By how much its clock is ahead of the agent's.
        self.ahead_s = 0.0
        #: Within how many seconds it expects another heartbeat.
        self.due_s = 0.0
        #: Until how many seconds life signs suffice.
        self.full_due_s = 0.0
        self.heartbeats = []
        self.life_signs = []
        self.reports = []

    def claim(self, host, agent_id):
        self._answer()
        if self.taken:
            raise HostTaken("another agent reports for it")
        if not self.enrolled:
            raise NotEnrolled(f"host {host}: its key must be approved first")

    def enroll(self, host, code=""):
        self.enrolled = True
        return True

    def heartbeat(self, heartbeat):
        self.claim(heartbeat.host, heartbeat.agent_id)
        self.heartbeats.append(heartbeat)
        return HeartbeatAnswer(at=heartbeat.at + self.ahead_s, due_s=self.due_s, full_due_s=self.full_due_s)

    def alive(self, heartbeat):
        self._answer()
        self.life_signs.append(heartbeat)

    def report(self, host, agent_id, numbered):
        self._answer()
        self.reports += [report for _, report in numbered]

    def _answer(self):
        if self.away:
            raise ServiceUnavailable("away")


class Bench:
    """One agent with a real driver on a fast board."""

    slot = SLOT
    address = SlotAddress("sim0", "slot0")

    def __init__(self, settings, new_driver, new_cpu, library, key, clock, egress=None):
        self.settings = settings
        self._egress = egress
        self.library = library
        self.scheduler = Scheduler()
        self.commands = Commands()
        self._new_driver, self._new_cpu = new_driver, new_cpu
        self._key = key
        self._clock = clock
        self.agent = None
        self.speaks = []
        self.start()

    def start(self):
        self.driver = self._new_driver()
        self.agent = AgentService(
            self.settings,
            self.driver,
            self.library,
            self.scheduler,
            [self._key.public_key()],
            self._clock,
            egress=self._egress,
            cpu=self._new_cpu(),
        )
        self.agent.on_speaking = self.speaks.append
        self.agent.start()

    def stop(self):
        self.agent.stop()

    @property
    def jobs(self):
        return self.agent.jobs

    @property
    def worker(self):
        return self.agent.slots[SLOT]

    def execute(self, *commands):
        return [outcome.outcome for outcome in self.agent.execute("s", 1, list(commands))]

    def assign(self, job, *, data=DATA, **fields):
        """Assign a job, and let its input arrive."""
        assert self.execute(self.commands.assign(job, input_bytes=len(data), **fields)) == ["accepted"]
        self.jobs.files.input_path(job).write_bytes(data)
        self.jobs.staged(job)

    def told(self, job):
        """Return the classes of the reports about a job."""
        return [type(item).__name__ for item in list(self.scheduler.reports) if getattr(item, "job", "") == job
                and not isinstance(item, SlotChanged)]  # fmt: skip

    def slot_states(self):
        return [item.state.value for item in list(self.scheduler.reports)
                if isinstance(item, SlotChanged) and item.slot == SLOT]  # fmt: skip

    def failure(self, job):
        return next((item for item in list(self.scheduler.reports)
                     if type(item).__name__ == "JobFailed" and item.job == job), None)  # fmt: skip

    def observed(self, slot=SLOT):
        return next(item for item in self.agent.heartbeat().slots if item.slot == slot)

    def state(self):
        return self.observed().state.value

    def files(self):
        root = self.settings.state_dir
        return sorted(path.name for name in ("inputs", "results") for path in (root / name).iterdir())


@pytest.fixture
def new_cpu(catalogue):
    """Return a function that makes a CPU pool of one worker, which takes the times of the catalogue."""
    return lambda: CpuWorkers(catalogue, 1, paced=True)


@pytest.fixture
def new_bench(agent_settings, new_driver, new_cpu, library, key, clock, monkeypatch):
    # Tests check every step. `tests/unit/model/agent/test_reporting.py` tests which steps are left out.
    monkeypatch.setattr(service, "coalesced", lambda numbered: numbered)
    monkeypatch.setattr(service, "WATCH_S", 0.02)  # also the time that a stop waits
    monkeypatch.setattr(slot_worker, "IDLE_S", 0.2)
    benches = []

    def build(egress=None, **fields):
        benches.append(Bench(agent_settings(**fields), new_driver, new_cpu, library, key, clock, egress))
        return benches[-1]

    yield build
    for bench in benches:
        bench.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("slot-", "watch-"))]


@pytest.fixture
def bench(new_bench):
    return new_bench()


@pytest.fixture
def host(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "POLL_S", 0.05)
    monkeypatch.setattr(supervisor, "CLAIM_AGAIN_S", 0.05)
    monkeypatch.setattr(channel, "POLL_S", 0.05)
    monkeypatch.setattr(channel, "RECONNECT_S", 0.05)
    made = Host(bench, tmp_path)
    yield made
    made.instances.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("instance-", "channel-", "hook"))]
