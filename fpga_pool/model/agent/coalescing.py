"""Coalescing of reports: drops reports that a later report of the same batch implies."""

from collections.abc import Mapping, Sequence

from fpga_pool.model.messages.agents import InputStaged, JobFinished, JobStarted, Report, SlotChanged
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import changed

Numbered = tuple[int, Report]

#: States that a slot passes through with every job; the pool counts and reacts to the other states only.
_PASSING = (SlotState.BUSY, SlotState.READY)


def coalesced(numbered: Sequence[Numbered]) -> list[Numbered]:
    """Return the reports without those that a later one makes superfluous; the last one is always kept.

    The times of the transfer, staging and start of an attempt become part of the report on its end.  A change to
    BUSY or READY is dropped if the next reported state of the slot is BUSY or READY, too.
    """
    ends = {_attempt(report): report for _, report in numbered if isinstance(report, JobFinished)}
    times: dict[tuple[str, int], dict[str, float | None]] = {}
    next_states: dict[str, SlotState] = {}
    kept: list[Numbered] = []
    for number, report in reversed(numbered):
        if isinstance(report, SlotChanged):
            following = next_states.get(report.slot)
            next_states[report.slot] = report.state
            if report.state in _PASSING and following in _PASSING:
                continue
        elif isinstance(report, InputStaged | JobStarted) and _attempt(report) in ends:
            times[_attempt(report)] = _staging_times(report) | times.get(_attempt(report), {})
            continue
        kept.append((number, report))
    return [(number, _with_times(report, times)) for number, report in reversed(kept)]


def _attempt(report: InputStaged | JobStarted | JobFinished) -> tuple[str, int]:
    return report.job, report.attempt


def _staging_times(report: InputStaged | JobStarted) -> dict[str, float | None]:
    """Return the times in a report, by their field names in `JobFinished`."""
    if isinstance(report, JobStarted):
        return {"started_at": report.at}
    return {"transfer_began_at": report.transfer_began_at, "staged_at": report.at}


def _with_times(report: Report, times: Mapping[tuple[str, int], Mapping[str, float | None]]) -> Report:
    return changed(report, **times.get(_attempt(report), {})) if isinstance(report, JobFinished) else report
