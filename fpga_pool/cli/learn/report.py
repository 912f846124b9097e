"""What `fpga-pool-learn` prints."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from fpga_pool.experiments.rollouts import HEURISTICS, METRICS, Comparison, Evaluation
from fpga_pool.experiments.training import Progress

#: Of which metrics a table shows the worst world too.
_WORST = ("mean_response_s", "p95_response_s")


def show_training(progress: Progress) -> None:
    """Print what each candidate achieved in the validation."""
    table = Table(title="Validation: in parts of the same policy without corrections")
    for name in ("candidate", "mean response", "p95 response", ""):
        table.add_column(name, justify="left" if name == "candidate" else "right")
    best = min(progress.validations, key=lambda each: each[1])
    for each in progress.validations:
        table.add_row(each[0], f"{each[2]:.3f}", f"{each[3]:.3f}", "best" if each is best else "")
    Console(width=100).print(table)


def show_evaluation(evaluation: Evaluation, reference: str) -> None:
    """Print one suite: each stack in parts of the reference, with intervals and the worst world."""
    some = evaluation.results[reference]
    title = f"{evaluation.suite}: {len(some)} worlds x {len(some[0])} seeds, in parts of {reference}"
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
    data = as_data(evaluation, reference)
    for name, value in data["absolute"].items():
        console.print(f"{name}: {', '.join(f'{metric} {number:.4g}' for metric, number in value.items())}")
    bounds = ", ".join(f"{name} {value:.4g}" for name, value in data["bounds"].items())
    console.print(f"bounds: {bounds}\n", soft_wrap=True)


def as_data(evaluation: Evaluation, reference: str) -> Mapping[str, Any]:
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
