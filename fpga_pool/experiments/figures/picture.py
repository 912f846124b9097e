"""Pictures of figures: one pair of axes per panel, means as curves, their confidence intervals as bands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from fpga_pool.core.intervals import half_width
from fpga_pool.experiments.figures.figure import Figure, Panel, Stated

#: Color and marker of known curves, the same in every figure; other curves take `_OTHERS` in order.
_LOOKS = {
    "makespan": ("#d62728", "o"),
    "cim": ("#1f77b4", "s"),
    "nim": ("#1f77b4", "s"),
    "ncjm": ("#1f77b4", "s"),
    "waves": ("#1f77b4", "s"),
    "sjf": ("#2ca02c", "^"),
    "ljf": ("#ff7f0e", "v"),
    "benefit_plus": ("#d62728", "o"),
    "benefit_replace": ("#1f77b4", "s"),
    "benefit": ("#2ca02c", "^"),
    "throughput": ("#ff7f0e", "v"),
    "lattice_plus": ("#d62728", "o"),
    "lattice": ("#1f77b4", "s"),
    "heft": ("#2ca02c", "^"),
    "heft_shortest": ("#9467bd", "D"),
    "fifo": ("#ff7f0e", "v"),
    "mfit": ("#8c564b", "P"),
    "measy_plus": ("#d62728", "o"),
    "measy": ("#1f77b4", "s"),
    "keasy": ("#2ca02c", "^"),
    "reasy": ("#ff7f0e", "v"),
    "easy": ("#7f7f7f", "D"),
    "bound": ("#000000", ""),
    "bound_paper": ("#7f7f7f", ""),
}
_OTHERS = (("#9467bd", "D"), ("#8c564b", "P"), ("#e377c2", "X"), ("#7f7f7f", "*"), ("#17becf", "<"))
_COLUMNS, _WIDTH_IN, _HEIGHT_IN = 3, 4.6, 3.4


def draw(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw a figure; return the files written."""
    canvas = compose(figure)
    written = [path.with_suffix(f".{suffix}") for suffix in formats]
    for target in written:
        # No date and no random ids: the same samples give the same bytes.
        with mpl.rc_context({"svg.hashsalt": "fpga_pool"}):
            canvas.savefig(target, dpi=120, metadata={"Date": None} if target.suffix == ".svg" else None)
    plt.close(canvas)
    return written


def compose(figure: Figure) -> Any:
    """Return the matplotlib figure, with one legend for all panels below them."""
    panels = figure.experiment.panels
    columns = 2 if len(panels) == 4 else min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    canvas, grid = plt.subplots(
        rows, columns, figsize=(_WIDTH_IN * columns, _HEIGHT_IN * rows), layout="constrained", squeeze=False
    )
    names = dict.fromkeys(name for panel in panels for name in figure.samples.series(panel.key))
    looks = {name: _LOOKS.get(name) or _OTHERS[place % len(_OTHERS)] for place, name in enumerate(names)}
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, figure, panel, looks)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    canvas.suptitle(f"Figure {figure.experiment.number}: {figure.experiment.title}", fontsize=11)
    drawn = [axes.get_legend_handles_labels() for axes in list(grid.flat)[: len(panels)]]
    entries = {label: handle for handles, labels in drawn for handle, label in zip(handles, labels, strict=True)}
    if not grid.flat[0].containers:  # bars have their intervals on them
        entries["95 % interval of a mean"] = Patch(color="#7f7f7f", alpha=0.3)
    canvas.legend(entries.values(), entries, fontsize=7, loc="outside lower center", ncols=3 * columns - 1)
    return canvas


def _draw_panel(axes: Any, figure: Figure, panel: Panel, looks: Mapping[str, tuple[str, str]]) -> None:
    series = figure.samples.series(panel.key)
    bars = any(isinstance(x, str) for name in series for x in figure.samples.places(panel.key, name))
    for position, name in enumerate(series):
        colour, marker = looks[name]
        if bars:
            _draw_bars(axes, figure, panel, name, colour, position, len(series))
        else:
            _draw_curve(axes, figure, panel, name, colour, marker)
        for stated in figure.experiment.stated:
            if (stated.panel, stated.series) == (panel.key, name):
                _draw_stated(axes, stated, [float(x) for x in figure.samples.places(panel.key, name)], colour)
    if panel.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=panel.least_y)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title(panel.title, fontsize=9)
    axes.grid(visible=True, alpha=0.3)


def _draw_curve(axes: Any, figure: Figure, panel: Panel, name: str, colour: str, marker: str) -> None:
    samples = figure.samples
    places = np.array([float(x) for x in samples.places(panel.key, name)])
    values = [np.array(list(samples.values(panel.key, name, x).values())) for x in samples.places(panel.key, name)]
    means = np.array([of_seeds.mean() for of_seeds in values])
    style = "--" if name.startswith("bound") else "-"
    axes.plot(places, means, style, color=colour, marker=marker or None, markersize=4, linewidth=1.3, label=name)
    # With one seed there is no interval.
    reach = np.nan_to_num([half_width(of_seeds) for of_seeds in values])
    axes.fill_between(places, means - reach, means + reach, color=colour, alpha=0.12, linewidth=0)


def _draw_stated(axes: Any, stated: Stated, places: Sequence[float], colour: str) -> None:
    """Draw the range that the paper gives for a curve, hatched in the color of the curve."""
    begin = min(places) if stated.from_x is None else stated.from_x
    end = max(places) if stated.to_x is None else stated.to_x
    axes.fill_between(
        [begin, end], stated.low, max(stated.high, stated.low + 0.4), facecolor="none", edgecolor=colour,
        hatch="////", linewidth=0.8, label=f"{stated.series}, the paper's text",
    )  # fmt: skip


def _draw_bars(axes: Any, figure: Figure, panel: Panel, name: str, colour: str, position: int, count: int) -> None:
    samples = figure.samples
    places = samples.places(panel.key, name)
    means = [samples.mean(panel.key, name, x) for x in places]
    width = 0.8 / count
    offset = (position - (count - 1) / 2) * width
    reach = np.nan_to_num([samples.half_width(panel.key, name, x) for x in places])
    middles = np.arange(len(places)) + offset
    axes.bar(middles, means, width, yerr=reach, color=colour, ecolor="#333333", capsize=2, label=name)
    axes.set_xticks(range(len(places)), [str(x) for x in places], fontsize=8)
