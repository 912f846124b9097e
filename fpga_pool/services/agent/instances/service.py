"""Instances of a host that use its slots, and the socket on which libvirt's qemu hook asks whether a guest may start.

It is a Unix socket with one JSON object in each direction.
"""

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

from fpga_pool.drivers.guests.domain import parse
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, ServiceUnavailable
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.agent.instances.supervisor import POLL_S, InstanceSupervisor, Parts, Taps
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)


# ---- The hook's socket

#: Largest request; the description of a machine normally has a few thousand bytes.
MAX_BYTES = 4 << 20
#: Timeout for receiving a request and for sending its answer.
TALK_S = 10.0
#: Interval at which the server checks whether it is to stop.
HOOK_LOOK_S = 0.1

#: Called with an operation and the description of a machine; raises an error with the reason to refuse it.
Asked = Callable[[str, str], None]


class HookServer:
    """Answers each request of the hook in its own thread."""

    def __init__(self, path: Path, asked: Asked) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.unlink(missing_ok=True)
        self._server = _Server(str(path), asked)
        path.chmod(0o600)
        self._path = path
        self._thread = threading.Thread(target=self._server.serve_forever, args=[HOOK_LOOK_S], name="hook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and remove the socket."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    #: A request in progress may stay unanswered when the agent stops; the start of its machine fails then.
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
            LOG.warning("the hypervisor's hook disconnected before the reply: %s", error)

    def _answer(self) -> dict[str, Any]:
        try:
            self._require_trust()
            operation, domain = self._question()
            self.server.asked(operation, domain)
        except FpgaPoolError as error:
            return {"error": str(error)}
        except Exception:
            LOG.exception("a request of the hypervisor's hook failed")
            return {"error": "internal error of the agent; its log has the details"}
        return {}

    def _require_trust(self) -> None:
        """Refuse users other than root and the user of this process."""
        credentials = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (0, os.getuid()):
            raise InvalidInput(f"user {uid} is not allowed to use this socket")

    def _question(self) -> tuple[str, str]:
        data = b""
        while part := self.request.recv(1 << 16):
            data += part
            if len(data) > MAX_BYTES:
                raise InvalidInput(f"the request is longer than {MAX_BYTES} bytes")
        try:
            question = json.loads(data)
            return str(question["operation"]), str(question["domain"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidInput(f"invalid request: {error!r}") from error


# ---- Instances


class Instances:
    """Answers the hypervisor's hook, and supervises every instance that has or should have slots.

    `start` and `stop` are called once each.
    """

    def __init__(self, parts: Parts, hook_socket: Path, taps: Taps) -> None:
        self._parts = parts
        self._taps = taps
        self._hook_socket = hook_socket
        self._lock = threading.Lock()
        self._supervisors: dict[str, InstanceSupervisor] = {}
        self._hook: HookServer | None = None
        self._inspecting = Loop(f"instances-{parts.host}", self._inspect_holds, POLL_S)

    def start(self) -> None:
        """Answer the hook, and supervise the instances for which slots are reserved."""
        self._hook = HookServer(self._hook_socket, self.asked)
        self._inspecting.start()
        self._taps.start()
        self._parts.driver.watch(self.changed)

    def stop(self) -> None:
        """Stop; guests keep their slots and ports, and are served again after the next start."""
        if self._hook is not None:
            self._hook.close()
        self._inspecting.stop()
        self._taps.stop()
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.close()
        self._parts.driver.close()

    def asked(self, operation: str, xml: str) -> None:
        """Handle a request of the hypervisor's hook; an error keeps the machine from starting."""
        domain = parse(xml)
        if operation == "release":
            self.changed(domain.instance, ended=True)
        elif domain.request is not None:
            try:
                self._supervisor(domain.instance, begins=True).prepare(domain)
            except MessagingError as error:
                raise ServiceUnavailable(f"the pool's scheduler does not answer: {error}") from error
            except FpgaPoolError as error:
                LOG.warning("instance %s: start refused: %s", domain.instance, error)
                raise

    def changed(self, instance: str, *, ended: bool = False) -> None:
        """Check an instance that may have started or ended; "" = all instances."""
        self._taps.wake()
        if not instance:
            self._inspect_all()
            return
        with self._lock:
            supervisor = self._supervisors.get(instance)
        if supervisor is not None and ended:
            supervisor.ended()
        elif supervisor is not None:
            supervisor.wake()

    def _inspect_all(self) -> None:
        """Check all instances, also those that run with an accelerator flavor but without reserved slots."""
        try:
            for domain in self._parts.driver.running():
                if domain.request is not None:
                    self._supervisor(domain.instance)
        except FpgaPoolError as error:
            LOG.warning("%s", error)
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.wake()

    def _inspect_holds(self) -> bool:
        """Supervise the instances for which slots are reserved."""
        for instance in self._parts.holds.instances():
            self._supervisor(instance)
        return False

    def _supervisor(self, instance: str, *, begins: bool = False) -> InstanceSupervisor:
        with self._lock:
            if instance not in self._supervisors:
                self._supervisors[instance] = InstanceSupervisor(instance, self._parts, self._may_end)
            if begins:
                self._supervisors[instance].begin()
            return self._supervisors[instance]

    def _may_end(self, instance: str) -> bool:
        """Return whether nothing is left to do for an instance, and forget its supervisor then."""
        with self._lock:
            supervisor = self._supervisors.get(instance)
            if supervisor is None or not supervisor.is_idle:
                return False
            del self._supervisors[instance]
            return True
