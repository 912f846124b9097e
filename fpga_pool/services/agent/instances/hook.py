"""Where libvirt's qemu hook asks whether a machine may start: a unix socket, one JSON object each way."""

import json
import logging
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

LOG = logging.getLogger(__name__)

#: The description of a machine is a few thousand bytes.
MAX_BYTES = 4 << 20
#: A question is asked and its answer taken within this.
TALK_S = 10.0
#: How soon the server sees that it shall end.
LOOK_S = 0.1

#: operation, description of the machine -> nothing, or an error that says why not
Asked = Callable[[str, str], None]


class HookServer:
    """Answers in a thread for each question."""

    def __init__(self, path: Path, asked: Asked) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.unlink(missing_ok=True)
        self._server = _Server(str(path), asked)
        path.chmod(0o600)
        self._path = path
        self._thread = threading.Thread(target=self._server.serve_forever, args=[LOOK_S], name="hook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    #: A question under way is answered even while we end, or found unanswered, which fails its start.
    block_on_close = False

    def __init__(self, path: str, asked: Asked) -> None:
        self.asked = asked
        super().__init__(path, _Handler)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server
    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(TALK_S)
        try:
            self.request.sendall(json.dumps(self._answer()).encode())
        except OSError as error:
            LOG.warning("the hypervisor's hook did not wait for its answer: %s", error)

    def _answer(self) -> dict[str, Any]:
        try:
            self._require_trust()
            operation, domain = self._question()
            self.server.asked(operation, domain)
        except FpgaPoolError as error:
            return {"error": str(error)}
        except Exception:
            LOG.exception("a question of the hypervisor's hook failed")
            return {"error": "the agent failed; its log says how"}
        return {}

    def _require_trust(self) -> None:
        """Refuse whoever is neither root nor the user of this process."""
        credentials = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (0, os.getuid()):
            raise InvalidInput(f"user {uid} may not ask")

    def _question(self) -> tuple[str, str]:
        data = b""
        while part := self.request.recv(1 << 16):
            data += part
            if len(data) > MAX_BYTES:
                raise InvalidInput(f"the question is longer than {MAX_BYTES} bytes")
        try:
            question = json.loads(data)
            return str(question["operation"]), str(question["domain"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"the question cannot be read: {error!r}") from error
