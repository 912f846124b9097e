"""Documented behavior for bad streams, tested at the data port of a real pool."""

import hashlib
import socket

import pytest

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.client import connect
from support.waiting import wait_until

from .table import ROWS, TIMEOUT_S, call, create, fits


class Waiting:
    """A batch of one job that waits for its input, and the data port for it."""

    def __init__(self, pool, input_bytes=5):
        self._pool = pool
        self.path = f"/v1/batches/{create(pool, project='streams', input_bytes=input_bytes)}"
        wait_until(lambda: self.job["state"] == "WAITING_INPUT", "the job waits for its input")

    @property
    def host(self):
        """The host where it currently waits: a job whose input is late may be planned again."""
        return self.job["host"]

    @property
    def job(self):
        return call(self._pool, "GET", f"{self.path}/jobs", "streams").json()["jobs"][0]

    def connect(self, host=None):
        hosts = {one["name"]: one for one in call(self._pool, "GET", "/v1/hosts").json()["hosts"]}
        port = hosts[host or self.host]
        return connect((port["data_address"], port["data_port"]), TIMEOUT_S)

    def token(self):
        wanted = {"job": self.job["uuid"], "purpose": "send", "source_address": "127.0.0.1", "source_port": 1}
        answer = call(self._pool, "POST", f"{self.path}/tickets", "streams", json={"tickets": [wanted]})
        return answer.json()["tickets"][0]["token"]

    def cancel(self):
        call(self._pool, "DELETE", self.path, "streams")


@pytest.fixture
def waiting(pool):
    one = Waiting(pool)
    yield one
    one.cancel()


def send(connection, token, *, data=b"abcde", digest_of=b"abcde"):
    """Speak the protocol by hand, to be able to violate it; return the server's message after `accept`."""
    wire = connection._wire
    wire.send(frames.Hello(token))
    connection._expect(frames.Accept)
    if data:
        wire.send_bytes(memoryview(frames.encode_data_header(len(data)) + data))
    if digest_of is not None:
        wire.send(frames.Trailer(hashlib.sha256(digest_of).hexdigest()))
    return connection._expect(frames.Staged)


def refusal_of(row, talk):
    with pytest.raises(TransferRefused) as refused:
        talk()
    assert refused.value.reason == ROWS[row]["Code"]
    assert fits(row, str(refused.value)), refused.value


def test_a_token_is_good_for_one_stream(waiting):
    token = waiting.token()
    with waiting.connect() as first:
        first._wire.send(frames.Hello(token))
        first._expect(frames.Accept)
    with waiting.connect() as second:
        refusal_of("token used twice", lambda: send(second, token))
    with waiting.connect() as third:
        assert send(third, waiting.token()).received_bytes == 5


def test_tokens_that_are_not_for_this_stream_are_refused(pool, waiting):
    token = waiting.token()
    other = next(f"node-{n}" for n in (1, 2) if f"node-{n}" != waiting.host)
    altered = token[:-4] + ("AAAA" if not token.endswith("AAAA") else "BBBB")
    for row, host, said in (
        ("token of another host", other, token),
        ("altered token", waiting.host, altered),
        ("no token", waiting.host, ""),
    ):
        with waiting.connect(host) as connection:
            refusal_of(row, lambda connection=connection, said=said: send(connection, said))
    assert waiting.job["state"] == "WAITING_INPUT"


def test_wrong_bytes_are_refused_and_the_right_ones_taken_afterwards(waiting):
    with waiting.connect() as connection:
        refusal_of("more bytes than announced", lambda: send(connection, waiting.token(), data=b"abcdef"))
    with waiting.connect() as connection:
        refusal_of("other bytes than the digest says", lambda: send(connection, waiting.token(), data=b"abcdX"))
    with waiting.connect() as connection:
        refusal_of("stream that breaks off", lambda: break_off(connection, waiting.token()))
    assert waiting.job["state"] == "WAITING_INPUT"
    with waiting.connect() as connection:
        # The server already has two bytes.
        assert send(connection, waiting.token(), data=b"cde").received_bytes == 5


def break_off(connection, token):
    """Send two of five bytes, then shut down only the sending side of the connection."""
    connection._wire.send(frames.Hello(token))
    connection._expect(frames.Accept)
    connection._wire.send_bytes(memoryview(frames.encode_data_header(2) + b"ab"))
    connection.socket.shutdown(socket.SHUT_WR)
    connection._expect(frames.Staged)
