"""`fpga-pool-sim pool`: run a scenario on a whole simulated pool."""

import argparse
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fpga_pool.cli.arguments import positive_count, positive_seconds
from fpga_pool.cli.sim.options import add_seed
from fpga_pool.cli.sim.pool_report import PoolReport
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import policy_names, policy_with
from fpga_pool.experiments.animation import animated_tiers
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.services.scheduler.planner import quick, sparing
from fpga_pool.sim.scenario.reading import Policies, check_scenario, read_scenario
from fpga_pool.sim.scenario.run import ScenarioRun
from fpga_pool.sim.scenario.tables import Scenario

_PICTURES = (".svg", ".png")
_FAMILIES = ("batch", "online", "gang", "task")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument(
        "scenario", metavar="SCENARIO", help="scenario: the pool and the events of the simulation (.toml)"
    )
    parser.add_argument(
        "--until",
        type=positive_seconds,
        metavar="S",
        help="stop at this simulated time in seconds (default: [pool] until_s)",
    )
    parser.add_argument(
        "--explain",
        action="append",
        default=[],
        metavar="NAME",
        help="explain a batch, job, task or gang in detail, or which hosts could take an instance; may be repeated",
    )
    parser.add_argument(
        "--limit",
        type=positive_count,
        default=100,
        metavar="N",
        help="maximum length of lists in the report (default: %(default)s)",
    )
    parser.add_argument(
        "--gantt", metavar="FILE", help="draw the activity of slots and processors, and the inputs (.svg or .png)"
    )
    parser.add_argument("--animation", metavar="FILE", help="show gangs on their tiers over time (.svg, for a browser)")
    add_seed(parser, "pool")


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Simulate the scenario, and return the report."""
    picture = None if arguments.gantt is None else Path(arguments.gantt)
    if picture is not None:
        _check_picture(picture)
    simulation = load(Path(arguments.scenario), arguments.seed)
    simulation.run(arguments.until or simulation.scenario.pool.until_s)
    if picture is not None:
        _draw(simulation, picture)
    if arguments.animation is not None:
        Path(arguments.animation).write_text(_animated(simulation), encoding="utf-8")
    return PoolReport(simulation, arguments.explain, arguments.limit)


def load(path: Path, seed: int | None = None) -> ScenarioRun:
    """Return a simulation that is ready to run; InvalidInput names the file and the place of an error in it."""
    scenario = read_scenario(path)
    named = scenario.pool.catalogue
    catalogue = load_catalogue(path.parent / named if named else installed_catalogue())
    check_scenario(scenario, catalogue, Policies(**{family: policy_names(family) for family in _FAMILIES}))
    policies = _pool_policies(scenario)
    said = scenario.scheduler.__slots__
    settings = PoolSettings(
        **{field.name: getattr(scenario.scheduler, field.name) for field in fields(PoolSettings) if field.name in said}
    )
    simulation = ScenarioRun(
        scenario, catalogue, settings, policies, scenario.pool.seed if seed is None else seed
    )  # fmt: skip
    simulation.check_requests()
    return simulation


def _pool_policies(scenario: Scenario) -> PoolPolicies:
    """Return the policies that a scheduler with these parameters would use, without waiting for compilation."""
    chosen = scenario.scheduler

    def policy(family: str, name: str) -> Any:
        try:
            return policy_with(family, name, scenario.policies.get(name, {}))
        except InvalidInput as error:
            raise InvalidInput(f"{scenario.path}: policy_{error}") from None

    for name in scenario.policies:
        for family in _FAMILIES:
            if name in policy_names(family):
                policy(family, name)
    batches = {name: policy("batch", name) for name in policy_names("batch")}
    online = {*policy_names("online")} - batches.keys()
    return PoolPolicies(
        batches=sparing(batches.__getitem__, chosen.planning_share),
        default_batch=chosen.default_policy,
        online=OnlineRule(
            policy("online", chosen.online_policy), online.__contains__, from_start=chosen.default_policy in online
        ),
        gangs=policy("gang", chosen.gang_policy),
        tasks=quick(policy("task", chosen.task_policy)),
    )


def _check_picture(path: Path) -> None:
    if path.suffix not in _PICTURES:
        raise InvalidInput(f"--gantt {path}: expected a name that ends with {' or '.join(_PICTURES)}")
    if find_spec("matplotlib") is None:
        raise InvalidInput("--gantt: requires matplotlib: pip install 'fpga_pool[figures]'")


def _animated(simulation: ScenarioRun) -> str:
    """Return an animation of the tiers until the last gang has ended; InvalidInput if no gang ran."""
    spans = [span for span in simulation.recorder.spans(simulation.now_s) if span.what == "process"]
    if not spans:
        raise InvalidInput("--animation: no gang ran in this scenario")
    processors = sorted({span.row.rpartition(" ")[0] for span in spans}, key=lambda name: (len(name), name))
    title = f"{Path(simulation.scenario.path).name}: gangs on {len(processors)} processors"
    return animated_tiers(spans, processors, max(span.end_s for span in spans), title)


def _draw(simulation: ScenarioRun, path: Path) -> None:
    from fpga_pool.experiments.charts import draw_pool

    now_s = simulation.now_s
    spans = simulation.recorder.spans(now_s) + simulation.recorder.transfers
    draw_pool(spans, simulation.rows, now_s, Path(simulation.scenario.path).name, path)
