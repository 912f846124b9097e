"""An embedded pool in a separate process for the duration of an experiment."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from fpga_pool.model.exceptions import ServiceUnavailable

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

Options = Mapping[str, Mapping[str, object]]


@contextmanager
def embedded_pool(directory: Path, options: Options, port: int = 0) -> Iterator[str]:
    """Start a pool on `directory` with options by group and name, and yield its endpoint; stop it at the end."""
    process, endpoint = start_pool(directory, options, port)
    try:
        yield endpoint
    finally:
        stop_pool(process)


def stop_pool(process: subprocess.Popen[str]) -> None:
    """Stop a pool; kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_pool(directory: Path, options: Options, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """Start a pool and return its process and endpoint once it is ready; ServiceUnavailable names its log."""
    directory.mkdir(parents=True, exist_ok=True)
    config, log = directory / "fpga_pool.conf", directory / "pool.log"
    config.write_text(config_text(options))
    command = [sys.executable, "-P", "-m", "fpga_pool.cli.daemons.standalone", "--config-file", str(config)]
    command += ["--state-dir", str(directory / "state"), "--port", str(port), "--log-file", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    lines: Queue[str] = Queue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    said = []
    try:
        while True:
            line = lines.get(timeout=START_TIMEOUT_S)
            if " ready on " in line:
                return process, line.split(" ready on ")[1].strip()
            if not line:
                break
            said.append(line)
    except Empty:
        said.append(f"not ready after {START_TIMEOUT_S:g} s\n")
    process.kill()
    process.wait()
    raise ServiceUnavailable(f"the pool did not start: {''.join(said[-5:]).strip()} (log: {log})")


def _read_lines(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert process.stdout is not None  # noqa: S101
    with process.stdout as said:
        for line in said:
            lines.put(line)
    lines.put("")


def config_text(options: Options) -> str:
    """Return a configuration file; of an option with several values each has its own line."""
    groups = (
        "\n".join([f"[{group}]", *(line for name, value in values.items() for line in _lines(name, value))])
        for group, values in options.items()
    )
    return "\n\n".join(groups) + "\n"


def _lines(name: str, value: object) -> list[str]:
    return [f"{name} = {each}" for each in (value if isinstance(value, tuple) else (value,))]
