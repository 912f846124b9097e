"""One process of a server.  It ends with this process unless it is to be kept, and is found by its pid file."""

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

END_TIMEOUT_S = 180.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: Directories in which Debian and Ubuntu put programs that are not on every PATH.
_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/usr/lib/postgresql/*/bin")

#: To Linux, the parent is the thread that forked, and its end triggers the signal; this thread lives as long as we do.
_forker = ThreadPoolExecutor(1, "servers")


def find_program(name: str) -> str | None:
    """Return the path of a program, of the newest version if there are several; None if it is not installed."""
    if found := shutil.which(name):
        return found
    places = [str(place) for pattern in _DIRECTORIES for place in _newest_first(pattern)]
    return shutil.which(name, path=os.pathsep.join(places))


def _newest_first(pattern: str) -> list[Path]:
    def version(place: Path) -> list[int]:
        return [int(part) for part in place.parts if part.isdigit()]

    return sorted(Path("/").glob(pattern.lstrip("/")), key=version, reverse=True)


def spawn(
    command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that an interrupt at our terminal does not reach it."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    with log.open("ab") as output:
        return _forker.submit(start).result()


def dies_with_us(
    command: Sequence[str], *, orphan_signal: signal.Signals = signal.SIGKILL, options: Sequence[str] = ()
) -> list[str]:
    """Return a command that gets `orphan_signal` when the thread that starts it ends; `options` are setpriv's.

    Linux sends no signal if we die before the child has requested it, so the child then checks who its parent is.
    """
    signalled = ["setpriv", *options, f"--pdeathsig={orphan_signal.name.removeprefix('SIG')}"]
    return [*signalled, "sh", "-c", 'test $PPID = "$0" && exec "$@"', str(os.getpid()), *command]


def as_user(user: str, command: Sequence[str], *, orphan_signal: signal.Signals | None = None) -> list[str]:
    """Return a command that runs as `user` if we are root, else as our user; `orphan_signal` is sent when we die."""
    options = []
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        options += [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups"]
    words = [find_program(command[0]) or command[0], *command[1:]]
    if orphan_signal is not None:
        return dies_with_us(words, orphan_signal=orphan_signal, options=options)
    return [*(["setpriv", *options] if options else []), *words]


class Process:
    """A process that this run or an earlier one started; `file` has its process ID and the time of its start."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it, and record its process ID and start time."""
        self._child = spawn(command, log, cwd=log.parent, env=environment)
        self.file.write_text(f"{self._child.pid} {born(self._child.pid)}")

    @property
    def pid(self) -> int | None:
        """Its process ID while it lives; the start time distinguishes it from a later process with the same ID."""
        if self._child is not None and self._child.poll() is not None:
            return None
        with contextlib.suppress(FileNotFoundError):
            pid, birth = self.file.read_text().split()
            if str(born(int(pid))) == birth:
                return int(pid)
        return None

    def end(self, sign: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it and its children are gone; kill those that do not end in time.

        PostgreSQL's children outlive a killed parent for a moment, and block its directory until they are gone.
        """
        with contextlib.ExitStack() as closed:
            watched = []
            for member in self._family():
                with contextlib.suppress(ProcessLookupError):
                    watched.append(os.pidfd_open(member))
                    closed.callback(os.close, watched[-1])
            for signalled, sent in ((watched[:1], sign), (watched, signal.SIGKILL)):
                for process in signalled:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(process, sent)
                if _all_ended(watched):
                    break
        if self._child is not None:
            self._child.wait(END_TIMEOUT_S)

    def stall(self) -> None:
        """Stall it and its children; return when none of their threads runs any more."""
        self._signal_family(signal.SIGSTOP)
        end_s = time.monotonic() + END_TIMEOUT_S
        while any(not _is_stalled(member) for member in self._family()) and time.monotonic() < end_s:
            time.sleep(0.005)

    def resume(self) -> None:
        """Resume it and its children."""
        self._signal_family(signal.SIGCONT)

    def _family(self) -> list[int]:
        pid = self.pid
        return [pid, *children(pid)] if pid is not None else []

    def _signal_family(self, sign: signal.Signals) -> None:
        for member in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, sign)


def _all_ended(processes: Sequence[int]) -> bool:
    """Wait until all processes have ended; return False if one still runs after END_TIMEOUT_S."""
    end_s = time.monotonic() + END_TIMEOUT_S
    return all(select.select([each], [], [], max(end_s - time.monotonic(), 0.0))[0] for each in processes)


def born(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone."""
    fields = _stat(Path(f"/proc/{pid}"))
    return None if not fields or fields[0] == "Z" else int(fields[19])


def _is_stalled(pid: int) -> bool:
    states = [fields[0] for thread in Path(f"/proc/{pid}/task").glob("*") if (fields := _stat(thread))]
    return all(state in ("T", "Z") for state in states)


def _stat(process: Path) -> list[str]:
    """Return the fields of /proc/PID/stat from the third one, the state, on (proc(5)); empty if the process is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(pid: int) -> list[int]:
    """Return the children of a process that still live."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def processes_naming(text: str) -> dict[int, str]:
    """Return the processes whose command line contains a text, with that line."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found[int(entry.parent.name)] = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {pid: line for pid, line in found.items() if text in line}


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def cpu_s(pid: int) -> float:
    """Return the processor time that all threads of a process have used."""
    return sum(map(int, _stat(Path(f"/proc/{pid}"))[11:13])) / _TICKS_PER_S


def wake_ups(pid: int) -> int:
    """Return how often threads of a process that still run have waited, and so been woken."""
    statuses = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]) for status in statuses)
