"""`fpga-pool pipeline`: subtasks that depend on each other."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpga_pool.cli.client.base import NewestLister, PoolLister, PoolShowOne, Row, Table
from fpga_pool.cli.client.batch import show
from fpga_pool.cli.client.batch.create import CreateWork
from fpga_pool.cli.client.pipeline_file import read_pipeline
from fpga_pool.cli.client.pipeline_graph import as_svg, as_text
from fpga_pool.client import BatchResult, BatchRunner
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import PipelineDetail


class Create(CreateWork):
    """Run the pipeline that a file describes to its end, and fetch the results that no other subtask reads."""

    NOUN, ROW = "pipeline", "subtask"

    def add_work(self, parser: argparse.ArgumentParser) -> None:
        """Describe what is a pipeline's own."""
        parser.add_argument("file", metavar="FILE", type=Path, help="pipeline file (TOML)")

    def runner(self, parsed_args: argparse.Namespace, **options: Any) -> BatchRunner:
        """Return what runs it."""
        name, subtasks = read_pipeline(parsed_args.file)
        return self.client.pipeline_runner(subtasks, **options | {"name": parsed_args.name or name})

    def rows(self, parsed_args: argparse.Namespace, result: BatchResult) -> Sequence[str]:
        """Return the names of the subtasks."""
        return [outcome.name for outcome in result.jobs]


class List(NewestLister):
    """List pipelines, newest first."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.pipelines(**self.filters(parsed_args))
        return self.with_projects(parsed_args, found, show.listing(found))


class Show(PoolShowOne):
    """Show a pipeline with its subtasks, as a graph; with --svg also as a picture."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("pipeline", metavar="PIPELINE", help="uuid of the pipeline")
        parser.add_argument("--svg", type=Path, metavar="FILE", help="write the graph to this file as SVG")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        detail = self.client.pipeline(parsed_args.pipeline)
        if parsed_args.svg is not None:
            try:
                parsed_args.svg.write_text(as_svg(detail.subtask_list))
            except OSError as error:
                raise InvalidInput(f"{parsed_args.svg}: cannot be written: {error.strerror}") from error
        return details(detail)


class Watch(show.Watch):
    """Follow a pipeline to its end."""

    NOUN = "pipeline"


class Cancel(PoolLister):
    """Cancel pipelines; subtasks that have ended stay as they are."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("pipelines", nargs="+", metavar="PIPELINE", help="uuid of the pipeline")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the end of each."""
        cancelled = self.for_each(parsed_args.pipelines, self.client.cancel_pipeline)
        columns = ("uuid", "name", "state", "cancel_requested")
        return columns, [(one.uuid, one.name, str(one.state), one.cancel_requested) for one in cancelled]


def details(detail: PipelineDetail) -> tuple[Sequence[str], Row]:
    """Return a pipeline with its graph and its subtasks."""
    columns, row = show.details(detail.pipeline, detail.subtask_list)
    shown: dict[str, Any] = dict(zip(columns, row, strict=True))
    shown["subtask_list"] = shown.pop("job_list")
    shown["graph"] = as_text(detail.subtask_list)
    return tuple(shown), tuple(shown.values())
