"""The command `fpga-pool-sim testbed`."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.model.exceptions import InvalidInput
from support.testbed import report
from support.testbed.cases import CASES, scaled
from support.testbed.experiment import compare
from support.testbed.measure import Control, Run

POLICIES = "makespan,sjf,ljf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    cases, known = ", ".join(CASES), ", ".join(policy_names("batch"))
    parser.add_argument(
        "--case", action="append", choices=CASES, metavar="NAME", help=f"may be given again (default: all): {cases}"
    )
    parser.add_argument("--scale", type=float, default=1.0, metavar="F", help="share of the full sizes (default: 1)")
    parser.add_argument(
        "--policies",
        default=POLICIES,
        metavar="NAMES",
        help=f"policies to run; the others are compared with the first (default: %(default)s): {known}",
    )
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each (default: 1)")
    parser.add_argument(
        "--control",
        choices=[str(Control.TC), str(Control.PACING)],
        default=str(Control.TC),
        help="what limits the rates of flows: tc = the requesters' agents, pacing = the senders (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="save the result and the logs of the pool's processes")


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Run the cases; return the data for `report.show`."""
    if arguments.runs < 1:
        raise InvalidInput(f"--runs: expected 1 or more, got {arguments.runs}")
    policies = arguments.policies.split(",")
    for policy in policies:
        load_policy("batch", policy)
    cases = [scaled(CASES[name], arguments.scale) for name in dict.fromkeys(arguments.case or CASES)]
    comparisons = []
    for case in cases:
        _tell(case.title)
        comparison = compare(case, policies, Control(arguments.control), arguments.runs, arguments.out, _tell_run)
        comparisons.append(report.plain(comparison))
    result = {"scale": arguments.scale, "cases": comparisons}
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "testbed.json").write_text(json.dumps(result, indent=1))
    return result


def _tell_run(run: Run) -> None:
    _tell(f"  {run.policy}, rates by {run.control}: {run.makespan_s:.2f} s")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
