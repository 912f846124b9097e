"""Charts of batches, simulated pools and schedules of tasks."""

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Topology
from fpga_pool.model.objects.pool import Batch, Job, Slot, SlotState
from fpga_pool.sim.scenario.recording import Span

mpl.use("Agg")


_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")


#: Offset and height of the bars of a slot, in rows: planned and actual transfers, planned and actual computation.
_MOVES, _MOVED, _PLANNED, _ACTUAL = (-0.43, 0.08), (-0.32, 0.1), (-0.12, 0.26), (0.22, 0.38)
#: Opacity of planned bars.
_PALE = 0.4
#: Middle of a tick, and half its length, in rows.
_ARRIVAL, _TICK = -0.37, 0.11


def draw_gantt(
    batch: Batch, jobs: Sequence[Job], slots: Sequence[Slot], title: str, path: Path,
    formats: Sequence[str] = ("svg", "png"),
) -> list[Path]:  # fmt: skip
    """Draw a batch on its slots, in seconds since time 0 of the plan; return the files written.

    Each slot has thin bars for the transfers of inputs, planned (pale) and below them actual, with a tick where an
    input was complete.  Below are the planned computation (pale), and actual loads (hatched) and computation.  Vertical
    lines are the lower bound and the planned end of the batch.  `slots` must include their history.
    """
    rows = sorted({job.slot for job in jobs if job.slot}, key=_natural)
    functions = sorted({job.function for job in jobs})
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(functions)}
    figure, axes = plt.subplots(figsize=(11, 0.5 * len(rows) + 1.8), layout="constrained")

    def bar(slot: str, place: tuple[float, float], begin_s: float, end_s: float, **style: Any) -> None:
        offset, height = place
        axes.barh(rows.index(slot) + offset, end_s - begin_s, left=begin_s, height=height, linewidth=0.5, **style)

    begin = min((job.dispatched_at for job in jobs if job.dispatched_at is not None), default=None)
    for job in jobs:
        if job.dispatched_at is None or begin is None or job.slot not in rows:
            continue
        late_s = job.dispatched_at - begin  # a replanned job has another time 0
        face = colour[job.function]
        for piece in job.transfer:
            bar(job.slot, _MOVES, late_s + piece.begin_s, late_s + piece.end_s, color=face, alpha=_PALE)
        if job.transfer_began_at is not None and job.staged_at is not None:
            bar(job.slot, _MOVED, job.transfer_began_at - begin, job.staged_at - begin, color=face)
        if job.transfer and job.staged_at is not None:
            _tick(axes, rows.index(job.slot), job.staged_at - begin)
        if job.start_s is not None and job.end_s is not None:
            planned = late_s + job.start_s, late_s + job.end_s
            bar(job.slot, _PLANNED, *planned, color=face, alpha=_PALE, edgecolor="white")
        if job.started_at is not None and job.finished_at is not None:
            bar(job.slot, _ACTUAL, job.started_at - begin, job.finished_at - begin, color=face, edgecolor="white")
    for slot in slots:
        if slot.name in rows and begin is not None:
            for load_begin, load_end in loads(slot):
                actual = load_begin - begin, load_end - begin
                bar(slot.name, _ACTUAL, *actual, facecolor=_LOAD[0], hatch=_LOAD[1], edgecolor="white")
    lines = ((batch.lower_bound_s, "lower bound", "--"), (batch.planned_makespan_s, "planned end", ":"))
    handles: list[Any] = [
        axes.axvline(at_s, color="black", linestyle=style, linewidth=1, label=label)
        for at_s, label, style in lines
        if at_s is not None
    ]
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("seconds since time 0 of the plan")
    axes.set_title(f"{title}: transfers of inputs (thin) and computation, planned (pale) and actual", fontsize=10)
    handles += [Patch(color=colour[name], label=name) for name in functions]
    handles += [Patch(facecolor=_LOAD[0], hatch=_LOAD[1], label="load"), *_transfer_keys()]
    figure.legend(handles=handles, fontsize=8, loc="outside lower center", ncols=len(handles))
    written = [path.with_suffix(f".{suffix}") for suffix in formats]
    for target in written:
        figure.savefig(target, dpi=120)
    plt.close(figure)
    return written


def _transfer_keys() -> list[Line2D]:
    """Return the legend entries of the thin bars and the ticks."""
    return [
        Line2D([], [], color="grey", linewidth=3, alpha=_PALE, label="planned transfer"),
        Line2D([], [], color="grey", linewidth=3, label="transfer"),
        Line2D([], [], color="black", marker="|", linestyle="", label="input complete"),
    ]


def _tick(axes: Axes, row: float, at_s: float) -> None:
    """Mark the time at which an input was complete."""
    ends = [row + _ARRIVAL - _TICK, row + _ARRIVAL + _TICK]
    axes.plot([at_s, at_s], ends, color="black", linewidth=0.8, zorder=3)


def loads(slot: Slot) -> list[tuple[float, float]]:
    """Return begin and end of each completed load in the history of a slot, in seconds since the epoch."""
    return [
        (entry.at, following.at)
        for entry, following in pairwise(slot.history)
        if entry.after == SlotState.LOADING and following.number == entry.number + 1  # no entry was dropped in between
    ]


#: Color and hatch of loads.
_LOAD = ("#d9d9d9", "////")
#: Color and hatch of spans that do not show work of a function or a gang.
_MARKS = {"load": _LOAD, "fault": ("#b30000", ""), "instance": ("#fdd0a2", "....")}
#: Offset and height of spans that do not have the height of work.
_PLACES = {"instance": (0.0, 0.9), "plan": _MOVES, "transfer": _MOVED}
#: Colors of functions and gangs: those of tab20 that do not resemble the marks.
_COLOURS_OF_WORK = [number for number in range(20) if number not in (3, 6, 15)]
_ROW_IN, _TALLEST_IN = 0.22, 60.0


def draw_pool(spans: Sequence[Span], rows: Sequence[str], end_s: float, title: str, path: Path) -> None:
    """Draw the activity of each row from time 0 to the end into a file (.svg or .png), including rows without spans.

    Transfers of inputs are thin bars above the activity of their slot, and planned ones are paler; a tick marks when an
    input was complete.
    """
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
        if span.what == "arrival":
            _tick(axes, place[span.row], span.begin_s)
            continue
        face, hatch = _MARKS.get(span.what) or (colour[span.name], "")
        # An instance holds a slot; loads and work there are drawn over it.
        middle, tall = _PLACES.get(span.what, (0.04, 0.56))
        axes.broken_barh(
            [(span.begin_s, span.end_s - span.begin_s)],
            (place[span.row] + middle - tall / 2, tall),
            facecolor=face,
            alpha=_PALE if span.what == "plan" else None,
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
    patches: list[Any] = [Patch(facecolor=colour[name], label=name) for name in names[: len(_COLOURS_OF_WORK)]]
    patches += [Patch(facecolor=face, hatch=hatch, label=what) for what, (face, hatch) in _MARKS.items()]
    patches += _transfer_keys()
    figure.legend(handles=patches, fontsize=7, loc="outside lower center", ncols=min(len(patches), 8))
    figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts slot10 behind slot2."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


#: Rows between enclosures.
_GAP = 1
_TASK_ROW_IN = 0.16


def draw_schedule(problem: TaskProblem, schedule: TaskSchedule, ids: Sequence[str], title: str, path: Path) -> None:
    """Draw a schedule into a file (.svg or .png); a task has one bar for each stretch of neighboring FPGAs."""
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
