"""`python -m support.servers start|stop|status DIRECTORY`."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fpga_pool.model.exceptions import FpgaPoolError
from support.servers import MariaDB, PostgreSQL, RabbitMQ, Server

KINDS: Mapping[str, type[Server]] = {kind.name: kind for kind in (RabbitMQ, MariaDB, PostgreSQL)}


def _start(server: Server) -> str:
    return server.start(keep=True).url


def _stop(server: Server) -> str:
    server.stop()
    return "stopped"


def _status(server: Server) -> str:
    return server.url if server.running else "stopped"


ACTS: Mapping[str, Callable[[Server], str]] = {"start": _start, "stop": _stop, "status": _status}


def main() -> int:
    """Start, stop or show the servers of a directory; they outlive the command."""
    parser = argparse.ArgumentParser(prog="servers", description=main.__doc__)
    parser.add_argument("act", choices=ACTS)
    parser.add_argument("directory", type=Path, help="where all state of the servers is kept")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of {', '.join(KINDS)}; all if none is named")
    arguments = parser.parse_args()
    if unknown := set(arguments.servers) - set(KINDS):
        parser.error(f"no such server: {', '.join(sorted(unknown))} (there are {', '.join(KINDS)})")
    code = 0
    for name in arguments.servers or KINDS:
        try:
            said = ACTS[arguments.act](KINDS[name](arguments.directory))
        except FpgaPoolError as error:
            said, code = str(error), 1
        print(f"{name}: {said}")
    return code


if __name__ == "__main__":
    sys.exit(main())
