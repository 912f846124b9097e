"""Transfer of one job's bytes over one connection in its own thread, and the tickets that permit it.

Each request for tickets is a transaction of the pool, so streams that need a ticket while a request is in progress
share the next one.  A single stream is not delayed.
"""

import contextlib
import math
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from fpga_pool.client.inputs import Input
from fpga_pool.client.session import PoolClock
from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.messages.requests import Ticket, TicketRequest
from fpga_pool.model.objects.pool import Host, Job, RateSegment
from fpga_pool.transfer import frames
from fpga_pool.transfer.client import Connection, ResultInfo, TransferBroken, connect
from fpga_pool.transfer.schedule import Pacer, RateSchedule

if TYPE_CHECKING:  # it imports the lanes of small jobs, which import this module
    from fpga_pool.client.api import PoolApi

# ---- Tickets

#: Maximum number of tickets in one call of the API.
_MOST = 1000

#: Age in seconds from which on a kept ticket is not used, because it may be about to expire.
_KEPT_S = 30.0

_Waiting = list[tuple[TicketRequest, "Future[Ticket]"]]


def require_current(ticket: Ticket, job: Job, host: Host) -> None:
    """Raise TransferBroken unless a ticket is for the attempt and the host address that its caller knows.

    Otherwise the transferred bytes would be taken for those of a former attempt, and be lost.
    """
    if ticket.attempt != job.attempt:
        raise TransferBroken(f"job {job.uuid} is now at attempt {ticket.attempt}, not at {job.attempt}")
    if (ticket.address, ticket.port) != (host.data_address, host.data_port):
        raise TransferBroken(f"job {job.uuid} is no longer on host {host.name} at that address")


def tls_for(host: Host, given: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS settings for a data port; InvalidInput if some are given and the host offers no TLS."""
    if host.data_tls:
        return given or ssl.create_default_context()
    if given is not None:
        raise InvalidInput(f"host {host.name}: its data port offers no TLS, expected TLS since a context was given")
    return None


class TicketDesk:
    """Obtains tickets for the jobs of one batch; thread-safe."""

    def __init__(self, api: "PoolApi", batch_uuid: str) -> None:
        self._api = api
        self._batch_uuid = batch_uuid
        self._queue: _Waiting = []
        self._lock = threading.Lock()
        self._calling = threading.Lock()
        #: Tickets for small inputs that came with the batch, by job, with their arrival on the monotonic clock.
        self._kept: dict[str, tuple[Ticket, float]] = {}

    def keep(self, tickets: Sequence[Ticket]) -> None:
        """Store tickets that came without a request; `get_all` returns them."""
        now_s = time.monotonic()
        self._kept |= {ticket.job: (ticket, now_s) for ticket in tickets}

    def get(self, request: TicketRequest) -> Ticket:
        """Return a ticket, or raise the error with which the pool refuses it."""
        wanted: Future[Ticket] = Future()
        with self._lock:
            self._queue.append((request, wanted))
        with self._calling:
            if not wanted.done():
                self._serve(self._next())
        return wanted.result()

    def get_all(self, requests: Sequence[TicketRequest]) -> list["Future[Ticket]"]:
        """Return the outcome of each request, by a common call unless one is refused, or all tickets were kept."""
        waiting: _Waiting = [(request, Future()) for request in requests]
        asked = [one for one in waiting if not self._served_from_kept(*one)]
        for begin in range(0, len(asked), _MOST):
            self._serve(asked[begin : begin + _MOST])
        return [wanted for _, wanted in waiting]

    def _served_from_kept(self, request: TicketRequest, wanted: "Future[Ticket]") -> bool:
        ticket, kept_s = self._kept.pop(request.job, (None, 0.0))
        age_s = time.monotonic() - kept_s
        if ticket is None or ticket.purpose != request.purpose or age_s > _KEPT_S:
            return False
        wanted.set_result(replace(ticket, elapsed_s=ticket.elapsed_s + age_s))
        return True

    def _next(self) -> _Waiting:
        with self._lock:
            served, self._queue = self._queue[:_MOST], self._queue[_MOST:]
        return served

    def _serve(self, waiting: _Waiting) -> None:
        try:
            tickets = self._api.tickets(self._batch_uuid, [request for request, _ in waiting])
        except (Conflict, InvalidInput, NotFound) as error:
            if len(waiting) == 1:
                waiting[0][1].set_exception(error)
                return
            # The API grants all or none: single calls, so that the refused request does not affect the others.
            for one in waiting:
                self._serve([one])
        except Exception as error:
            for _, wanted in waiting:
                wanted.set_exception(error)
        else:
            for (_, wanted), ticket in zip(waiting, tickets, strict=True):
                wanted.set_result(ticket)


# ---- Streams


class Phase(Enum):
    """The current activity of a stream."""

    OPENING = "opening"
    SENDING = "sending"
    #: The responder has the input; the job has not computed yet.
    WAITING = "waiting"
    RECEIVING = "receiving"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """State shared by all streams of a batch."""

    desk: TicketDesk
    egress: PacingDriver
    clock: PoolClock = field(default_factory=PoolClock)
    #: For data ports with TLS; None = the system's certificate authorities.
    ssl_context: ssl.SSLContext | None = None
    connect_timeout_s: float = 10.0
    result_timeout_s: float = 3600.0


class Stream:
    """Transfers one job's input and result, or only one of them; `send` and `fetch` run in the stream's own thread."""

    def __init__(
        self, context: StreamContext, job: Job, host: Host, source: Input, sink: Path, *, wants_result: bool = True
    ) -> None:
        self.job = job
        self.phase = Phase.OPENING
        self.sent_bytes = 0
        self._context = context
        self._host = host
        self._source = source
        self._sink = sink
        self._wants_result = wants_result
        self._cancel = threading.Event()
        #: While the stream is paced here: its pacer, and the plan's time 0 on the monotonic clock.
        self._pacing: tuple[Pacer, float] | None = None

    def cancel(self) -> None:
        """Stop the stream soon, whatever it is doing."""
        self._cancel.set()

    def retime(self, transfer: Sequence[RateSegment], dispatched_at: float) -> None:
        """Follow a new plan, with time 0 at `dispatched_at`, unless the requester's host paces the stream."""
        if self._pacing is not None:
            pacer, anchor_s = self._pacing
            later_s = self._context.clock.monotonic_s(dispatched_at) - anchor_s
            planned = [
                RateSegment(piece.begin_s + later_s, piece.end_s + later_s, piece.bps)
                for piece in transfer
                if piece.begin_s < piece.end_s
            ]
            pacer.replace(RateSchedule(planned))

    def send(self) -> ResultInfo | None:
        """Send the input at the planned rates, and wait on the same connection for the result, if it is wanted."""
        with self._connect() as connection:
            ticket = self._ticket(connection, "send")
            self.phase = Phase.SENDING
            with self._paced(connection, ticket) as (pacer, anchor_s), self._source.open() as file:

                def note_accepted(accept: frames.Accept) -> None:
                    if ticket.shaped and not accept.shaped:  # not shaped after all, for example behind NAT
                        pacer.replace(_schedule(replace(ticket, shaped=False)))
                        self._pacing = pacer, anchor_s

                connection.send(ticket.token, file, ticket.input_bytes, pacer, self._note_sent, note_accepted)
            self.phase = Phase.WAITING
            if not self._wants_result:
                return None
            return connection.receive_result(self._sink, self._context.result_timeout_s, self._note_received)

    def fetch(self) -> ResultInfo:
        """Fetch the result of a job whose input was sent on another connection."""
        with self._connect() as connection:
            ticket = self._ticket(connection, "fetch")
            self.phase = Phase.RECEIVING
            return connection.fetch(ticket.token, self._sink, self._context.result_timeout_s, self._note_received)

    def _connect(self) -> Connection:
        address = (self._host.data_address, self._host.data_port)
        context = self._context
        tls = tls_for(self._host, context.ssl_context)
        try:
            return connect(address, context.connect_timeout_s, ssl_context=tls, cancel=self._cancel)
        except OSError as error:
            raise TransferBroken(f"the connection to {self._host.name} failed immediately: {error}") from error

    def _ticket(self, connection: Connection, purpose: str) -> Ticket:
        """Report the addresses of the flow, and return a ticket for it."""
        request = TicketRequest(
            job=self.job.uuid,
            purpose=purpose,
            source_address=connection.source_address,
            source_port=connection.source_port,
        )
        ticket = self._context.desk.get(request)
        require_current(ticket, self.job, self._host)
        return ticket

    @contextlib.contextmanager
    def _paced(self, connection: Connection, ticket: Ticket) -> Iterator[tuple[Pacer, float]]:
        """Pace the flow by its plan; yield the pacer, and the time 0 of the plan on the monotonic clock.

        Nothing is sent before time 0.
        """
        schedule = _schedule(ticket)
        anchor_s = plan_anchor_s(ticket, self.job, self._context.clock)
        flow = Flow(
            key=f"{self.job.uuid}/{connection.source_port}",
            source_address=connection.source_address,
            source_port=connection.source_port,
            destination_address=connection.destination_address,
            destination_port=connection.destination_port,
        )
        egress = self._context.egress
        egress.open(flow, schedule.rate_at(ticket.elapsed_s))
        try:
            limiter = egress.attach(flow.key, connection.socket)
            pacer = Pacer(schedule, limiter, ticket.input_bytes, anchor_s=anchor_s)
            self._pacing = None if ticket.shaped else (pacer, anchor_s)
            yield pacer, anchor_s
        finally:
            self._pacing = None
            egress.close(flow.key)

    def _note_sent(self, sent_bytes: int) -> None:
        self.sent_bytes = sent_bytes

    def _note_received(self, _received_bytes: int) -> None:
        self.phase = Phase.RECEIVING


def plan_anchor_s(ticket: Ticket, job: Job, clock: PoolClock) -> float:
    """Return the plan's time 0 on the monotonic clock, by the faster of two answers; the ticket must have just come."""
    anchor_s = time.monotonic() - ticket.elapsed_s
    if job.dispatched_at is None or ticket.transfer != job.transfer:
        return anchor_s
    return min(anchor_s, clock.monotonic_s(job.dispatched_at))


def _schedule(ticket: Ticket) -> RateSchedule:
    """Return the schedule that this end of the flow follows.

    It is only the start of the plan, with an unlimited rate, if the requester's host enforces the rates, or if there
    are none (the same host, or no limits).
    """
    planned = [piece for piece in ticket.transfer if piece.begin_s < piece.end_s]
    if ticket.shaped or not planned:
        planned = [RateSegment(planned[0].begin_s if planned else 0.0, math.inf, math.inf)]
    return RateSchedule(planned)
