"""A relay to a server, which tests can interrupt."""

import contextlib
import select
import socket
import threading
import time

import pytest

from support.relay import Relay

WAIT_S = 60.0


@pytest.fixture
def relay():
    """Yield a relay to an echo server."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    while data := client.recv(100):
                        client.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with contextlib.closing(Relay(f"rabbit://user:word@127.0.0.1:{listener.getsockname()[1]}/")) as relay:
            yield relay
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def client(relay):
    before, _, port = relay.url.rstrip("/").rpartition(":")
    assert before == "rabbit://user:word@127.0.0.1"
    with socket.create_connection(("127.0.0.1", int(port)), WAIT_S) as client:
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        yield client


def test_what_is_sent_while_it_is_parted_arrives_when_it_is_healed(relay, client):
    relay.part()
    client.sendall(b"late")
    assert select.select([client], [], [], 0.1)[0] == []
    relay.heal()
    assert client.recv(100) == b"late"


def test_connections_that_are_cut_end_and_new_ones_pass(relay, client):
    relay.part()
    client.sendall(b"lost")
    relay.cut()
    relay.heal()
    with contextlib.suppress(ConnectionError):
        assert client.recv(100) == b""
    with socket.create_connection(client.getpeername(), WAIT_S) as another:
        another.sendall(b"new")
        assert another.recv(100) == b"new"


def test_what_is_delayed_passes_later_and_in_its_order(relay, client):
    delays_s = iter((0.3, 0.0, 0.0, 0.0))
    relay.delay(lambda: next(delays_s, 0.0))
    began_s = time.monotonic()
    client.sendall(b"a")
    select.select([client], [], [], 0.1)  # the relay has it, so that the next byte is delayed separately
    client.sendall(b"b")
    found = b""
    while len(found) < 2:
        found += client.recv(100)
    assert found == b"ab"
    assert time.monotonic() - began_s >= 0.3
