"""`tools/all-in-one start|stop|restart|status|env [SERVICE ...] [--directory DIRECTORY]`."""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from support.cloud.cloud import Cloud
from support.cloud.pool import first_vm_environment
from support.cloud.programs import BIN
from support.cloud.site import DIRECTORY_VARIABLE, Site
from support.servers import Libvirt

FAKE_COMPUTES = 3


def _default_directory() -> Path:
    """Return the directory from the environment, else a default that, for root, the servers' own users can reach."""
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/cache/fpga_pool/all-in-one")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fpga_pool" / "all-in-one"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _start(arguments: argparse.Namespace) -> int:
    begin_s = time.monotonic()
    libvirts = arguments.libvirt_computes if arguments.libvirt else 0
    if arguments.tiers and not (libvirts and Libvirt.control_groups()):
        raise InvalidInput("--tiers: needs a libvirt compute, and control groups that may be written")
    shape = {"fake_computes": arguments.fake_computes, "libvirt_computes": libvirts, "tiers": arguments.tiers}
    Cloud(Site.open_or_make(arguments.directory, **shape), _say, pool=arguments.pool).start()
    _say(f"{time.monotonic() - begin_s:6.1f} s  in all; `tools/all-in-one env` prints what clients need")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    Cloud(Site.open(arguments.directory), _say).stop()
    return 0


def _restart(arguments: argparse.Namespace) -> int:
    Cloud(Site.open(arguments.directory), _say).restart(arguments.services)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    found = Cloud(Site.open(arguments.directory), _say).status()
    for name, running in found.items():
        print(f"{name}: {'running' if running else 'stopped'}")
    return 0 if all(found.values()) else 1


def _env(arguments: argparse.Namespace) -> int:
    site = Site.open(arguments.directory)
    for name, value in {**site.environment, **first_vm_environment(site)}.items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'PATH="$PATH":{shlex.quote(str(BIN))}')
    return 0


ACTS = {"start": _start, "stop": _stop, "restart": _restart, "status": _status, "env": _env}


def main() -> int:
    """Start, stop, restart or show a cloud on one machine, or print the environment of its clients."""
    parser = argparse.ArgumentParser(prog="all-in-one", description=main.__doc__)
    parser.add_argument("act", choices=ACTS)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help="services to restart")
    parser.add_argument(
        "--directory", type=Path, default=_default_directory(), help="where all its state is kept (%(default)s)"
    )
    shape = parser.add_argument_group("of a new cloud")
    shape.add_argument(
        "--fake-computes", type=int, default=FAKE_COMPUTES, help="computes with simulated guests (%(default)s)"
    )
    shape.add_argument(
        "--libvirt",
        action=argparse.BooleanOptionalAction,
        default=Libvirt.missing() is None,
        help="add computes whose guests run under libvirt; default: if libvirt is installed and the user is root",
    )
    shape.add_argument(
        "--libvirt-computes",
        type=int,
        choices=(1, 2),
        default=1,
        help="number of these; guests can migrate live between two (%(default)s)",
    )
    shape.add_argument("--tiers", action="store_true", help="use pCPUs of libvirt computes for tiers, not gangs")
    parser.add_argument(
        "--pool",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="create and start fpga_pool; otherwise Nova is only configured for it",
    )
    arguments = parser.parse_args()
    if arguments.services and arguments.act != "restart":
        parser.error("only restart takes services")
    arguments.directory = arguments.directory.absolute()
    try:
        return ACTS[arguments.act](arguments)
    except FpgaPoolError as error:
        _say(f"all-in-one: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
