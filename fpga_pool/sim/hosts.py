"""Hosts of a simulated pool, with cards, and with processors for gangs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.agents import Command, ObservedSlot
from fpga_pool.model.messages.gangs import GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.gangs.host import GangHost, Guests, GuestTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """One host as the pool would observe it at the start."""

    name: str
    egress_bps: float
    ingress_bps: float
    slots: tuple[ObservedSlot, ...]
    #: How many processors it gives to gangs.
    gang_processors: int = 0


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


class GangHosts:
    """Hosts that give processors to gangs; what their agents report is passed on at once."""

    def __init__(
        self,
        processors: Mapping[str, int],
        engine: Engine,
        times: GuestTimes,
        report: Callable[[str, Sequence[GangReport]], None],
    ) -> None:
        """`processors` are the numbers of processors by host."""
        self._engine, self._report = engine, report
        self._guests = Guests(times)
        self._hosts = {
            host: GangHost(host, range(count), self._guests) for host, count in processors.items() if count
        }  # fmt: skip
        self._away: set[str] = set()
        #: When guests are looked at next.
        self._next_s = math.inf

    def takes(self, command: Command) -> bool:
        """Return whether a command is about a processor of a host."""
        host = self._hosts.get(command.host)
        return host is not None and host.takes(command.slot)

    def execute(self, host: str, commands: Sequence[Command]) -> None:
        """Have the agent of a host execute commands."""
        self._guests.pass_to(self._engine.now_s)
        for command in commands:
            self._hosts[host].execute(command)
        self._work()

    def observed(self, host: str) -> tuple[tuple[ObservedProcessor, ...], tuple[ObservedProcess, ...]]:
        """Return what a host gives to gangs, and the processes there, for a heartbeat."""
        if host not in self._hosts:
            return (), ()
        self._guests.pass_to(self._engine.now_s)
        processes = self._hosts[host].observed()
        self._work()
        return self._hosts[host].observed_processors(), processes

    def vanish(self, host: str) -> None:
        """Have a host lose its power: its guests are gone."""
        self._guests.pass_to(self._engine.now_s)
        self._guests.power_off(host)
        self._away.add(host)
        self._work()

    def come_back(self, host: str) -> None:
        """Have the agent of a host begin again."""
        self._away.discard(host)
        if host in self._hosts:
            self._hosts[host].restart()
            self._work()

    def _work(self) -> None:
        """Do all work of this instant, report it, and determine the next event."""
        for name, host in self._hosts.items():
            if name in self._away:
                continue
            host.work()
            if host.reports:
                numbers, reports = zip(*host.reports, strict=True)
                host.taken(numbers[-1])
                self._report(name, reports)
        next_s = self._guests.next_s()
        if next_s != self._next_s:
            self._next_s = next_s
            if next_s < math.inf:
                self._engine.at(next_s, partial(self._look, next_s))

    def _look(self, at_s: float) -> None:
        if at_s == self._next_s:
            self._next_s = math.inf
            self._guests.pass_to(self._engine.now_s)
            self._work()
