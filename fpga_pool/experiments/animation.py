"""Animations of schedules as SVG: tasks on the FPGAs of rings, and gangs on the two tiers of processors.

A schedule is played in `PLAY_S` seconds and repeated.  A browser plays the animations; nothing else is needed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.scenario.recording import Span

PLAY_S = 24.0
#: Maximum number of marks: more would not be visible, and would slow down the browser.
MOST_MARKS = 5000
_COLOURS = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b", "#ff9da6", "#6b8e23",
)  # fmt: skip
_MARGIN, _TITLE, _CLOCK = 16.0, 34.0, 40.0
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:14px}.in{fill:#000;text-anchor:middle;font-size:10px}"
    ".free{fill:#eee;stroke:#999}.link{stroke:#999;fill:none}"
)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A place that is taken and freed: an FPGA, or a tier of a processor."""

    x: float
    y: float
    width: float
    height: float
    name: str
    round: float = 4.0


@dataclass(frozen=True, slots=True)
class _Mark:
    """A period in which a cell is taken, and the number of the task or gang that takes it."""

    cell: _Cell
    begin_s: float
    end_s: float
    number: int
    title: str


# ---- Tasks on FPGAs

_FPGA, _BETWEEN = 26.0, 24.0


def animated_tasks(problem: TaskProblem, schedule: TaskSchedule, ids: Sequence[str], title: str) -> str:
    """Return an animation of a schedule of tasks on linked FPGAs: each enclosure is a ring, a line or a mesh."""
    base = first_fpgas(problem).tolist()
    cells: list[_Cell] = []
    links: list[str] = []
    x = _MARGIN
    diameter = max(_diameter(int(size)) for size in problem.enclosure_fpgas)
    for enclosure, (size, topology) in enumerate(
        zip(problem.enclosure_fpgas.tolist(), problem.enclosure_links.tolist(), strict=True)
    ):
        placed = _circle(size, x, _TITLE + _MARGIN, diameter, f"enclosure {enclosure}, FPGA")
        links += _links(placed, Topology(topology))
        cells += placed
        name = f"{Topology(topology).name.lower()} {enclosure}"
        middle_x, middle_y = x + diameter / 2, _TITLE + _MARGIN + diameter / 2
        links.append(f'<text x="{middle_x:g}" y="{middle_y:g}" text-anchor="middle">{name}</text>')
        x += diameter + _BETWEEN
    marks = [
        _Mark(cells[base[schedule.enclosure[task]] + member], float(schedule.begin_s[task]),
              float(schedule.end_s[task]), task, f"task {name}")
        for task, name in enumerate(ids)
        for member in schedule.members[schedule.member_begin[task] : schedule.member_begin[task + 1]].tolist()
    ]  # fmt: skip
    height = _TITLE + 2 * _MARGIN + diameter
    size = x - _BETWEEN + _MARGIN, height
    return _document(size, links, cells, marks, schedule.wct_s, schedule.bound_tight_s, title)


def _diameter(size: int) -> float:
    return max(3.0 * _FPGA, 1.5 * _FPGA * size / math.pi + 2 * _FPGA)


def _circle(size: int, x: float, y: float, diameter: float, name: str) -> list[_Cell]:
    radius = (diameter - _FPGA) / 2
    angles = [2 * math.pi * number / size - math.pi / 2 for number in range(size)]
    return [
        _Cell(
            x + radius + radius * math.cos(angle), y + radius + radius * math.sin(angle), _FPGA, _FPGA,
            f"{name} {number}", _FPGA / 2,
        )
        for number, angle in enumerate(angles)
    ]  # fmt: skip


def _links(cells: Sequence[_Cell], topology: Topology) -> list[str]:
    count = len(cells)
    pairs = [(i, i + 1) for i in range(count - 1)]
    if topology is Topology.FULL:
        pairs = [(i, j) for j in range(count) for i in range(j)]
    elif topology is Topology.RING and count > 2:
        pairs.append((count - 1, 0))
    half = _FPGA / 2
    return [
        f'<path class="link" d="M{cells[i].x + half:.1f} {cells[i].y + half:.1f}'
        f'L{cells[j].x + half:.1f} {cells[j].y + half:.1f}"/>'
        for i, j in pairs
    ]


# ---- Gangs on tiers

FRONT, BEHIND = "foreground", "background"
_PROCESSOR, _LABEL, _MOST_IN_ROW = 30.0, 92.0, 24
_TIERS = {FRONT: (0.0, 26.0), BEHIND: (29.0, 16.0)}
_ROW = 58.0


def animated_tiers(spans: Iterable[Span], processors: Sequence[str], end_s: float, title: str) -> str:
    """Return an animation of the activity on the tiers of processors.

    The row of a span is the name of a processor and one of its tiers, and its name is that of a gang; spans in other
    rows are left out.
    """
    cells: dict[str, _Cell] = {}
    labels = []
    for number, processor in enumerate(processors):
        column, line = number % _MOST_IN_ROW, number // _MOST_IN_ROW
        x, y = _MARGIN + _LABEL + _PROCESSOR * column, _TITLE + _MARGIN + _ROW * line
        for tier, (below, height) in _TIERS.items():
            cells[f"{processor} {tier}"] = _Cell(x, y + below, _PROCESSOR - 4, height, f"{processor}, {tier}")
            if column == 0:
                labels.append(f'<text x="{_MARGIN}" y="{y + below + height / 2 + 4:g}">{tier}</text>')
    known: dict[str, int] = {}
    marks = [
        _Mark(cells[span.row], span.begin_s, span.end_s, known.setdefault(span.name, len(known)), f"gang {span.name}")
        for span in sorted(spans, key=lambda span: span.begin_s)
        if span.row in cells
    ]
    width = 2 * _MARGIN + _LABEL + _PROCESSOR * min(len(processors), _MOST_IN_ROW)
    height = _TITLE + 2 * _MARGIN + _ROW * -(-len(processors) // _MOST_IN_ROW)
    return _document((max(width, 480.0), height), labels, list(cells.values()), marks, end_s, None, title)


# ---- Both


def _document(
    size: tuple[float, float], below: Sequence[str], cells: Sequence[_Cell], marks: Sequence[_Mark], end_s: float,
    bound_s: float | None, title: str,
) -> str:  # fmt: skip
    if len(marks) > MOST_MARKS:
        raise InvalidInput(f"an animation shows at most {MOST_MARKS} marks, got {len(marks)}: use fewer tasks or gangs")
    end_s = max(end_s, 1e-9)
    width, height = size[0], size[1] + _CLOCK
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text class="title" x="{_MARGIN}" y="{_TITLE - 10}">{escape(title)}</text>',
        *below,
        *(_rectangle(cell, 'class="free"', f"<title>{escape(cell.name)}</title>") for cell in cells),
        *(_taken(mark, end_s) for mark in marks),
        *_clock(width, size[1], end_s, bound_s),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rectangle(cell: _Cell, style: str, inside: str) -> str:
    return (
        f'<rect x="{cell.x:.1f}" y="{cell.y:.1f}" width="{cell.width:g}" height="{cell.height:g}" rx="{cell.round:g}" '
        f"{style}>{inside}</rect>"
    )


def _taken(mark: _Mark, end_s: float) -> str:
    """Return a mark, with its number, that is visible from its begin to its end."""
    cell, colour = mark.cell, _COLOURS[mark.number % len(_COLOURS)]
    times = f"{escape(mark.title)}: {mark.begin_s:.4g} to {mark.end_s:.4g} s"
    x, y = cell.x + cell.width / 2, cell.y + cell.height / 2 + 3.5
    return (
        f'<g visibility="hidden">{_seen(mark.begin_s / end_s, mark.end_s / end_s)}'
        + _rectangle(cell, f'fill="{colour}"', f"<title>{times}</title>")
        + f'<text class="in" x="{x:.1f}" y="{y:.1f}">{mark.number}</text></g>'
    )


def _seen(begin: float, end: float) -> str:
    """Return the SVG element that makes its parent visible from `begin` to `end`, shares of the time from 0 to 1."""
    steps = [(0.0, "hidden"), (begin, "visible"), (end, "hidden")]
    # A mark that begins at 0 was never hidden, and one that ends at 1 is hidden by the repetition.
    kept = [step for step, until in zip(steps, (begin, end, 1.0), strict=True) if step[0] < until]
    values, times = ";".join(value for _, value in kept), ";".join(f"{at:.5f}" for at, _ in kept)
    return (
        f'<animate attributeName="visibility" calcMode="discrete" values="{values}" keyTimes="{times}" '
        f'dur="{PLAY_S:g}s" repeatCount="indefinite"/>'
    )


def _clock(width: float, y: float, end_s: float, bound_s: float | None) -> list[str]:
    """Return the time bar, with a mark at the bound."""
    length = width - 2 * _MARGIN
    parts = [
        f'<rect x="{_MARGIN}" y="{y:g}" width="{length:g}" height="6" fill="#ddd"/>',
        f'<rect x="{_MARGIN}" y="{y:g}" width="0" height="6" fill="#555"><animate attributeName="width" from="0" '
        f'to="{length:g}" dur="{PLAY_S:g}s" repeatCount="indefinite"/></rect>',
        f'<text x="{_MARGIN}" y="{y + 24:g}">0 s</text>',
        f'<text x="{width - _MARGIN:g}" y="{y + 24:g}" text-anchor="end">{end_s:.4g} s</text>',
    ]
    if bound_s is not None:
        at = _MARGIN + length * min(bound_s / end_s, 1.0)
        parts += [
            f'<path d="M{at:.1f} {y - 4:g}v14" stroke="#000"/>',
            f'<text x="{at - 60:.1f}" y="{y + 24:g}" text-anchor="end">no schedule ends before {bound_s:.4g} s</text>',
        ]
    return parts
