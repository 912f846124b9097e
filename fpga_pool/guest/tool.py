"""`fpga-pool-guest`: a command-line tool for the accelerators of this machine."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, List, Optional

from fpga_pool.guest.accelerator import Accelerator, Interrupted, NoAccelerator, RequestFailed, all_ports, find

#: Results up to this size are kept in memory until they are complete, larger ones in a temporary file.
MEMORY_BYTES = 1 << 20


def main(argv: "Optional[List[str]]" = None) -> int:
    """Run the tool; return 0, or 1 after an error, which is written to standard error."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.act(arguments)
    except (NoAccelerator, RequestFailed, Interrupted, OSError) as error:
        sys.stderr.write("fpga-pool-guest: {}\n".format(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fpga-pool-guest", description="Use the accelerators of this machine.")
    parser.add_argument("--timeout", type=float, default=60.0, help="timeout of the accelerator in seconds")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True
    listing = commands.add_parser("list", help="list the accelerators")
    listing.set_defaults(act=_list)
    running = commands.add_parser("run", help="compute a function on a file")
    running.add_argument("function", help="function, such as sha256")
    running.add_argument("file", help="input file; - is standard input")
    running.add_argument("-o", "--output", help="output file (default: standard output)")
    running.add_argument("-n", "--number", type=int, default=0, help="number of the accelerator, from 0")
    running.set_defaults(act=_run)
    return parser


def _list(arguments: argparse.Namespace) -> None:
    ports = all_ports()
    if not ports:
        find()  # raises NoAccelerator, which states what is missing
    for number, path in ports:
        with Accelerator(path, arguments.timeout) as accelerator:
            about = accelerator.describe()
        sys.stdout.write("{}  {}  {}\n".format(number, path, about["function"]))


def _run(arguments: argparse.Namespace) -> None:
    path = find(arguments.number)
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as result:
        with _input(arguments.file) as source, Accelerator(path, arguments.timeout) as accelerator:
            accelerator.run(source, result, arguments.function)  # type: ignore[arg-type]
        result.seek(0)
        if arguments.output is None:
            shutil.copyfileobj(result, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            with Path(arguments.output).open("wb") as file:
                shutil.copyfileobj(result, file)


def _input(name: str) -> BinaryIO:
    if name != "-":
        return Path(name).open("rb")
    copy = tempfile.TemporaryFile()  # noqa: SIM115  # its user closes it
    shutil.copyfileobj(sys.stdin.buffer, copy)
    copy.seek(0)
    return copy


if __name__ == "__main__":
    sys.exit(main())
