"""`fpga-pool-sim`: plan and simulate from files, and run experiments, without a cloud."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fpga_pool
from fpga_pool.cli.arguments import FAILED, OK, WRONG_USAGE, OneLineParser, as_json, complain
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, ServiceUnavailable


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: its help, and the module with its `add_arguments` and `run`, which returns what `--json` prints."""

    help: str
    module: str
    #: Module whose `show` prints the result as text; empty: one line for each value.
    report: str = ""

    def show(self, result: Mapping[str, Any]) -> None:
        """Print a result as text."""
        if self.report:
            _imported(self.report).show(result)
            return
        for key, value in result.items():
            print(f"{key:14} {value if isinstance(value, str) else f'{value:.6g}'}")


#: Every subcommand, by name.
COMMANDS: Mapping[str, _Command] = {
    "plan": _Command("Plan a batch of jobs.", "cli.sim.plan"),
    "problem": _Command(
        "Make the problem of a batch: from the workload of a paper, a trace, or a running pool.", "cli.sim.problem"
    ),
    "online": _Command("Simulate jobs that arrive over time, on a pool of equal hosts.", "cli.sim.online"),
    "gangs": _Command("Simulate parallel jobs on processors with a foreground and a background tier.", "cli.sim.gangs"),
    "tasks": _Command("Schedule tasks that need several linked FPGAs each.", "cli.sim.tasks"),
    "pool": _Command(
        "Simulate a whole pool: batches, online jobs, tasks, gangs and instances, with faults.",
        "cli.sim.pool",
        "cli.sim.pool_report",
    ),
    "cluster": _Command(
        "Simulate pipelines that arrive at a cluster of unlike nodes, with interference.", "cli.sim.cluster"
    ),
    "task-workload": _Command(
        "Generate a problem of tasks that need several linked FPGAs each, from a model.", "cli.sim.task_workload"
    ),
    "workload": _Command("Generate a trace of parallel jobs from a model.", "cli.sim.gang_workload"),
    "testbed": _Command(
        "Run the testbed of the makespan paper, section 5.1, in network namespaces; needs root and a source checkout.",
        "support.testbed.command",
        "support.testbed.report",
    ),
    "figures": _Command(
        "Reproduce the figures of a paper, with curves of fpga_pool's own policies added.",
        "experiments.figures.command",
        "experiments.figures.command",
    ),
}


def _imported(name: str) -> Any:
    """Import the module of a command, only when it is needed: some take long."""
    if not name.startswith("support."):
        return importlib.import_module(f"fpga_pool.{name}")
    # The testbed starts servers: it is in the source tree, not in the package.
    tests = Path(fpga_pool.__file__).parents[1] / "tests"
    if not (tests / "support" / "testbed").is_dir():
        raise ServiceUnavailable("it starts servers: run it from a source checkout of fpga_pool")
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module(name)


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
        result = _imported(command.module).run(arguments)
    except InvalidInput as error:
        return complain(f"fpga-pool-sim {arguments.command}", error, WRONG_USAGE)
    except (FpgaPoolError, OSError, MemoryError) as error:
        return complain(f"fpga-pool-sim {arguments.command}", error, FAILED)
    try:
        if arguments.json:
            print(as_json(result))
        else:
            command.show(result)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe; the rest of the buffer is flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED if result.get("audit") else OK  # the findings of the audit of a simulated pool


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = OneLineParser(prog="fpga-pool-sim", description="Plan and simulate from files, and run experiments.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help, description=command.help)
        if name in words:  # some take long to import
            _imported(command.module).add_arguments(subparser)
        subparser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
