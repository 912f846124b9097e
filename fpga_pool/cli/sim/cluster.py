"""`fpga-pool-sim cluster`: simulate pipelines that arrive at a cluster of heterogeneous nodes."""

import argparse
import time
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.cli.arguments import number_that
from fpga_pool.cli.sim.options import add_parameters, add_policy, add_seed
from fpga_pool.conf.policies import tuned_policy
from fpga_pool.core.cluster.policies import NODE_POLICIES
from fpga_pool.core.policy import Trained
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.bound import bounds, summary
from fpga_pool.sim.cluster.laws import GROUP, Law
from fpga_pool.sim.cluster.simulator import Simulation
from fpga_pool.sim.cluster.tables import read_world
from fpga_pool.sim.cluster.workload import draw
from fpga_pool.sim.files import DAMAGED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument("scenario", metavar="SCENARIO", help="nodes, pipelines and arrivals (.toml)")
    add_policy(parser, "cluster")
    add_parameters(parser, "the cluster policy")
    parser.add_argument(
        "--node-policy",
        metavar="NAME",
        help=f"policy within a node: {', '.join(NODE_POLICIES)}, as NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE "
        "(default: that of the cluster policy)",
    )
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="weights that the cluster policy begins with (.npz)"
    )
    parser.add_argument(
        "--save-weights", type=Path, metavar="FILE", help="write the weights that the cluster policy ends with (.npz)"
    )
    parser.add_argument(
        "--load",
        type=number_that(lambda value: 1e-6 <= value <= 1e6, "a number, 0.000001 to 1000000"),
        default=1.0,
        metavar="F",
        help="divide the times between arrivals by F (default: 1)",
    )
    parser.add_argument("--exclusive", action="store_true", help="execute one subtask at a time on each accelerator")
    parser.add_argument(
        "--no-admission", action="store_true", help="start subtasks even if the node has no memory for them and swaps"
    )
    parser.add_argument(
        "--calibrate",
        action=argparse.BooleanOptionalAction,
        help="have the estimates follow the times that subtasks took (default: that of the cluster policy)",
    )
    add_seed(parser, "run")


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Run the simulation, and return a summary of the outcome."""
    values: dict[str, Any] = {"corun": not arguments.exclusive, "admission": not arguments.no_admission}
    if arguments.calibrate is not None:
        values["calibrate"] = arguments.calibrate
    if arguments.node_policy is not None:
        values["node"] = arguments.node_policy
    policy = tuned_policy("cluster", arguments.policy, dict(arguments.parameter), values)
    if arguments.weights is not None:
        policy = _with_weights(policy, arguments.weights)
    if arguments.save_weights is not None and not isinstance(policy, Trained):
        raise InvalidInput(f"--save-weights: the policy {policy.name} has no weights")
    world = read_world(Path(arguments.scenario), make_law)
    seed = world.run.seed if arguments.seed is None else arguments.seed
    workload = draw(world, seed, arguments.load)
    if (last_s := float(workload.arrival_s[-1])) < world.run.warm_up_s:
        raise InvalidInput(f"{world.path}: run: warm_up_s: the last task arrives before, after {last_s:g} s")
    begin_s = time.perf_counter()
    try:
        simulation = Simulation(world, workload, policy, seed)
        outcome = simulation.run()
    except ValueError as error:
        raise InvalidInput(f"{world.path}: {error}") from error
    simulated_s = time.perf_counter()
    if arguments.save_weights is not None and isinstance(simulation.policy, Trained):
        weights: dict[str, Any] = dict(simulation.policy.weights)
        np.savez(arguments.save_weights, **weights)
    limits = bounds(world, workload)
    return {
        "policy": arguments.policy,
        **summary(world, workload, outcome),
        "bound_per_minute": limits.per_minute,
        "bound_mean_response_s": limits.mean_response_s,
        "simulation_s": simulated_s - begin_s,
    }


def _with_weights(policy: Any, path: Path) -> Any:
    """Return the policy with the weights of a file; InvalidInput if it has no weights, or the file has wrong ones."""
    if not isinstance(policy, Trained):
        raise InvalidInput(f"--weights: the policy {policy.name} has no weights")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return policy.with_weights(dict(arrays))
    except (OSError, *DAMAGED) as error:
        raise InvalidInput(f"{path}: expected weights of {policy.name} (.npz): {error}") from None


def make_law(name: str, parameters: Mapping[str, Any]) -> Law:
    """Return the interference law with that name; InvalidInput lists the installed laws, or names a wrong parameter."""
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise InvalidInput(f"law: {name!r}: no such law; available: {', '.join(sorted(found.names))}")
    try:
        law = found[name].load()(**parameters)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name}: {error}") from None
    except Exception as error:  # whatever the module of another package raises
        raise InvalidInput(f"{name}: cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(law, Law):
        raise InvalidInput(f"{name}: {type(law).__name__} has no method slowdowns(demands)")
    return law
