"""`fpga-pool-learn`: train the policy `learned`, evaluate it against others, export its weights."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fpga_pool.cli.arguments import FAILED, OK, WRONG_USAGE, OneLineParser, as_json, complain, whole
from fpga_pool.conf.learned import read_network, write_network
from fpga_pool.experiments.rollouts import (
    HEURISTICS,
    METRICS,
    STACKS,
    Comparison,
    Evaluation,
    Result,
    Run,
    evaluate,
    runner,
    runs_of,
)
from fpga_pool.experiments.training import Effort, Plan, draw, train
from fpga_pool.experiments.training import Progress as Trained
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.sim.cluster.generator import SUITES

_EVALUATED = ("held_out", "overload", "unseen_kinds", "unseen_law")
_MOST_BYTES = 16384


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit_:
        return int(exit_.code or OK)
    try:
        _COMMANDS[arguments.command](arguments)
    except InvalidInput as error:
        return complain(f"fpga-pool-learn {arguments.command}", error, WRONG_USAGE)
    except (FpgaPoolError, OSError, MemoryError) as error:
        return complain(f"fpga-pool-learn {arguments.command}", error, FAILED)
    except KeyboardInterrupt:
        print(f"fpga-pool-learn {arguments.command}: interrupted", file=sys.stderr)
        return FAILED
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="fpga-pool-learn", description="Train and evaluate the cluster policy `learned`.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    training = commands.add_parser(
        "train", help="Train weights from scratch, or continue an earlier training in the same directory."
    )
    training.add_argument("--out", required=True, metavar="DIR", help="directory of the training")
    training.add_argument("--seed", type=whole(0), default=0, metavar="N", help="random seed (default: 0)")
    plan, effort = Plan(), Effort()
    for name, default, text in (
        ("generations", plan.generations, "generations of the evolution strategy"),
        ("runs", plan.runs, "runs of each of the two rounds of data for the supervised start"),
        ("validation", plan.validation, "worlds of each validation"),
        ("pairs", effort.pairs, "pairs of perturbations of a generation"),
        ("worlds", effort.worlds, "worlds of a generation"),
        ("tasks", effort.tasks, "tasks of a run"),
    ):
        training.add_argument(
            f"--{name}", type=whole(1), default=default, metavar="N", help=f"{text} (default: {default})"
        )
    evaluation = commands.add_parser("evaluate", help="Compare policies in random worlds.")
    evaluation.add_argument(
        "--suites",
        default=",".join(_EVALUATED),
        metavar="NAMES",
        help=f"suites of worlds: {', '.join(SUITES)} (default: {','.join(_EVALUATED)})",
    )
    evaluation.add_argument(
        "--stacks",
        default="ect,ect_open,jsq,pats,chain,learned,perfect",
        metavar="NAMES",
        help=f"stacks to compare, which must include the reference: {', '.join(STACKS)} (default: %(default)s)",
    )
    evaluation.add_argument("--reference", default="ect", metavar="NAME", help="the stack to compare with")
    evaluation.add_argument("--worlds", type=whole(1), default=20, metavar="N", help="worlds of a suite (default: 20)")
    evaluation.add_argument("--seeds", type=whole(1), default=5, metavar="N", help="seeds of each world (default: 5)")
    evaluation.add_argument("--tasks", type=whole(20), default=300, metavar="N", help="tasks of a run (default: 300)")
    evaluation.add_argument("--weights", metavar="FILE", help="weights (default: those of the package)")
    evaluation.add_argument("--json", action="store_true", help="print one JSON object")
    for parallel in (training, evaluation):
        group = parallel.add_mutually_exclusive_group()
        processes = os.cpu_count() or 1
        group.add_argument(
            "--processes",
            type=whole(1),
            default=processes,
            metavar="N",
            help="processes for the simulations; the result does not depend on it (default: one for each processor)",
        )
        group.add_argument("--dask", metavar="ADDRESS", help="scheduler of a Dask cluster for the simulations")
    export = commands.add_parser("export", help="Write the best weights of a training to a file.")
    export.add_argument("training", metavar="DIR", help="directory of the training")
    export.add_argument("out", metavar="FILE", help="file of the weights (.npz)")
    return parser


def _train(arguments: argparse.Namespace) -> None:
    effort = Effort(pairs=arguments.pairs, worlds=arguments.worlds, tasks=arguments.tasks)
    plan = Plan(
        seed=arguments.seed,
        runs=arguments.runs,
        generations=arguments.generations,
        validation=arguments.validation,
        effort=effort,
    )
    directory = Path(arguments.out)
    with _bars() as show, runner(arguments.processes, arguments.dask) as run_all:
        network, progress = train(plan, directory, run_all, show)
    write_network(directory / "weights.npz", network)
    _show_training(progress)
    try:
        draw(progress, directory / "training.png")
        print(f"weights: {directory / 'weights.npz'}, picture: {directory / 'training.png'}")
    except ImportError:
        print(f"weights: {directory / 'weights.npz'}; for a picture: pip install 'fpga_pool[figures]'")


def _evaluate(arguments: argparse.Namespace) -> None:
    stacks, suites = _names(arguments.stacks, STACKS, "--stacks"), _names(arguments.suites, SUITES, "--suites")
    if arguments.reference not in stacks:
        raise InvalidInput(f"--reference: expected one of --stacks, got {arguments.reference!r}")
    network = _network(arguments.weights) if arguments.weights else None
    found = []
    with _bars() as show, runner(arguments.processes, arguments.dask) as run_all:

        def counted(suite: str) -> Callable[[Sequence[Run]], Iterator[Result]]:
            def run(runs: Sequence[Run]) -> Iterator[Result]:
                for done, result in enumerate(run_all(runs), 1):
                    show(suite, done, len(runs))
                    yield result

            return run

        for suite in suites:
            runs = runs_of(stacks, suite, arguments.worlds, arguments.seeds, arguments.tasks, network)
            found.append(evaluate(suite, stacks, runs, counted(suite)))
    if arguments.json:
        print(as_json([_as_data(each, arguments.reference) for each in found]))
    else:
        for each in found:
            _show_evaluation(each, arguments.reference)


def _export(arguments: argparse.Namespace) -> None:
    network = _network(str(Path(arguments.training) / "best.npz"))
    out = Path(arguments.out)
    write_network(out, network)
    if out.stat().st_size > _MOST_BYTES:
        raise FpgaPoolError(f"{out}: {out.stat().st_size} bytes, more than {_MOST_BYTES}")


def _network(path: str) -> Any:
    try:
        return read_network(Path(path))
    except ValueError as error:
        raise InvalidInput(str(error)) from None


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback that shows the progress of each step as a bar on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in bars:
                for bar in bars.values():
                    progress.update(bar, completed=progress.tasks[bar].total)
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=done)

        yield show


def _names(text: str, known: Mapping[str, Any], option: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise InvalidInput(f"{option}: {name!r}: no such name; available: {', '.join(known)}")
    return names


# ---- Output

#: Metrics for which a table also shows the worst world.
_WORST = ("mean_response_s", "p95_response_s")


def _show_training(progress: Trained) -> None:
    """Print the results of each candidate in the validation."""
    table = Table(title="Validation: ratios to the same policy without corrections")
    for name in ("candidate", "mean response", "p95 response", ""):
        table.add_column(name, justify="left" if name == "candidate" else "right")
    best = min(progress.validations, key=lambda each: each[1])
    for each in progress.validations:
        table.add_row(each[0], f"{each[2]:.3f}", f"{each[3]:.3f}", "best" if each is best else "")
    Console(width=100).print(table)


def _show_evaluation(evaluation: Evaluation, reference: str) -> None:
    """Print one suite: each stack as ratios to the reference, with confidence intervals and the worst world."""
    some = evaluation.results[reference]
    title = f"{evaluation.suite}: {len(some)} worlds x {len(some[0])} seeds, ratios to {reference}"
    table = Table(title=title, caption="ratio [95 % bootstrap interval over worlds], worst world, share of wins")
    table.add_column("stack")
    for metric in METRICS:
        table.add_column(metric, justify="right")
    for stack in evaluation.results:
        table.add_row(stack, *(_cell(evaluation.compare(stack, reference, each), each) for each in METRICS))
    if any(name in evaluation.results for name in HEURISTICS):
        table.add_section()
        for stack in evaluation.results:
            if stack not in HEURISTICS:
                cells = (_cell(evaluation.compare(stack, "best_heuristic", each), each) for each in METRICS)
                table.add_row(f"{stack} / best heuristic of each case", *cells)
    console = Console(width=190)
    console.print(table)
    data = _as_data(evaluation, reference)
    for name, value in data["absolute"].items():
        console.print(f"{name}: {', '.join(f'{metric} {number:.4g}' for metric, number in value.items())}")
    bounds = ", ".join(f"{name} {value:.4g}" for name, value in data["bounds"].items())
    console.print(f"bounds: {bounds}\n", soft_wrap=True)


def _as_data(evaluation: Evaluation, reference: str) -> Mapping[str, Any]:
    """Return a suite as plain data."""
    first = next(iter(evaluation.results))
    references = [reference]
    if any(name in evaluation.results for name in HEURISTICS):
        references.append("best_heuristic")
    return {
        "suite": evaluation.suite,
        "reference": reference,
        "ratios": {
            stack: {
                other: {metric: asdict(evaluation.compare(stack, other, metric)) for metric in METRICS}
                for other in references
            }
            for stack in evaluation.results
        },
        "absolute": {
            stack: {metric: float(evaluation.values(stack, metric).mean()) for metric in METRICS}
            for stack in evaluation.results
        },
        "bounds": {
            name: float(evaluation.values(first, name).mean()) for name in ("bound_per_minute", "bound_mean_response_s")
        },
    }


def _cell(found: Comparison, metric: str) -> str:
    cell = f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]"
    return f"{cell} {found.worst:.2f} {found.wins:.0%}" if metric in _WORST else cell


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "export": _export,
}

if __name__ == "__main__":
    sys.exit(main())
