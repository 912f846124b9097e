"""Pools of equal hosts, from a catalogue."""

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.model.catalogue import Board, Catalogue


def uniform_pool(catalogue: Catalogue, board: Board, hosts: int, cards: int) -> OnlinePool:
    """Return the pool of `hosts` hosts with `cards` cards of one board each; cards are numbered across hosts."""
    functions = list(catalogue.functions.values())
    kinds = list(dict.fromkeys(board.slots))
    count = hosts * cards
    return OnlinePool(
        functions=tuple(catalogue.functions),
        speedup=np.array([function.speedup for function in functions]),
        preemptible=np.array([function.preemptible for function in functions]),
        progress_kept=np.array([function.progress_kept for function in functions]),
        fits=np.array([[catalogue.fits(function.name, board.name, kind) for function in functions] for kind in kinds]),
        io_bps=np.array([[function.io_bps_on(board.name) for function in functions]] * len(kinds)),
        load_s=np.array([board.load_s(kind) for kind in kinds]),
        dma_bps=np.full(count, board.dma_bps),
        slot_card=np.repeat(np.arange(count), len(board.slots)),
        slot_kind=np.tile([kinds.index(kind) for kind in board.slots], count),
    )
