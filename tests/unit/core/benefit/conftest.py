"""Pools of a few slots, for all tests of online policies."""

from collections.abc import Callable

import numpy as np
import pytest

from fpga_pool.core.benefit.pool import OnlinePool


@pytest.fixture
def pool() -> Callable[..., OnlinePool]:
    """Return a function that makes a pool of equal slots that fit every function: `cards` cards of `slots` slots."""

    def make(speedup, *, slots=1, cards=1, load_s=0.5, io_bps=0.0, dma_bps=1e9, preemptible=(), **given) -> OnlinePool:
        count = len(speedup)
        kinds = len(given.get("fits", [None]))
        arrays = {
            "functions": tuple("abcdef"[:count]),
            "speedup": speedup,
            "preemptible": np.isin(np.arange(count), preemptible),
            "progress_kept": np.ones(count, bool),
            "fits": np.ones((1, count), bool),
            "io_bps": np.broadcast_to(io_bps, (kinds, count)),
            "load_s": np.full(kinds, load_s),
            "dma_bps": np.full(cards, dma_bps),
            "slot_card": np.repeat(np.arange(cards), slots),
            "slot_kind": np.zeros(cards * slots, int),
        }
        return OnlinePool(**(arrays | given))

    return make
