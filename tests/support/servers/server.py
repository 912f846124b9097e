"""Common parts of the private servers: directory, port, password, start and end."""

import json
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from fpga_pool.model.exceptions import NotFound, ServiceUnavailable
from support.servers.process import Process, as_user, find_program

START_TIMEOUT_S = 240.0
COMMAND_TIMEOUT_S = 120.0
#: Interval of checks whether a starting server answers.
POLL_INTERVAL_S = 0.1

#: Range of the servers' main ports; neither other ports of a server nor those of other programs are in it.
PORTS = range(20_000, 32_000)

#: The account of every server.
USER = "fpga_pool"


class Server(ABC):
    """One server, which can be stopped, killed or stalled, and started again with the same files and port.

    It ends with this process, unless started with `keep=True`; another process finds it by its directory.
    `addresses` are those on which it listens; the first one is in its URL.
    """

    name: ClassVar[str]
    #: The package to install, and the user that it creates.
    package: ClassVar[str]
    package_user: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    #: The signals that stop it gracefully, and that end it when this process is gone.
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    orphan_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, directory: Path, addresses: Sequence[str] = ("127.0.0.1",)) -> None:
        self.directory = directory.absolute() / self.name
        self.addresses = tuple(addresses)
        self._process = Process(self.directory / "main.pid")

    @classmethod
    def missing(cls) -> str | None:
        """Return which package to install if a program of the server is missing on this machine; None if none is."""
        absent = [program for program in cls.programs if find_program(program) is None]
        return f"{cls.name} needs {', '.join(absent)}: install the package {cls.package}" if absent else None

    @property
    @abstractmethod
    def url(self) -> str:
        """URL for clients."""

    @property
    def port(self) -> int:
        """The port on which it listens, the same while its directory exists."""
        return int(self._identity["port"])

    @property
    def password(self) -> str:
        """The password of USER."""
        return self._identity["password"]

    @property
    def log(self) -> Path:
        """The log file of the server."""
        return self.directory / "log"

    @property
    def pid(self) -> int | None:
        """Its process ID while it lives."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process exists, stalled or not."""
        return self.pid is not None

    # Start and end ---------------------------------------------------------------------------------------------

    def start(self, *, keep: bool = False) -> Self:
        """Start it, and wait until it answers; with `keep` it outlives this process."""
        if problem := self.missing():
            raise ServiceUnavailable(problem)
        if not self.running:
            self._ensure_directory()
            self._launch(keep)
        self._wait_until_it_answers()
        return self

    def stop(self) -> None:
        """Stop it gracefully, as an operator does."""
        self.resume()
        self._process.end(self.stop_signal)

    def kill(self) -> None:
        """Kill it, as in a crash."""
        self._process.end(signal.SIGKILL)

    def pause(self) -> None:
        """Stall it: its connections stay open, but it does not answer."""
        self._process.stall()

    def resume(self) -> None:
        """Resume it after `pause`."""
        self._process.resume()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Implemented by each kind ----------------------------------------------------------------------------------

    @abstractmethod
    def _initialise(self) -> None:
        """Write the files of a new directory."""

    @abstractmethod
    def _launch(self, keep: bool) -> None:
        """Start its processes."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether a client would be served."""

    # Files -----------------------------------------------------------------------------------------------------

    @property
    def _identity(self) -> dict[str, str]:
        file = self.directory / "identity.json"
        if not file.exists():
            raise NotFound(f"{self.directory} holds no {self.name} server: start one there first")
        identity: dict[str, str] = json.loads(file.read_text())
        return identity

    def _ensure_directory(self) -> None:
        complete = self.directory / "complete"
        if complete.exists():
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(mode=0o700, parents=True)
        self._hand_over(self.directory)
        self._refuse_unreachable()
        self._write("identity.json", json.dumps({"port": str(free_port()), "password": secrets.token_hex(16)}))
        self._initialise()
        complete.touch()

    def _refuse_unreachable(self) -> None:
        closed = [parent for parent in self.directory.parents if not parent.stat().st_mode & 0o001]
        if os.geteuid() == 0 and closed:
            raise ServiceUnavailable(
                f"{self.package_user} cannot reach {self.directory}: let others pass through {closed[0]} (chmod o+x)"
            )

    def _write(self, name: str, text: str) -> Path:
        file = self.directory / name
        file.touch(0o600)
        file.write_text(text)
        self._hand_over(file)
        return file

    def _hand_over(self, path: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(path, self.package_user, pwd.getpwnam(self.package_user).pw_gid)

    # Processes -------------------------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.directory), "LANG": "C.UTF-8"}

    def _spawn(self, process: Process, command: Sequence[str], keep: bool) -> None:
        orphan_signal = None if keep else self.orphan_signal
        process.start(as_user(self.package_user, command, orphan_signal=orphan_signal), self._environment(), self.log)

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, given: str | None = None
    ) -> str:
        """Run a program of the server's package with `given` as its input; return its output."""
        done = subprocess.run(
            as_user(self.package_user, command),
            cwd=self.directory,
            env=self._environment() | dict(environment or {}),
            input=given or "",
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        if done.returncode:
            raise ServiceUnavailable(f"{self.name}: {command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _wait_until_it_answers(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            late = time.monotonic() > end_s
            if late or not self.running:
                self.stop()
                what = f"did not answer in {START_TIMEOUT_S:g} s" if late else "ended at its start"
                said = " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])
                raise ServiceUnavailable(f"{self.name} {what}: {said} (log: {self.log})")
            time.sleep(POLL_INTERVAL_S)


def free_port() -> int:
    """Return a port that stays free while its server is down: it is below the kernel's range for clients."""
    return free_ports(1)[0]


#: The ports that this process got most recently: two servers must not get the same port before either listens.
_GIVEN: deque[int] = deque(maxlen=1000)


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """Return several different ports; programs that choose ports before others listen must use another range, `among`.

    Each worker of pytest-xdist has its own ports, because a server with a port from another worker may not listen yet,
    or may be down at the moment.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    among = among[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    found: list[int] = []
    for port in random.SystemRandom().sample(among, min(len(among), 100 * count)):
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            _GIVEN.extend(found)
            return found
    raise ServiceUnavailable(f"no {count} free ports between {among.start} and {among.stop} on 127.0.0.1")
