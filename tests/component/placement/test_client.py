"""How the pool interprets answers of Placement, and of other servers at its address."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from oslo_config import cfg

from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.placement.client import open_placement


@pytest.fixture
def server():
    """Run a server that gives the same answer to every request: `answer` is its status and its body."""
    asked = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append((self.path, dict(self.headers)))
            status, body = self.server.answer
            if status is None:  # no answer at all
                asked.wait(30)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.asked = []
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    yield server
    asked.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "pool.conf"
        path.write_text(text)
        conf = cfg.ConfigOpts()
        conf([f"--config-file={path}"], project="fpga_pool")
        return conf

    return read


@pytest.fixture
def new_client(read, server):
    """Return a function that makes clients with a given timeout."""

    def make(timeout_s):
        url = f"http://127.0.0.1:{server.server_port}"
        section = f"auth_type = admin_token\nendpoint = {url}\ntoken = admin\ntimeout = {timeout_s}\n"
        return open_placement(read(f"[placement]\n{section}"))

    return make


@pytest.fixture
def client(new_client):
    return new_client(60)


def test_a_pool_without_the_section_does_without_placement(read):
    assert open_placement(read("")) is None
    assert open_placement(read("[placement]\nregion_name = r\n")) is None


def test_a_section_that_cannot_be_right_is_refused(read):
    with pytest.raises(InvalidInput, match=r"\[placement\]: .*psychic"):
        open_placement(read("[placement]\nauth_type = psychic\n"))


def test_an_answer_is_waited_for_a_few_seconds_unless_the_operator_wants_otherwise(read):
    conf = read("[placement]\nauth_type = none\nendpoint = http://127.0.0.1:1\n")
    open_placement(conf)
    assert conf.placement.timeout == 5


def test_every_request_tells_its_version_and_its_token(client, server):
    server.answer = 200, b'{"allocations": {}}'
    assert client.allocated("vm") == {}
    ((path, headers),) = server.asked
    assert (path, headers["X-Auth-Token"]) == ("/allocations/vm", "admin")
    assert headers["OpenStack-API-Version"] == "placement 1.37"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (404, NotFound),
        (409, Conflict),
        (401, ServiceUnavailable),
        (403, ServiceUnavailable),
        (500, ServiceUnavailable),
        (503, ServiceUnavailable),
    ],
)
def test_failures_are_told_with_what_placement_says_of_them(client, server, status, error):
    server.answer = status, json.dumps({"errors": [{"detail": "because\n of this"}]}).encode()
    with pytest.raises(error, match=f"^Placement, GET /allocations/vm: {status} because of this$"):
        client.allocated("vm")


def test_what_is_no_placement_is_no_answer(client, server):
    for status in (200, 502):
        server.answer = status, b"<html>welcome</html>"
        with pytest.raises(ServiceUnavailable):
            client.allocated("vm")


def test_silence_is_not_waited_for_for_ever(new_client, server):
    server.answer = None, b""
    with pytest.raises(ServiceUnavailable, match="Placement does not answer"):
        new_client(1).allocated("vm")
