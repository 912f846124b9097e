"""`fpga-pool-sim problem`: make the problem of a batch from the workload of a paper, a trace or a running pool."""

import argparse
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.cli.arguments import positive_count
from fpga_pool.cli.sim.options import add_seed
from fpga_pool.cli.sim.workloads import BENEFIT, CARDS, FEWER, NAMES, RINGS, problem_named
from fpga_pool.client.api import PoolApi
from fpga_pool.client.cloud import cloud_login
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.core.types import BatchProblem, floats
from fpga_pool.experiments.figures.makespan.workload import JOBS, REQUESTERS, RESPONDERS, Form
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import CPU, Host, Job, Slot
from fpga_pool.model.rules.batch.planning import Snapshot, batch_problem, known_time_models, pool_view
from fpga_pool.sim import files
from fpga_pool.sim.lattice.workloads import MODELS
from fpga_pool.sim.scenario.arrivals import simulated_hosts
from fpga_pool.sim.scenario.reading import read_scenario

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLOUD = "cloud:"
_COLUMNS = ("function", "input_bytes", "requester")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument(
        "work",
        metavar="WORK",
        help=f"{', '.join(Form)}: workload of the makespan paper, section 5.2, on its own hosts; {', '.join(MODELS)}: "
        "shares of tasks of the lattice paper, each by itself, on rings of 8 slots; "
        f"{', '.join(BENEFIT)}: jobs of the benefit paper, which arrive one after the other, on the slots of cards, "
        f"with loads; a trace (.csv): jobs, columns {', '.join(_COLUMNS)} and optionally release_s; the uuid of a "
        "batch of a running pool",
    )
    parser.add_argument(
        "--pool",
        metavar="POOL",
        help="where a trace or a batch is to run: a scenario (.toml), whose hosts are taken, or a running pool, whose "
        "slots are taken as they are now, as if nothing were computing: its address, or cloud:NAME with a name of "
        "clouds.yaml",
    )
    parser.add_argument("--catalogue", metavar="FILE", help="functions and boards (default: the installed catalogue)")
    for name, help_text in (
        ("jobs", f"paper: jobs, or tasks of the lattice paper (default: {JOBS}; lattice and benefit paper: {FEWER})"),
        ("requesters", f"makespan paper: requesters (default: {REQUESTERS})"),
        (
            "responders",
            f"paper: responders (default: {RESPONDERS}), rings of the lattice paper ({RINGS}), cards of the benefit "
            f"paper ({CARDS})",
        ),
    ):
        parser.add_argument(f"--{name}", type=positive_count, metavar="N", help=help_text)
    parser.add_argument("--out", required=True, metavar="PROBLEM", help="output problem (.npz)")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Write a problem, and return a summary of it."""
    if arguments.work in NAMES:
        _refuse(arguments, ("pool", "catalogue"), "a trace or a batch")
        problem = problem_named(
            arguments.work,
            jobs=arguments.jobs,
            requesters=arguments.requesters,
            responders=arguments.responders,
            seed=arguments.seed,
        )
    else:
        if not (_UUID.fullmatch(arguments.work) or arguments.work.endswith(".csv")):
            expected = f"{', '.join(NAMES)}, a trace (.csv) or the uuid of a batch"
            raise InvalidInput(f"WORK: expected {expected}, got {arguments.work!r}")
        _refuse(arguments, ("jobs", "requesters", "responders"), "the workload of a paper")
        problem = _on_pool(arguments)
    files.write_problem(arguments.out, problem)
    return {
        "work": arguments.work,
        "jobs": problem.jobs,
        "accelerators": problem.accelerators,
        "senders": len(np.unique(problem.requester)),
        "input_bytes": int(problem.input_bytes.sum()),
    }


def _refuse(arguments: argparse.Namespace, names: Sequence[str], work: str) -> None:
    """Raise InvalidInput if an option is given that applies to other kinds of work only."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise InvalidInput(f"--{name}: only with {work}, not with {arguments.work}")


def _on_pool(arguments: argparse.Namespace) -> BatchProblem:
    """Return the problem of a trace or of a batch on the slots of a pool."""
    if not arguments.pool:
        raise InvalidInput("--pool: required for a trace and for a batch: a scenario (.toml), an address or cloud:NAME")
    path = arguments.catalogue or installed_catalogue()
    release_s: Sequence[float] = ()
    if _UUID.fullmatch(arguments.work):
        with _api(arguments.pool) as api:
            jobs: Sequence[Job] = api.jobs(arguments.work)
    else:
        jobs, release_s = read_trace(Path(arguments.work))
    if ":" in arguments.pool:
        with _api(arguments.pool) as api:
            hosts, slots = api.hosts(), api.slots()
    else:
        hosts, slots, named = _of_scenario(Path(arguments.pool))
        path = arguments.catalogue or named or path
    problem = problem_of(jobs, hosts, [slot for slot in slots if slot.board != CPU], load_catalogue(path))
    return replace(problem, release_s=floats(release_s)) if any(release_s) else problem


def _api(pool: str) -> PoolApi:
    cloud = pool.removeprefix(_CLOUD)
    return PoolApi(pool, connect_retries=0) if cloud == pool else PoolApi(login=cloud_login(cloud))


def problem_of(jobs: Sequence[Job], hosts: Sequence[Host], slots: Sequence[Slot], catalogue: Catalogue) -> BatchProblem:
    """Return the problem of jobs on slots, as a scheduler would build it if nothing else ran there."""
    view = pool_view(
        generation=0,
        hosts=hosts,
        slots=slots,
        leases=(),
        backlogs=(),
        catalogue=catalogue,
        models=known_time_models(catalogue, {}),
        now_s=0.0,
    )
    for job in jobs:
        place = f"job {job.name}"
        if job.requester not in view.host_index:
            raise InvalidInput(f"{place}: requester {job.requester!r} is not a host of the pool")
        if job.function not in view.function_index:
            raise InvalidInput(f"{place}: function {job.function!r} is not in the catalogue")
        if not (view.can_run[:, view.function_index[job.function]] & view.slot_usable).any():
            raise InvalidInput(f"{place}: no slot in service can run {job.function}")
    snap = Snapshot(view=view, jobs=tuple(jobs), policy="", inputs_due_at=0.0, result_sizes={})
    return batch_problem(snap).problem


def read_trace(path: Path) -> tuple[list[Job], list[float]]:
    """Return the jobs of a trace, and the release time of each input in seconds; InvalidInput names the wrong job."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise InvalidInput(f"{path}: expected a head with {', '.join(_COLUMNS)}, and a line for each job")
    jobs, release_s = [], []
    for number, row in enumerate(rows, 1):
        missing = [name for name in _COLUMNS if not row.get(name)]
        if missing:
            raise InvalidInput(f"{path}: job {number}: {missing[0]} is missing")
        jobs.append(_job(number, row["function"], row["requester"], _number(path, number, row, "input_bytes")))
        release_s.append(float(_number(path, number, row, "release_s")))
    return jobs, release_s


def _number(path: Path, number: int, row: Mapping[str, str | None], name: str) -> int | float:
    kind = int if name == "input_bytes" else float
    try:
        value = kind(row.get(name) or 0)
    except ValueError:
        value = -1
    if not 0 <= value < 2**62:
        raise InvalidInput(f"{path}: job {number}: {name}: expected a number, 0 or more, got {row[name]!r}")
    return value


def _job(number: int, function: str, requester: str, input_bytes: float) -> Job:
    return Job(
        uuid=f"{number}", batch_uuid="trace", project_id="", user_id="", index=number - 1, name=f"{number}",
        function=function, requester=requester, input_bytes=int(input_bytes), created_at=0.0,
    )  # fmt: skip


def _of_scenario(path: Path) -> tuple[list[Host], list[Slot], Path | None]:
    """Return the hosts and slots of a scenario, and the path of the catalogue that it names, if any."""
    scenario = read_scenario(path)
    named = path.parent / scenario.pool.catalogue if scenario.pool.catalogue else None
    hosts, slots = [], []
    for host in simulated_hosts(scenario, load_catalogue(named or installed_catalogue())):
        hosts.append(
            Host(
                name=host.name, egress_bps=host.egress_bps, ingress_bps=host.ingress_bps, data_address="", data_port=0,
                heard_at=0.0,
            )
        )  # fmt: skip
        slots += [
            Slot(name=one.slot, host=host.name, card=one.card, region=one.region, board=one.board, kind=one.kind)
            for one in host.slots
        ]
    return hosts, slots, named
