"""Programs of the pool in processes that are forked where their modules are imported already.

Tests start hundreds of pools, and half of what the start of one costs are imports.  Tests of a start itself, and
measurements, start programs as an operator does.
"""

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TextIO

_PR_SET_PDEATHSIG = 1
_DAEMONS = "fpga_pool.cli.daemons"

_context = multiprocessing.get_context("forkserver")
#: The programs, and what they import when they need it.
_context.set_forkserver_preload(
    [
        *(f"{_DAEMONS}.{name}" for name in ("standalone", "scheduler", "agent", "api")),
        *("alembic.command", "alembic.context", "numba", "scipy.optimize", "scipy.sparse.csgraph"),
        "fpga_pool.core.makespan.search.best",
    ]
)


class Forked:
    """A daemon by its short name, such as "agent"; has what tests use of `subprocess.Popen`.

    What it prints goes to `stdout`, or to the end of a log.
    """

    def __init__(self, daemon: str, options: Sequence[str], log: Path | None = None) -> None:
        self.args = (daemon, *options)
        ours, theirs = _context.Pipe(duplex=False)
        with ours:
            with theirs:
                words = daemon, options, dict(os.environ), theirs, log
                self._process = _context.Process(target=_run, args=words, daemon=True)
                self._process.start()
            ours.recv_bytes()  # it leads its group now, and has its log
            self.stdout: TextIO | None = os.fdopen(os.dup(ours.fileno())) if log is None else None
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self._lock = threading.Lock()

    @classmethod
    def popen(cls, command: Sequence[str], **_: object) -> "Forked":
        """Start the embedded pool that a command of `start_pool` starts."""
        return cls("standalone", command[command.index("--config-file") :])

    @property
    def returncode(self) -> int | None:
        """The exit status; the number of the signal that ended it, below 0."""
        return self.poll()

    def poll(self) -> int | None:
        """Return the exit status, if it has ended."""
        with self._lock:  # the status can be read once
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return the exit status."""
        wait([self._process.sentinel], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.send_signal(signal.SIGKILL)


def _run(
    daemon: str, options: Sequence[str], environment: Mapping[str, str], output: Connection, log: Path | None
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    with output if log is None else log.open("ab") as sink:
        output.send_bytes(b"")
        for stream in (1, 2):
            os.dup2(sink.fileno(), stream)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    faulthandler.enable(file=2)
    gc.freeze()
    raise SystemExit(importlib.import_module(f"{_DAEMONS}.{daemon}").main(list(options)))
