import configparser
import io
import json
import logging
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "setup.cfg"


class Terminal(io.StringIO):
    """A stream that is a terminal or not."""

    def __init__(self, *, tty):
        super().__init__()
        self._tty = tty

    def isatty(self):
        return self._tty


class Answer:
    """The exit status and the output of a command."""

    def __init__(self, status, out, err):
        self.status = status
        self.out = out
        self.err = err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def commands():
    """Return the commands that setup.cfg registers. The package need not be installed."""
    from importlib.metadata import EntryPoint

    from cliff.commandmanager import CommandManager

    parser = configparser.ConfigParser(interpolation=None)
    parser.read(SETUP)
    manager = CommandManager("fpga_pool.nothing")
    for line in parser["options.entry_points"]["fpga_pool.cli"].split("\n"):
        if line.strip():
            name, target = (part.strip() for part in line.split("="))
            manager.add_command(name.replace("_", " "), EntryPoint(name, target, "fpga_pool.cli").load())
    return manager


@pytest.fixture
def run(commands, pool, serve):
    """Return a function that runs `fpga-pool` with arguments against the pool's API."""
    from fpga_pool.cli.client.main import PoolApp

    url = serve(pool)
    root = logging.getLogger()
    handlers = root.handlers[:]

    def command(*argv, endpoint=url, tty=False):
        out, err = Terminal(tty=tty), Terminal(tty=tty)
        app = PoolApp(commands, stdout=out, stderr=err)
        status = app.run(["--endpoint", endpoint, *map(str, argv)])
        root.handlers[:] = handlers
        return Answer(status, out.getvalue(), err.getvalue())

    return command
