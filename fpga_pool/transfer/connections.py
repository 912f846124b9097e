"""Who holds the connections of a data port: strangers few and not for long, and no projects all of them.

A connection is a stranger's until it has shown a good token.  Where strangers are too many it is not the newcomer who
is turned away, but the oldest of the address with the most: a client with a token needs its place for a moment only.
Where clients are too many, the lane makes place that has had no open order for longest; its client opens another one
when it has orders again.  Without such a lane, the newest connection goes of the project with the most, for one with
fewer: its client continues later from what is there.
Strangers that were refused are held for a while: a program that comes again when its connection ends comes rarely then.
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
    """How many connections a data port holds at a time."""

    #: Of clients that have shown a good token: of all, of one project, for one job, and from one address.
    clients: int = 256
    per_project: int = 192
    per_job: int = 8
    clients_per_address: int = 224
    #: Of those that have not: of all, and from one address.
    strangers: int = 128
    per_address: int = 64
    #: Of those that were refused, and are held: of all, and from one address.
    held: int = 256
    held_per_address: int = 192


@dataclass(eq=False, slots=True)
class Connection:
    """One connection, as it is counted."""

    address: str
    #: Ends it; it leaves afterwards.
    drop: Callable[[], object]
    #: What its token is for; "" = it has shown none, and a lane is for no job in particular.
    project_id: str = ""
    job: str = ""
    #: The token of its first frame and what that permits, if the door has verified it.
    verified: tuple[str, TransferGrant] | None = None

    @property
    def is_strangers(self) -> bool:
        return not self.project_id


class Connections:
    """Connections of one port; used on its event loop only."""

    def __init__(self, places: Places) -> None:
        self._places = places
        #: Oldest first, by address.
        self._strangers: dict[str, dict[Connection, None]] = {}
        #: Of clients that have shown a good token: newest last, by project.
        self._of_project: dict[str, dict[Connection, None]] = {}
        self._of_job: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        #: Lanes without open orders, those that have had none for longest first.
        self._idle: dict[Connection, None] = {}

    def enter(self, address: str, drop: Callable[[], object]) -> tuple[Connection, bool]:
        """Count a new connection; return it, and whether another one was dropped for it."""
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
        """Note that a connection has shown a good token; TransferRefused if there are enough of its kind."""
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
        """Note that a lane has no open order any more."""
        if lane.project_id:  # it has not left
            self._idle[lane] = None

    def work(self, lane: Connection) -> None:
        """Note that a lane has an open order."""
        self._idle.pop(lane, None)

    def leave(self, connection: Connection) -> None:
        """Note that a connection has ended."""
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
        """Drop one of these connections if they are too many; TransferRefused where none has to make place.

        It is the lane that has been idle for longest, or else one of a project that has more than the `share` of the
        newcomer's, who may have one more.
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
    """Refused connections that stay open and are not read: a descriptor and a timer each; used on one event loop only.

    Bytes that their peers go on sending stay in the kernel, whose buffers are full soon.
    """

    def __init__(self, places: Places, held_s: float) -> None:
        self._places = places
        self._held_s = held_s
        self._of_address: Counter[str] = Counter()
        self._open: dict[socket.socket, str] = {}
        #: Of its own: the shared one is the process's, and other threads may watch its state.
        self._random = random.Random()  # noqa: S311

    def __len__(self) -> int:
        return len(self._open)

    def hold(self, sock: socket.socket, address: str) -> None:
        """Close a connection after its time; at once where too many are held, of all or of this address."""
        places = self._places
        if len(self._open) >= places.held or self._of_address[address] >= places.held_per_address:
            sock.close()
            return
        self._open[sock] = address
        self._of_address[address] += 1
        held_s = self._held_s * self._random.uniform(0.5, 1.5)  # those that came at once do not come again at once
        asyncio.get_running_loop().call_later(held_s, self._let_go, sock)

    def close(self) -> None:
        """Close all of them now."""
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
