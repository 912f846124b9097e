"""Admission of connections to a data port: limits for unauthenticated clients, and fairness between projects.

A connection is a stranger's (unauthenticated) until it has sent a valid token.  If there are too many strangers, the
oldest one of the address with the most is dropped, not the newcomer: a client with a token is one only for a moment.
If there are too many authenticated clients, the lane that has been without open orders for longest is dropped; its
client opens another one when it has orders again.  Without such a lane, the newest connection of the project with the
most is dropped for a project with fewer; its client resumes the transfer later.
Refused strangers are held open for a while, so that programs that reconnect whenever a connection ends do so rarely.
"""

import asyncio
import math
import random
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer.tokens import TransferGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Maximum numbers of concurrent connections of a data port."""

    #: Authenticated clients: in total, of one project, for one job, and from one address.
    clients: int = 256
    per_project: int = 192
    per_job: int = 8
    clients_per_address: int = 224
    #: Unauthenticated clients: in total, and from one address.
    strangers: int = 128
    per_address: int = 64
    #: Refused clients that are held: in total, and from one address.
    held: int = 256
    held_per_address: int = 192


@dataclass(eq=False, slots=True)
class Connection:
    """One counted connection."""

    address: str
    #: Ends the connection; `Connections.leave` is called afterwards.
    drop: Callable[[], object]
    #: Project and job of its token; "" = no valid token yet. A lane has no job.
    project_id: str = ""
    job: str = ""
    #: The token of its first frame and its grant, if the door has verified it.
    verified: tuple[str, TransferGrant] | None = None

    @property
    def is_strangers(self) -> bool:
        return not self.project_id


class Connections:
    """Connections of one port; used on its event loop only."""

    def __init__(self, places: Places) -> None:
        self._places = places
        #: Unauthenticated connections by address, oldest first.
        self._strangers: dict[str, dict[Connection, None]] = {}
        #: Authenticated connections by project, oldest first.
        self._of_project: dict[str, dict[Connection, None]] = {}
        self._of_job: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        #: Lanes without open orders, longest idle first.
        self._idle: dict[Connection, None] = {}

    def enter(self, address: str, drop: Callable[[], object]) -> tuple[Connection, bool]:
        """Register a new connection; return it, and whether another one was dropped for it."""
        crowded = len(self._strangers.get(address, ())) >= self._places.per_address
        full = sum(map(len, self._strangers.values())) >= self._places.strangers
        if crowded:
            self._drop_oldest(address)
        elif full:
            self._drop_oldest(max(self._strangers, key=lambda one: len(self._strangers[one])))
        connection = Connection(address, drop)
        self._strangers.setdefault(address, {})[connection] = None
        return connection, crowded or full

    def prove(self, connection: Connection, project_id: str, job: str = "") -> None:
        """Record that a connection has sent a valid token. Raises TransferRefused if a limit is reached."""
        if connection.project_id:
            return
        places, mine, address = self._places, len(self._of_project.get(project_id, ())), connection.address
        if job and self._of_job[job] >= places.per_job:
            raise TransferRefused("busy", f"{places.per_job} connections are open for job {job}")
        self._make_place(
            mine >= places.per_project, lambda lane: lane.project_id == project_id, f"{mine} of this project"
        )
        of_address = self._of_address[address]
        self._make_place(
            of_address >= places.clients_per_address,
            lambda lane: lane.address == address,
            f"{of_address} of this address",
        )
        clients = sum(map(len, self._of_project.values()))
        self._make_place(clients >= places.clients, lambda _: True, f"{clients} of all projects", mine)
        self._forget_stranger(connection)
        connection.project_id, connection.job = project_id, job
        self._of_project.setdefault(project_id, {})[connection] = None
        self._of_address[address] += 1
        if job:
            self._of_job[job] += 1
        else:
            self.rest(connection)

    def rest(self, lane: Connection) -> None:
        """Record that a lane no longer has an open order."""
        if lane.project_id:  # it was not dropped
            self._idle[lane] = None

    def work(self, lane: Connection) -> None:
        """Record that a lane has an open order."""
        self._idle.pop(lane, None)

    def leave(self, connection: Connection) -> None:
        """Unregister a connection that has ended."""
        self._forget_stranger(connection)
        self._idle.pop(connection, None)
        address = connection.address if connection.project_id else ""
        of_project = self._of_project.get(connection.project_id, {})
        of_project.pop(connection, None)
        if not of_project:
            self._of_project.pop(connection.project_id, None)
        for counts, key in (self._of_job, connection.job), (self._of_address, address):
            if key and counts[key] > 1:
                counts[key] -= 1
            else:
                counts.pop(key, None)
        connection.project_id = connection.job = ""

    def _make_place(
        self, is_full: bool, is_of_these: Callable[[Connection], bool], found: str, share: float = math.inf
    ) -> None:
        """If a limit is reached, drop a connection for the newcomer. Raises TransferRefused if none may be dropped.

        Drops the matching lane that has been idle for longest, or else the newest connection of the project with the
        most, if it would still have more than the newcomer's project, which has `share` connections.
        """
        if not is_full:
            return
        dropped = next(filter(is_of_these, self._idle), None)
        if dropped is None:
            most = max(self._of_project.values(), key=len)
            if len(most) <= share + 1:
                raise TransferRefused("busy", f"too many connections ({found}); try again later")
            dropped = next(reversed(most))
        self.leave(dropped)
        dropped.drop()

    def _drop_oldest(self, address: str) -> None:
        oldest = next(iter(self._strangers[address]))
        self._forget_stranger(oldest)
        oldest.drop()

    def _forget_stranger(self, connection: Connection) -> None:
        others = self._strangers.get(connection.address, {})
        others.pop(connection, None)
        if not others:
            self._strangers.pop(connection.address, None)


class Held:
    """Refused connections that stay open unread, at the cost of a descriptor and a timer; used on one event loop only.

    Bytes that their peers continue to send stay in the kernel's buffers, which fill up soon.
    """

    def __init__(self, places: Places, held_s: float) -> None:
        self._places = places
        self._held_s = held_s
        self._of_address: Counter[str] = Counter()
        self._open: dict[socket.socket, str] = {}
        #: A separate generator, as the global one is shared by the process.
        self._random = random.Random()  # noqa: S311

    def __len__(self) -> int:
        return len(self._open)

    def hold(self, sock: socket.socket, address: str) -> None:
        """Close a connection after the hold time, or at once if too many are held in total or of this address."""
        places = self._places
        if len(self._open) >= places.held or self._of_address[address] >= places.held_per_address:
            sock.close()
            return
        self._open[sock] = address
        self._of_address[address] += 1
        held_s = self._held_s * self._random.uniform(0.5, 1.5)  # simultaneous clients reconnect at different times
        asyncio.get_running_loop().call_later(held_s, self._let_go, sock)

    def close(self) -> None:
        """Close all held connections now."""
        for sock in list(self._open):
            self._let_go(sock)

    def _let_go(self, sock: socket.socket) -> None:
        address = self._open.pop(sock, None)
        if address is not None:
            sock.close()
            if self._of_address[address] > 1:
                self._of_address[address] -= 1
            else:
                del self._of_address[address]
