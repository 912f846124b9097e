"""A relay to a server, which can block or delay data, or end connections."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit


class Relay:
    """Forwards connections to the server of a URL, with a thread for each direction; its methods are thread-safe."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._passes = threading.Event()
        self._passes.set()
        self._delay_s: Callable[[], float] = lambda: 0.0
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._begin(self._accept)

    @property
    def url(self) -> str:
        """The server's URL through this relay."""
        before = self._server.netloc.rpartition(":")[0]
        return self._server._replace(netloc=f"{before}:{self._listener.getsockname()[1]}").geturl()

    def part(self) -> None:
        """Block all data; it is delivered after `heal`."""
        self._passes.clear()

    def heal(self) -> None:
        """Deliver the blocked data, and stop blocking."""
        self._passes.set()

    def delay(self, delay_s: Callable[[], float]) -> None:
        """Delay each piece of data by this time; the order within a direction of a connection is kept."""
        self._delay_s = delay_s

    def cut(self) -> None:
        """End all connections; blocked data is lost."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _hang_up(end)

    def close(self) -> None:
        """Close the relay, and end its connections."""
        _hang_up(self._listener)
        self._listener.close()
        self.cut()
        self.heal()

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._begin(self._serve, self._listener.accept()[0])

    def _serve(self, process: socket.socket) -> None:
        with process, contextlib.suppress(OSError):
            address = self._server.hostname, self._server.port
            with socket.create_connection(address) as server:
                with self._lock:
                    self._ends |= {process, server}
                back = threading.Thread(target=self._pump, args=(server, process), daemon=True)
                back.start()
                self._pump(process, server)
                back.join()
                with self._lock:
                    self._ends -= {process, server}

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                if late_s := self._delay_s():
                    time.sleep(late_s)
                sink.sendall(data)
        _hang_up(source)
        _hang_up(sink)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
