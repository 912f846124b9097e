"""The Placement service as a process, with its own database; it does not authenticate callers."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import requests

from support.servers.server import free_port

START_S = 180.0


class Placement:
    """A Placement process that can be stopped, and started again with the same database and port."""

    def __init__(self, database_url: str, log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        server = Path(__file__).with_name("serve_placement.py")
        # -P: with its directory on the path, it would take this module for Placement.
        self._command = [sys.executable, "-P", str(server), str(port), database_url]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def section(self) -> dict[str, object]:
        """The section [placement] of the pool's configuration for this service.

        Its port refuses connections while it is stopped; the timeout is long enough for a slow machine.
        """
        account = {"auth_type": "admin_token", "endpoint": self.url, "token": "admin", "endpoint_override": self.url}
        return account | {"timeout": 120}

    @property
    def pid(self) -> int:
        """Process ID; the process must have been started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        give_up_s = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < give_up_s, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_S)
            self._process = None

    def _answers(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(self.url, timeout=START_S).ok
        return False
