"""The next action of an idle slot: the one rule that live agents, the simulator and the planners share."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A job that waits for a slot."""

    key: str
    #: Place in the plan: lower runs first among those whose input has arrived.
    order: int
    function: str
    #: The whole input has arrived at the responder.
    staged: bool


@dataclass(frozen=True, slots=True)
class Load:
    """Load a function; decide again once it is loaded."""

    function: str


@dataclass(frozen=True, slots=True)
class Run:
    """Compute this entry; its function is loaded."""

    entry: QueueEntry


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until an input arrives or the queue changes."""


def next_action(queue: Sequence[QueueEntry], loaded: str | None, ahead: str | None = None) -> Load | Run | Wait:
    """Decide for an idle slot that holds the function `loaded` (None = empty).

    The staged entry of lowest order runs, after its function is loaded where another one is in the slot.  With
    nothing staged the slot loads ahead of time what the head of its queue needs, while the head's input is on its
    way.  Work that could run never waits for work that cannot.  A slot without any work loads the function `ahead`, if
    one is expected to be asked for.
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
