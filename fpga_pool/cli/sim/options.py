"""Arguments that several commands of `fpga-pool-sim` share: policies, their searches and proofs, the seed."""

import argparse
import math
import sys
from typing import Any

from fpga_pool.cli.arguments import number_that, parameter, positive_seconds, whole
from fpga_pool.conf.policies import policy_names
from fpga_pool.core.integer import Progress
from fpga_pool.core.policy import Proving
from fpga_pool.model.exceptions import InvalidInput

_gap = number_that(lambda value: 0 <= value < 1, "a number, 0 or more and below 1")


def add_seed(parser: argparse.ArgumentParser, table: str = "") -> None:
    """Add the option for the seed, which defaults to the seed in a `table` of the scenario, or to 0."""
    default = f"[{table}] seed of the scenario" if table else "0"
    parser.add_argument(
        "--seed", type=whole(0), default=None if table else 0, metavar="N", help=f"random seed (default: {default})"
    )


def add_search(parser: argparse.ArgumentParser, *, time_limit: str, effort: str) -> None:
    """Add the options for the seed and the limits of a search, with the command's help texts for the limits."""
    add_seed(parser)
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--time-limit", type=positive_seconds, metavar="S", help=time_limit)
    limit.add_argument("--effort", type=whole(0), metavar="N", help=effort)


def add_policy(parser: argparse.ArgumentParser, family: str, default: str | None = None) -> None:
    """Add the option for the policy of a family; without a default it is required."""
    text = f"{family} policy: {', '.join(policy_names(family))}"
    parser.add_argument(
        "--policy",
        required=default is None,
        default=default,
        metavar="NAME",
        help=text if default is None else f"{text} (default: {default})",
    )


def add_parameters(parser: argparse.ArgumentParser, of: str) -> None:
    """Add the option for parameters of a policy."""
    parser.add_argument(
        "--parameter",
        type=parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"parameter of {of}; may be repeated",
    )


def add_proof(parser: argparse.ArgumentParser) -> None:
    """Add the options for the gap at which a proof stops, and for showing its progress."""
    parser.add_argument(
        "--gap",
        type=_gap,
        metavar="G",
        help="for exact: stop when the relative gap to the bound is this small (default: 1e-6)",
    )
    parser.add_argument(
        "--progress", action="store_true", help="for exact: print best, bound and gap on standard error as they improve"
    )


def proving(policy: Any, arguments: argparse.Namespace) -> Any:
    """Return the policy with the options of its proof applied; InvalidInput if it proves nothing."""
    if isinstance(policy, Proving):
        return policy.proving(arguments.gap, print_progress if arguments.progress else None)
    if arguments.gap is not None or arguments.progress:
        raise InvalidInput(
            f"--gap and --progress: only for policies that prove the optimum, not for {arguments.policy}"
        )
    return policy


def print_progress(progress: Progress) -> None:
    """Print a line of progress to standard error."""
    best, bound, gap = map(_shown, (progress.incumbent, progress.bound, 100 * progress.gap))
    print(f"{progress.elapsed_s:8.1f} s  best {best}  bound {bound}  gap {gap} %", file=sys.stderr, flush=True)


def _shown(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "unknown"
