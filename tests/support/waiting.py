"""Waiting, with a time limit, for events in other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

from fpga_pool.model.exceptions import ServiceUnavailable

_Found = TypeVar("_Found")

#: Time limit for anything that happens as soon as a busy machine has time for it.
SOON_S = 180.0
#: Between two calls of `look` there is a pause of at least the first time and at most the last, otherwise this multiple
#: of a call's duration: calls of an API take processor time from the event that is waited for.
_LEAST_PAUSE_S, _PAUSE_PER_LOOK, _MOST_PAUSE_S = 0.05, 9.0, 2.0


def wait_until(look: Callable[[], _Found], what: str | Callable[[], str], timeout_s: float = SOON_S) -> _Found:
    """Call `look` until its result is true, and return the result; raise ServiceUnavailable with `what` on timeout.

    If `what` is a function, it is called on timeout to describe the state.
    """
    begin_s = looked_s = time.monotonic()
    while not (found := look()):
        now_s = time.monotonic()
        if now_s - begin_s > timeout_s:
            raise ServiceUnavailable(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(min(max(_LEAST_PAUSE_S, _PAUSE_PER_LOOK * (now_s - looked_s)), _MOST_PAUSE_S))
        looked_s = time.monotonic()
    return found
