"""`fpga-pool-sim plan`: plan a batch of jobs."""

import argparse
import time
from collections.abc import Mapping

import numpy as np

from fpga_pool.cli.sim.options import add_policy, add_proof, add_search, proving
from fpga_pool.conf.policies import load_policy
from fpga_pool.core.policy import Preparing, Searching
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument("problem", metavar="PROBLEM", help="problem file (.npz)")
    add_policy(parser, "batch", "makespan")
    parser.add_argument("--out", metavar="PLAN", help="output plan (.npz); without it the plan is only described")
    add_proof(parser)
    at_once = "ignored by ect, ljf and sjf, which need no search"
    add_search(
        parser,
        time_limit=f"search time in seconds; {at_once}",
        effort=f"search effort in units of work (for exact: nodes), reproducible; {at_once}",
    )


def run(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    """Plan the batch, write the plan if requested, and return a summary of it."""
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
    if arguments.out:
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
