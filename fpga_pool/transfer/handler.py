"""Interface of the data server to its agent: the server knows bytes and tokens, the agent knows jobs and slots.

Unless stated otherwise, methods are called from worker threads, several at a time, and may block for disk I/O.  Any
of them may raise TransferRefused: the reason is sent to the client and the stream ends.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.transfer.tokens import TransferGrant


@dataclass(frozen=True, slots=True)
class Admission:
    """The destination of an admitted input.

    The server writes to `spool_path` with ``.part`` appended and renames it when the input is complete.  A partial
    input of an earlier stream is continued, so the path must belong to one attempt of one job.
    """

    spool_path: Path
    #: Rate limit of this stream, in addition to the limit of the whole port.
    rate_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class JobResult:
    """A finished job's output on disk."""

    path: Path
    size_bytes: int
    sha256: str
    #: The output itself if it is small; then there is no file.
    data: bytes | None = None
    #: Planned rates of its transfer, in seconds after `ended_at` (UTC); empty = as fast as the client reads.
    transfer: tuple[RateSegment, ...] = ()
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SmallInput:
    """The whole input of a small job, whose digest was checked."""

    grant: TransferGrant
    data: bytes


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The reason why a job ended without output; the code is stable."""

    code: str
    message: str


class TransferHandler(Protocol):
    """The agent, as used by its data port."""

    def announcement(self, grant: TransferGrant) -> "Future[None] | None":
        """Return a future that is done when the agent learns of the grant's job; None if it is known.

        Called on the event loop: it must not block, not even on a lock that is held during disk I/O.
        """

    def admit(self, grant: TransferGrant) -> Admission:
        """Admit a stream with a valid token; refuse it unless job and attempt are current and the input is missing."""

    def seen(self, grant: TransferGrant) -> None:
        """Record that an admitted stream comes from the source in its token."""

    def progress(self, grant: TransferGrant, received_bytes: int) -> None:
        """Record how many bytes have arrived; TransferRefused stops the stream.

        Called when the data of a stream begins, and for every piece that is written, so it must be fast.
        """

    def staged(self, grant: TransferGrant, sha256: str, size_bytes: int) -> None:
        """Record that the input is complete at `Admission.spool_path`; the client is notified afterwards."""

    def result(self, grant: TransferGrant) -> "Future[JobResult | JobFailure]":
        """Return a new future of the job's end; the server cancels it when its client no longer waits."""

    def delivered(self, grants: Sequence[TransferGrant]) -> None:
        """Record that clients have received and checked these results; repeated if one is fetched again."""

    def stage_small(self, inputs: Sequence[SmallInput]) -> list[TransferRefused | None]:
        """Store complete inputs on disk in one step; return the refusal of each, or None.

        An input that is already here is not refused.
        """


class TokenLedger(Protocol):
    """Remembers which tokens were used, across restarts of the agent."""

    def use(self, tokens: Sequence[tuple[str, float]]) -> list[bool]:
        """Mark tokens as used; False for each used before.  Tokens may be forgotten after their deadlines (epoch)."""
