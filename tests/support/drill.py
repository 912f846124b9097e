"""A drill: clients submit work while parts of the pool fail, and record what they know in a ledger.

One seed determines what is submitted, how it is submitted, and which part fails when.  It does not determine how these
events interleave, so findings are analyzed in the logs, not by running the seed again.
"""

import contextlib
import hashlib
import itertools
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from fpga_pool.client import Client, JobSpec, Subtask
from fpga_pool.client.runner import BatchRunner, RunSettings
from fpga_pool.model.exceptions import FpgaPoolError, InvalidTransition, NotFound, ServiceUnavailable
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.store import Store
from support.deployment import Deployment
from support.guests import Hypervisor
from support.waiting import wait_until

#: Time after which a client gives up.  A pool with a fault every three seconds, on a busy machine, may be unavailable
#: for minutes.  The durations of items are recorded, but not checked.
PATIENCE_S = 600.0
#: Settings of a client that tolerates a pool that does not answer for a while.
PATIENT = RunSettings(patience_s=PATIENCE_S, timeout_s=3600.0)
PROJECTS = ("blue", "green")
BATCH_SIZES = (1, 1, 1, 2, 5, 20, 50, 100)
#: Number of items of each kind among 100 items.
MIX = {"batch": 40, "left": 16, "cancelled": 10, "pipeline": 8, "task": 10, "gang": 8, "instance": 8}
#: Largest number of subtasks of a pipeline and of shares of a task.
CHAIN = 4
#: Number of items that are in progress at any time.
CLIENTS = 10


@dataclass(frozen=True)
class Item:
    """One submission: its kind, from MIX, and an input for each job, process or slot."""

    kind: str
    number: int
    project: str
    inputs: tuple[bytes, ...]

    @property
    def objects(self) -> int:
        """Number of jobs, shares, processes, or slots of an instance."""
        return len(self.inputs)


def items(objects: int, seed: int) -> list[Item]:
    """Draw submissions until they have this many jobs, shares, processes and slots in total."""
    drawn: list[Item] = []
    endless = submissions(seed)
    while sum(item.objects for item in drawn) < objects:
        drawn.append(next(endless))
    return drawn


def submissions(seed: int) -> Iterator[Item]:
    """Yield random submissions without end."""
    rng = random.Random(seed)
    for number in itertools.count():
        (kind,) = rng.choices(list(MIX), list(MIX.values()))
        count = (
            rng.choice(BATCH_SIZES)
            if kind in ("batch", "left", "cancelled")
            else rng.randint(1, 2 if kind == "instance" else 4)
        )
        inputs = tuple(rng.randbytes(round(10 ** rng.uniform(0, 4.5))) for _ in range(count))
        yield Item(kind, number, rng.choice(PROJECTS), inputs)


@dataclass
class Ledger:
    """What clients know at the end: the uuids of the submitted objects by kind, and the errors found."""

    uuids: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in MIX})
    wrong: list[str] = field(default_factory=list)
    #: Numbers of the items that have ended.
    ended: list[int] = field(default_factory=list)
    #: Durations of these items.
    took_s: list[float] = field(default_factory=list)


class Clients:
    """Threads that submit items one after the other, each through one of the APIs, and write the ledger."""

    def __init__(
        self,
        pool: Deployment,
        work: Iterable[Item],
        directory: Path,
        hypervisors: Mapping[str, Hypervisor],
        store: Store,
    ) -> None:
        self.ledger = Ledger()
        self._pool = pool
        self._hypervisors = hypervisors
        self._store = store
        self._directory = directory
        self._shared = {(project, api): pool.client(project, api) for project in PROJECTS for api in pool.endpoints}
        self._work = iter(work)
        self._turn = threading.Lock()
        self._do: dict[str, Callable[[Item], None]] = {
            "batch": self._batch,
            "left": self._left,
            "cancelled": self._cancelled,
            "pipeline": self._pipeline,
            "task": self._task,
            "gang": self._gang,
            "instance": self._instance,
        }
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> bool:
        """Whether any thread still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            begun_s = time.monotonic()
            try:
                self._do[item.kind](item)
            except Exception as error:
                self._blame(item, repr(error))
            self.ledger.took_s.append(time.monotonic() - begun_s)
            if not self._is_blamed(item):
                shutil.rmtree(self._results(item), ignore_errors=True)
            self.ledger.ended.append(item.number)

    def _next(self) -> Item | None:
        """Return the next item, waiting for it if necessary; None if there are no more."""
        with self._turn:
            return next(self._work, None)

    def _blame(self, item: Item, what: str) -> None:
        self.ledger.wrong.append(f"{item.kind} {item.number}: {what}")

    def _is_blamed(self, item: Item) -> bool:
        return any(entry.startswith(f"{item.kind} {item.number}: ") for entry in self.ledger.wrong)

    def _client(self, item: Item, turn: int = 0) -> Client:
        names = list(self._pool.endpoints)
        return self._shared[item.project, names[(item.number + turn) % len(names)]]

    def _settings(self, item: Item) -> dict[str, Any]:
        return {"output_dir": self._results(item), "settings": PATIENT}

    def _results(self, item: Item) -> Path:
        return self._directory / f"item-{item.number}"

    def _specs(self, item: Item) -> list[JobSpec]:
        requester = self._pool.hosts[item.number % len(self._pool.hosts)]
        return [JobSpec("sha256", data, requester, name=f"{number}") for number, data in enumerate(item.inputs)]

    def _hold_against(self, item: Item, found: Any) -> None:
        for data, job in zip(item.inputs, found.jobs, strict=True):
            if job.result is None or job.result.read_bytes() != _digest(data):
                self._blame(item, f"{job.job.uuid} in {job.slot}: {job.state} {job.reason or 'with a wrong result'}")

    def _batch_runner(self, item: Item) -> BatchRunner:
        return self._noted(item, self._client(item).runner(self._specs(item), **self._settings(item)))

    def _pipeline_runner(self, item: Item) -> BatchRunner:
        names = [f"{number}" for number, _ in enumerate(item.inputs[:CHAIN])]
        chain = [Subtask("0", "sha256", item.inputs[0], self._pool.hosts[0])]
        chain += [Subtask(name, "sha256", after=(before,)) for before, name in itertools.pairwise(names)]
        return self._noted(item, self._client(item).pipeline_runner(chain, **self._settings(item)))

    def _task_runner(self, item: Item) -> BatchRunner:
        requester, inputs = self._pool.hosts[0], item.inputs[:CHAIN]
        runner = self._client(item).task_runner("sha256", inputs, requester=requester, **self._settings(item))
        return self._noted(item, runner)

    def _noted(self, item: Item, runner: BatchRunner) -> BatchRunner:
        self.ledger.uuids[item.kind].add(runner.batch_uuid)
        return runner

    def _batch(self, item: Item) -> None:
        """Run a batch."""
        self._hold_against(item, self._batch_runner(item).run())

    def _left(self, item: Item) -> None:
        """Submit a batch, and fetch its results with another client, through the next API."""
        runner = self._batch_runner(item)
        runner.submit()
        found = self._client(item, 1).attached_runner(runner.batch_uuid, self._specs(item), **self._settings(item))
        self._hold_against(item, found.run())

    def _cancelled(self, item: Item) -> None:
        """Cancel a batch, pipeline or task while its inputs are sent, or later; it may complete before that."""
        client = self._client(item, 1)
        make, cancel = {
            0: (self._pipeline_runner, client.cancel_pipeline),
            1: (self._task_runner, client.cancel_task),
        }.get(item.number % 4, (self._batch_runner, client.cancel))
        runner = make(item)
        submitting = threading.Thread(target=self._submit, args=(runner,), daemon=True)
        submitting.start()
        until(lambda: _exists(client, runner.batch_uuid), "the batch is created")
        time.sleep(item.number % 3 * 0.5)
        with contextlib.suppress(InvalidTransition):  # it has ended
            patiently(lambda: cancel(runner.batch_uuid))
        submitting.join(PATIENCE_S)
        until(
            lambda: client.batch(runner.batch_uuid).state in (BatchState.CANCELLED, BatchState.COMPLETED),
            "the batch ends",
        )

    @staticmethod
    def _submit(runner: BatchRunner) -> None:
        with contextlib.suppress(FpgaPoolError):  # it was cancelled meanwhile
            runner.submit()

    def _pipeline(self, item: Item) -> None:
        """Run a chain: the digest of the first input, the digest of that result, and so on."""
        runner = self._pipeline_runner(item)
        last = runner.run().jobs[-1]
        data = item.inputs[0]
        for _ in item.inputs[:CHAIN]:
            data = _digest(data)
        if last.result is None or last.result.read_bytes() != data:
            self._blame(item, f"{runner.batch_uuid}: {last.state} {last.reason or 'with a wrong result'}")

    def _task(self, item: Item) -> None:
        """Run a task with a slot for each of its files."""
        self._hold_against(item, self._task_runner(item).run())

    def _gang(self, item: Item) -> None:
        """Queue a gang; cancel every fourth one."""
        uuid = str(uuid4())
        client = self._client(item)
        self.ledger.uuids[item.kind].add(uuid)
        patiently(lambda: client.create_gang(item.objects, 60.0, 0.5, work_s=1.0, uuid=uuid))
        if item.number % 4 == 0:
            with contextlib.suppress(InvalidTransition):
                patiently(lambda: client.cancel_gang(uuid))
        until(lambda: client.gang(uuid).gang.state in ENDED_GANGS, "the gang ends")
        gang = patiently(lambda: client.gang(uuid).gang)
        if gang.state is not GangState.COMPLETED and (item.number % 4 or gang.state is not GangState.CANCELLED):
            self._blame(item, f"{uuid}: {gang.state} {gang.reason}")

    def _instance(self, item: Item) -> None:
        """Run a virtual machine on the first host that lets it start; check that it holds its slots while it runs."""
        uuid = str(uuid4())
        hosts = itertools.cycle(self._pool.hosts[item.number % 4 :] + self._pool.hosts[: item.number % 4])

        def boot() -> str:
            host = next(hosts)
            return host if self._hypervisors[host].boot(uuid, "sha256", item.objects, item.project) else ""

        host = wait_until(boot, "an instance starts", 3 * PATIENCE_S)
        time.sleep(1.0 + item.number % 4)
        slots = patiently(lambda: leased(self._store).get(uuid, []))
        self._hypervisors[host].end(uuid)
        if sum(slot.startswith(f"{host}/") for slot in slots) != item.objects:
            self._blame(item, f"{uuid} on {host}: {item.objects} slots were given, held are {slots}")


def leased(store: Store) -> dict[str, list[str]]:
    """Return the slots that instances hold, by instance."""
    held: dict[str, list[str]] = {}
    with store.reading() as tx:
        for lease in tx.leases():
            if lease.of_instance:
                held.setdefault(lease.holder, []).append(lease.slot)
    return held


def _exists(client: Client, uuid: str) -> bool:
    try:
        return bool(client.batch(uuid))
    except NotFound:
        return False


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def patiently(call: Callable[[], Any]) -> Any:
    """Repeat a call until the pool answers; raise ServiceUnavailable if it does not within PATIENCE_S."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except ServiceUnavailable:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.5)


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(lambda: patiently(condition), what, 3 * PATIENCE_S)
