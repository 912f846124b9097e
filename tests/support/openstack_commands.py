"""Commands of `openstack` one after the other in one process, because each takes a second to begin.

Run as a program by the interpreter of `openstack`: reads a list of the words of each as JSON, and writes a list of the
exit status, the output and the errors of each.
"""

import contextlib
import io
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_all(
    openstack: str, commands: Sequence[Sequence[str]], environment: Mapping[str, str], directory: Path, timeout_s: float
) -> list[tuple[int, str, str]]:
    """Return exit status, output and errors of each command."""
    interpreter = Path(openstack).read_text().partition("\n")[0].removeprefix("#!").strip()
    done = subprocess.run(
        [interpreter, "-P", __file__],
        input=json.dumps(commands),
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


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
    json.dump([_run(words) for words in json.load(sys.stdin)], sys.stdout)
