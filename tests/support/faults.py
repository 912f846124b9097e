"""Faults of a pool in a drill: processes are killed and stalled; networks, disks and clocks fail."""

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fpga_pool.client import Client
from fpga_pool.model.exceptions import ServiceUnavailable
from support.clocks import HOUR_S, Clock
from support.deployment import Deployment
from support.disks import Ballast
from support.drill import patiently, until
from support.partitions import LOST, REFUSED, parted
from support.relay import Relay
from support.servers.server import Server
from support.waiting import wait_until

Act = tuple[str, Callable[[random.Random], None]]


@dataclass
class Faults:
    """Injects faults with two threads: one for processes, servers, disks and clocks, one for networks and slots.

    Each round contains every fault of every part once, in a random order.
    """

    pool: Deployment
    servers: Sequence[Server]
    seed: int
    #: Duration of a long stall, longer than a scheduler or a host may be silent.
    stall_s: float
    #: Relays by the name of a process and the name of the server to which they lead.
    relays: Mapping[tuple[str, str], Relay] = field(default_factory=dict)
    #: Disks by host or server; clocks by process.
    disks: Mapping[str, Ballast] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def run(self, busy: Callable[[], bool]) -> None:
        """Inject faults while clients are busy; when this returns, all parts work again."""
        begun_s = time.monotonic()
        others = threading.Thread(target=self._hurt, args=("networks", self._outer(), busy, begun_s))
        others.start()
        self._hurt("processes", self._inner(), busy, begun_s)
        others.join()
        self._wait_until_well()

    def _hurt(self, name: str, parts: Sequence[Act], busy: Callable[[], bool], begun_s: float) -> None:
        rng = random.Random(f"{self.seed} {name}")
        for said, act in _rounds(parts, random.Random(f"{self.seed} {name} order")):
            if not _busy_for(rng.uniform(0.5, 3.0), busy):
                break
            print(f"{time.monotonic() - begun_s:6.1f} s: {said}", flush=True)
            act(rng)
            self.done[said] += 1

    def _inner(self) -> list[Act]:
        acts: list[Act] = []
        for name in self.pool.names:
            acts += [(f"kill {name}", self._killing(name)), (f"stall {name}", self._stalling(name))]
            if name.startswith("scheduler"):
                acts += [(f"split {name}", self._stalling(name, self.stall_s))] * 2
        for server in self.servers:
            acts += [(f"{how} {server.name}", self._ending(server, how)) for how in ("stop", "kill")]
        acts += [(f"fill disk of {name}", self._filling(name, disk)) for name, disk in self.disks.items()]
        acts += [(f"set clock of {name}", self._setting(name, clock)) for name, clock in self.clocks.items()]
        return acts

    def _outer(self) -> list[Act]:
        client = self.pool.client()
        acts: list[Act] = [(f"drain {host}", self._draining(client, host)) for host in self.pool.hosts]
        acts += [(f"part clients from {host}", self._parting_clients(client, host)) for host in self.pool.hosts]
        acts += [(f"part {name} from {server}", self._parting(relay)) for (name, server), relay in self.relays.items()]
        return acts

    def _wait_until_well(self) -> None:
        """Wait until every process has reported again; only times of the pool's own clock are compared."""
        clients = [self.pool.client(api=api) for api in self.pool.endpoints]
        others = set(self.pool.names) - self.pool.endpoints.keys()
        before = patiently(lambda: _heard(clients[0]))

        def lives(client: Client) -> bool:
            now = _heard(client)
            return all(now.get(name, 0.0) > before.get(name, 0.0) for name in others)

        def well() -> bool:
            for name in set(self.pool.names) - set(self.pool.running()):
                self.pool.restart(name)  # as systemd does; a process that lost its database during its start has ended
            return all(lives(client) for client in clients)

        until(well, "every process is back")

    def _killing(self, name: str) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            self.pool.kill(name)
            time.sleep(rng.uniform(0.0, 2.0))
            self.pool.restart(name)

        return act

    def _stalling(self, name: str, least_s: float = 0.5) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            self.pool.stop(name)
            time.sleep(rng.choice((least_s, self.stall_s)))
            self.pool.cont(name)

        return act

    def _ending(self, server: Server, how: str) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            getattr(server, how)()
            time.sleep(rng.uniform(0.0, 4.0))
            server.start()

        return act

    def _draining(self, client: Client, host: str) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            slots = patiently(lambda: [slot for slot in client.slots() if slot.host == host])
            for slot in slots:
                patiently(partial(client.drain, slot.uuid, "drill"))
            time.sleep(rng.uniform(0.5, 3.0))
            for slot in slots:
                patiently(partial(client.resume, slot.uuid))

        return act

    def _parting(self, relay: Relay) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            relay.part()
            time.sleep(rng.choice((1.0, self.stall_s)))
            if rng.random() < 0.5:
                relay.cut()
            relay.heal()

        return act

    def _parting_clients(self, client: Client, host: str) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            port = patiently(lambda: next(found.data_port for found in client.hosts() if found.name == host))
            with parted(port, rng.choice((LOST, REFUSED))):
                time.sleep(rng.choice((1.0, self.stall_s)))

        return act

    def _filling(self, name: str, disk: Ballast) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            end_s = time.monotonic() + rng.uniform(0.5, 4.0)
            for room_bytes in itertools.cycle((0, 4096, 8192, 65536)):  # so that a write may succeed in part
                disk.fill()
                disk.leave(room_bytes)
                if time.monotonic() > end_s:
                    break
                time.sleep(0.1)
            disk.remove()
            for server in self.servers:
                if server.name == name:
                    wait_until(partial(_revived, server), f"{name} answers")

        return act

    def _setting(self, name: str, clock: Clock) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            by_s = rng.choice((-HOUR_S, 0, HOUR_S))
            clock.set(by_s)
            if name.startswith("scheduler") and by_s > 0:
                # If it started with a clock ahead of the others, it would advance the time of all of them by an hour.
                time.sleep(rng.uniform(0.5, 3.0))
                clock.set(0)
            elif rng.random() < 0.5:
                self._killing(name)(rng)

        return act


def _rounds(acts: Sequence[Act], rng: random.Random) -> Iterator[Act]:
    while True:
        yield from rng.sample(acts, len(acts))


def _revived(server: Server) -> bool:
    """Start a server if it has ended, for example because its disk was full; return whether it runs."""
    with contextlib.suppress(ServiceUnavailable):
        return server.start().running
    return False


def _heard(client: Client) -> dict[str, float]:
    return {one.name: one.heard_at for one in client.services()}


def _busy_for(seconds: float, busy: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + seconds
    while busy() and time.monotonic() < until_s:
        time.sleep(0.1)
    return busy()
