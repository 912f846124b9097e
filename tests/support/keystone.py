"""A simulated Keystone of one user, over HTTP; `keystoneauth1.fixture` makes its answers."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from keystoneauth1 import fixture

PASSWORD = "right"
TOKEN = "the token of the user"


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def log_message(self, *words: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/v3/auth/tokens"):
            known = self.headers["X-Subject-Token"] == TOKEN
            self._answer(200 if known else 404, self.server.keystone.token() if known else {})
            return
        self._answer(200, {"version": fixture.V3Discovery(f"http://{self.headers['Host']}/v3")})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["auth"]["identity"]["password"]["user"]["password"] != PASSWORD:
            self._answer(401, {"error": {"code": 401, "message": "wrong password", "title": "Unauthorized"}})
            return
        self._answer(201, self.server.keystone.token(), {"X-Subject-Token": TOKEN})

    def _answer(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        data = json.dumps(body).encode()
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Keystone:
    """Issues TOKEN, an administrator's token, for PASSWORD, and validates it.

    `catalogue` maps types of services to their public URLs.
    """

    def __init__(self, url: str) -> None:
        self.catalogue: dict[str, str] = {}
        #: The user's login, in the form of clouds.yaml.
        self.account = {
            "auth_url": f"{url}/v3",
            "username": "user",
            "password": PASSWORD,
            "project_name": "project",
            "user_domain_id": "default",
            "project_domain_id": "default",
        }

    def token(self) -> fixture.V3Token:
        """Return the content of the token."""
        token = fixture.V3Token()
        token.set_project_scope(id="a" * 32)
        for role in ("reader", "member", "manager", "admin"):
            token.add_role(name=role)
        for service, url in self.catalogue.items():
            token.add_service(service).add_standard_endpoints(public=url, region="RegionOne")
        return token


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self.keystone = Keystone(f"http://127.0.0.1:{self.server_port}")


@contextlib.contextmanager
def running_keystone() -> Iterator[Keystone]:
    """Serve a Keystone on a free port."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield server.keystone
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
