"""Tickets for many streams in few calls.

Each call is a transaction of the pool, so streams that want a ticket while a call is under way wait for it and then
share the next one.  A stream alone is not delayed.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from fpga_pool.client.api import PoolApi
from fpga_pool.dataplane.client import TransferBroken
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.exchange import Ticket, TicketRequest
from fpga_pool.model.objects import Host, Job

#: What the API takes in one call.
_MOST = 1000

_Waiting = list[tuple[TicketRequest, "Future[Ticket]"]]


def require_current(ticket: Ticket, job: Job, host: Host) -> None:
    """Raise TransferBroken unless a ticket is for the attempt and the place that its asker knows of.

    What is moved with it would be taken for a former attempt's, and be lost.
    """
    if ticket.attempt != job.attempt:
        raise TransferBroken(f"job {job.uuid} is at attempt {ticket.attempt} now, not at {job.attempt}")
    if (ticket.address, ticket.port) != (host.data_address, host.data_port):
        raise TransferBroken(f"job {job.uuid} is not on host {host.name} at that address any more")


class TicketDesk:
    """Gets tickets for the jobs of one batch; threads share it."""

    def __init__(self, api: PoolApi, batch_uuid: str) -> None:
        self._api = api
        self._batch_uuid = batch_uuid
        self._queue: _Waiting = []
        self._lock = threading.Lock()
        self._calling = threading.Lock()

    def get(self, request: TicketRequest) -> Ticket:
        """Return a ticket, or raise what the pool has against it."""
        wanted: Future[Ticket] = Future()
        with self._lock:
            self._queue.append((request, wanted))
        with self._calling:
            if not wanted.done():
                self._serve(self._next())
        return wanted.result()

    def get_all(self, requests: Sequence[TicketRequest]) -> list["Future[Ticket]"]:
        """Return the outcome for each request: one call, unless one of them is refused."""
        waiting: _Waiting = [(request, Future()) for request in requests]
        for begin in range(0, len(waiting), _MOST):
            self._serve(waiting[begin : begin + _MOST])
        return [wanted for _, wanted in waiting]

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
            # All or none: one of them is refused, and the others must not suffer for it.
            for one in waiting:
                self._serve([one])
        except Exception as error:
            for _, wanted in waiting:
                wanted.set_exception(error)
        else:
            for (_, wanted), ticket in zip(waiting, tickets, strict=True):
                wanted.set_result(ticket)
