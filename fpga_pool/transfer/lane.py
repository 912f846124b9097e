"""The server's side of a lane: many small jobs on one connection. `frames` describes the exchange.

Frames are processed in bursts: one call of the agent for all orders in the buffer, and one write for all answers.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.connections import Connection
from fpga_pool.transfer.handler import JobFailure, JobResult, SmallInput
from fpga_pool.transfer.port import Port
from fpga_pool.transfer.stream import FrameStream
from fpga_pool.transfer.tokens import TransferGrant

LOG = logging.getLogger(__name__)

End = JobResult | JobFailure
Beginning = frames.Order | frames.Fetch

#: Maximum number of orders in a burst, and of bytes of their inputs; maximum number of open orders of a lane, whose job
#: has not ended or whose result is not confirmed by the client.
_BURST, _BURST_BYTES, _OPEN = 64, 512 * 1024, 1024
#: Reasons of refusal for tokens that no scheduler issued for this host, and the number of them that ends a lane.
_FORGED, _MOST_FORGED = ("missing_token", "bad_signature", "wrong_host"), 3
#: Pause of a lane for each refused order, in seconds.
_REFUSED_S = 0.01


@dataclass(slots=True)
class _Arrived:
    """An order, the grant of its token or the reason of refusal, and its input."""

    order: Beginning
    outcome: TransferGrant | TransferRefused
    data: bytes = b""
    #: Done when the agent knows its job; None if it already does.
    announcement: "asyncio.Future[None] | None" = None


@dataclass(slots=True)
class _Burst:
    """Orders and confirmations that are processed together."""

    orders: list[_Arrived] = field(default_factory=list)
    received: list[TransferGrant] = field(default_factory=list)
    input_bytes: int = 0

    def is_full(self) -> bool:
        return len(self.orders) + len(self.received) >= _BURST or self.input_bytes >= _BURST_BYTES


@dataclass(frozen=True, slots=True)
class _Taken:
    """An accepted order, and the future of its job's end."""

    grant: TransferGrant
    end: "Future[End]"


class Lane:
    """The server's side of one lane."""

    def __init__(
        self, port: Port, stream: FrameStream, connection: Connection, ask: Callable[..., Awaitable[Any]]
    ) -> None:
        self._port = port
        self._stream = stream
        self._connection = connection
        #: Calls the handler in a worker thread.
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, _Taken] = {}
        #: Numbers of orders whose jobs are not known here yet.
        self._unannounced: set[int] = set()
        #: Tasks that wait for these jobs to become known, and stage their inputs.
        self._late: set[asyncio.Task[None]] = set()
        self._unannounced_bytes = 0
        #: Grants of sent results that the client has not confirmed yet.
        self._unconfirmed: dict[int, TransferGrant] = {}
        self._ended: list[int] = []
        self._answers: list[bytes] = []
        self._due = asyncio.Event()
        self._waking = False
        #: Set by the first valid token; until then no input is kept, and the lane has a timeout.
        self._proven = asyncio.Event()
        self._forged = 0

    async def run(self, first: Beginning) -> None:
        """Serve the lane until the client disconnects."""
        listening = asyncio.create_task(self._listen(first))
        answering = asyncio.create_task(self._answer())
        proving = asyncio.create_task(self._expect_proof())
        try:
            done, _ = await asyncio.wait({listening, answering, proving}, return_when=asyncio.FIRST_COMPLETED)
            if done == {proving} and proving.exception() is None:
                done, _ = await asyncio.wait({listening, answering}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except EOFError:
            if self._open or self._unconfirmed:
                raise
        finally:
            tasks = {listening, answering, proving, *self._late}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for taken in self._open.values():
                taken.end.cancel()

    async def _expect_proof(self) -> None:
        """Refuse a client that sends no valid token in time."""
        try:
            async with asyncio.timeout(self._port.limits.hello_timeout_s):
                await self._proven.wait()
        except TimeoutError:
            raise TransferRefused("missing_token", "no valid token in time; request one from the scheduler") from None

    # Listening

    async def _listen(self, first: Beginning) -> None:
        burst = _Burst()
        frame: frames.Frame | frames.Header = first
        while True:
            await self._note(frame, burst)
            if burst.is_full() or not self._proven.is_set() or not self._stream.holds_frame():
                await self._handle(burst)
                burst = _Burst()
            frame = await self._stream.read()

    async def _note(self, frame: frames.Frame | frames.Header, burst: _Burst) -> None:
        match frame:
            case frames.Order(number=number, size_bytes=size_bytes):
                self._check_number(number, burst)
                arrived = _Arrived(frame, self._verify(frame))
                arrived.data = await self._read_input(size_bytes, kept=isinstance(arrived.outcome, TransferGrant))
                self._add(arrived, burst)
            case frames.Fetch(number=number):
                self._check_number(number, burst)
                self._add(_Arrived(frame, self._verify(frame)), burst)
            case frames.ResultReceived(number=number) if number in self._unconfirmed:
                burst.received.append(self._unconfirmed.pop(number))
            case frames.KeepAlive():
                pass
            case _:
                raise frames.BadFrame("not allowed while a lane is open")

    def _check_number(self, number: int, burst: _Burst) -> None:
        used = number in self._open or number in self._unconfirmed or number in self._unannounced
        if number == 0 or used or any(arrived.order.number == number for arrived in burst.orders):
            raise frames.BadFrame(f"order {number}: expected a number above 0 that no other open order has")
        if len(self._open) + len(self._unconfirmed) + len(self._unannounced) + len(burst.orders) >= _OPEN:
            raise TransferRefused("busy", f"more than {_OPEN} open orders on one lane")

    def _verify(self, order: Beginning) -> TransferGrant | TransferRefused:
        """Check a token before any input is read for it."""
        port = self._port
        try:
            grant = port.verify(order.token, self._connection)
        except TransferRefused as refused:
            return refused
        port.connections.prove(self._connection, grant.project_id)
        self._proven.set()
        purpose = "send" if isinstance(order, frames.Order) else "fetch"
        if grant.purpose != purpose:
            return TransferRefused("wrong_purpose", f"the token is for {grant.purpose}, not for {purpose}")
        if isinstance(order, frames.Order) and order.size_bytes != grant.input_bytes:
            reason = "short" if order.size_bytes < grant.input_bytes else "oversized"
            return TransferRefused(reason, f"{order.size_bytes} bytes of an input of {grant.input_bytes}")
        return grant

    def _add(self, arrived: _Arrived, burst: _Burst) -> None:
        """Add an order to the burst, and find out whether its job is known."""
        burst.orders.append(arrived)
        burst.input_bytes += len(arrived.data)
        if isinstance(arrived.outcome, TransferRefused):
            return
        try:
            waiting = self._port.handler.announcement(arrived.outcome)
        except TransferRefused as refused:
            arrived.outcome = refused
        else:
            arrived.announcement = None if waiting is None else asyncio.wrap_future(waiting)

    async def _read_input(self, size_bytes: int, *, kept: bool) -> bytes:
        if size_bytes > frames.SMALL_BYTES:
            raise TransferRefused(
                "oversized", f"{size_bytes} bytes on a lane, at most {frames.SMALL_BYTES} are accepted"
            )
        if size_bytes == 0:
            return b""
        header = await self._stream.read()
        if header != frames.Header(is_data=True, length=size_bytes):
            raise frames.BadFrame("an order must be followed by its whole input in one data frame")
        if not kept:
            await self._stream.skip(size_bytes)
            return b""
        data = bytes(await self._stream.read_data(size_bytes))
        if len(data) < size_bytes:
            raise EOFError
        return data

    async def _handle(self, burst: _Burst) -> None:
        if burst.received:
            await self._ask(self._port.handler.delivered, burst.received)
            self._port.counters["delivered"] += len(burst.received)
        late = [arrived for arrived in burst.orders if arrived.announcement is not None]
        await self._take(arrived for arrived in burst.orders if arrived.announcement is None)
        if late:
            waiting = self._loop.create_task(self._take_late(late))
            self._late.add(waiting)
            waiting.add_done_callback(self._late.discard)
            self._unannounced |= {arrived.order.number for arrived in late}
            self._unannounced_bytes += sum(len(arrived.data) for arrived in late)
        while self._unannounced_bytes > _BURST_BYTES:  # do not read more of this lane until jobs become known
            await asyncio.wait(self._late, return_when=asyncio.FIRST_COMPLETED)

    async def _take_late(self, orders: list[_Arrived]) -> None:
        """Process orders in groups as their jobs become known, and after the timeout the rest."""
        give_up_s = self._loop.time() + self._port.limits.announcement_s
        hopes = {one.announcement: one for one in orders if one.announcement is not None}
        try:
            while hopes:
                left_s = max(give_up_s - self._loop.time(), 0.0)
                await asyncio.wait(hopes, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # one command may announce many jobs
                known = [hope for hope in hopes if hope.done()] if self._loop.time() < give_up_s else list(hopes)
                await self._take_announced([hopes[hope] for hope in known])
                for hope in known:
                    hope.cancel()
                    del hopes[hope]
        finally:
            for hope in hopes:
                hope.cancel()

    async def _take_announced(self, orders: list[_Arrived]) -> None:
        for arrived in orders:
            self._unannounced.remove(arrived.order.number)
        try:
            await self._take(orders)
        except TransferRefused as refused:
            for arrived in orders:
                self._note_outcome(arrived.order, refused)
            self._wake()
        finally:
            self._unannounced_bytes -= sum(len(arrived.data) for arrived in orders)

    async def _take(self, arrived: Iterable[_Arrived]) -> None:
        orders = list(arrived)
        if not orders:
            return
        taken: list[_Taken | TransferRefused]
        taken = [one.outcome for one in orders if isinstance(one.outcome, TransferRefused)]
        if len(taken) < len(orders):
            taken = await self._ask(self._stage, orders)
        for one, outcome in zip(orders, taken, strict=True):
            self._port.counters["received_bytes"] += len(one.data)
            self._note_outcome(one.order, outcome)
        self._wake()
        pairs = list(zip(orders, taken, strict=True))
        taken_bytes = sum(len(one.data) for one, outcome in pairs if isinstance(outcome, _Taken))
        refused = sum(isinstance(outcome, TransferRefused) for _, outcome in pairs)
        rest_s = self._port.ingress.take(taken_bytes, self._loop.time())
        await asyncio.sleep(max(rest_s, _REFUSED_S * refused))

    def _note_outcome(self, order: Beginning, outcome: _Taken | TransferRefused) -> None:
        if isinstance(outcome, TransferRefused):
            self._port.log_refusal("order", outcome)
            self._answers.append(frames.encode(frames.Refuse(outcome.reason, str(outcome), order.number)))
            if outcome.reason in _FORGED:
                self._forged += 1
                if self._forged >= _MOST_FORGED:
                    raise TransferRefused(outcome.reason, f"{self._forged} orders without a token for this host")
            return
        if isinstance(order, frames.Order):
            self._port.counters["staged"] += 1
        self._open[order.number] = outcome
        self._port.connections.work(self._connection)
        outcome.end.add_done_callback(lambda _: self._note_end(order.number))

    def _stage(self, orders: Sequence[_Arrived]) -> list[_Taken | TransferRefused]:
        """Pass the valid orders to the handler; called in a worker thread."""
        outcomes = [_intact(arrived) for arrived in orders]
        granted = {place: grant for place, grant in enumerate(outcomes) if isinstance(grant, TransferGrant)}
        fresh = self._port.ledger.use([(grant.token_id, grant.deadline_s) for grant in granted.values()])
        for place, good in zip(granted, fresh, strict=True):
            if not good:
                outcomes[place] = TransferRefused("reused_token", "the token was already used; request a new one")
        inputs = {
            place: SmallInput(outcome, orders[place].data)
            for place, outcome in enumerate(outcomes)
            if isinstance(outcome, TransferGrant) and outcome.purpose == "send"
        }
        for place, refusal in zip(inputs, self._port.handler.stage_small(list(inputs.values())), strict=True):
            if refusal is not None:
                outcomes[place] = refusal
        return [self._expect_end(outcome) for outcome in outcomes]

    def _expect_end(self, outcome: TransferGrant | TransferRefused) -> _Taken | TransferRefused:
        if isinstance(outcome, TransferRefused):
            return outcome
        try:
            return _Taken(outcome, self._port.handler.result(outcome))
        except TransferRefused as refused:
            return refused

    # Answering

    def _note_end(self, number: int) -> None:
        """Queue the notification that a job has ended; any thread may call this."""
        self._ended.append(number)
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._due.set()

    async def _answer(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._port.limits.keepalive_s):
                    await self._due.wait()
            except TimeoutError:
                self._answers.append(frames.encode(frames.KeepAlive()))
            self._due.clear()
            self._waking = False
            ended, self._ended = self._ended, []
            answers, self._answers = self._answers, []
            await self._stream.send_bytes(b"".join(answers + [self._notify_end(number) for number in ended]))

    def _notify_end(self, number: int) -> bytes:
        taken = self._open.pop(number)
        if not self._open:
            self._port.connections.rest(self._connection)
        if taken.end.cancelled():
            return frames.encode(frames.Refuse("internal_error", "this job is no longer expected to complete", number))
        match taken.end.result():
            case JobFailure(code=code, message=message):
                return frames.encode(frames.Failed(code, message, number))
            case JobResult(data=None):
                return frames.encode(frames.Held(number))
            case JobResult(data=data) as result:
                self._unconfirmed[number] = taken.grant
                self._port.counters["sent_bytes"] += result.size_bytes
                head = frames.encode(frames.Result(result.size_bytes, result.sha256, number))
                return head + (frames.encode_data_header(len(data)) + data if data else b"")


def _intact(arrived: _Arrived) -> TransferGrant | TransferRefused:
    """Return the outcome of an order; a refusal if its input does not match its digest."""
    order, outcome = arrived.order, arrived.outcome
    if not isinstance(order, frames.Order) or isinstance(outcome, TransferRefused):
        return outcome
    if hashlib.sha256(arrived.data).hexdigest() != order.sha256:
        return TransferRefused("digest_mismatch", "the input was corrupted in transit")
    return outcome
