"""Forked daemons do not outlive the process that started them, and report how they ended."""

import signal
import subprocess
import sys

import pytest

from support import environment
from support.forked import Forked
from support.servers.process import born
from support.waiting import wait_until

#: Starts an embedded pool and prints its process id.
OWNER = """
import sys, time
from support.forked import Forked

if __name__ == "__main__":
    process = Forked("standalone", sys.argv[1:])
    print(process.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def options(tmp_path):
    return [f"--state-dir={tmp_path}/state", "--port=0", f"--log-file={tmp_path}/log"]


def test_a_daemon_ends_when_its_owner_is_killed(options, tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen([sys.executable, script, *options], env=environment(), stdout=subprocess.PIPE, text=True)
    with owner:
        pid = int(owner.stdout.readline())
        assert born(pid)
        owner.kill()
    wait_until(lambda: not born(pid), "the pool has ended")


def test_the_signal_that_ended_it_is_its_status(options):
    process = Forked("standalone", options)
    with process.stdout:
        assert process.poll() is None
        process.kill()
        assert process.wait(60) == process.returncode == -signal.SIGKILL
    process.terminate()


def test_one_that_cannot_begin_is_told_at_once(options, tmp_path):
    with pytest.raises(RuntimeError, match="standalone ended before it began, with status 1"):
        Forked("standalone", options, log=tmp_path / "nowhere" / "log")
