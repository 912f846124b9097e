"""A picture of a batch: what was planned for each slot, and what happened."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from fpga_pool.model.objects import Job

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
