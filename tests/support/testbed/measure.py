"""One batch on the testbed, from its inputs to its makespan."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import numpy as np

from fpga_pool.client import PoolApi
from fpga_pool.drivers.slots.functions import function_model
from fpga_pool.experiments.testbed import Case
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import Job
from support import environment
from support.servers.process import dies_with_us
from support.testbed.cases import patience_s, requesters
from support.testbed.network import Network
from support.testbed.pool import Pool
from support.waiting import wait_until

_BLOCK_BYTES = 1 << 20


class Control(StrEnum):
    """What limits the flows to the plan's rates."""

    #: The requester's agent, by HTB classes at its NIC.
    TC = "tc"
    #: The sender itself, by pacing its socket, which does not require root.
    PACING = "pacing"
    #: Nothing: every input is sent at once, and TCP shares the links.
    NONE = "none"

    @property
    def egress_driver(self) -> str:
        """The egress driver of the agents."""
        return "tc" if self is Control.TC else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """Times of one job, in seconds from the plan's time 0."""

    requester: str
    responder: str
    staged_s: float
    started_s: float
    finished_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured batch."""

    policy: str
    control: Control
    #: Makespan that the pool planned.
    planned_s: float
    makespan_s: float
    jobs: tuple["JobTimes", ...]
    #: Share of the machine's processor time that was not idle during the batch.
    busy: float


def make_inputs(case: Case, directory: Path) -> dict[str, Path]:
    """Write one file for each requester, which repeats a random block of its own."""
    directory.mkdir(parents=True)
    paths = {}
    for seed, (requester, size) in enumerate(zip(requesters(case), case.input_bytes, strict=True)):
        block = np.random.default_rng(seed).bytes(_BLOCK_BYTES)
        paths[requester] = directory / requester
        with paths[requester].open("wb") as file:
            for begin in range(0, size, _BLOCK_BYTES):
                file.write(block[: size - begin])
    return paths


def measure(
    case: Case, network: Network, pool: Pool, inputs: Mapping[str, Path], policy: str, control: Control, sinks: Path
) -> Run:
    """Run a batch once; ServiceUnavailable gives the reason if it does not complete."""
    sinks.mkdir(parents=True, exist_ok=True)
    with _senders(case, network, pool, inputs, control, sinks) as senders:
        batch_uuid = _create(pool.api, case, policy)
        before = _processor_ticks()
        for sender in senders.values():
            sender.go(batch_uuid)
        for sender in senders.values():
            sender.wait(patience_s(case))
        after = _processor_ticks()
    _check_results(case, inputs, sinks)
    # The senders get their results from the agents, possibly before the scheduler knows of them.
    wait_until(lambda: pool.api.batch(batch_uuid).ended_at is not None, "the pool has heard that the batch ended")
    batch = pool.api.batch(batch_uuid)
    jobs = tuple(_times(job, batch.dispatched_at) for job in pool.api.jobs(batch_uuid))
    return Run(
        policy=policy,
        control=control,
        planned_s=batch.planned_makespan_s or 0.0,
        makespan_s=max(job.finished_s for job in jobs),
        jobs=jobs,
        busy=1 - (after[1] - before[1]) / (after[0] - before[0]),
    )


def _times(job: Job, dispatched_at: float | None) -> JobTimes:
    """Return the times of a job, relative to time 0 of its batch even if a job that was planned again has its own."""
    if dispatched_at is None or job.staged_at is None or job.started_at is None or job.finished_at is None:
        raise ServiceUnavailable(f"{job.requester}: the pool does not know how its job went ({job.state})")
    return JobTimes(
        requester=job.requester,
        responder=job.host,
        staged_s=job.staged_at - dispatched_at,
        started_s=job.started_at - dispatched_at,
        finished_s=job.finished_at - dispatched_at,
    )


def _create(api: PoolApi, case: Case, policy: str) -> str:
    requests = [
        JobRequest(
            uuid=str(uuid4()), name=requester, function=case.function, requester=requester, input_bytes=input_bytes
        )
        for requester, input_bytes in zip(requesters(case), case.input_bytes, strict=True)
    ]
    return api.create_batch(requests, name=case.name, policy=policy).uuid


@dataclass(frozen=True, slots=True)
class _Sender:
    """The program of one requester."""

    requester: str
    process: subprocess.Popen[str]

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        if (said := self.process.stdout.readline()) != "ready\n":
            raise ServiceUnavailable(f"the sender of {self.requester}: {said}{self.process.stdout.read()}")

    def go(self, batch_uuid: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch_uuid}\n")
        self.process.stdin.flush()

    def wait(self, timeout_s: float) -> None:
        try:
            said, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ServiceUnavailable(f"the sender of {self.requester} did not end in {timeout_s:.0f} s") from None
        if self.process.returncode:
            raise ServiceUnavailable(f"the sender of {self.requester}: {said.strip()}")


@contextlib.contextmanager
def _senders(
    case: Case, network: Network, pool: Pool, inputs: Mapping[str, Path], control: Control, sinks: Path
) -> Iterator[dict[str, _Sender]]:
    """Start the program of each requester; yield them ready to send."""
    with contextlib.ExitStack() as ends:
        senders = {}
        for requester in requesters(case):
            words = [
                sys.executable, "-P", "-m", "support.testbed.send",
                "--api", pool.endpoint, "--namespace", network.hosts[requester].namespace, "--job", requester,
                "--source", str(inputs[requester]), "--sink", str(sinks / requester),
            ]  # fmt: skip
            words += ["--uncontrolled"] if control is Control.NONE else []
            process = ends.enter_context(
                subprocess.Popen(
                    dies_with_us(words),
                    env=environment(),
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
            )
            ends.callback(process.kill)
            senders[requester] = _Sender(requester, process)
        for sender in senders.values():
            sender.wait_ready()
        yield senders


def _check_results(case: Case, inputs: Mapping[str, Path], sinks: Path) -> None:
    """Compute every result here, too, and compare."""
    model, expected = function_model(case.function), sinks / "expected"
    for requester, source in inputs.items():
        model(source, expected)
        if (sinks / requester).read_bytes() != expected.read_bytes():
            raise FpgaPoolError(f"{requester}: the result is wrong")


def _processor_ticks() -> tuple[int, int]:
    """Return the total and the idle time of all processors so far, in ticks (proc(5), stat: user ... steal)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
