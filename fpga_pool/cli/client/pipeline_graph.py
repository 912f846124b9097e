"""A picture of a pipeline: its subtasks by depth, with their states, as text and as SVG."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from fpga_pool.model.objects.pool import Job, JobState

_COLOURS = {
    JobState.PENDING: "#e8e8e8",
    JobState.WAITING_INPUT: "#fff2cc",
    JobState.STAGED: "#fff2cc",
    JobState.RUNNING: "#cfe2f3",
    JobState.RESULT_HELD: "#d9ead3",
    JobState.COMPLETED: "#d9ead3",
    JobState.FAILED: "#f4cccc",
    JobState.CANCELLED: "#eeeeee",
}
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 46, 60, 20, 12


def columns_of(subtasks: Sequence[Job]) -> list[list[Job]]:
    """Return subtasks by depth: each is right of all its predecessors; `subtasks` are by index."""
    depth: dict[str, int] = {}
    for job in subtasks:
        depth[job.uuid] = 1 + max((depth[uuid] for uuid in job.predecessors), default=-1)
    return [[job for job in subtasks if depth[job.uuid] == level] for level in range(max(depth.values()) + 1)]


def as_text(subtasks: Sequence[Job]) -> str:
    """Return the picture for a terminal: one line for each subtask, indented by its depth."""
    names = {job.uuid: job.name for job in subtasks}
    lines = []
    for level, column in enumerate(columns_of(subtasks)):
        for job in column:
            sources = " + ".join(names[uuid] for uuid in job.predecessors)
            arrow = f"{sources} -> " if sources else ""
            place = f" on {job.slot}" if job.slot and job.state is not JobState.PENDING else ""
            lines.append(f"{'   ' * level}{arrow}{job.name} ({job.function}) {job.state}{place}")
    return "\n".join(lines)


def as_svg(subtasks: Sequence[Job]) -> str:
    """Return the picture as an SVG document: a box for each subtask, an arrow for each edge."""
    columns = columns_of(subtasks)
    corner = {
        job.uuid: (_MARGIN + level * (_BOX_WIDTH + _GAP_X), _MARGIN + row * (_BOX_HEIGHT + _GAP_Y))
        for level, column in enumerate(columns)
        for row, job in enumerate(column)
    }
    width = 2 * _MARGIN + len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + max(map(len, columns)) * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="12">',
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
    ]
    for job in subtasks:
        for uuid in job.predecessors:
            (from_x, from_y), (to_x, to_y) = corner[uuid], corner[job.uuid]
            begin, end = (from_x + _BOX_WIDTH, from_y + _BOX_HEIGHT // 2), (to_x, to_y + _BOX_HEIGHT // 2)
            parts.append(
                f'<path d="M{begin[0]},{begin[1]} C{begin[0] + _GAP_X},{begin[1]} {end[0] - _GAP_X},{end[1]}'
                f' {end[0]},{end[1]}" fill="none" stroke="black" marker-end="url(#end)"/>'
            )
    for job in subtasks:
        x, y = corner[job.uuid]
        parts.append(
            f'<g><title>{escape(job.reason or job.slot or job.state)}</title><rect x="{x}" y="{y}" rx="4"'
            f' width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" fill="{_COLOURS[job.state]}" stroke="black"/>'
            f'<text x="{x + 8}" y="{y + 19}">{escape(job.name)} ({escape(job.function)})</text>'
            f'<text x="{x + 8}" y="{y + 36}">{job.state}</text></g>'
        )
    return "\n".join([*parts, "</svg>\n"])
