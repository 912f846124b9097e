"""Hosts of a simulated pool, and events such as failures."""

from functools import partial

from fpga_pool.core.makespan import Makespan, MakespanParams
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.work import TaskRequest
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.shared.changes import drain_slot
from fpga_pool.model.rules.shared.reconcile import tick
from fpga_pool.model.rules.task.admission import create_task
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.pool import SimulatedPool

#: The default policy with a short search, which suffices for the small batches of simulated pools.
QUICK = Makespan(MakespanParams(effort=20))


def fresh_hosts(
    catalogue: Catalogue, board: str, *, hosts: int, cards: int, egress_bps: float, ingress_bps: float
) -> list[SimulatedHost]:
    """Return hosts like those of a new embedded pool: node-1, node-2 and so on, every slot empty."""
    return [
        SimulatedHost(
            name=f"node-{number}",
            egress_bps=egress_bps,
            ingress_bps=ingress_bps,
            slots=tuple(
                ObservedSlot(
                    slot=f"node-{number}/sim{card}/slot{region}",
                    card=f"sim{card}",
                    region=f"slot{region}",
                    board=board,
                    kind=kind,
                    state=SlotState.EMPTY,
                )
                for card in range(cards)
                for region, kind in enumerate(catalogue.board(board).slots)
            ),
        )
        for number in range(1, hosts + 1)
    ]


def submit_task_at(pool: SimulatedPool, time_s: float, request: TaskRequest) -> None:
    """Let a task arrive at a time."""
    pool.change_at(time_s, lambda tx: create_task(tx, request, pool.catalogue, pool.settings, pool.engine.now_s))


def fail_slot_at(pool: SimulatedPool, time_s: float, name: str) -> None:
    """Let a slot fail permanently at a time."""
    pool.at(time_s, partial(pool.fail_slot, name))


def drain_slot_at(pool: SimulatedPool, time_s: float, name: str) -> None:
    """Let the operator drain a slot at a time."""
    pool.change_at(time_s, lambda tx: drain_slot(tx, name, "simulated", pool.engine.now_s))


def lose_host_at(pool: SimulatedPool, time_s: float, name: str) -> None:
    """Let a host disappear at a time; the pool notices it after the timeout in the settings."""
    pool.at(time_s, partial(pool.vanish, name))
    missed_s = pool.settings.host_timeout_s + 1.0
    pool.change_at(time_s + missed_s, lambda tx: tick(tx, pool.settings, pool.engine.now_s, {name: missed_s}))
