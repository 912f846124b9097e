"""`fpga-pool pipeline`: pipelines of subtasks that depend on each other, and pictures of their graphs."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from fpga_pool.cli.client import batch
from fpga_pool.cli.client.base import CancelWork, NewestLister, OneWork
from fpga_pool.cli.client.columns import One
from fpga_pool.cli.client.create import CreateWork, Wanted
from fpga_pool.cli.files import read_pipeline
from fpga_pool.client import BatchResult, BatchRunner, Client
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.plans import PlannedPipeline
from fpga_pool.model.messages.requests import PipelineDetail
from fpga_pool.model.objects.pool import Batch, Job, JobState


class OfPipeline(Wanted):
    """Arguments of the commands that create or plan a pipeline."""

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="pipeline file (TOML)")

    def dry_run(self, parsed_args: argparse.Namespace) -> PlannedPipeline:
        return self.client.dry_run_pipeline(read_pipeline(parsed_args.file)[1])


class Create(OfPipeline, CreateWork):
    """Run the pipeline that a file describes to its end, and fetch the results that no other subtask reads.

    Example: fpga-pool pipeline create pipeline.toml --output-dir results
    """

    NOUN, ROW = "pipeline", "subtask"

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        name, subtasks = read_pipeline(parsed_args.file)
        return self.client.pipeline_runner(subtasks, **options | {"name": parsed_args.name or name})

    def rows(self, parsed_args: argparse.Namespace, result: BatchResult) -> Sequence[str]:
        return [outcome.name for outcome in result.jobs]


class List(NewestLister):
    """List pipelines, newest first.

    Example: fpga-pool pipeline list --state RUNNING --since 1h
    """

    SHORT = batch.SHORT_BATCHES
    FILTERS: Mapping[str, str] = batch.BATCH_FILTERS
    ASK, COLUMNS = Client.pipelines, batch.BATCHES


class Show(OneWork):
    """Show a pipeline with its subtasks, as a graph; with --svg also as a picture.

    Example: fpga-pool pipeline show UUID --svg graph.svg
    """

    NOUN = "pipeline"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--svg", type=Path, metavar="FILE", help="write the graph to this file as SVG")

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        uuid = self.uuid_of_work("pipeline", parsed_args.pipeline, parsed_args.project_id)
        detail = self.client.pipeline(uuid, parsed_args.project_id)
        if parsed_args.svg is not None:
            try:
                parsed_args.svg.write_text(as_svg(detail.subtask_list))
            except OSError as error:
                raise InvalidInput(f"{parsed_args.svg}: cannot be written: {error.strerror}") from error
        return details(detail)


class Watch(batch.Watch):
    """Follow a pipeline to its end.

    Example: fpga-pool pipeline watch UUID
    """

    NOUN = "pipeline"

    def _watch(self, uuid: str, parsed_args: argparse.Namespace) -> Batch:
        self.client.pipeline(uuid)  # NotFound if it does not exist, or is a batch
        return super()._watch(uuid, parsed_args)


class Cancel(CancelWork):
    """Cancel pipelines; subtasks that have ended stay as they are.

    Example: fpga-pool pipeline cancel UUID
    """

    NOUN, ASK = "pipeline", Client.cancel_pipeline


def details(detail: PipelineDetail) -> One:
    """Return a pipeline with its graph and its subtasks."""
    subtasks = detail.subtask_list
    columns, row = batch.details(detail.pipeline, subtasks, graph=as_text(subtasks), **batch.prospects(detail))
    return ["subtask_list" if name == "job_list" else name for name in columns], row


# ---- Pictures

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
    """Return subtasks in columns by depth, each right of all its predecessors; `subtasks` are sorted by index."""
    depth: dict[str, int] = {}
    for job in subtasks:
        depth[job.uuid] = 1 + max((depth[uuid] for uuid in job.predecessors), default=-1)
    return [[job for job in subtasks if depth[job.uuid] == level] for level in range(max(depth.values()) + 1)]


def as_text(subtasks: Sequence[Job]) -> str:
    """Return the graph as text for a terminal: one line for each subtask, indented by its depth."""
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
    """Return the graph as an SVG document: a box for each subtask, an arrow for each edge."""
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
