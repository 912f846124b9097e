"""Connections that occupy data ports: `python -m support.hostile`, with ports and data to send as JSON on stdin.

Each connection sends its data and reads until it is closed, or closes itself when it has an answer or as soon as its
data is sent.  After a pause it is opened again.  The connections come from as many addresses of 127.0.0.0/8 as
requested, each in another /24.
"""

import hashlib
import json
import selectors
import socket
import sys
import time

from fpga_pool.transfer import frames

POLL_S = 0.05
#: When this program closes a connection: never, when it has an answer, when the data is sent.
STAYS, ANSWERED, SPOKEN = "stays", "answered", "spoken"
#: Printed once all connections have sent their data.
ATTACKING = "attacking"


def stranger(token: str) -> bytes:
    """Return the first message of a client with this token."""
    return frames.encode(frames.Hello(token))


def lane(token: str, data: bytes) -> bytes:
    """Return the messages of a lane for one small job."""
    order = frames.Order(1, token, len(data), hashlib.sha256(data).hexdigest())
    return frames.encode(order) + frames.encode_data_header(len(data)) + data


class Connections:
    """All connections, served by one thread."""

    def __init__(
        self, ports: list[tuple[str, int]], said: list[bytes], pause_s: float, leaves: str, sources: int
    ) -> None:
        self._pause_s, self._leaves, self._sources = pause_s, leaves, sources
        self._ports = ports
        self._said = said
        self._selector = selectors.DefaultSelector()
        self._due = [(0.0, number) for number in range(len(said))]
        self._silent = set(range(len(said)))

    def run(self) -> None:
        while True:
            now_s = time.monotonic()
            for _, number in [due for due in self._due if due[0] <= now_s]:
                self._open(number)
            self._due = [due for due in self._due if due[0] > now_s]
            for key, events in self._selector.select(POLL_S):
                self._serve(key, events)

    def _note(self, number: int) -> None:
        if self._silent:
            self._silent.discard(number)
            if not self._silent:
                print(ATTACKING, flush=True)

    def _open(self, number: int) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        if self._sources:
            source = number % self._sources
            sock.bind((f"127.{1 + source // 256}.{source % 256}.1", 0))
        sock.connect_ex(tuple(self._ports[number % len(self._ports)]))
        self._selector.register(sock, selectors.EVENT_WRITE, number)

    def _serve(self, key: selectors.SelectorKey, events: int) -> None:
        sock, number = key.fileobj, key.data
        assert isinstance(sock, socket.socket)
        try:
            if events & selectors.EVENT_WRITE:
                sock.send(self._said[number])
                self._note(number)
                if self._leaves == SPOKEN:
                    raise ConnectionResetError
                self._selector.modify(sock, selectors.EVENT_READ, number)
            elif not sock.recv(65536) or self._leaves == ANSWERED:
                raise ConnectionResetError
        except OSError:
            self._selector.unregister(sock)
            sock.close()
            self._due.append((time.monotonic() + self._pause_s, number))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    said = [bytes.fromhex(words) for words in given["said"]]
    Connections(given["ports"], said, given["pause_s"], given["leaves"], given["sources"]).run()
