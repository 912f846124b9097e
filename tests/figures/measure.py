"""Measure the claims of reduced figures and write their ranges: python tests/figures/measure.py gangs lattice

A range extends by one standard error of the mean over the seeds to each side of the value, and at least by `FLOOR`.
`also` has values of the same seeds in other runs, as a linear program has several optimal vertices; the range includes
these, too.
"""

import argparse
import importlib.util
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fpga_pool.experiments.figures.figure import Experiment, Figure, Samples

HERE = Path(__file__).parent
#: Possible influence of other libraries: percentage points, or a share of any other value.
FLOOR = 0.001


def spread(experiment: Experiment, figure: Figure, claim: str, curve: str) -> float:
    """Return the standard error of a claim's value, as the mean over the values of each seed alone."""
    found = []
    for seed in sorted({row.seed for row in figure.samples.rows}):
        alone = experiment.claims(Samples(row for row in figure.samples.rows if row.seed == seed))
        found += [one.ours[curve] for one in alone if one.key == claim and curve in one.ours]
    found = [value for value in found if math.isfinite(value)]
    return statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else 0.0


def half_width(value: float, unit: str, error: float) -> float:
    """Return how far a range extends to each side of a value."""
    return max(error, FLOOR * (100.0 if unit in ("%", "points") else abs(value)))


def ends(value: float, also: Sequence[float], unit: str, error: float) -> tuple[float, float]:
    """Return the smallest and the largest value in a range."""
    reach = half_width(value, unit, error)
    return min([value, *also]) - reach, max([value, *also]) + reach


def measured(wanted: Mapping[str, Any], value: float, error: float) -> str:
    """Return a range in the format of the file."""
    also = wanted.get("also", ())
    least, most = ends(value, also, wanted["unit"], error)
    lines = ["[[range]]", *(f"{name} = {toml(wanted[name])}" for name in ("figure", "claim", "curve"))]
    lines += [f"least = {least:.6g}", f"most = {most:.6g}", f"found = {value:.6g}"]
    lines += [f"also = {list(also)}"] if also else []
    lines += [f"error = {error:.3g}", *(f"{name} = {toml(wanted[name])}" for name in ("unit", "paper"))]
    return "\n".join(lines)


def toml(value: object) -> str:
    return f"{value}" if isinstance(value, int) else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(name: str) -> None:
    """Measure the figures of a paper and write its file."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"test_{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = HERE / f"{name}.toml"
    text = path.read_text()
    header = text[: text.index("[[range]]")]
    date = tomllib.loads(header)["provenance"]["date"]
    ranges = []
    for wanted in tomllib.loads(text)["range"]:
        figure = module.figure(wanted["figure"])
        value = {claim.key: claim for claim in figure.claims}[wanted["claim"]].ours[wanted["curve"]]
        error = spread(module.EXPERIMENT[wanted["figure"]], figure, wanted["claim"], wanted["curve"])
        ranges.append(measured(wanted, value, error))
    header = header.replace(f"date = {date}", f"date = {datetime.now(UTC).date()}")
    path.write_text("\n\n".join([header.rstrip(), *ranges]) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper", nargs="+", choices=("benefit", "gangs", "lattice", "learned", "makespan"))
    for paper in parser.parse_args().paper:
        write(paper)
