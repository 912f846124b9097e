"""The next action of an idle slot: the one rule that live agents, the simulator and the planners share."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A job that waits for a slot."""

    key: str
    #: Position in the plan: among the entries whose input has arrived, the lowest runs first.
    order: int
    function: str
    #: The whole input has arrived at the responder.
    staged: bool


@dataclass(frozen=True, slots=True)
class Load:
    """Load a function, and decide again once it is loaded."""

    function: str


@dataclass(frozen=True, slots=True)
class Run:
    """Compute this entry; its function is loaded."""

    entry: QueueEntry


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until an input arrives or the queue changes."""


def next_action(queue: Sequence[QueueEntry], loaded: str | None, ahead: str | None = None) -> Load | Run | Wait:
    """Return the next action of an idle slot that holds the function `loaded` (None = empty).

    The staged entry of lowest order runs, after its function is loaded if the slot holds another one.  If no entry is
    staged, the slot preloads the function of the head of its queue while the head's input is in transfer.  Entries
    that can run never wait for entries that cannot.  A slot with an empty queue loads the function `ahead`, which is
    expected to be requested, if one is given.
    """
    staged = [entry for entry in queue if entry.staged]
    if staged:
        first = min(staged, key=lambda entry: entry.order)
        return Run(first) if first.function == loaded else Load(first.function)
    if queue:
        head = min(queue, key=lambda entry: entry.order)
        if head.function != loaded:
            return Load(head.function)
    elif ahead is not None and ahead != loaded:
        return Load(ahead)
    return Wait()
