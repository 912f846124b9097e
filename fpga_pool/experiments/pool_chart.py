"""A picture of what a simulated pool did: a row for each slot and for each tier of a processor."""

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from fpga_pool.sim.scenario.recording import Span

#: What is not a function's or a gang's: its colour and hatch.
_MARKS = {"load": ("#d9d9d9", "////"), "fault": ("#b30000", ""), "instance": ("#fdd0a2", "....")}
#: Colours of functions and gangs: those of tab20 that are not like one of the marks.
_COLOURS = [number for number in range(20) if number not in (3, 6, 15)]
_ROW_IN, _TALLEST_IN = 0.22, 60.0


def draw_pool(spans: Sequence[Span], rows: Sequence[str], end_s: float, title: str, path: Path) -> None:
    """Draw what each row did from time 0 to the end, into a file (.svg or .png); rows without spans are there too."""
    order = sorted({*rows, *(span.row for span in spans)}, key=_natural)
    place = {row: number for number, row in enumerate(order)}
    names = sorted({span.name for span in spans if span.what not in _MARKS})
    colour = {name: plt.get_cmap("tab20")(_COLOURS[number % len(_COLOURS)]) for number, name in enumerate(names)}
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
    patches = [Patch(facecolor=colour[name], label=name) for name in names[: len(_COLOURS)]]
    patches += [Patch(facecolor=face, hatch=hatch, label=what) for what, (face, hatch) in _MARKS.items()]
    figure.legend(handles=patches, fontsize=7, loc="outside lower center", ncols=min(len(patches), 8))
    figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts slot10 behind slot2."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
