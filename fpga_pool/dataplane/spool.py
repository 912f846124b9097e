"""The file an input grows in until it is complete.  All methods block; the session calls them in a worker thread."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fpga_pool.model.exceptions import TransferRefused

_HASH_STEP_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TransferRefused("storage_full", "the responder's spool is full; the job must go elsewhere") from error
        raise TransferRefused(
            "storage_error", f"the responder cannot spool: {os.strerror(error.errno or 0)}"
        ) from error


class Spool:
    """One input on its way: ``PATH.part`` while it is incomplete, ``PATH`` when length and digest are right."""

    def __init__(self, path: Path, input_bytes: int) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._input_bytes = input_bytes
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._found_bytes = 0
        #: How much is written and in the digest.
        self.size_bytes = 0

    def open(self) -> None:
        """Open what an earlier stream left, or a new file."""
        with _storage_errors():
            if self._path.exists():
                # Complete, but the agent died before it took note: the digest is checked again, no byte is sent again.
                self._path.replace(self._part)
            descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
            self._found_bytes = os.fstat(descriptor).st_size
            if self._found_bytes > self._input_bytes:
                self._file.truncate(0)
                self._found_bytes = 0

    def hash_found(self) -> bool:
        """Take some more of what was found into the digest; True when all of it is."""
        step_end = min(self._found_bytes, self.size_bytes + _HASH_STEP_BYTES)
        with _storage_errors():
            while self.size_bytes < step_end:
                block = self._opened.read(min(_BLOCK_BYTES, step_end - self.size_bytes))
                if not block:
                    raise OSError(errno.EIO, "the partial input became shorter while it was read")
                self._digest.update(block)
                self.size_bytes += len(block)
        return self.size_bytes == self._found_bytes

    def write(self, piece: memoryview) -> None:
        """Append a piece of the input."""
        self._digest.update(piece)
        self.size_bytes += len(piece)
        with _storage_errors():
            while piece:
                piece = piece[self._opened.write(piece) :]

    def finish(self, sha256: str) -> None:
        """Make the input durable under its final name, if it is what the client meant to send."""
        if self.size_bytes < self._input_bytes:
            raise TransferRefused("short", f"the input ends after {self.size_bytes} of {self._input_bytes} bytes")
        if self._digest.hexdigest() != sha256:
            raise TransferRefused("digest_mismatch", "the bytes that arrived are not those that were sent; send again")
        with _storage_errors():
            os.fsync(self._opened.fileno())
            self._part.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def discard(self) -> None:
        """Remove what is there; it will not be continued."""
        with _storage_errors():
            self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what is incomplete stays for the next stream."""
        if self._file is not None:
            self._file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None, "open() comes first"  # noqa: S101
        return self._file
