"""Write the tables of the documentation page on learned placement, which includes the files.

python -m fpga_pool.experiments.figures.learned.tables NAME SCENARIO > NAME.csv
"""

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fpga_pool.cli.arguments import positive_count
from fpga_pool.experiments.figures.learned.runs import Stack, results

_LOADS: Mapping[int, float] = {60: 1.0, 150: 2.5}
_SETTINGS: Mapping[str, tuple[bool, bool]] = {
    "both": (True, True),
    "exclusive": (False, True),
    "no admission": (True, False),
    "neither": (False, False),
}
#: By table and row name: cluster policy and node policy.
TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "baselines": {
        "random": ("random", "random"),
        "pats": ("pats", "pats"),
        "jsq": ("jsq", "ect"),
        "ect": ("ect", "ect"),
        "ect_open": ("ect_open", "ect"),
    },
    "learned": {
        "ect, ect": ("ect", "ect"),
        "ldwp, ect": ("ldwp", "ect"),
        "ect_open, iawp": ("ect_open", "iawp"),
        "ldwp, iawp": ("ldwp", "iawp"),
    },
}
_HEADER = ("per minute", "policy", "setting", "goodput per minute", "mean", "p95", "p99", "useful share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The parameters of one row."""

    world: Path
    per_minute: int
    name: str
    setting: str
    stack: Stack
    seeds: int
    tasks: int | None

    def cells(self) -> Sequence[str]:
        """Return means over the seeds, some followed by ± and the standard deviation between the seeds."""
        found = [
            results(self.world, self.stack, seed, load=_LOADS[self.per_minute], tasks=self.tasks)
            for seed in range(self.seeds)
        ]
        columns = {key: np.array([each[key] for each in found]) for key in found[0]}
        goodput, mean = columns["goodput_per_minute"], columns["mean_response_s"]
        return (
            f"{self.per_minute}",
            f"``{self.name}``",
            self.setting,
            f"{goodput.mean():.1f} ± {goodput.std(ddof=1):.1f}",
            f"{mean.mean():.0f} ± {mean.std(ddof=1):.0f}",
            f"{columns['p95_response_s'].mean():.0f}",
            f"{columns['p99_response_s'].mean():.0f}",
            f"{columns['useful_share'].mean():.2f}",
        )


def rows(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of every stack, with and without co-running and memory admission."""
    wanted = [
        Row(
            world=arguments.world,
            per_minute=per_minute,
            name=name,
            setting=setting,
            stack=Stack(cluster=cluster, node=node, corun=corun, admission=admission),
            seeds=arguments.seeds,
            tasks=arguments.tasks,
        )
        for per_minute in arguments.per_minute or _LOADS
        for name, (cluster, node) in TABLES[arguments.table].items()
        for setting, (corun, admission) in _SETTINGS.items()
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=1) as pool:
        yield from pool.imap(Row.cells, wanted)


def main() -> None:
    """Write a table to standard output, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("world", type=Path, metavar="SCENARIO", help="the scenario (.toml)")
    parser.add_argument("--seeds", type=positive_count, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument("--tasks", type=positive_count, metavar="N", help="default: those of the scenario")
    parser.add_argument("--per-minute", type=int, choices=_LOADS, action="append", help="default: both")
    parser.add_argument("--processes", type=positive_count, default=2, metavar="N", help="default: %(default)s")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_HEADER)
    for each in rows(parser.parse_args()):
        writer.writerow(each)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
