"""The requests that the Horizon panel forwards to a recording API, and the parts of the answers that it passes on."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.conf import settings
from django.test import RequestFactory

from fpga_pool.horizon_plugin import forwarding

TOKEN = "the token of the user"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def answer(self):
        api = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        api.asked.append((self.command, self.path, self.headers, body))
        self.send_response(api.status)
        for name, value in {"Content-Length": str(len(api.body)), **api.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(api.body)

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815


class Api(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}/fpga"
        self.asked = []
        self.status, self.headers, self.body = 200, {"Content-Type": "application/json"}, b"{}"


@pytest.fixture
def api():
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def requests_of_django():
    if not settings.configured:
        settings.configure()
    return RequestFactory()


@pytest.fixture
def forward(api, requests_of_django):
    """Return a function that forwards a request for a path below the panel."""

    def forward(method, path, *, endpoint=api.endpoint, **options):
        query = options.pop("query", "")
        request = requests_of_django.generic(method, "/project/fpga_pool/api/", QUERY_STRING=query, **options)
        return forwarding.forward(request, path, endpoint, TOKEN)

    return forward


def detail(answer):
    return json.loads(answer.content)["errors"][0]["detail"]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_requests_reach_the_api_with_the_token_of_the_user(api, forward, method):
    api.status, api.body = 202, b'{"slot": {}}'
    body = {"data": b'{"drain": true}', "content_type": "application/json"}
    answer = forward(method, "v1/slots/1", query="a=1&b=x%20y", **body)
    assert (answer.status_code, answer.content, answer["Content-Type"]) == (202, api.body, "application/json")
    ((command, path, headers, sent),) = api.asked
    assert (command, path, sent) == (method, "/fpga/v1/slots/1?a=1&b=x%20y", b'{"drain": true}')
    assert (headers["X-Auth-Token"], headers["Content-Type"]) == (TOKEN, "application/json")


def test_an_endpoint_may_name_the_version(api, forward):
    forward("GET", "v1/pool", endpoint=f"{api.endpoint}/v1/")
    assert api.asked[0][1] == "/fpga/v1/pool"


@pytest.mark.parametrize(
    "path",
    ["", "v2/slots", "healthcheck", "v1", "v1/", "v1//slots", "v1/../admin", "v1/slots/..", "v1/./pool", "/v1/x"],
)
def test_only_paths_of_the_api_are_passed_on(api, forward, path):
    assert forward("GET", path).status_code == 404
    assert api.asked == []


def test_a_name_in_a_path_stays_a_name(api, forward):
    forward("GET", "v1/hosts/a?b#c%2e%2e\r\nX: y")
    assert api.asked[0][1] == "/fpga/v1/hosts/a%3Fb%23c%252e%252e%0D%0AX%3A%20y"


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "CONNECT"])
def test_methods_that_no_view_uses_are_refused(api, forward, method):
    answer = forward(method, "v1/slots")
    assert (answer.status_code, answer["Allow"], api.asked) == (405, "GET, POST, PATCH, DELETE", [])


def test_headers_of_horizon_and_of_the_connection_stay_there(api, forward):
    kept = {"HTTP_ACCEPT": "application/json", "HTTP_IF_MATCH": '"7"', "HTTP_OPENSTACK_API_VERSION": "fpga 1.0"}
    dropped = {
        "HTTP_COOKIE": "sessionid=secret",
        "HTTP_X_CSRFTOKEN": "secret",
        "HTTP_X_AUTH_TOKEN": "another",
        "HTTP_X_PROJECT_ID": "another",
        "HTTP_X_ROLES": "admin",
        "HTTP_AUTHORIZATION": "Basic secret",
        "HTTP_TE": "trailers",
        "HTTP_UPGRADE": "h2c",
        "HTTP_X_FORWARDED_FOR": "1.2.3.4",
    }
    forward("GET", "v1/slots", **kept, **dropped)
    headers = api.asked[0][2]
    names = {name.lower() for name in headers}
    added = {"host", "user-agent", "accept-encoding", "connection", "x-auth-token"}
    assert names == added | {"accept", "if-match", "openstack-api-version"}
    assert (headers["X-Auth-Token"], headers["If-Match"]) == (TOKEN, '"7"')


def test_of_an_answer_its_status_body_and_some_headers_pass(api, forward):
    api.status, api.body = 409, b'{"errors": [{"detail": "busy"}]}'
    api.headers |= {"ETag": '"7-x"', "Retry-After": "3"}
    dropped = {"Set-Cookie": "a=b", "Location": "http://elsewhere/", "X-Subject-Token": TOKEN, "Keep-Alive": "x"}
    api.headers |= dropped
    answer = forward("DELETE", "v1/batches/1")
    assert (answer.status_code, detail(answer)) == (409, "busy")
    assert (answer["ETag"], answer["Retry-After"]) == ('"7-x"', "3")
    assert [name for name in dropped if name in answer.headers] == []
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_a_redirection_is_not_followed(api, forward):
    api.status, api.headers = 302, {"Location": f"{api.endpoint}/v1/other"}
    assert forward("GET", "v1/slots").status_code == 302
    assert len(api.asked) == 1


def test_an_answer_that_is_no_json_is_shown_as_text(api, forward):
    api.status, api.headers, api.body = 503, {"Content-Type": "text/html"}, b"<script>alert(1)</script>"
    answer = forward("GET", "v1/slots")
    assert (answer.status_code, answer["Content-Type"], answer.content) == (503, "text/plain", api.body)


def test_a_body_that_is_too_large_or_no_json_is_refused(api, forward, monkeypatch):
    monkeypatch.setattr(forwarding, "MAX_REQUEST_BYTES", 10)
    assert forward("POST", "v1/gangs", data=b"x" * 10, content_type="application/json").status_code == 200
    refused = forward("POST", "v1/gangs", data=b"x" * 11, content_type="application/json")
    assert (refused.status_code, detail(refused)) == (413, "expected at most 10 bytes")
    assert forward("POST", "v1/gangs", data=b"x", content_type="text/plain").status_code == 415
    assert len(api.asked) == 1


def test_an_answer_that_is_too_large_is_refused(api, forward, monkeypatch):
    monkeypatch.setattr(forwarding, "MAX_ANSWER_BYTES", 100)
    api.body = b"x" * 100
    assert forward("GET", "v1/slots").status_code == 200
    api.body = b"x" * 101
    assert forward("GET", "v1/slots").status_code == 502


def test_an_api_that_is_gone_or_silent_is_an_error_of_the_gateway(api, forward, monkeypatch, caplog):
    monkeypatch.setattr(forwarding, "_TIMEOUTS_S", (60.0, 0.01))
    leave = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: leave.wait(60))
    assert forward("GET", "v1/slots").status_code == 504
    leave.set()
    assert forward("GET", "v1/slots", endpoint="http://127.0.0.1:1").status_code == 502
    assert TOKEN not in caplog.text
