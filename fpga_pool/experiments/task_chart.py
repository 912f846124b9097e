"""A picture of a schedule of multi-FPGA tasks: a row for each FPGA, enclosure by enclosure, a colour for each width."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule, Topology

#: Rows between enclosures.
_GAP = 1
_ROW_IN = 0.16


def draw_schedule(problem: TaskProblem, schedule: TaskSchedule, ids: Sequence[str], title: str, path: Path) -> None:
    """Draw a schedule into a file (.svg or .png); where a task lies on neighbours its bar is one piece."""
    base = first_fpgas(problem)
    rows = problem.fpgas + _GAP * len(problem.enclosure_fpgas)
    colours = mpl.colormaps["viridis"]
    widths = sorted(set(problem.shape_fpgas[schedule.shape].tolist()))
    colour = {width: colours((i + 0.5) / len(widths)) for i, width in enumerate(widths)}
    figure, axes = plt.subplots(figsize=(9, _ROW_IN * rows + 1.2), layout="constrained")
    for task, name in enumerate(ids):
        members = schedule.members[schedule.member_begin[task] : schedule.member_begin[task + 1]].tolist()
        row = int(base[schedule.enclosure[task]]) + _GAP * int(schedule.enclosure[task])
        begin_s, length_s = schedule.begin_s[task], schedule.end_s[task] - schedule.begin_s[task]
        for first, count in _stretches(members):
            axes.broken_barh(
                [(begin_s, length_s)], (row + first, count), facecolor=colour[len(members)], edgecolor="white",
                linewidth=0.6, label=name,
            )  # fmt: skip
    axes.axvline(schedule.bound_tight_s, color="black", linestyle="--", linewidth=1)
    middles = [base[e] + _GAP * e + size / 2 for e, size in enumerate(problem.enclosure_fpgas)]
    names = [f"{Topology(links).name.lower()} {e}" for e, links in enumerate(problem.enclosure_links)]
    axes.set_yticks(middles, names)
    axes.set_xlim(0, max(schedule.wct_s, schedule.bound_tight_s) or 1.0)
    axes.set_ylim(rows - _GAP, 0)
    axes.set_xlabel("seconds; dashed: no schedule ends earlier")
    axes.set_title(title, fontsize=10)
    keys = [Patch(color=colour[width], label=f"{width} FPGA{'s' if width > 1 else ''}") for width in widths]
    axes.legend(handles=keys, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    with mpl.rc_context({"svg.hashsalt": "fpga_pool"}):  # the same schedule gives the same bytes
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _stretches(members: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, count) of each stretch of consecutive numbers."""
    numbered = enumerate(sorted(members))
    runs = [[member for _, member in run] for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0])]
    return [(run[0], len(run)) for run in runs]
