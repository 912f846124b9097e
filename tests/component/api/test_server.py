import http.client
import json
from urllib.parse import urlsplit

import pytest

from fpga_pool.api.server import ApiServer
from fpga_pool.model.exceptions import InvalidInput


def ask(url, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_serves_over_http(pool, serve):
    status, body = ask(serve(pool), "GET", "/v1/slots")
    assert status == 200
    assert len(json.loads(body)["slots"]) == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_refuses_an_address_that_others_reach(pool, host):
    with pytest.raises(InvalidInput, match="listens on loopback only"):
        ApiServer(pool, host, 0)


# cheroot leaves the socket that it could not bind to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_refuses_a_port_that_is_taken(pool, serve):
    port = urlsplit(serve(pool)).port
    with pytest.raises(OSError, match=str(port)):
        ApiServer(pool, "127.0.0.1", port).start()


def test_refuses_a_body_that_is_announced_too_large(pool, serve):
    status, _ = ask(serve(pool), "POST", "/v1/batches", headers={"Content-Length": str(2**40)})
    assert status == 413


def test_says_why_a_body_is_too_large(pool, serve):
    url = serve(pool, max_body_bytes=1000)
    status, body = ask(url, "POST", "/v1/batches", b" " * 5000, {"Content-Type": "application/json"})
    assert (status, json.loads(body)["error"]["code"]) == (413, "fpga_pool.too_large")
