"""Transfer of the small jobs of one host on one connection in its own thread, shared by the batches of a client."""

import hashlib
import heapq
import itertools
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fpga_pool.client.inputs import Input
from fpga_pool.client.outcome import write_files
from fpga_pool.client.stream import Phase, StreamContext, TicketDesk, plan_anchor_s, require_current, tls_for
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, TransferRefused
from fpga_pool.model.messages.requests import Ticket, TicketRequest
from fpga_pool.model.objects.pool import Host, Job, JobState
from fpga_pool.model.values import counted
from fpga_pool.transfer import frames
from fpga_pool.transfer.client import JobFailed, ResultInfo, TransferBroken, TransferCancelled, connect_lane
from fpga_pool.transfer.lane_client import Answer, LaneConnection

#: Maximum number of open orders on a lane, enough to keep the slots of a host busy, and of further ones for results
#: that wait on the host: inputs that leave later or wait for a slot must not delay these.  A host takes 1024 in all.
_OPEN, _OPEN_RESULTS = 512, 256
_TICK_S = 0.5
#: How long an idle lane is kept for the next jobs, in seconds: a user's next small batch comes soon, or much later.
_KEPT_S = 5.0
_CONNECT_TIMEOUT_S = 10.0

Outcome = ResultInfo | BaseException
#: Callback that takes parcels with their outcomes; it is called in the lane's thread.
Ended = Callable[[list[tuple[Any, Outcome]]], object]


class Parcel:
    """One small job on a lane; the lane's thread transfers it, other threads may read its state and cancel it."""

    def __init__(self, job: Job, source: Input, sink: Path, context: StreamContext, ended: Ended) -> None:
        self.job = job
        self.context = context
        self.ended = ended
        self.phase = Phase.OPENING
        self.sent_bytes = 0
        self.source = source
        self.sink = sink
        self.cancelled = False

    def cancel(self) -> None:
        """Request that the lane gives it up soon."""
        self.cancelled = True

    @property
    def purpose(self) -> str:
        """Purpose of its ticket."""
        return "fetch" if self.job.state is JobState.RESULT_HELD else "send"


class Lanes:
    """The lanes of a client; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[tuple[object, ...], Lane] = {}

    def add(self, host: Host, parcels: Sequence[Parcel]) -> "Lane":
        """Give parcels, which must have the same context, to the lane of a host; return the lane."""
        tls = parcels[0].context.ssl_context
        place = host.name, host.data_address, host.data_port, host.data_tls, tls
        with self._lock:
            lane = self._lanes.get(place)
            if lane is None or not lane.add(parcels):
                self._lanes = {place: one for place, one in self._lanes.items() if not one.has_ended}
                lane = self._lanes[place] = Lane(host, tls, parcels)
        return lane

    def close(self) -> None:
        """Close all lanes; open parcels are cancelled."""
        with self._lock:
            lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close()


class Lane:
    """A connection to one host, opened with the first jobs and kept for the next ones."""

    def __init__(self, host: Host, ssl_context: ssl.SSLContext | None, parcels: Sequence[Parcel]) -> None:
        self.host = host
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        #: Held while results are written.
        self._taking = threading.Lock()
        #: Inputs to send and results to fetch that have not been ordered yet.
        self._inputs: list[Parcel] = []
        self._results: list[Parcel] = []
        self._note(parcels)
        self._open: dict[int, Parcel] = {}
        #: Parcels by number that are sent at the planned end of their transfers; heap of these times with the numbers.
        self._held: dict[int, tuple[Parcel, Ticket]] = {}
        self._due: list[tuple[float, int]] = []
        self._numbers = itertools.count(1)
        self._connection: LaneConnection | None = None
        self._closing = False
        #: Whether it takes no more parcels, because orders of cancelled parcels are still open.
        self._retired = False
        self._used_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"lane-{host.name}", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended."""
        return not self._thread.is_alive()

    def add(self, parcels: Sequence[Parcel]) -> bool:
        """Take parcels; return False if the lane takes no more."""
        with self._lock:
            if self._closing or self._retired:
                return False
            self._note(parcels)
            self._wake()
        return True

    def _note(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            (self._results if parcel.purpose == "fetch" else self._inputs).append(parcel)

    def _wake(self) -> None:
        if self._connection is not None:
            self._connection.wake()

    def settle(self) -> None:
        """Wait until nothing is written any more for parcels that were cancelled."""
        with self._taking, self._lock:
            self._wake()

    def close(self) -> None:
        """Close the lane; open parcels are cancelled."""
        with self._lock:
            self._closing = True
            self._wake()
        self._thread.join()

    def _run(self) -> None:
        error: BaseException = TransferCancelled("cancelled by the caller")
        try:
            with self._connect() as connection:
                with self._lock:
                    self._connection = connection
                try:
                    self._serve(connection)
                finally:
                    with self._lock:
                        self._connection = None
        except OSError as caught:
            error = TransferBroken(f"the lane to {self.host.name} failed: {caught}")
        except Exception as caught:
            error = caught
        with self._lock:
            self._closing = True
            held = [parcel for parcel, _ in self._held.values()]
            left = [*self._open.values(), *held, *self._inputs, *self._results]
        for parcel in left:
            parcel.phase = Phase.OPENING
        _end([(parcel, error) for parcel in left])

    def _connect(self) -> LaneConnection:
        host = self.host
        tls = tls_for(host, self._ssl_context)
        try:
            return connect_lane((host.data_address, host.data_port), _CONNECT_TIMEOUT_S, ssl_context=tls)
        except OSError as error:
            raise TransferBroken(f"the connection to {host.name} failed immediately: {error}") from error

    def _serve(self, connection: LaneConnection) -> None:
        while not self._closing:
            self._give_up_cancelled()
            if self._has_rested():
                return
            new = self._next()
            if new:
                self._order(connection, new)
            answers = connection.pump(self._send_due(connection))
            if answers:
                self._take(connection, answers)

    def _has_rested(self) -> bool:
        """Return whether the lane is to end, because it has been idle for a while or takes no more parcels."""
        if self._open or self._held:
            self._used_s = time.monotonic()
            return False
        with self._lock:
            if not self._inputs and not self._results:
                self._closing |= self._retired or time.monotonic() - self._used_s > _KEPT_S
            return self._closing

    def _next(self) -> list[Parcel]:
        """Return the parcels to be ordered now: as many inputs as there is room for, then results."""
        room = _OPEN - len(self._open) - len(self._held)
        with self._lock:
            inputs = self._inputs[: max(room, 0)]
            results = self._results[: max(room - len(inputs) + _OPEN_RESULTS, 0)]
            del self._inputs[: len(inputs)], self._results[: len(results)]
        return [*inputs, *results]

    def _give_up_cancelled(self) -> None:
        ordered = [self._open.pop(number) for number, parcel in list(self._open.items()) if parcel.cancelled]
        held = [self._held.pop(number)[0] for number, (parcel, _) in list(self._held.items()) if parcel.cancelled]
        with self._lock:
            waiting = [parcel for parcel in (*self._inputs, *self._results) if parcel.cancelled]
            if waiting:
                self._inputs = [parcel for parcel in self._inputs if not parcel.cancelled]
                self._results = [parcel for parcel in self._results if not parcel.cancelled]
            # The host does not know of the cancellation: it keeps a place for each order until the lane ends.
            self._retired |= bool(ordered)
        if given_up := [*ordered, *held, *waiting]:
            error = TransferCancelled("cancelled by the caller")
            _end([(parcel, error) for parcel in given_up])

    # Ordering

    def _order(self, connection: LaneConnection, parcels: Sequence[Parcel]) -> None:
        """Report the flow, get tickets for all parcels, and hold them until they are due."""
        failed: list[tuple[Parcel, Outcome]] = []
        by_batch: dict[TicketDesk, list[Parcel]] = defaultdict(list)
        for parcel in parcels:
            by_batch[parcel.context.desk].append(parcel)
        for desk, of_batch in by_batch.items():
            tickets = desk.get_all(
                [
                    TicketRequest(
                        job=parcel.job.uuid,
                        purpose=parcel.purpose,
                        source_address=connection.source_address,
                        source_port=connection.source_port,
                    )
                    for parcel in of_batch
                ]
            )
            for parcel, wanted in zip(of_batch, tickets, strict=True):
                try:
                    ticket = wanted.result()
                    require_current(ticket, parcel.job, self.host)
                except FpgaPoolError as error:
                    failed.append((parcel, error))
                else:
                    self._hold(parcel, ticket)
        _end(failed)

    def _hold(self, parcel: Parcel, ticket: Ticket) -> None:
        """Hold a parcel until the planned end of its transfer, because it is sent in one burst."""
        due_s = 0.0
        if parcel.purpose == "send":
            arrives_s = ticket.transfer[-1].end_s if ticket.transfer else 0.0
            due_s = plan_anchor_s(ticket, parcel.job, parcel.context.clock) + arrives_s
        number = next(self._numbers)
        self._held[number] = parcel, ticket
        heapq.heappush(self._due, (due_s, number))

    def _send_due(self, connection: LaneConnection) -> float:
        """Send the parcels that are due; return the seconds until the next one is due, a tick at most."""
        failed: list[tuple[Parcel, Outcome]] = []
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, number = heapq.heappop(self._due)
            if number in self._held:  # not cancelled
                parcel, ticket = self._held.pop(number)
                try:
                    self._send(connection, number, parcel, ticket)
                except (FpgaPoolError, OSError) as error:
                    failed.append((parcel, error))
        _end(failed)
        return min(_TICK_S, self._due[0][0] - now_s) if self._due else _TICK_S

    def _send(self, connection: LaneConnection, number: int, parcel: Parcel, ticket: Ticket) -> None:
        if parcel.purpose == "fetch":
            connection.put(frames.Fetch(number, ticket.token))
        else:
            data = _read(parcel.source, ticket.input_bytes)
            order = frames.Order(number, ticket.token, len(data), hashlib.sha256(data).hexdigest())
            connection.put(order, data)
            parcel.sent_bytes = len(data)
        parcel.phase = Phase.SENDING
        self._open[number] = parcel

    # Answers

    def _take(self, connection: LaneConnection, answers: Sequence[Answer]) -> None:
        ended: list[tuple[Parcel, Outcome]] = []
        results: list[tuple[int, Parcel, frames.Result, bytes]] = []
        with self._taking:
            for frame, data in answers:
                parcel = self._open.get(frame.number)
                if parcel is None or parcel.cancelled:
                    continue  # given up
                del self._open[frame.number]
                if isinstance(frame, frames.Result):
                    results.append((frame.number, parcel, frame, data))
                else:
                    # Unless its result is held, a new order may follow; it is harmless if the host has the input.
                    parcel.phase = Phase.WAITING if isinstance(frame, frames.Held) else Phase.OPENING
                    ended.append((parcel, _error(frame)))
            for number, parcel, frame, data in _good(results, ended):
                connection.put(frames.ResultReceived(number))
                ended.append((parcel, ResultInfo(parcel.sink, len(data), frame.sha256)))
        _end(ended)


def _end(outcomes: Sequence[tuple[Parcel, Outcome]]) -> None:
    """Report the outcomes of parcels to their batches, with one call for each batch."""
    by_batch: dict[Ended, list[tuple[Parcel, Outcome]]] = defaultdict(list)
    for parcel, outcome in outcomes:
        by_batch[parcel.ended].append((parcel, outcome))
    for ended, of_batch in by_batch.items():
        ended(of_batch)


def _read(source: Input, input_bytes: int) -> bytes:
    with source.open() as file:
        data = file.read(input_bytes + 1)
    if len(data) < input_bytes:
        raise InvalidInput(f"the source ends {counted(input_bytes - len(data), 'byte')} before the announced size")
    if len(data) > input_bytes:
        raise InvalidInput(f"the source is larger than the announced {input_bytes} bytes")
    return data


def _error(frame: frames.Failed | frames.Refuse | frames.Held) -> FpgaPoolError:
    match frame:
        case frames.Failed(code=code, message=message):
            return JobFailed(code, message)
        case frames.Refuse(reason=reason, message=message):
            return TransferRefused(reason, message)
        case frames.Held():
            return TransferCancelled("the result is too large for a lane")


_Arrived = tuple[int, Parcel, frames.Result, bytes]


def _good(results: Sequence[_Arrived], ended: list[tuple[Parcel, Outcome]]) -> list[_Arrived]:
    """Check results, write them to their files, and return them; failed ones are added to `ended` with the reason."""
    sound: list[_Arrived] = []
    for arrived in results:
        _, parcel, frame, data = arrived
        if hashlib.sha256(data).hexdigest() == frame.sha256:
            sound.append(arrived)
        else:
            ended.append((parcel, TransferBroken("the result was corrupted in transit")))
    try:
        write_files([(parcel.sink, data) for _, parcel, _, data in sound])
    except OSError as error:
        ended += [(parcel, error) for _, parcel, _, _ in sound]
        return []
    return sound
