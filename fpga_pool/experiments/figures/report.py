"""A figure as CSV, what the paper says beside what we found as JSON, and both as tables for people."""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fpga_pool.experiments.figures.figure import Claim, Figure, X

FORMAT_VERSION = 1
_TITLES = ["the paper", "where", "paper's", "ours", "differences and reasons"]
#: Width of the output if it is unknown.
_WIDTH = 140
_COLUMNS = ("figure", "panel", "x", "series", "seed", "value")


def write_csv(figure: Figure, path: Path) -> None:
    """Write one row per sample."""
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# format_version={FORMAT_VERSION}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in figure.samples.rows:
            place = row.x if isinstance(row.x, str) else f"{row.x:g}"
            writer.writerow((figure.experiment.number, row.panel, place, row.series, row.seed, repr(row.value)))


def plain(figure: Figure, files: Sequence[Path]) -> dict[str, Any]:
    """Return what JSON can hold."""
    return {
        "figure": figure.experiment.number,
        "title": figure.experiment.title,
        "where": figure.experiment.where,
        "files": [str(path) for path in files],
        "curves": [_curve(figure, panel.key, series) for panel in figure.experiment.panels
                   for series in figure.samples.series(panel.key)],
        "claims": [_claim(claim) for claim in figure.claims],
    }  # fmt: skip


def _curve(figure: Figure, panel: str, series: str) -> dict[str, Any]:
    samples = figure.samples
    places = samples.places(panel, series)
    values = [list(samples.values(panel, series, x).values()) for x in places]
    return {
        "panel": panel,
        "series": series,
        "x": list(places),
        "mean": [float(np.mean(of_seeds)) for of_seeds in values],
        "least": [min(of_seeds) for of_seeds in values],
        "most": [max(of_seeds) for of_seeds in values],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "key": claim.key, "text": claim.text, "where": claim.where, "paper": claim.paper, "ours": dict(claim.ours),
        "unit": claim.unit, "why": claim.why,
    }  # fmt: skip


def write_table(result: Mapping[str, Any], path: Path) -> None:
    """Write what the papers say beside what we found, as Markdown."""
    lines = []
    for figure in result["figures"]:
        lines += [f"## Figure {figure['figure']}: {figure['title']} ({figure['where']})", ""]
        rows = [_TITLES, ["---"] * len(_TITLES), *(_row(claim, "<br>") for claim in figure["claims"])]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def show(result: Mapping[str, Any]) -> None:
    """Print the curves of each figure, and what the paper says of it beside what we found."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for figure in result["figures"]:
        console.rule(f"Figure {figure['figure']}: {figure['title']} ({figure['where']})", align="left")
        for panel in dict.fromkeys(curve["panel"] for curve in figure["curves"]):
            console.print(_curves_table(panel, [curve for curve in figure["curves"] if curve["panel"] == panel]))
        if figure["claims"]:
            console.print(_claims_table(figure["claims"]))
    for path in (path for figure in result["figures"] for path in figure["files"]):
        console.print(path, soft_wrap=True)


def _curves_table(panel: str, curves: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"panel {panel}, means of the seeds", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("x", justify="right")
    for curve in curves:
        table.add_column(curve["series"], justify="right")
    for x in dict.fromkeys(x for curve in curves for x in curve["x"]):
        table.add_row(_place(x), *(_value_at(curve, x) for curve in curves))
    return table


def _value_at(curve: Mapping[str, Any], x: X) -> str:
    return f"{curve['mean'][curve['x'].index(x)]:.4g}" if x in curve["x"] else ""


def _claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="claims of the paper and our results", title_justify="left", box=None, padding=(0, 2, 1, 0))
    for title in _TITLES:
        table.add_column(title, vertical="top")
    for claim in claims:
        table.add_row(*_row(claim, "\n"))
    return table


def _row(claim: Mapping[str, Any], newline: str) -> list[str]:
    ours = newline.join(f"{name} {_number(value)} {claim['unit']}".rstrip() for name, value in claim["ours"].items())
    return [claim["text"], claim["where"], claim["paper"], ours, claim["why"]]


def _number(value: float) -> str:
    """Return three decimals at most; what is nothing but for rounding is 0."""
    return f"{round(value, 3) + 0.0:g}"


def _place(x: X) -> str:
    return x if isinstance(x, str) else f"{x:g}"
