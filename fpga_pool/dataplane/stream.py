"""Frames over an asyncio connection, each wait bounded."""

import asyncio
import contextlib
import socket

from fpga_pool.dataplane import frames

#: Upper bound of one read; asyncio buffers at most twice this per stream before TCP pushes back.
PIECE_BYTES = 128 * 1024


class FrameStream:
    """The server's side of one connection.

    Waits raise TimeoutError when not one byte moved for `stall_timeout_s`; EOFError and OSError mean that the other
    side is gone.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stall_timeout_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._stall_timeout_s = stall_timeout_s
        writer.transport.set_write_buffer_limits(high=PIECE_BYTES)
        sock = writer.get_extra_info("socket")
        # A peer that vanished acknowledges nothing: without this the kernel would try for a quarter of an hour.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * stall_timeout_s))

    async def read(self) -> frames.Frame | frames.Header:
        """Read a control frame, or the header of a data frame, whose body `read_data` returns in pieces."""
        async with asyncio.timeout(self._stall_timeout_s):
            header = frames.decode_header(await self._reader.readexactly(frames.HEADER_BYTES))
        if header.is_data:
            return header
        async with asyncio.timeout(self._stall_timeout_s):
            return frames.decode(await self._reader.readexactly(header.length))

    async def read_data(self, limit: int) -> bytes:
        """Return some bytes of a data frame's body, at most `limit`."""
        async with asyncio.timeout(self._stall_timeout_s):
            piece = await self._reader.read(min(limit, PIECE_BYTES))
        if not piece:
            raise EOFError
        return piece

    async def send(self, frame: frames.Frame) -> None:
        """Send a control frame."""
        self._writer.write(frames.encode(frame))
        await self._drain()

    async def send_data(self, piece: bytes) -> None:
        """Send a data frame."""
        self._writer.writelines([frames.encode_data_header(len(piece)), piece])
        await self._drain()

    async def wait_closed_by_peer(self) -> None:
        """Return when the peer closes; a peer that speaks out of turn is refused."""
        if await self._reader.read(1):
            raise frames.BadFrame("a frame where none may come: the server has the word")

    async def linger(self, timeout_s: float) -> None:
        """Let the peer read our last words: closing while its bytes still arrive would reset the connection."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                while await self._reader.read(PIECE_BYTES):
                    pass

    async def close(self) -> None:
        """Close; what the peer has not taken within the stall timeout is dropped."""
        self._writer.close()
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    async def _drain(self) -> None:
        async with asyncio.timeout(self._stall_timeout_s):
            await self._writer.drain()
