"""Runs the pool's daemons in processes forked from a server that has already imported their modules.

Tests start hundreds of pools, and imports take half of the time of a start.  Tests of the start itself, and
measurements, start programs as an operator does.  Forked processes differ: the modules of all daemons are loaded,
possibly also eventlet; no `atexit` handler runs at the end; limits, niceness and namespaces are those of the first
start.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import multiprocessing
import multiprocessing.util  # so that its exit handler, which waits for remaining processes, runs after ours
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TextIO

_PR_SET_PDEATHSIG = 1
_DAEMONS = "fpga_pool.cli.daemons"

_context = multiprocessing.get_context("forkserver")
#: The daemons, and modules that they import on demand.
_context.set_forkserver_preload(
    [
        *(f"{_DAEMONS}.{name}" for name in ("standalone", "scheduler", "agent", "api")),
        *("alembic.command", "alembic.context", "numba", "scipy.optimize", "scipy.sparse.csgraph"),
        "fpga_pool.core.makespan.search.best",
    ]
)
#: When it starts a process, `multiprocessing` reads the exit statuses of all others, which is possible only once.
_statuses = threading.Lock()


class Forked:
    """A running daemon, given by its short name such as "agent"; offers the part of `subprocess.Popen` that tests use.

    Its output goes to `stdout`, or is appended to a log.
    """

    def __init__(self, daemon: str, options: Sequence[str], log: Path | None = None) -> None:
        self.args = (daemon, *options)
        ours, theirs = _context.Pipe(duplex=False)
        with ours:
            with theirs:
                words = daemon, options, dict(os.environ), theirs, log
                self._process = _context.Process(target=_run, args=words, daemon=True)
                with _statuses:
                    self._process.start()
            try:
                ours.recv_bytes()  # by now it leads its process group and has opened its log
            except EOFError:
                raise RuntimeError(f"{daemon} ended before it began, with status {self.wait(1.0)}") from None
            self.stdout: TextIO | None = os.fdopen(os.dup(ours.fileno())) if log is None else None
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        _all.add(self)

    @classmethod
    def popen(cls, command: Sequence[str], **_: object) -> "Forked":
        """Start the embedded pool, given the command with which `start_pool` would start it."""
        return cls("standalone", command[command.index("--config-file") :])

    @property
    def returncode(self) -> int | None:
        """The exit status; minus the signal number if a signal ended it; None while it runs."""
        return self.poll()

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        with _statuses:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return the exit status.  Raises TimeoutExpired."""
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
        """Ask it to end (SIGTERM)."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.send_signal(signal.SIGKILL)


_all: "weakref.WeakSet[Forked]" = weakref.WeakSet()


@atexit.register
def _kill_all() -> None:
    for process in list(_all):
        process.kill()


def _run(
    daemon: str, options: Sequence[str], environment: Mapping[str, str], output: Connection, log: Path | None
) -> None:
    # The fork server lives until no process has this descriptor open; its end kills the processes that it has forked.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    owner = multiprocessing.parent_process()
    if owner is None or wait([owner.sentinel], 0):
        os._exit(1)
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
