"""Charts of batches, simulated pools and schedules of tasks."""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule, Topology
from fpga_pool.model.objects.pool import Job
from fpga_pool.sim.scenario.recording import Span

mpl.use("Agg")


_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")


def draw_gantt(jobs: Sequence[Job], title: str, path: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Draw planned (pale, above) and actual computation (full, below) of every slot; return the files written."""
    slots = sorted({job.slot for job in jobs})
    functions = sorted({job.function for job in jobs})
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(functions)}
    figure, axes = plt.subplots(figsize=(11, 0.42 * len(slots) + 1.6), layout="constrained")

    def bar(job: Job, offset: float, begin_s: float, end_s: float, alpha: float) -> None:
        axes.barh(
            slots.index(job.slot) + offset,
            end_s - begin_s,
            left=begin_s,
            height=0.38,
            color=colour[job.function],
            alpha=alpha,
            edgecolor="white",
            linewidth=0.5,
        )

    for job in jobs:
        if job.start_s is not None and job.end_s is not None:
            bar(job, -0.2, job.start_s, job.end_s, alpha=0.4)
        if job.started_at is not None and job.finished_at is not None and job.dispatched_at is not None:
            bar(job, 0.2, job.started_at - job.dispatched_at, job.finished_at - job.dispatched_at, alpha=1.0)
    axes.set_yticks(range(len(slots)), slots, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("seconds since the plan's time 0")
    axes.set_title(f"{title}: planned (pale) and happened (full)", fontsize=10)
    patches = [Patch(color=colour[name], label=name) for name in functions]
    figure.legend(handles=patches, fontsize=8, loc="outside lower center", ncols=len(patches))
    written = [path.with_suffix(f".{suffix}") for suffix in formats]
    for target in written:
        figure.savefig(target, dpi=120)
    plt.close(figure)
    return written


#: What is not a function's or a gang's: its colour and hatch.
_MARKS = {"load": ("#d9d9d9", "////"), "fault": ("#b30000", ""), "instance": ("#fdd0a2", "....")}
#: Colours of functions and gangs: those of tab20 that are not like one of the marks.
_COLOURS_OF_WORK = [number for number in range(20) if number not in (3, 6, 15)]
_ROW_IN, _TALLEST_IN = 0.22, 60.0


def draw_pool(spans: Sequence[Span], rows: Sequence[str], end_s: float, title: str, path: Path) -> None:
    """Draw what each row did from time 0 to the end, into a file (.svg or .png); rows without spans are there too."""
    order = sorted({*rows, *(span.row for span in spans)}, key=_natural)
    place = {row: number for number, row in enumerate(order)}
    names = sorted({span.name for span in spans if span.what not in _MARKS})
    colour = {
        name: plt.get_cmap("tab20")(_COLOURS_OF_WORK[number % len(_COLOURS_OF_WORK)])
        for number, name in enumerate(names)
    }
    height_in = min(_ROW_IN * len(order) + 1.6, _TALLEST_IN)
    figure, axes = plt.subplots(figsize=(12, height_in), layout="constrained")
    for span in spans:
        face, hatch = _MARKS.get(span.what) or (colour[span.name], "")
        # An instance holds a slot; what is loaded there is drawn over it.
        tall = 0.9 if span.what == "instance" else 0.6
        axes.broken_barh(
            [(span.begin_s, span.end_s - span.begin_s)],
            (place[span.row] - tall / 2, tall),
            facecolor=face,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
            zorder=1 if span.what == "instance" else 2,
        )
    axes.set_yticks(range(len(order)), order, fontsize=7)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0.0, max(end_s, 1e-9))
    axes.set_xlabel("simulated seconds")
    axes.set_title(title, fontsize=10)
    patches = [Patch(facecolor=colour[name], label=name) for name in names[: len(_COLOURS_OF_WORK)]]
    patches += [Patch(facecolor=face, hatch=hatch, label=what) for what, (face, hatch) in _MARKS.items()]
    figure.legend(handles=patches, fontsize=7, loc="outside lower center", ncols=min(len(patches), 8))
    figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts slot10 behind slot2."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


#: Rows between enclosures.
_GAP = 1
_TASK_ROW_IN = 0.16


def draw_schedule(problem: TaskProblem, schedule: TaskSchedule, ids: Sequence[str], title: str, path: Path) -> None:
    """Draw a schedule into a file (.svg or .png); where a task lies on neighbours its bar is one piece."""
    base = first_fpgas(problem)
    rows = problem.fpgas + _GAP * len(problem.enclosure_fpgas)
    colours = mpl.colormaps["viridis"]
    widths = sorted(set(problem.shape_fpgas[schedule.shape].tolist()))
    colour = {width: colours((i + 0.5) / len(widths)) for i, width in enumerate(widths)}
    figure, axes = plt.subplots(figsize=(9, _TASK_ROW_IN * rows + 1.2), layout="constrained")
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
