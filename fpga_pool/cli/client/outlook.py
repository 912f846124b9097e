"""Jobs as the commands show them, and what would become of a batch (`fpga-pool batch create --dry-run`)."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.cli.client.base import Moment, Row, Seconds, Table
from fpga_pool.model.codec import to_plain
from fpga_pool.model.messages.requests import PlannedBatch, PlannedJob
from fpga_pool.model.objects.pool import Job, place_kind

#: So wide a value leaves the table within 80 columns.
_WIDTH = 53


class Late(FormattableColumn[Any]):
    """By how much a deadline is missed; None = it is not."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "" if self._value is None else f"late by {self._value:.3f} s"

    def machine_readable(self) -> float | None:
        """Leave it a number."""
        return self._value


class _Reason(FormattableColumn[Any]):
    """A sentence, in lines where it is long."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return _wrapped(self._value)

    def machine_readable(self) -> str:
        """Leave it whole."""
        return str(self._value)


class _Jobs(FormattableColumn[Any]):
    """The jobs of a plan: a line for each, or a list of objects."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "\n".join(_wrapped(_line(job)) for job in self._value)

    def machine_readable(self) -> Any:
        """Leave it a list."""
        return to_plain(self._value)


class Jobs(FormattableColumn[Any]):
    """The jobs of a batch: a line for each, or a list of objects."""

    _COLUMNS = ("index", "name", "function", "state", "attempt", "slot", "compute_s", "reason")

    def human_readable(self) -> str:
        """Show it in a table."""
        return "\n".join(self._line(job) for job in self._value)

    def machine_readable(self) -> list[dict[str, Any]]:
        """Leave it a list."""
        return [
            {"uuid": job.uuid, **{name: getattr(job, name) for name in self._COLUMNS}, "place": place_kind(job.slot)}
            for job in self._value
        ]

    @staticmethod
    def _line(job: Job) -> str:
        took = "" if job.compute_s is None else f"{job.compute_s:.3f} s"
        parts = (
            str(job.index),
            job.name,
            job.function,
            str(job.state),
            place_kind(job.slot),
            job.slot,
            took,
            job.reason,
        )
        return "  ".join(part for part in parts if part)


def _wrapped(text: str) -> str:
    return fill(text, _WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False)


def _line(job: PlannedJob) -> str:
    if job.start_s is None or job.end_s is None:
        return f"{job.index}  {job.name}  waits"
    return f"{job.index}  {job.name}  {job.slot}  {job.start_s:.3f} to {job.end_s:.3f} s"


def outlook(plan: PlannedBatch) -> tuple[Sequence[str], Row]:
    """Return a plan as one object."""
    shown = {
        "policy": plan.policy,
        "jobs": plan.jobs,
        "input_bytes": plan.input_bytes,
        "planned_makespan_s": Seconds(plan.planned_makespan_s),
        "lower_bound_s": Seconds(plan.lower_bound_s),
        "planned_completion_s": Seconds(plan.planned_completion_s),
        "completion_bound_s": Seconds(plan.completion_bound_s),
        "ends_at": Moment(plan.ends_at),
        "late_s": Late(plan.late_s),
        "pending_reason": _Reason(plan.pending_reason),
        "expected_at": Moment(plan.expected_at),
        "job_list": _Jobs(plan.job_list),
    }
    return tuple(shown), tuple(shown.values())


def job_table(plan: PlannedBatch) -> Table:
    """Return the jobs of a plan, for formats of rows."""
    return ("index", "name", "function", "host", "slot", "start_s", "end_s"), [
        (job.index, job.name, job.function, job.host, job.slot, Seconds(job.start_s), Seconds(job.end_s))
        for job in plan.job_list
    ]
