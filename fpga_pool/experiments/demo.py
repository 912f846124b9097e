"""The demonstration: real work through the embedded pool, planned, simulated and measured side by side.

In each round a fresh pool is started for every batch policy and gets the same batch.  The simulator predicts the
batch from the initial state of the pool, with the same rules and policy.  Then `acts` shows other features of a pool.
"""

import argparse
import compileall
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from rich.console import Console

import fpga_pool
from fpga_pool.cli.roles import INTERRUPTED
from fpga_pool.client import Client, JobSpec
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import compile_loops, load_policy, policy_names
from fpga_pool.core.policy import BatchPolicy, Sparing
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.experiments.acts import ACTS, COUNTER_BYTES, KEY_BYTES, Act, encrypted, perform
from fpga_pool.experiments.charts import draw_gantt
from fpga_pool.experiments.demo_output import Measured, ProgressBars, print_policies, print_results, print_slots
from fpga_pool.experiments.embedded import Options, embedded_pool, free_port
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.pool import Outcome, SimulatedPool

# ---- Work: files, jobs over them, and expected results

FUNCTIONS = ("sha256", "wordcount", "aes")

_WORDS = ("slot", "card", "host", "job", "batch", "plan", "lease", "region", "bitstream", "accelerator", "tenant")


@dataclass(frozen=True, slots=True)
class Work:
    """One job of the demonstration."""

    path: Path
    function: str
    requester: str
    header: bytes = b""

    def spec(self) -> JobSpec:
        """Return the job as a specification for the client library."""
        return JobSpec(self.function, self.path, requester=self.requester, header=self.header)

    def expected(self) -> bytes:
        """Return the correct result, computed here independently of the pool."""
        data = self.path.read_bytes()
        if self.function == "sha256":
            return hashlib.sha256(data).hexdigest().encode() + b"\n"
        if self.function == "wordcount":
            return b"%d\n" % len(data.split())
        return encrypted(data, self.header)


def generate_files(directory: Path, count: int, mean_bytes: float, seed: int) -> list[Path]:
    """Write `count` text files whose sizes are exponential (makespan paper, section 5.2) around `mean_bytes`."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths = []
    for number, size in enumerate(rng.exponential(mean_bytes, count).astype(int) + 1):
        words = " ".join(rng.choice(_WORDS, 20_000)).encode() + b"\n"
        path = directory / f"text-{number:02d}"
        path.write_bytes((words * (int(size) // len(words) + 1))[: int(size)])
        paths.append(path)
    return paths


def make_work(files: Sequence[Path], requesters: Sequence[str]) -> list[Work]:
    """Return one job per function and file; the requesters take turns, so that each sends jobs of all functions."""
    work: list[Work] = []
    for path in files:
        for function in FUNCTIONS:
            header = os.urandom(KEY_BYTES + COUNTER_BYTES) if function == "aes" else b""
            requester = requesters[(len(work) + len(work) // len(FUNCTIONS)) % len(requesters)]
            work.append(Work(path, function, requester, header))
    return work


# ---- The run

MEAN_BYTES = 1e6
FILES = 24
SEED = 1
#: Number of pools that are started per policy; 1 if the user gives files.
ROUNDS = 2
#: The default policy, then the policies that it is compared with.
POLICIES = ("makespan", "ect", "sjf", "ljf")
#: Long enough for a client that polls five times a second to learn of a plan before its time 0.
LEAD_S = 0.5
#: As the option `[scheduler] planning_share`.
PLANNING_SHARE = 0.02
POOL: Options = {
    "standalone": {"hosts": 3, "requesters": 4, "egress_mbps": 60, "ingress_mbps": 60},
    "driver_simulated": {"board": "demo", "cards": 1},
    "scheduler": {"dispatch_lead_s": LEAD_S},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 1 if a result is wrong or missing, or an act did not end as expected."""
    arguments = _parser().parse_args(argv)
    console = Console()
    if missing := [path for path in arguments.files if not path.is_file()]:
        console.print(f"tools/demo: {missing[0]}: no such file", style="red")
        return 2
    output: Path = arguments.output
    try:
        files = arguments.files or generate_files(output / "input", FILES, MEAN_BYTES, SEED)
        policies = arguments.policy or POLICIES
        rounds = arguments.rounds or (1 if arguments.files else ROUNDS)
        # Compile now, so that no pool does so while its batch is measured: modules after an upgrade, and loops.
        compileall.compile_dir(Path(fpga_pool.__file__).parent, quiet=2)
        for name in policies:
            with console.status(f"{name}: compiling its loops, once per installation"):
                compile_loops("batch", name)
        port = free_port()  # one address for all pools, so that an open page continues with the next pool
        console.print(f"Watch it on http://127.0.0.1:{port}/dashboard/#/schedule", highlight=False)
        measured = [_measure(policy, files, output, console, port) for _ in range(rounds) for policy in policies]
        right = _show(measured, output, console, results=bool(arguments.files))
        if arguments.files and console.is_terminal and sys.stdin.isatty():
            _stay(_last(measured, policies[0]), output, console, port)
        acts = [] if arguments.files or arguments.batch_only else _act(output, console, port)
        if arguments.json is not None:
            numbers = {"policies": [one.numbers() for one in measured], "acts": [asdict(act) for act in acts]}
            arguments.json.write_text(json.dumps(numbers, indent=1) + "\n")
    except (FpgaPoolError, OSError) as error:
        console.print(f"tools/demo: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program is ending; another Ctrl-C would only add a traceback
        console.print("tools/demo: interrupted")
        return INTERRUPTED
    return 0 if right and all(act.ok for act in acts) else 1


def _show(measured: Sequence[Measured], output: Path, console: Console, *, results: bool) -> bool:
    """Print and draw the measurements; return whether all results are correct."""
    print_policies(measured, console)
    shown = _last(measured, measured[0].policy)
    print_slots(shown, console)
    batch, jobs = shown.result.batch, [job.job for job in shown.result.jobs]
    pictures = draw_gantt(batch, jobs, shown.slots, f"{len(jobs)} jobs under {shown.policy}", output / "gantt")
    if results:
        print_results(shown, console)
    console.print(f"Pictures: {', '.join(map(str, pictures))}")
    console.print(f"Results: {output / shown.policy / 'results'}")
    count = sum(len(one.result.jobs) for one in measured)
    right = sum(one.right for one in measured)
    console.print(f"{right} of {count} results are correct.", style="green" if right == count else "red")
    return right == count


def _last(measured: Sequence[Measured], policy: str) -> Measured:
    """Return the last batch of a policy, whose pool and results still exist."""
    return next(one for one in reversed(measured) if one.policy == policy)


def _stay(measured: Measured, output: Path, console: Console, port: int) -> None:
    """Restart the pool of a batch on its stored state, so that the user can inspect it until Ctrl-C."""
    with embedded_pool(output / measured.policy / "pool", POOL, port) as endpoint:
        with contextlib.suppress(KeyboardInterrupt):
            console.print("Where each was computed (Ctrl-C ends this):", highlight=False)
            page = f"{endpoint}/dashboard/#/schedule/batch/{measured.result.batch.uuid}"
            console.print(f"    {page}", soft_wrap=True, highlight=False)
            threading.Event().wait()
        console.print()


def _act(output: Path, console: Console, port: int) -> list[Act]:
    """Show the acts on another pool."""
    console.print("\nOne more pool, with aes jobs, a virtual machine and gangs:", highlight=False)
    acts = perform(output / "acts", console, port)
    ok = sum(act.ok for act in acts)
    console.print(f"{ok} of {ACTS} acts ended as they should.", style="green" if ok == ACTS else "red")
    return acts


def _parser() -> argparse.ArgumentParser:
    known = policy_names("batch")
    parser = argparse.ArgumentParser(prog="tools/demo", description="Run real work through an embedded pool.")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="use these input files instead of generated ones"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="output directory of results and pictures"
    )
    parser.add_argument(
        "--batch-only", action="store_true", help="end after the batch, as with FILE: without leases, gangs and faults"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the numbers, and what the acts have shown, to this file"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        choices=range(1, 100),
        metavar="N",
        help=f"batches of each policy, each in a fresh pool (default: {ROUNDS}; 1 with FILE)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        choices=known,
        help="batch policy; may be repeated (default: all of " + ", ".join(POLICIES) + ")",
    )
    return parser


# One policy ----------------------------------------------------------------------------------------------------


def _measure(policy: str, files: Sequence[Path], output: Path, console: Console, port: int) -> Measured:
    directory = output / policy
    shutil.rmtree(directory, ignore_errors=True)
    with embedded_pool(directory / "pool", POOL, port) as endpoint, Client(endpoint) as client:
        carriers = {slot.host for slot in client.slots()}
        work = make_work(files, [host.name for host in client.hosts() if host.name not in carriers])
        simulated = _simulate(client, work, policy)
        with ProgressBars(console, policy, len(work)) as show:
            result = client.run_jobs(
                [one.spec() for one in work], output_dir=directory / "results", policy=policy, on_progress=show
            )
        slots = [client.slot(slot.uuid).slot for slot in client.slots()]  # each with its history
    for job in result.jobs:
        if job.result is None:
            console.print(f"{job.name}: {job.state}: {job.reason}", style="red", markup=False)
    right = sum(
        job.result is not None and job.result.read_bytes() == one.expected()
        for one, job in zip(work, result.jobs, strict=True)
    )
    return Measured(policy=policy, simulated=simulated, result=result, right=right, slots=slots)


def _simulate(client: Client, work: Sequence[Work], policy: str) -> Outcome:
    """Predict the batch from the current state of the pool."""
    slots = client.slots()
    models = {
        (row.function, row.board): TimeModel(row.fitted_a_s, row.fitted_b_s_per_byte) for row in client.calibration()
    }
    catalogue = load_catalogue(installed_catalogue())
    hosts = [_as_simulated(host, slots) for host in client.hosts()]
    pool = SimulatedPool(catalogue, hosts, PoolSettings(dispatch_lead_s=LEAD_S), models=models)
    jobs = tuple(
        JobRequest(
            uuid=str(uuid4()),
            name=one.path.name,
            function=one.function,
            requester=one.requester,
            input_bytes=len(one.header) + one.path.stat().st_size,
        )
        for one in work
    )
    request = BatchRequest(uuid=str(uuid4()), project_id="demo", user_id="demo", name="", policy=policy, jobs=jobs)
    return pool.run_batch(request, _as_scheduled(policy))


def _as_scheduled(name: str) -> BatchPolicy:
    """Return a policy with its planning effort limited as in the scheduler."""
    policy: BatchPolicy = load_policy("batch", name)
    return policy.sparing(PLANNING_SHARE) if isinstance(policy, Sparing) else policy


def _as_simulated(host: Host, slots: Sequence[Slot]) -> SimulatedHost:
    return SimulatedHost(
        name=host.name,
        egress_bps=host.egress_bps,
        ingress_bps=host.ingress_bps,
        slots=tuple(
            ObservedSlot(
                slot=slot.name,
                card=slot.card,
                region=slot.region,
                board=slot.board,
                kind=slot.kind,
                state=slot.state,
                function=slot.function,
            )
            for slot in slots
            if slot.host == host.name
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
