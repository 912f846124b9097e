"""Interface of the data server to its agent: the server knows bytes and tokens, the agent knows jobs and slots.

Methods are called from worker threads, several at a time, and may block for as long as a disk takes, except where they
say otherwise.  Any of them
may raise TransferRefused: the reason is sent to the client and the stream ends.
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
    """Where an admitted input goes.

    The server writes to `spool_path` with ``.part`` appended and renames it when the input is complete; what an
    earlier stream left there is continued, so the path belongs to one attempt of one job.
    """

    spool_path: Path
    #: How fast this stream may be read, beside the limit of the whole port.
    rate_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class JobResult:
    """A finished job's output on disk."""

    path: Path
    size_bytes: int
    sha256: str
    #: The output itself where it is small; there is no file then.
    data: bytes | None = None
    #: How it is planned to flow back, in seconds after `ended_at` (UTC); empty = as fast as the client takes it.
    transfer: tuple[RateSegment, ...] = ()
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SmallInput:
    """The whole input of a small job, its digest checked."""

    grant: TransferGrant
    data: bytes


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job ended without output; the code is stable."""

    code: str
    message: str


class TransferHandler(Protocol):
    """The agent, seen from its data port."""

    def announcement(self, grant: TransferGrant) -> "Future[None] | None":
        """Return a future that ends when the agent hears of the grant's job; None if it has.

        Called on the event loop: it must not wait, not even for a lock that is held while a disk works.
        """

    def admit(self, grant: TransferGrant) -> Admission:
        """Decide about a stream whose token is good: the job is known, the attempt current, its input not yet here."""

    def seen(self, grant: TransferGrant) -> None:
        """Note that an admitted stream comes from the source that its token names."""

    def progress(self, grant: TransferGrant, received_bytes: int) -> None:
        """Note how much is there; a refusal here stops the stream.

        Called when a stream begins to bring data, and for every piece that is written, so it must be quick.
        """

    def staged(self, grant: TransferGrant, sha256: str, size_bytes: int) -> None:
        """Note that the input is complete, on disk, under `Admission.spool_path`; the client is notified afterwards."""

    def result(self, grant: TransferGrant) -> "Future[JobResult | JobFailure]":
        """Return a new future of the job's end; the server cancels it when its client no longer waits."""

    def delivered(self, grants: Sequence[TransferGrant]) -> None:
        """Note that clients have these results, checked; called again if one is fetched again."""

    def stage_small(self, inputs: Sequence[SmallInput]) -> list[TransferRefused | None]:
        """Take whole inputs, all at once; return what is against each of them.

        They are on disk when this returns.  An input that is here already is no reason to refuse it.
        """


class TokenLedger(Protocol):
    """Remembers which tokens were used, across restarts of the agent."""

    def use(self, tokens: Sequence[tuple[str, float]]) -> list[bool]:
        """Mark tokens as used; False for each that was before.  They may be forgotten after their deadlines (epoch)."""
