"""One connection of a data port, from the first frame to the last. `frames` describes the exchange."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fpga_pool.model.exceptions import StorageFull, TransferRefused
from fpga_pool.model.values import changed
from fpga_pool.transfer import frames
from fpga_pool.transfer.connections import Connection
from fpga_pool.transfer.handler import JobFailure, JobResult
from fpga_pool.transfer.lane import Lane
from fpga_pool.transfer.port import Port, Spool, TokenBucket, check_first, no_hello
from fpga_pool.transfer.schedule import NoLimit, Pacer, RateSchedule
from fpga_pool.transfer.stream import FrameStream
from fpga_pool.transfer.tokens import TransferGrant

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Refusal reasons of the server itself; a handler may add others.  They never change once released.
REASONS = (
    "bad_frame", "bad_signature", "busy", "digest_mismatch", "disconnected", "expired", "internal_error",
    "missing_token", "no_hello", "no_tls", "oversized", "result_timeout", "reused_token", "short", "stalled",
    "storage_error", "storage_full", "wrong_host", "wrong_purpose",
)  # fmt: skip

#: Reasons after which the bytes received so far are kept for the next stream.
_CONTINUABLE = frozenset({"short", "stalled"})


class Session:
    """The exchange with one client, whose end of the connection is `source` (`tokens.source_of`)."""

    def __init__(self, port: Port, stream: FrameStream, connection: Connection, source: str) -> None:
        self._port = port
        self._source = source
        self._connection = connection
        self._stream = stream
        self._job = "-"

    async def run(self) -> None:
        """Serve the client until the exchange ends; errors are logged and sent to the client."""
        try:
            await self._converse()
        except TransferRefused as refused:
            await self._refuse(refused)
        except frames.BadFrame as error:
            await self._refuse(TransferRefused("bad_frame", str(error)))
        except TimeoutError:
            await self._refuse(TransferRefused("stalled", "the client does not read"))
        except (EOFError, OSError):
            self._port.counters["disconnected"] += 1
            LOG.debug("job %s: the client has disconnected", self._job)
        except Exception:
            LOG.exception("job %s: the data port failed", self._job)
            await self._refuse(
                TransferRefused("internal_error", "internal error of the responder; its log has the details")
            )

    async def _converse(self) -> None:
        first = await self._hear_first()
        if isinstance(first, frames.Order | frames.Fetch):
            await Lane(self._port, self._stream, self._connection, self._ask).run(first)
            return
        grant = await self._identify(first)
        self._job = grant.job
        if grant.purpose == "send":
            await self._take_input(grant)
        await self._give_result(grant)

    async def _hear_first(self) -> frames.Hello | frames.Order | frames.Fetch:
        timeout_s = self._port.limits.hello_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                first = await self._stream.read()
        except TimeoutError:
            raise no_hello(timeout_s) from None
        return check_first(first)

    async def _identify(self, hello: frames.Hello) -> TransferGrant:
        port = self._port
        grant = port.verify(hello.token, self._connection)
        port.connections.prove(self._connection, grant.project_id, grant.job)
        await self._announced(grant)
        if not all(await self._ask(port.ledger.use, [(grant.token_id, grant.deadline_s)])):
            raise TransferRefused("reused_token", "the token was already used; request a new one from the scheduler")
        return grant

    async def _announced(self, grant: TransferGrant) -> None:
        """Wait until the job is known, if its command is slower than its client; this occupies no worker thread."""
        waiting = self._port.handler.announcement(grant)
        if waiting is not None:
            await asyncio.wait({asyncio.wrap_future(waiting)}, timeout=self._port.limits.announcement_s)
            waiting.cancel()

    async def _take_input(self, grant: TransferGrant) -> None:
        if grant.job in self._port.receiving:
            raise TransferRefused("busy", "another stream is already sending this job's input")
        self._port.receiving.add(grant.job)
        try:
            sha256 = await self._spool_input(grant)
        finally:
            self._port.receiving.discard(grant.job)
        await self._ask(self._port.handler.staged, grant, sha256, grant.input_bytes)
        self._port.counters["staged"] += 1
        LOG.info("job %s: input staged, %d bytes", grant.job, grant.input_bytes)
        await self._stream.send(frames.Staged(grant.input_bytes))

    async def _spool_input(self, grant: TransferGrant) -> str:
        admission = await self._ask(self._port.handler.admit, grant)
        source = self._held_source(grant)
        if source:
            await self._ask(self._port.handler.seen, changed(grant, source=source))
        spool = Spool(admission.spool_path, grant.input_bytes)
        own_rate = TokenBucket(admission.rate_bps, self._now_s())
        try:
            await self._work(spool.open)
            await self._hash_found(spool)
            await self._stream.send(frames.Accept(spool.size_bytes, bool(source)))
            sha256 = await self._receive(grant, spool, own_rate)
            await self._staying_alive(self._work(spool.finish, sha256))
        except TransferRefused as refused:
            if refused.reason not in _CONTINUABLE:
                await self._work(spool.discard)
            raise
        finally:
            await self._work(spool.close)
        return sha256

    def _held_source(self, grant: TransferGrant) -> str:
        """Return the source by which the requester's host knows this stream; "" if that host does not limit it.

        The source that a client announced must equal the one seen here.  Exception: at the tap of a server a client can
        only announce its own flows, so its source is accepted if the address was translated on the way.
        """
        translated = grant.source.rpartition(":")[0] != self._source.rpartition(":")[0]
        if grant.tap:
            return grant.source if translated else self._source
        return self._source if grant.source == self._source else ""

    async def _hash_found(self, spool: Spool) -> None:
        said_s = self._now_s()
        while spool.size_bytes < spool.found_bytes:
            async with self._port.hashing:
                await self._work(spool.hash_found)
            if self._now_s() - said_s >= self._port.limits.keepalive_s:
                await self._stream.send(frames.KeepAlive())
                said_s = self._now_s()

    async def _receive(self, grant: TransferGrant, spool: Spool, own_rate: TokenBucket) -> str:
        """Spool data until the trailer; return its digest.  Raises TransferRefused if the stream breaks."""
        try:
            return await self._receive_until_trailer(grant, spool, own_rate)
        except TimeoutError:
            raise TransferRefused("stalled", f"no data within {self._port.limits.stall_timeout_s:g} s") from None
        except (EOFError, OSError):
            message = f"the stream ended after {spool.size_bytes} of {grant.input_bytes} bytes"
            raise TransferRefused("short", message) from None
        except frames.BadFrame as error:
            raise TransferRefused("bad_frame", str(error)) from None

    async def _receive_until_trailer(self, grant: TransferGrant, spool: Spool, own_rate: TokenBucket) -> str:
        data_seen_s = self._now_s()
        begun = False
        while True:
            match await self._stream.read():
                case frames.Header(length=length):
                    if spool.size_bytes + length > grant.input_bytes:
                        raise TransferRefused("oversized", f"more than the granted {grant.input_bytes} bytes")
                    if not begun:
                        await self._ask(self._port.handler.progress, grant, spool.size_bytes)
                        begun = True
                    await self._receive_data(grant, spool, length, own_rate)
                    data_seen_s = self._now_s()
                case frames.KeepAlive():
                    if self._now_s() - data_seen_s > self._port.limits.hold_timeout_s:
                        raise TransferRefused("stalled", f"no data within {self._port.limits.hold_timeout_s:g} s")
                case frames.Trailer(sha256=sha256):
                    return sha256
                case other:
                    raise frames.BadFrame(f"{other.type}: not allowed while an input is sent")

    async def _receive_data(self, grant: TransferGrant, spool: Spool, length: int, own_rate: TokenBucket) -> None:
        port = self._port
        while length > 0:
            piece = await self._stream.read_data(length)
            length -= len(piece)
            await self._work(self._keep, grant, spool, piece)
            port.counters["received_bytes"] += len(piece)
            now_s = self._now_s()
            wait_s = max(port.ingress.take(len(piece), now_s), own_rate.take(len(piece), now_s))
            if wait_s > 0:
                await asyncio.sleep(wait_s)

    def _keep(self, grant: TransferGrant, spool: Spool, piece: memoryview) -> None:
        spool.write(piece)
        self._guarded(self._port.handler.progress, grant, spool.size_bytes)

    async def _give_result(self, grant: TransferGrant) -> None:
        match await self._await_end(grant):
            case JobFailure(code=code, message=message):
                await self._stream.send(frames.Failed(code, message))
                await self._stream.linger(self._port.limits.linger_s)
            case JobResult() as result:
                await self._send_result(result)
                answer = await self._stream.read()
                if not isinstance(answer, frames.ResultReceived):
                    raise frames.BadFrame("expected result_received")
                if grant.purpose != "copy":
                    await self._ask(self._port.handler.delivered, [grant])
                self._port.counters["delivered"] += 1
                LOG.info("job %s: result delivered, %d bytes", grant.job, result.size_bytes)

    async def _await_end(self, grant: TransferGrant) -> JobResult | JobFailure:
        """Wait for the job's end until the client disconnects or the timeout; the handler keeps the result."""
        end = asyncio.wrap_future(await self._ask(self._port.handler.result, grant))
        gone = asyncio.create_task(self._stream.wait_closed_by_peer())
        either: set[asyncio.Future[Any]] = {end, gone}
        deadline_s = self._now_s() + self._port.limits.result_timeout_s
        try:
            while not end.done():
                wait_s = min(self._port.limits.keepalive_s, deadline_s - self._now_s())
                if wait_s <= 0:
                    raise TransferRefused("result_timeout", "the job has not ended yet; fetch its result later")
                await asyncio.wait(either, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    gone.result()
                    raise EOFError
                if not end.done():
                    await self._stream.send(frames.KeepAlive())
            if end.cancelled():
                raise TransferRefused("internal_error", "the responder no longer expects this job to complete")
            return end.result()
        finally:
            end.cancel()
            gone.cancel()
            await _settled(gone)

    async def _send_result(self, result: JobResult) -> None:
        await self._stream.send(frames.Result(result.size_bytes, result.sha256))
        if result.size_bytes == 0:
            return  # the client may disconnect after the header, and no file needs to be opened
        if result.data is not None:
            await self._stream.send_data(result.data)
            return
        pacer = self._pacer_of(result)
        file = await self._work(_open, result.path)
        try:
            left_bytes = result.size_bytes
            while left_bytes > 0:
                piece = await self._work(file.read, await self._quota(pacer, min(frames.MAX_DATA_BYTES, left_bytes)))
                if not piece:
                    raise TransferRefused("internal_error", "the result file was truncated")
                await self._stream.send_data(piece)
                pacer.sent(len(piece))
                left_bytes -= len(piece)
                self._port.counters["sent_bytes"] += len(piece)
        finally:
            await self._work(file.close)

    def _pacer_of(self, result: JobResult) -> Pacer:
        """Return the pacer of a result, whose planned rates start at the end of the computation."""
        anchor_s = self._now_s() - (self._port.clock() - result.ended_at)
        return Pacer(
            RateSchedule(result.transfer),
            NoLimit(),
            result.size_bytes,
            anchor_s=anchor_s,
            clock=self._now_s,
            # The plan used a predicted size; any excess follows at the last rate.
            from_first_byte=True,
        )

    async def _quota(self, pacer: Pacer, wanted_bytes: int) -> int:
        """Wait until the pacer permits bytes and return how many of `wanted_bytes`; send keepalives meanwhile."""
        said_s = self._now_s()
        while not (allowed_bytes := pacer.quota(wanted_bytes)):
            await asyncio.sleep(min(pacer.hold_s(), self._port.limits.keepalive_s))
            if self._now_s() - said_s >= self._port.limits.keepalive_s:
                await self._stream.send(frames.KeepAlive())
                said_s = self._now_s()
        return allowed_bytes

    async def _refuse(self, refused: TransferRefused) -> None:
        self._port.log_refusal(f"job {self._job}", refused)
        stranger = self._connection.is_strangers
        with contextlib.suppress(OSError, TimeoutError):
            if not stranger or self._port.error_replies.take(self._now_s()):
                await self._stream.send(frames.Refuse(refused.reason, str(refused)))
            if stranger and (sock := self._stream.detach()):
                self._port.held.hold(sock, self._connection.address)
            else:
                await self._stream.linger(self._port.limits.linger_s)

    async def _ask(self, question: Callable[..., T], *args: object) -> T:
        return await self._work(self._guarded, question, *args)

    def _guarded(self, question: Callable[..., T], *args: object) -> T:
        """Call the handler, and turn its unexpected errors into refusals."""
        try:
            return question(*args)
        except TransferRefused:
            raise
        except StorageFull as error:
            raise TransferRefused("storage_full", str(error)) from error
        except Exception:
            LOG.exception("job %s: the handler failed", self._job)
            raise TransferRefused(
                "internal_error", "internal error of the responder; its log has the details"
            ) from None

    async def _work(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in a worker thread. Waits for it even if cancelled, so that no thread uses a closed file."""
        future = asyncio.get_running_loop().run_in_executor(self._port.workers, function, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await _settled(future)
            raise

    async def _staying_alive(self, work: Awaitable[T]) -> T:
        """Await work that is completed even if the client is gone, and send keepalives meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._port.limits.keepalive_s)
                if not task.done():
                    with contextlib.suppress(OSError, TimeoutError):
                        await self._stream.send(frames.KeepAlive())
            return task.result()
        finally:
            await _settled(task)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


async def _settled(future: "asyncio.Future[Any]") -> None:
    """Wait until the future is done, and discard its outcome."""
    await asyncio.wait({future})
    if not future.cancelled():
        future.exception()
