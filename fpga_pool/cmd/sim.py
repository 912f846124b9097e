"""`fpga-pool-sim`: plan and simulate from files, without a cloud."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.sim import files

OK, FAILED, WRONG_USAGE = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\n")


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: its help, its arguments, and what it does; `run` returns what `--json` prints."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Mapping[str, str | float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit_:
        return int(exit_.code or OK)
    try:
        result = COMMANDS[arguments.command].run(arguments)
    except InvalidInput as error:
        return _complain(arguments, error, WRONG_USAGE)
    except (FpgaPoolError, OSError, MemoryError) as error:
        return _complain(arguments, error, FAILED)
    if arguments.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{key:14} {_shown(value)}" for key, value in result.items()))
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fpga-pool-sim", description="Plan and simulate from files, without a cloud.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        _add_common_arguments(subparser)
    return parser


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of all random choices (default: 0)")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--time-limit", type=_seconds, metavar="S", help="seconds to search; ect, ljf and sjf end at once and ignore it"
    )
    limit.add_argument(
        "--effort",
        type=_effort,
        metavar="N",
        help="units of work to search, the same result each time; ect, ljf and sjf end at once and ignore it",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="problem file (.npz)")
    names = ", ".join(policy_names("batch"))
    parser.add_argument("--policy", required=True, metavar="NAME", help=f"who plans: {names}")
    parser.add_argument("--out", required=True, metavar="PLAN", help="plan file to write (.npz)")


def _plan(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    policy = load_policy("batch", arguments.policy)
    problem = files.read_problem(arguments.problem)
    if not policy.supports(problem):
        raise InvalidInput(f"{arguments.problem}: policy {arguments.policy!r} does not apply to this problem")
    rng = np.random.default_rng(arguments.seed)
    begin_s = time.perf_counter()
    plan = policy.decide(problem, None, 0.0, rng)
    planning_s = time.perf_counter() - begin_s
    files.write_plan(arguments.out, plan)
    return {
        "policy": arguments.policy,
        "planning_s": planning_s,
        "compile_s": 0.0,
        "makespan_s": plan.makespan_s,
        "lower_bound_s": plan.lower_bound_s,
    }


#: Every subcommand, by name.
COMMANDS: Mapping[str, _Command] = {
    "plan": _Command("Plan a batch of jobs.", _add_plan_arguments, _plan),
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
    return _whole(text, least=1)


def _whole(text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more, got {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
