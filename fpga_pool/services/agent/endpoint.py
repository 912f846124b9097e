"""The agent's side of its RPC interface (`rpc.agent_api`)."""

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.drivers.slots.bitstream import BitstreamLibrary, is_signed, verify
from fpga_pool.model.catalogue import Catalogue, Function
from fpga_pool.model.exceptions import BitstreamRefused, NotFound
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.model.objects.history import Cause
from fpga_pool.rpc.identity import key_text
from fpga_pool.rpc.tracing import on_behalf_of
from fpga_pool.rpc.transport import TARGET, Refusals, answers
from fpga_pool.services.agent.service import AgentService

LOG = logging.getLogger(__name__)

#: How long results about the library are cached, because each check reads all of it.
REMEMBERED_S = 10.0


class AgentEndpoint:
    """Receives commands from schedulers."""

    target = TARGET

    def __init__(self, service: AgentService) -> None:
        self._service = service

    @answers
    def execute(self, context: dict[str, Any], shard: str, epoch: int, commands: list[Command]) -> list[Outcome]:
        outcomes = self._service.execute(shard, epoch, commands)
        note_outcomes(self._service.settings.host, commands, outcomes, self._service.refusals)
        return outcomes


def note_outcomes(host: str, commands: Sequence[Command], outcomes: Sequence[Outcome], refusals: Refusals) -> None:
    """Log one line for all accepted commands of a request; log and count each command with another outcome.

    Must be called in a thread that answers a call.
    """
    accepted: dict[Cause, Counter[str]] = {}
    for command, outcome in zip(commands, outcomes, strict=True):
        if outcome.outcome == "accepted":
            if any(command.cause):
                accepted.setdefault(command.cause, Counter())[type(command.action).__name__] += 1
            continue
        refusals.note(f"fpga_pool.command_{outcome.outcome}")
        with on_behalf_of(command.cause):
            LOG.warning("%s command %s: %s", outcome.outcome, outcome.command, outcome.reason or "already done")
    for cause, counts in accepted.items():
        with on_behalf_of(cause):
            LOG.info("host %s: accepted %s", host, ", ".join(f"{count} {what}" for what, count in counts.items()))


class LibraryEndpoint:
    """Reports which bitstreams of the catalogue this host can load."""

    target = TARGET

    def __init__(self, library: BitstreamLibrary, catalogue: Catalogue, trusted_key: Ed25519PublicKey) -> None:
        self._library, self._catalogue, self._key = library, catalogue, trusted_key
        #: By board: the time of the last check, and its result.
        self._seen: dict[str, tuple[float, list[BitstreamInfo]]] = {}
        self._lock = threading.Lock()

    @answers
    def bitstreams(self, context: dict[str, Any], board: str) -> list[BitstreamInfo]:
        with self._lock:
            seen_s, found = self._seen.get(board, (0.0, []))
            if board not in self._seen or time.monotonic() - seen_s > REMEMBERED_S:
                loadable = self._catalogue.loadable(self._catalogue.board(board))
                found = [self._manifest_of(function, board, kind) for function, kind in loadable]
                self._seen[board] = time.monotonic(), found
            return found

    def _manifest_of(self, function: Function, board: str, kind: str) -> BitstreamInfo:
        info = BitstreamInfo(function=function.name, version=function.version, board=board, kind=kind)
        try:
            bitstream = self._library.read(function.name, board, kind)
        except (NotFound, BitstreamRefused) as error:
            return replace(info, reason=str(error))
        except OSError as error:
            return replace(info, reason=f"cannot be read: {error.strerror}")
        info = replace(
            info,
            size_bytes=len(bitstream.payload),
            sha256=hashlib.sha256(bitstream.payload).hexdigest(),
            signer=key_text(self._key) if is_signed(bitstream, self._key) else "",
        )
        try:
            verify(bitstream, self._key, board, kind, function)
        except BitstreamRefused as error:
            return replace(info, reason=str(error))
        return replace(info, verified=True)
