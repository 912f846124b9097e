"""Results measured, predicted by the fluid model, and reported by the paper: as plain data and as tables."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from support.testbed.experiment import Comparison, Variant
from support.testbed.measure import Control

_COLUMNS = {
    "policy": "\npolicy",
    "control": "rates\nby",
    "fluid_s": "fluid\ns",
    "measured_s": "found\ns",
    "error_percent": "error\n%",
    "over_optimum": "x opti-\nmum",
    "fluid_percent": "gain %\nfluid",
    "measured_percent": "gain %\nfound",
    "paper_percent": "gain %\npaper",
    "busy_percent": "busy\n%",
}


def plain(comparison: Comparison) -> dict[str, Any]:
    """Return data for JSON; improvements are those of the first variant, in percent of the other (equation 7)."""
    case = comparison.case
    return {
        "case": case.name,
        "title": case.title,
        "input_bytes": list(case.input_bytes),
        "lower_bound_s": comparison.lower_bound_s,
        "optimum_s": comparison.optimum_s,
        "variants": [_row(comparison, variant) for variant in comparison.variants],
    }


def _row(comparison: Comparison, variant: Variant) -> dict[str, Any]:
    ours = comparison.variants[0]
    controlled = variant.control is not Control.NONE
    other = variant is not ours
    return {
        "policy": variant.policy,
        "control": str(variant.control),
        "fluid_s": variant.fluid_s,
        "measured_s": variant.measured_s,
        "error_percent": 100 * (variant.measured_s / variant.fluid_s - 1),
        "over_optimum": variant.measured_s / comparison.optimum_s,
        "fluid_percent": _improvement_percent(ours.fluid_s, variant.fluid_s) if other else None,
        "measured_percent": _improvement_percent(ours.measured_s, variant.measured_s) if other else None,
        "paper_percent": comparison.case.paper_percent.get(variant.policy) if other and controlled else None,
        "busy_percent": 100 * sum(run.busy for run in variant.runs) / len(variant.runs),
        "runs": [asdict(run) for run in variant.runs],
    }


def _improvement_percent(ours_s: float, other_s: float) -> float:
    return 100 * (1 - ours_s / other_s)


def show(result: Mapping[str, Any]) -> None:
    """Print a table for each case."""
    console = Console()
    for case in result["cases"]:
        megabytes = "/".join(f"{size / 1e6:g}" for size in case["input_bytes"])
        table = Table(
            title=f"{case['title']}\ninputs of {megabytes} MB", title_justify="left", box=None, padding=(0, 2, 0, 0)
        )
        for key, title in _COLUMNS.items():
            table.add_column(title, justify="left" if key in ("policy", "control") else "right", no_wrap=True)
        for row in case["variants"]:
            table.add_row(*(_shown(key, row[key]) for key in _COLUMNS))
        console.print(table)
        console.print(f"Lower bound {case['lower_bound_s']:.2f} s, fluid optimum {case['optimum_s']:.2f} s.")
    console.print("Found: measured. Gain: how much shorter the first row is, in percent of the other.")
    console.print("Busy: share of this machine's processor time; much above 60 %, the processors limited the results.")


def _shown(key: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:+.1f}" if key == "error_percent" else f"{value:.2f}" if key != "busy_percent" else f"{value:.0f}"
