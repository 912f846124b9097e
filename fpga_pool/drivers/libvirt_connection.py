"""A libvirt connection that is re-established whenever it is lost, and libvirt's events."""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import libvirt

from fpga_pool.model.exceptions import FpgaPoolError, NotFound, ServiceUnavailable

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: An unresponsive connection is given up after interval x count.
KEEPALIVE_S, KEEPALIVE_COUNT = 5, 3
#: Interval of attempts to reconnect, and of the event loop's checks whether to end, in seconds.
RECONNECT_S = 1.0


class LibvirtConnection:
    """A connection to one libvirtd. Thread-safe."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None
        self._changed: Callable[[str], object] = lambda _: None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._listens = False
        libvirt.registerErrorHandler(lambda *_: None, None)  # errors are raised; nothing goes to standard error
        libvirt.virEventRegisterDefaultImpl()

    def watch(self, changed: Callable[[str], object]) -> None:
        """Start calling `changed` with the uuid of each domain whose state changes; "" if any of them may have."""
        self._changed = changed
        self._thread = threading.Thread(target=self._stay_connected, name="libvirt-connection", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the connection and end its threads."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * RECONNECT_S)
            self._thread = None
        with self._lock:
            self._disconnect()
            if self._listens:
                self._listens = False
                _EVENTS.leave()

    def lookup(self, uuid: str) -> Any:
        """Return a domain. Raises NotFound if it does not exist."""
        return self.call(lambda connection: connection.lookupByUUIDString(uuid))

    def active(self) -> list[Any]:
        """Return all running domains."""
        found: list[Any] = self.call(lambda made: made.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE))
        return found

    def read_active(self, read: Callable[[Any], T | None]) -> list[T]:
        """Apply `read` to the running domains; return the results other than None. Invalid domains are logged."""
        found = []
        for domain in self.active():
            try:
                about = read(domain)
            except NotFound:
                continue  # it has just ended
            except FpgaPoolError as error:
                LOG.warning("ignoring a guest: %s", error)
            else:
                found += [about] if about is not None else []
        return found

    def call(self, work: Callable[[Any], Any]) -> Any:
        """Call `work` with the connection. Raises NotFound if a domain is gone, ServiceUnavailable on other errors."""
        try:
            return work(self._connected())
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                raise NotFound(str(error)) from error
            raise ServiceUnavailable(f"libvirt: {error}") from error

    def _connected(self) -> Any:
        with self._lock:
            if self._connection is None or not self._connection.isAlive():
                self._disconnect()
                self._connect()
            return self._connection

    def _connect(self) -> None:
        if not self._listens:  # libvirtd's keepalive messages are answered by the event loop
            self._listens = True
            _EVENTS.join()
        connection = libvirt.open(self._uri)
        connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
        lifecycle = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE
        connection.domainEventRegisterAny(None, lifecycle, self._on_event, None)
        self._connection = connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except libvirt.libvirtError as error:
                LOG.debug("libvirt: %s", error)
            self._connection = None

    def _on_event(self, _connection: Any, domain: Any, event: int, detail: int, _opaque: object) -> None:
        LOG.debug("libvirt: event %d (%d) of %s", event, detail, domain.name())
        self._changed(domain.UUIDString())

    def _stay_connected(self) -> None:
        """Reconnect whenever the connection is lost, and report a change of all domains, as events were missed."""
        lost = True
        while not self._ending.wait(0.0 if lost else RECONNECT_S):
            try:
                with self._lock:
                    alive = self._connection is not None and self._connection.isAlive() == 1
                if not alive or lost:
                    self.call(lambda _: None)
                    self._changed("")
                lost = False
            except ServiceUnavailable as error:
                LOG.warning("%s", error)
                lost = True
                self._ending.wait(RECONNECT_S)


class _Events:
    """libvirt's event loop: one per process, in a thread that runs while any connection listens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self) -> None:
        """Register a listener and start the loop if it does not run."""
        with self._lock:
            self._listeners += 1
            if self._thread is None:
                self._ending = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=[self._ending], name="libvirt-events", daemon=True
                )
                self._thread.start()

    def leave(self) -> None:
        """Unregister a listener and stop the loop after the last one."""
        with self._lock:
            self._listeners -= 1
            if self._listeners == 0 and self._thread is not None:
                self._ending.set()
                self._thread.join(2 * RECONNECT_S)
                self._thread = None

    @staticmethod
    def _run(ending: threading.Event) -> None:
        """Process events; a timer wakes the loop regularly to check `ending`."""
        timer = libvirt.virEventAddTimeout(int(RECONNECT_S * 1000), lambda *_: None, None)
        try:
            while not ending.is_set():
                libvirt.virEventRunDefaultImpl()
        finally:
            libvirt.virEventRemoveTimeout(timer)


_EVENTS = _Events()
