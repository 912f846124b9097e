"""Designs on a host: fetched from the scheduler on demand and cached. Each load needs the scheduler's permission."""

import hashlib
import logging
import os
import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.drivers.slots.base import SlotDriver
from fpga_pool.drivers.slots.bitstream import Bitstream, of_design, write_whole
from fpga_pool.model.catalogue import design_function
from fpga_pool.model.exceptions import BitstreamRefused, ServiceUnavailable
from fpga_pool.model.messages.work import DesignAnswer
from fpga_pool.rpc.identity import is_by
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError

LOG = logging.getLogger(__name__)

#: Number of bitstreams that are cached; the least recently used ones are removed.
KEPT = 64
#: Names of functions, which are used as file names.
_SAFE_NAME = re.compile(r"[a-z0-9_]+\.[0-9a-f]+")


class Designs:
    """Cache of the designs that this host has loaded; thread-safe."""

    def __init__(
        self,
        directory: Path,
        scheduler: SchedulerAPI,
        keys: Sequence[Ed25519PublicKey],
        host: str,
        agent_id: str,
    ) -> None:
        self._directory, self._scheduler, self._keys = directory, scheduler, keys
        self._host, self._agent_id = host, agent_id
        self._keeping = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def fetch(self, function: str, driver: SlotDriver) -> Bitstream:
        """Return the bitstream of a design if the scheduler permits its load now, after the driver has admitted it.

        Raises BitstreamRefused if the design is not approved, or differs from what the scheduler has signed, and
        ServiceUnavailable if no scheduler answers.
        """
        if not _SAFE_NAME.fullmatch(function):
            raise BitstreamRefused(f"{function!r:.100} is not a valid name of a function of a design")
        path = self._directory / f"{function}.bit"
        kept = _content(path)
        nonce = secrets.token_hex(16)
        try:
            answer = self._scheduler.load_design(
                self._host, self._agent_id, function, nonce, hashlib.sha256(kept).hexdigest() if kept else ""
            )
        except MessagingError as error:
            raise ServiceUnavailable(
                f"bitstream of {function}: no scheduler answers the request to load it: {error}"
            ) from None
        except BitstreamRefused:
            with self._keeping:
                path.unlink(missing_ok=True)
            raise
        self._require_granted(answer, function, nonce)
        payload = answer.bitstream or kept
        if hashlib.sha256(payload).hexdigest() != answer.grant.sha256:
            raise BitstreamRefused(f"bitstream of {function}: its digest is not the one that is approved")
        if answer.bitstream:
            try:
                self._keep(path, payload)
            except OSError as error:  # it is fetched again the next time
                LOG.warning("the bitstream of %s cannot be kept: %s", function, error)
        manifest = answer.grant.manifest
        driver.admit(design_function(function, manifest), answer.grant.sha256, manifest.simulates)
        return of_design(manifest, function, payload)

    def _require_granted(self, answer: DesignAnswer, function: str, nonce: str) -> None:
        grant = answer.grant
        if (grant.nonce, grant.host, grant.function) != (nonce, self._host, function):
            raise BitstreamRefused(f"bitstream of {function}: the scheduler's permission is for another load")
        if not any(is_by(key, answer.signature, grant.signed()) for key in self._keys):
            raise BitstreamRefused(f"bitstream of {function}: the permission to load it is not signed by a scheduler")

    def _keep(self, path: Path, payload: bytes) -> None:
        """Cache a bitstream for later loads, which check its digest; a crash leaves a complete file or none."""
        with self._keeping:
            write_whole(path, payload)
            oldest = sorted((one.stat().st_mtime, one) for one in self._directory.iterdir())
            for _, one in oldest[:-KEPT]:
                one.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    try:
        os.utime(path)
        return path.read_bytes()
    except FileNotFoundError:
        return b""
