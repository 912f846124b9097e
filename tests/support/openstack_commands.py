"""Commands of `openstack`, run one after the other in one process, because each would take two seconds to start.

As a program, run by the interpreter of `openstack`, this reads the words of one command per line, as JSON, and writes
a line of JSON with the command's exit status, output and errors.
"""

import contextlib
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 60.0


class OpenStackCommands:
    """A process that runs commands of `openstack` in one environment and directory; `close` ends it."""

    def __init__(self, openstack: str, environment: Mapping[str, str], directory: Path, timeout_s: float) -> None:
        interpreter = Path(openstack).read_text().partition("\n")[0].removeprefix("#!").strip()
        self._timeout_s = timeout_s
        self._process = subprocess.Popen(
            [interpreter, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=directory,
            text=True,
        )

    def run(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command; return exit status, output and errors.  A command that takes too long ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout_s, self._process.kill)
        timer.start()
        try:
            print(json.dumps(words), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"openstack {' '.join(words)}: no answer within {self._timeout_s:g} s, or its process ended"
        status, out, err = json.loads(answer)
        return status, out, err

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()


def _run(words: list[str]) -> tuple[int, str, str]:
    from openstackclient.shell import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = int(main(words))
        except SystemExit as ending:
            status = int(ending.code or 0)
    logging.getLogger().handlers.clear()
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    sys.argv[0] = "openstack"
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)
