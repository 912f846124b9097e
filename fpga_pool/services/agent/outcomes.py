"""Log messages about the outcomes of commands, with the ids of the requests that caused the commands."""

import logging
from collections import Counter
from collections.abc import Sequence

from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.objects.history import Cause
from fpga_pool.rpc.tracing import on_behalf_of
from fpga_pool.rpc.transport import Refusals

LOG = logging.getLogger(__name__)


def note_outcomes(host: str, commands: Sequence[Command], outcomes: Sequence[Outcome], refusals: Refusals) -> None:
    """Log one line for all accepted commands of a request; log and count each command with another outcome.

    Must be called in a thread that answers a call.
    """
    accepted: dict[Cause, Counter[str]] = {}
    for command, outcome in zip(commands, outcomes, strict=True):
        if outcome.outcome == "accepted":
            if any(command.cause):
                accepted.setdefault(command.cause, Counter())[type(command.action).__name__] += 1
            continue
        refusals.note(f"fpga_pool.command_{outcome.outcome}")
        with on_behalf_of(command.cause):
            LOG.warning("%s command %s: %s", outcome.outcome, outcome.command, outcome.reason or "already done")
    for cause, counts in accepted.items():
        with on_behalf_of(cause):
            LOG.info("host %s: accepted %s", host, ", ".join(f"{count} {what}" for what, count in counts.items()))
