"""Refused connections of strangers are held for a while without being read. Few are held, and clients do not wait."""

import io
import socket
import threading

import pytest

from fpga_pool.model.allowance import Allowance
from fpga_pool.transfer import frames, tokens
from fpga_pool.transfer.connections import Connections, Places
from fpga_pool.transfer.port import Door

#: More than the kernel's buffers take. A client whose data are read could send all of it.
UNREAD_BYTES = 64 * 2**20
BAD_HELLO = frames.encode(frames.Hello("no token"))


def talk_until_nothing_is_taken(raw):
    """Send until the kernel accepts no more data, because the other side does not read."""
    raw.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        raw.socket.sendall(bytes(UNREAD_BYTES))


def refused(bench, *said):
    raw = bench.raw()
    raw.say(*said)
    assert isinstance(raw.hear(), frames.Refuse)
    return raw


@pytest.mark.parametrize(
    "said",
    [
        [BAD_HELLO],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [frames.encode(frames.KeepAlive())],
        [frames.encode(frames.Order(1, "forged", 70_000, "0" * 64))],
    ],
)
def test_a_refused_stranger_is_held_and_not_read(make_bench, said):
    bench = make_bench(limits={"held_s": 600.0})
    raw = refused(bench, *said)
    bench.assert_nothing_held()
    talk_until_nothing_is_taken(raw)
    assert len(bench.server._port.held) == 1
    bench.server.stop()
    assert raw.is_closed_by_server()


@pytest.mark.parametrize("begins_tls", [True, False])
def test_a_refused_stranger_on_a_port_with_tls_is_held_and_not_read(make_bench, tls, begins_tls):
    bench = make_bench(tls=tls, limits={"held_s": 600.0})
    raw = bench.raw()
    if begins_tls:
        raw.socket = tls[1].wrap_socket(raw.socket, server_hostname="127.0.0.1")
        raw.say(BAD_HELLO)
        assert raw.hear().reason == "bad_signature"
    else:
        raw.say(BAD_HELLO)
        bench.wait_counted("no_tls")
    bench.wait_idle()
    with raw.socket as above:
        raw.socket = socket.socket(fileno=above.detach())
    talk_until_nothing_is_taken(raw)
    assert len(bench.server._port.held) == 1


def test_a_held_connection_is_closed_in_the_end(bench):
    assert refused(bench, BAD_HELLO).is_closed_by_server()
    assert len(bench.server._port.held) == 0


def test_those_beyond_the_limit_of_an_address_are_closed_at_once_and_clients_are_served(make_bench):
    bench = make_bench(limits={"held_s": 600.0, "places": Places(held_per_address=2)})
    for _ in range(2):
        refused(bench, BAD_HELLO)
    for _ in range(10):
        assert refused(bench, BAD_HELLO).is_closed_by_server()
    assert len(bench.server._port.held) == 2
    bench.send(io.BytesIO(b"data"), 4)
    assert bench.count("staged") == 1


def test_places_of_held_connections_are_for_others_again(make_bench):
    """Each connection is closed after its time or for lack of a place, so none is left."""
    bench = make_bench(limits={"held_s": 0.0, "places": Places(held=1)})
    for _ in range(10):
        assert refused(bench, BAD_HELLO).is_closed_by_server()
    assert len(bench.server._port.held) == 0


def test_a_first_frame_that_comes_in_bytes_is_read_whole(bench):
    raw = bench.raw()
    for byte in frames.encode(frames.Hello(bench.token(4))):
        raw.say(bytes([byte]))
    assert raw.hear() == frames.Accept(0)


def test_a_stranger_that_leaves_before_its_first_frame_is_forgotten(bench):
    raw = bench.raw()
    raw.say(BAD_HELLO[:-1])
    bench.wait_counted("connections")
    raw.close()
    bench.wait_counted("disconnected")
    bench.assert_nothing_held()
    assert len(bench.server._port.held) == 0


@pytest.mark.parametrize("said", [frames.Hello("forged"), frames.Fetch(1, "forged")])
def test_strangers_that_are_many_are_held_without_an_answer_for_which_they_wait(make_bench, said):
    """So a program that closes its connection after each answer and reconnects is slowed down."""
    bench = make_bench(limits={"held_s": 600.0})
    bench.server._port.error_replies = Allowance(at_once=1, per_s=1e-9)
    assert refused(bench, BAD_HELLO)
    raw = bench.raw()
    raw.say(frames.encode(said))
    bench.wait_counted("bad_signature", 2)
    bench.wait_idle()
    assert len(bench.server._port.held) == 2
    bench.send(io.BytesIO(b"data"), 4)
    bench.server.stop()
    assert raw.is_closed_by_server()  # the close is the next event on this connection, so no answer came before


def test_no_token_of_a_client_that_has_hung_up_is_verified(bench, monkeypatch):
    monkeypatch.setattr(tokens.Verifier, "verify", lambda *_: pytest.fail("a token was verified"))
    busy, goes_on = threading.Event(), threading.Event()
    bench.server._serving.get_loop().call_soon_threadsafe(lambda: busy.set() or goes_on.wait(60))
    assert busy.wait(60)
    raw = bench.raw()
    raw.say(BAD_HELLO)
    raw.close()  # before the port can handle it
    goes_on.set()
    bench.wait_counted("disconnected")
    assert bench.count("internal_error") == bench.count("bad_signature") == 0


def test_a_client_that_has_hung_up_takes_no_place_and_is_not_waited_for(bench, monkeypatch):
    """A program that closes at once and reconnects costs no more than accepting and closing."""
    monkeypatch.setattr(Connections, "enter", lambda *_: pytest.fail("a place was taken"))
    monkeypatch.setattr(Door, "_wait", lambda *_: pytest.fail("it was waited for"))
    busy, goes_on = threading.Event(), threading.Event()
    bench.server._serving.get_loop().call_soon_threadsafe(lambda: busy.set() or goes_on.wait(60))
    assert busy.wait(60)
    for said in (BAD_HELLO, b"", BAD_HELLO[:-1]):
        raw = bench.raw()
        raw.say(said)
        raw.close()  # before the port can handle it
    goes_on.set()
    bench.wait_counted("disconnected", 3)
    assert bench.count("busy") == bench.count("bad_signature") == 0


@pytest.mark.parametrize("purpose", ["send", "fetch"])
def test_a_token_is_verified_once(bench, monkeypatch, purpose):
    """The door verifies the first token, and the session or lane uses the result."""
    verified = []

    def verify(verifier, token, *others):
        verified.append(token)
        return tokens_verify(verifier, token, *others)

    tokens_verify = tokens.Verifier.verify
    monkeypatch.setattr(tokens.Verifier, "verify", verify)
    if purpose == "send":
        bench.raw_upload(10)
    else:
        raw = bench.raw()
        raw.say(frames.Fetch(1, bench.token(10, purpose="fetch")), frames.Fetch(2, "forged"))
        assert raw.hear().number == 2
    assert len(set(verified)) == len(verified) == {"send": 1, "fetch": 2}[purpose]
