"""Arguments of policies that prove the optimum, and their progress on standard error."""

import argparse
import math
import sys
from typing import Any

from fpga_pool.cli.arguments import number_that
from fpga_pool.core.integer import Progress
from fpga_pool.core.policy import Proving
from fpga_pool.model.exceptions import InvalidInput

_gap = number_that(lambda value: 0 <= value < 1, "a number, 0 or more and below 1")


def add_proof_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare when a proof is near enough, and whether to show how it proceeds."""
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
    """Return the policy with what the arguments say of its proof; InvalidInput where it proves nothing."""
    if isinstance(policy, Proving):
        return policy.proving(arguments.gap, print_progress if arguments.progress else None)
    if arguments.gap is not None or arguments.progress:
        raise InvalidInput(
            f"--gap and --progress: only for policies that prove the optimum, not for {arguments.policy}"
        )
    return policy


def print_progress(progress: Progress) -> None:
    """Write one line on standard error."""
    best, bound, gap = map(_shown, (progress.incumbent, progress.bound, 100 * progress.gap))
    print(f"{progress.elapsed_s:8.1f} s  best {best}  bound {bound}  gap {gap} %", file=sys.stderr, flush=True)


def _shown(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "unknown"
