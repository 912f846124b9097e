"""`fpga-pool-sim figures PAPER`: figures as CSV and pictures, and tables of the paper's claims beside our results.

All results of a run, for one paper or for all, are also written as one page of HTML.
"""

import argparse
import contextlib
import csv
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.intervals import half_width
from fpga_pool.experiments.figures.figure import Claim, Experiment, Figure, Sample, Samples, Settings, X
from fpga_pool.model.exceptions import InvalidInput

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
    """Return the figure as data for JSON."""
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
        # Half the width of the 95 % confidence interval; None if there is only one seed.
        "half_width": [half_width(np.array(of_seeds)) if len(of_seeds) > 1 else None for of_seeds in values],
        "least": [min(of_seeds) for of_seeds in values],
        "most": [max(of_seeds) for of_seeds in values],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "key": claim.key, "text": claim.text, "where": claim.where, "paper": claim.paper, "ours": dict(claim.ours),
        "unit": claim.unit, "why": claim.why,
    }  # fmt: skip


def write_table(result: Mapping[str, Any], path: Path) -> None:
    """Write the claims of the paper beside our results, as Markdown."""
    lines = []
    for figure in result["figures"]:
        lines += [f"## Figure {figure['figure']}: {figure['title']} ({figure['where']})", ""]
        rows = [_TITLES, ["---"] * len(_TITLES), *(_row(claim, "<br>") for claim in figure["claims"])]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def show(result: Mapping[str, Any]) -> None:
    """Print the curves of each figure, and the claims of the paper beside our results."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for paper in result.get("papers", [result]):
        _show_paper(paper, console)
    console.print(result["report"], soft_wrap=True)


def _show_paper(result: Mapping[str, Any], console: Console) -> None:
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
    """Format a number with at most three decimals; -0 becomes 0."""
    return f"{round(value, 3) + 0.0:g}"


def _place(x: X) -> str:
    return x if isinstance(x, str) else f"{x:g}"


SEEDS = (0, 1, 2)
#: Papers whose figures need more seeds.
_SEEDS: Mapping[str, tuple[int, ...]] = {"gangs": (0, 1, 2, 3, 4)}

#: The papers whose figures can be made, each a module or package here with `EXPERIMENTS`, imported on request.
PAPERS: Mapping[str, str] = {
    "makespan": "makespan paper, figures 2 to 9; 10: ours",
    "benefit": "benefit paper, figures 3 and 4; 5 to 11: ours",
    "gangs": "two-tier paper, figures 6 to 14; 15: Lublin's model, 16: a trace",
    "lattice": "lattice paper, figures 3 and 4; 5: ours",
    "learned": "learned placement paper, figures 3 to 13; 14: ours",
}
ALL = "all"
#: Maximum scale of the papers whose figures can be made with more than the full numbers.
_MOST_SCALE: Mapping[str, int] = {"gangs": 100}
#: The group of the policies that each paper compares.
_GROUPS: Mapping[str, str] = {
    "makespan": "batch",
    "benefit": "online",
    "gangs": "gang",
    "lattice": "task",
    "learned": "cluster",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    papers = "; ".join(f"{name}: {what}" for name, what in (*PAPERS.items(), (ALL, "all of them")))
    parser.add_argument("paper", choices=(*PAPERS, ALL), metavar="PAPER", help=papers)
    parser.add_argument(
        "--figure", action="append", type=int, metavar="N", help="number of a figure; may be repeated (default: all)"
    )
    parser.add_argument(
        "--seeds", type=_seeds, metavar="LIST", help="seeds, such as 0-4 or 0,7,9 (default: 0-2; gangs: 0-4)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="output directory; report.html in it shows the figures of all papers that were run (default: %(default)s)",
    )
    parser.add_argument(
        "--points", type=int, metavar="N", help="maximum number of points on each x axis (default: all)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="F",
        help="scale of the numbers of jobs and hosts; for gangs values above 1 are allowed and lengthen runs "
        "(default: 1)",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="NAME",
        help="also draw this policy, as NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE; may be repeated",
    )
    parser.add_argument("--trace", type=Path, metavar="SWF", help="gangs: trace for figure 16 (.swf, .swf.gz)")
    parser.add_argument("--no-pictures", action="store_true", help="write no pictures (which require matplotlib)")


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Make the figures and write them to files; return the results for `show`."""
    from fpga_pool.experiments.figures.report import write_report

    if not arguments.no_pictures and find_spec("matplotlib") is None:
        raise InvalidInput("pictures need matplotlib: pip install 'fpga_pool[figures]', or use --no-pictures")
    if arguments.paper == ALL and (arguments.figure or arguments.also or arguments.trace):
        raise InvalidInput("--figure, --also, --trace: cannot be combined with the figures of all papers")
    papers = [
        argparse.Namespace(**vars(arguments) | {"paper": paper})
        for paper in (PAPERS if arguments.paper == ALL else [arguments.paper])
    ]
    settings = [_settings(one) for one in papers]  # all are checked before the first figure, which may take hours
    results = [_run(*of_paper) for of_paper in zip(papers, settings, strict=True)]
    report = arguments.out / "report.html"
    write_report(results, PAPERS, report)
    return {**(results[0] if len(results) == 1 else {"papers": results}), "report": str(report)}


def _run(arguments: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Make the figures of one paper."""
    experiments = _chosen(arguments.paper, arguments.figure, settings.trace)
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin_s = time.perf_counter()
    result: dict[str, Any] = {"paper": arguments.paper, "figures": []}
    with bars(experiments, settings, sys.stderr) as ticks:
        for experiment in experiments:
            figure = make(experiment, settings, ticks(experiment.number))
            files = _write(figure, arguments)
            result["figures"].append(plain(figure, files))
    result["provenance"] = _provenance(arguments, settings, time.perf_counter() - begin_s)
    write_table(result, arguments.out / f"{arguments.paper}.md")
    (arguments.out / f"{arguments.paper}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def _settings(arguments: argparse.Namespace) -> Settings:
    if arguments.points is not None and arguments.points < 2:
        raise InvalidInput(f"--points: expected 2 or more, got {arguments.points}")
    most = _MOST_SCALE.get(arguments.paper, 1)
    if not 0 < arguments.scale <= most:
        raise InvalidInput(f"--scale: expected more than 0 and at most {most}, got {arguments.scale:g}")
    for name in arguments.also:
        policy_as(_GROUPS[arguments.paper], name)
    return Settings(
        seeds=arguments.seeds or _SEEDS.get(arguments.paper, SEEDS),
        points=arguments.points,
        scale=arguments.scale,
        also=tuple(dict.fromkeys(arguments.also)),
        trace=arguments.trace,
    )


def _chosen(paper: str, numbers: Sequence[int] | None, trace: Path | None) -> list[Experiment]:
    module = import_module(f"fpga_pool.experiments.figures.{paper}")
    known: Mapping[int, Experiment] = {experiment.number: experiment for experiment in module.EXPERIMENTS}
    for number in numbers or ():
        if number not in known:
            raise InvalidInput(f"--figure: expected one of {', '.join(map(str, known))} for {paper}, got {number}")
        if known[number].needs_trace and trace is None:
            raise InvalidInput(f"--figure {number}: requires a trace; specify one with --trace")
    chosen = [known[number] for number in sorted(set(numbers or known))]
    return [experiment for experiment in chosen if trace is not None or not experiment.needs_trace]


def _write(figure: Figure, arguments: argparse.Namespace) -> list[Path]:
    path = arguments.out / f"{arguments.paper}-{figure.experiment.number}.csv"
    write_csv(figure, path)
    if arguments.no_pictures:
        return [path]
    from fpga_pool.experiments.figures.picture import draw

    return [path, *draw(figure, path)]


def _provenance(arguments: argparse.Namespace, settings: Settings, took_s: float) -> dict[str, Any]:
    """Return the information needed to reproduce the numbers."""
    return {
        "version": version("fpga_pool"),
        "command": f"fpga-pool-sim figures {arguments.paper}",
        "seeds": list(settings.seeds),
        "points": settings.points,
        "scale": settings.scale,
        "also": list(settings.also),
        "trace": None if settings.trace is None else settings.trace.name,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "took_s": round(took_s, 1),
    }


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = [seed for part in text.split(",") for seed in _range(part)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise argparse.ArgumentTypeError(f"expected seeds such as 0-4 or 0,7,9, got {text!r}")
    return tuple(dict.fromkeys(seeds))


def _range(text: str) -> Sequence[int]:
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)


#: Called once after each measurement.
Tick = Callable[[], None]


def make(experiment: Experiment, settings: Settings, tick: Tick = lambda: None) -> Figure:
    """Measure every case of an experiment with every seed."""
    rows: list[Sample] = []
    for subject, x in experiment.cases(settings):
        for seed in settings.seeds:
            rows += experiment.measure(subject, x, seed, settings)
            tick()
    samples = Samples(rows)
    return Figure(experiment=experiment, samples=samples, claims=tuple(experiment.claims(samples)))


@contextlib.contextmanager
def bars(experiments: Sequence[Experiment], settings: Settings, stream: TextIO) -> Iterator[Callable[[int], Tick]]:
    """Show a progress bar per figure on a terminal; yield a function that returns the tick of a figure by number."""
    columns = (
        TextColumn("figure {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=stream), disable=not stream.isatty()) as progress:
        tasks = {
            experiment.number: progress.add_task(
                f"{experiment.number}", total=len(experiment.cases(settings)) * len(settings.seeds), start=False
            )
            for experiment in experiments
        }

        def ticks(number: int) -> Tick:
            progress.start_task(tasks[number])
            return lambda: progress.advance(tasks[number])

        yield ticks
