"""A data port on a real socket, with a small agent, and with correct and faulty clients."""

import asyncio
import contextlib
import hashlib
import select
import socket
import ssl
import threading
import time
import uuid
from concurrent.futures import Future

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import client, frames
from fpga_pool.transfer.handler import Admission
from fpga_pool.transfer.port import Limits
from fpga_pool.transfer.server import DataServer
from fpga_pool.transfer.tokens import TransferGrant, sign

HOST = "responder-1"
WAIT_S = 60.0


def wait_until(condition):
    """Poll until a condition holds, because the server gives no sign of its work after the last byte."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "did not happen in time"
        time.sleep(0.005)


class Agent:
    """Handler and ledger in memory. Tests set which jobs it knows and which results it returns."""

    def __init__(self, spool):
        self.spool = spool
        self.admissions = {}
        self.admit_refusal = None
        self.announcements = {}
        self.asked = set()
        self.loop = None
        self.progress_refusal = None
        self.seen_progress = []
        self.seen_sources = []
        self.staged_inputs = {}
        self.delivered_jobs = []
        self.used = set()
        self.end = Future()
        self.waiting = []

    def path(self, job):
        return self.spool / job

    def part(self, job):
        return self.spool / f"{job}.part"

    def use(self, tokens):
        return [token_id not in self.used and not self.used.add(token_id) for token_id, _ in tokens]

    def announcement(self, grant):
        self.loop = asyncio.get_running_loop()
        self.asked.add(grant.job)
        return self.announcements.get(grant.job)

    def announce(self, jobs):
        """Announce jobs together, in one turn of the port's loop, like a single command does."""
        self.loop.call_soon_threadsafe(lambda: [self.announcements[job].set_result(None) for job in jobs])

    def admit(self, grant):
        if self.admit_refusal:
            raise self.admit_refusal
        return self.admissions.get(grant.job) or Admission(self.path(grant.job))

    def seen(self, grant):
        self.seen_sources.append((grant.job, grant.source))

    def progress(self, grant, received_bytes):
        self.seen_progress.append(received_bytes)
        if self.progress_refusal:
            raise self.progress_refusal

    def staged(self, grant, sha256, size_bytes):
        self.staged_inputs[grant.job] = (sha256, size_bytes)

    def result(self, grant):
        mine = Future()
        self.waiting.append(mine)

        def pass_on(end):
            if mine.set_running_or_notify_cancel():
                mine.set_result(end.result())

        self.end.add_done_callback(pass_on)
        return mine

    def delivered(self, grants):
        self.delivered_jobs += [grant.job for grant in grants]

    def stage_small(self, inputs):
        for one in inputs:
            self.staged_inputs[one.grant.job] = one.data
        return [self.admit_refusal for _ in inputs]


class Raw:
    """A client that sends exactly the given messages, valid or not."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, WAIT_S)

    def say(self, *messages):
        """Send all messages in one call, so that they arrive together."""
        said = [message if isinstance(message, bytes) else frames.encode(message) for message in messages]
        self.socket.sendall(b"".join(said))

    def say_data(self, data):
        self.socket.sendall(frames.encode_data_header(len(data)) + data)

    def hear(self):
        header = frames.decode_header(self._exactly(frames.HEADER_BYTES))
        body = self._exactly(header.length)
        return body if header.is_data else frames.decode(body)

    def is_closed_by_server(self):
        if not select.select([self.socket], [], [], WAIT_S)[0]:
            return False
        with contextlib.suppress(ConnectionError):
            return self.socket.recv(1) == b""
        return True

    def close(self):
        self.socket.close()

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


class Bench:
    """A data port, its agent, and the key that signs tokens for it."""

    def __init__(self, spool, *, tls=None, **options):
        self.key = Ed25519PrivateKey.generate()
        self.agent = Agent(spool)
        self.spool = spool
        self.client_tls = tls and tls[1]
        self.server = DataServer(
            self.agent,
            self.agent,
            host=HOST,
            public_keys=[self.key.public_key()],
            bind_address="127.0.0.1",
            ssl_context=tls and tls[0],
            **options,
        )
        self.address = self.server.start()
        self.raws = []

    def grant(self, input_bytes=0, **changes):
        values = {
            "job": "job-1", "attempt": 1, "project_id": "p", "host": HOST, "purpose": "send",
            "input_bytes": input_bytes, "token_id": str(uuid.uuid4()), "deadline_s": time.time() + 60,
        }  # fmt: skip
        return TransferGrant(**{**values, **changes})

    def token(self, input_bytes=0, **changes):
        return sign([self.grant(input_bytes, **changes)], self.key)[0]

    def connect(self, **options):
        return client.connect(self.address, WAIT_S, ssl_context=self.client_tls, **options)

    def send(self, source, input_bytes, *, token=None, **options):
        with self.connect() as connection:
            return connection.send(token or self.token(input_bytes), source, input_bytes, **options)

    def raw(self):
        self.raws.append(Raw(self.address))
        return self.raws[-1]

    def raw_upload(self, input_bytes, **changes):
        """Return a raw client whose stream is admitted, and the offset that the server requests."""
        raw = self.raw()
        raw.say(frames.Hello(self.token(input_bytes, **changes)))
        accept = raw.hear()
        assert isinstance(accept, frames.Accept), accept
        return raw, accept.offset_bytes

    def count(self, name):
        return self.server.counters()[name]

    def wait_counted(self, name, times=1):
        wait_until(lambda: self.count(name) == times)

    def wait_idle(self):
        wait_until(lambda: self.count("connections") == 0)

    def assert_nothing_held(self, *, parts=()):
        """Check that no connection, no busy job and no file is left, except the named partial files."""
        self.wait_idle()
        assert not self.server._port.receiving
        assert sorted(path.name for path in self.spool.glob("*.part")) == sorted(parts)

    def close(self):
        for raw in self.raws:
            raw.close()
        self.server.stop(WAIT_S)


@pytest.fixture
def make_bench(tmp_path):
    with contextlib.ExitStack() as stack:

        def make(name="spool", **options):
            spool = tmp_path / name
            spool.mkdir()
            limits = {"hello_timeout_s": WAIT_S, "linger_s": 0.2, "held_s": 0.2, **options.pop("limits", {})}
            bench = Bench(spool, limits=Limits(**limits), **options)
            stack.callback(bench.close)
            return bench

        yield make


@pytest.fixture
def bench(make_bench):
    return make_bench()


@pytest.fixture
def input_file(tmp_path):
    """Return a file of 700,001 bytes: several frames and pieces, the last of which has an odd size."""
    path = tmp_path / "input.bin"
    path.write_bytes(bytes(i * 31 % 251 for i in range(700_001)))
    return path


@pytest.fixture(scope="session")
def tls(certificate):
    """Return contexts for a server and its clients, with a new self-signed certificate for 127.0.0.1."""
    cert, key = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=cert)


@pytest.fixture
def in_thread():
    """Return a function that runs a function in a thread and returns a future with its outcome."""
    threads = []

    def run(function, *args, **kwargs):
        outcome = Future()

        def work():
            try:
                outcome.set_result(function(*args, **kwargs))
            except BaseException as error:
                outcome.set_exception(error)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return outcome

    yield run
    for thread in threads:
        thread.join(WAIT_S)


@pytest.fixture
def refused():
    """Return a context manager which checks that its block is refused for a given reason."""

    @contextlib.contextmanager
    def check(reason):
        with pytest.raises(TransferRefused) as caught:
            yield caught
        assert caught.value.reason == reason

    return check


@pytest.fixture
def sha256():
    return lambda data: hashlib.sha256(data).hexdigest()


@pytest.fixture
def eventually():
    return wait_until
