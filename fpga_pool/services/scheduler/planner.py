"""Runs the planning cycle of one family of work, and logs what comes of it."""

import logging
from typing import Any

from fpga_pool.model.cycle import Cycle, CycleResult

LOG = logging.getLogger(__name__)


class Planner:
    """One step is one cycle."""

    def __init__(self, cycle: Cycle[Any, Any]) -> None:
        self._cycle = cycle

    def step(self) -> bool:
        """Run one cycle; return whether the next is to follow at once."""
        result = self._cycle.run()
        if result.policy is not None:
            log_cycle(result)
        return result.again


def log_cycle(result: CycleResult) -> None:
    """Log what was decided and what could not be, and how long each step took."""
    times, outcome = result.durations, result.outcome
    for failure in result.failures:
        LOG.error("%s", failure.message, exc_info=failure.error)
    for detail in outcome.details:
        LOG.info("%s", detail)
    if outcome.summary:
        LOG.info("%s; decided in %.1f ms", outcome.summary, 1000 * times.decide_s)
    LOG.debug(
        "%s cycle: snapshot %.1f ms, decision %.1f ms, commit %.1f ms, dispatch %.1f ms",
        result.family,
        1000 * times.snapshot_s,
        1000 * times.decide_s,
        1000 * times.commit_s,
        1000 * times.dispatch_s,
    )
