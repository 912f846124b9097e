"""Waiting, bounded, for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

from fpga_pool.model.exceptions import ServiceUnavailable

_Found = TypeVar("_Found")

#: For anything that comes as soon as a busy machine finds the time.
SOON_S = 90.0
_POLL_S = 0.05


def wait_until(look: Callable[[], _Found], what: str, timeout_s: float = SOON_S) -> _Found:
    """Return what a look finds, once that is true; ServiceUnavailable says what is waited for if it never is."""
    end_s = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > end_s:
            raise ServiceUnavailable(f"not within {timeout_s:g} s: {what}")
        time.sleep(_POLL_S)
    return found
