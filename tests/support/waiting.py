"""Waiting, bounded, for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

from fpga_pool.model.exceptions import ServiceUnavailable

_Found = TypeVar("_Found")

#: For anything that comes as soon as a busy machine finds the time.
SOON_S = 180.0
#: Between two looks passes so long, or this many times as long as the look has taken: what looks at an API takes the
#: processors from what is waited for.
_LEAST_PAUSE_S, _PAUSE_PER_LOOK, _MOST_PAUSE_S = 0.05, 9.0, 2.0


def wait_until(look: Callable[[], _Found], what: str | Callable[[], str], timeout_s: float = SOON_S) -> _Found:
    """Return what a look finds, once that is true; ServiceUnavailable says what is waited for if it never is.

    A function as `what` tells how things are then.
    """
    begin_s = looked_s = time.monotonic()
    while not (found := look()):
        now_s = time.monotonic()
        if now_s - begin_s > timeout_s:
            raise ServiceUnavailable(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(min(max(_LEAST_PAUSE_S, _PAUSE_PER_LOOK * (now_s - looked_s)), _MOST_PAUSE_S))
        looked_s = time.monotonic()
    return found
