"""`fpga-pool-sim`: plan and simulate from files, and run experiments, without a cloud."""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import fpga_pool
from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.cli.sim.proof import add_proof_arguments, proving
from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.policy import Preparing, Searching
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, ServiceUnavailable
from fpga_pool.sim import files

OK, FAILED, WRONG_USAGE = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\n")


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: its help, its arguments, and what it does; `run` returns what `--json` prints, else `show`."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Mapping[str, Any]]
    show: Callable[[Mapping[str, Any]], None]
    #: Exit status, by what `run` has returned.
    status: Callable[[Mapping[str, Any]], int] = lambda _: OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(words)
    except SystemExit as exit_:
        return int(exit_.code or OK)
    except ServiceUnavailable as error:
        print(f"fpga-pool-sim testbed: {error}", file=sys.stderr)
        return FAILED
    command = COMMANDS[arguments.command]
    try:
        result = command.run(arguments)
    except InvalidInput as error:
        return _complain(arguments, error, WRONG_USAGE)
    except (FpgaPoolError, OSError, MemoryError) as error:
        return _complain(arguments, error, FAILED)
    try:
        if arguments.json:
            print(json.dumps(result))
        else:
            command.show(result)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the rest of the buffer is flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return command.status(result)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="fpga-pool-sim", description="Plan and simulate from files, and run experiments.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help, description=command.help)
        if name in words:  # some take long to import
            command.add_arguments(subparser)
        subparser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_search_arguments(parser: argparse.ArgumentParser, *, time_limit: str, effort: str) -> None:
    """Add the seed and the limits of a search, each with what it means to the command."""
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (default: 0)")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--time-limit", type=positive_seconds, metavar="S", help=time_limit)
    limit.add_argument("--effort", type=_effort, metavar="N", help=effort)


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="problem file (.npz)")
    names = ", ".join(policy_names("batch"))
    help_text = f"batch policy: {names} (default: makespan)"
    parser.add_argument("--policy", default="makespan", metavar="NAME", help=help_text)
    parser.add_argument("--out", required=True, metavar="PLAN", help="output plan (.npz)")
    add_proof_arguments(parser)
    at_once = "ignored by ect, ljf and sjf, which need no search"
    _add_search_arguments(
        parser,
        time_limit=f"search time in seconds; {at_once}",
        effort=f"search effort in units of work (for exact: nodes), reproducible; {at_once}",
    )


def _plan(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    policy = load_policy("batch", arguments.policy)
    if isinstance(policy, Searching):
        policy = policy.searching(arguments.effort, arguments.time_limit, time.perf_counter)
    policy = proving(policy, arguments)
    problem = files.read_problem(arguments.problem)
    rng = np.random.default_rng(arguments.seed)
    begin_s = time.perf_counter()
    if isinstance(policy, Preparing):
        policy.prepare()
    compiled_s = time.perf_counter()
    try:
        plan = policy.decide(problem, None, 0.0, rng)
    except ValueError as error:
        raise InvalidInput(f"{arguments.problem}: policy {arguments.policy}: {error}") from error
    planning_s = time.perf_counter() - compiled_s
    files.write_plan(arguments.out, plan)
    said: dict[str, str | float] = {
        "policy": arguments.policy,
        "planning_s": planning_s,
        "compile_s": compiled_s - begin_s,
        "makespan_s": plan.makespan_s,
        "lower_bound_s": plan.lower_bound_s,
    }
    if problem.output_bytes.any():
        said |= {"completion_s": plan.completion_s, "completion_bound_s": plan.completion_bound_s}
    return said


def _show_lines(result: Mapping[str, Any]) -> None:
    for key, value in result.items():
        print(f"{key:14} {_shown(value)}")


def _add_online_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import online

    online.add_arguments(parser)
    _add_search_arguments(
        parser,
        time_limit="search time in seconds for the bound per job and for the optimum; a looser bound is always found",
        effort="compute the bound per job if that takes at most N thousand variables, otherwise a looser bound "
        "(default: 300)",
    )


def _online(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import online

    return online.run(arguments)


def _add_gangs_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import gangs

    gangs.add_arguments(parser)
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (default: 0)")


def _gangs(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import gangs

    return gangs.run(arguments)


def _add_tasks_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import tasks

    tasks.add_arguments(parser)
    at_once = "ignored by all policies but lattice_plus and exact, as they need no search"
    _add_search_arguments(
        parser,
        time_limit=f"search time in seconds; {at_once}",
        effort=f"search effort in units of work (for exact: nodes; online: per plan), reproducible; {at_once}",
    )


def _tasks(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import tasks

    return tasks.run(arguments)


def _add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import pool

    pool.add_arguments(parser)
    help_text = "random seed (default: [pool] seed of the scenario)"
    parser.add_argument("--seed", type=_seed, metavar="N", help=help_text)


def _pool(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import pool

    return pool.run(arguments)


def _show_pool(result: Mapping[str, Any]) -> None:
    from fpga_pool.cli.sim import pool_report

    pool_report.show(result)


def _pool_status(result: Mapping[str, Any]) -> int:
    return FAILED if result["audit"] else OK


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import cluster

    cluster.add_arguments(parser)
    help_text = "random seed (default: [run] seed of the scenario)"
    parser.add_argument("--seed", type=_seed, metavar="N", help=help_text)


def _cluster(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import cluster

    return cluster.run(arguments)


def _add_task_workload_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import task_workload

    task_workload.add_arguments(parser)
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (default: 0)")


def _task_workload(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import task_workload

    return task_workload.run(arguments)


def _add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import problem

    problem.add_arguments(parser)
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (default: 0)")


def _problem(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import problem

    return problem.run(arguments)


def _add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.cli.sim import gang_workload

    gang_workload.add_arguments(parser)
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (default: 0)")


def _workload(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.cli.sim import gang_workload

    return gang_workload.run(arguments)


def _of_testbed(name: str) -> Any:
    """Import a module of the testbed, which starts servers: it is in the source tree, not in the package."""
    tests = Path(fpga_pool.__file__).parents[1] / "tests"
    if not (tests / "support" / "testbed").is_dir():
        raise ServiceUnavailable("it starts servers: run it from a source checkout of fpga_pool")
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module(f"support.testbed.{name}")


def _add_testbed_arguments(parser: argparse.ArgumentParser) -> None:
    _of_testbed("command").add_arguments(parser)


def _testbed(arguments: argparse.Namespace) -> Mapping[str, Any]:
    result: Mapping[str, Any] = _of_testbed("command").run(arguments)
    return result


def _show_testbed(result: Mapping[str, Any]) -> None:
    _of_testbed("report").show(result)


def _add_figures_arguments(parser: argparse.ArgumentParser) -> None:
    from fpga_pool.experiments.figures import command

    command.add_arguments(parser)


def _figures(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from fpga_pool.experiments.figures import command

    return command.run(arguments)


def _show_figures(result: Mapping[str, Any]) -> None:
    from fpga_pool.experiments.figures import command

    command.show(result)


#: Every subcommand, by name.
COMMANDS: Mapping[str, _Command] = {
    "plan": _Command("Plan a batch of jobs.", _add_plan_arguments, _plan, _show_lines),
    "problem": _Command(
        "Make the problem of a batch: from the makespan paper, a trace, or a running pool.",
        _add_problem_arguments,
        _problem,
        _show_lines,
    ),
    "online": _Command(
        "Simulate jobs that arrive over time, on a pool of equal hosts.", _add_online_arguments, _online, _show_lines
    ),
    "gangs": _Command(
        "Simulate parallel jobs on processors with a foreground and a background tier.",
        _add_gangs_arguments,
        _gangs,
        _show_lines,
    ),
    "tasks": _Command("Schedule tasks that need several linked FPGAs each.", _add_tasks_arguments, _tasks, _show_lines),
    "pool": _Command(
        "Simulate a whole pool: batches, online jobs, tasks, gangs and instances, with faults.",
        _add_pool_arguments,
        _pool,
        _show_pool,
        _pool_status,
    ),
    "cluster": _Command(
        "Simulate pipelines that arrive at a cluster of unlike nodes, with interference.",
        _add_cluster_arguments,
        _cluster,
        _show_lines,
    ),
    "task-workload": _Command(
        "Generate a problem of tasks that need several linked FPGAs each, from a model.",
        _add_task_workload_arguments,
        _task_workload,
        _show_lines,
    ),
    "workload": _Command(
        "Generate a trace of parallel jobs from a model.", _add_workload_arguments, _workload, _show_lines
    ),
    "testbed": _Command(
        "Run the testbed of the makespan paper, section 5.1, in network namespaces; needs root and a source checkout.",
        _add_testbed_arguments,
        _testbed,
        _show_testbed,
    ),
    "figures": _Command(
        "Reproduce the figures of a paper, with curves of fpga_pool's own policies added.",
        _add_figures_arguments,
        _figures,
        _show_figures,
    ),
}


def _complain(arguments: argparse.Namespace, error: Exception, status: int) -> int:
    message = " ".join(str(error).split()) or type(error).__name__
    print(f"fpga-pool-sim {arguments.command}: {message}", file=sys.stderr)
    return status


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _seed(text: str) -> int:
    return _whole(text, least=0)


def _effort(text: str) -> int:
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
