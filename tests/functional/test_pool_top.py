"""`fpga-pool pool top` in a terminal, with a real pool."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

PATIENCE_S = 180.0
LINES, COLUMNS = 24, 80


class Terminal:
    """A terminal of 80 columns in which a command runs."""

    def __init__(self, *command):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "CI")}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment | {"TERM": "xterm"},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._shown = ""
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the command has ended
            while data := os.read(self._master, 65536):
                with self._lock:
                    self._shown += data.decode(errors="replace")

    def until(self, *words, without=""):
        """Wait until a screen drawn from now on has all these words, and not `without`; return it."""
        with self._lock:
            self._shown = ""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with self._lock:
                screens = re.sub(r"\x1b\[[0-9;?]*[A-GJKSTfm]", "", self._shown).split("\x1b[H")
            # The last one may be incomplete.
            for screen in screens[1:-1]:
                if all(word in screen for word in words) and not (without and without in screen):
                    return screen
            assert self.process.poll() is None, screens[-1]
            assert time.monotonic() < end_s, screens[-1]
            time.sleep(0.05)

    def press(self, key):
        os.write(self._master, key)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        os.close(self._master)


@pytest.fixture
def top(make_pool):
    pool = make_pool({"standalone": {"hosts": 2, "requesters": 1}})
    command = [sys.executable, "-m", "fpga_pool.cli.client.main", "--endpoint", pool.endpoint, "pool", "top"]
    terminal = Terminal(*command, "--interval", "0.5")
    yield pool, terminal
    terminal.close()


def test_a_pool_is_followed_through_a_silence_until_ctrl_c(top):
    """1. Work appears. 2. The pool is stalled, and the screen says so. 3. Pool and screen continue. 4. Ctrl-C."""
    pool, terminal = top
    screen = terminal.until("3 alive", "slots", "node-2")
    assert max(map(len, screen.splitlines())) <= COLUMNS
    gang = pool.client().create_gang(2, 3600.0, 0.5, name="a-gang").uuid
    terminal.until("a-gang", "1 FOREGROUND")
    pool.process.send_signal(signal.SIGSTOP)
    try:
        terminal.until("no answer for", "the data below are outdated", "a-gang")
    finally:
        pool.process.send_signal(signal.SIGCONT)
    terminal.until("a-gang", without="no answer for")
    pool.client().cancel_gang(gang)
    terminal.until("3 alive", without="a-gang")
    terminal.press(b"\x03")
    assert terminal.process.wait(PATIENCE_S) == 0


def test_a_pool_that_is_killed_is_waited_for(top):
    pool, terminal = top
    terminal.until("3 alive")
    pool.kill()
    terminal.until("no answer for", "no pool responds at")
    pool.start()
    terminal.until("3 alive", without="no answer for")
    terminal.press(b"\x03")
    assert terminal.process.wait(PATIENCE_S) == 0
