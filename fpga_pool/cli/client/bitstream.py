"""`fpga-pool bitstream`: whether hosts can load what the catalogue has."""

import argparse
from collections.abc import Sequence

from fpga_pool.cli.client.base import LongLister, PoolShowOne
from fpga_pool.cli.client.columns import Row, Table
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects.bitstreams import BitstreamInfo

_COLUMNS = (
    "name", "function", "version", "board", "kind", "host", "verified", "reason", "signer", "sha256", "size_bytes",
    "uuid",
)  # fmt: skip


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="HOST", help="look into the library of this host (default: of the first with such a card)"
    )


class List(LongLister):
    """List the bitstreams of the catalogue for the boards of the pool, and whether they are there and verified.

    Example: fpga-pool bitstream list --board demo --host node-1
    """

    SHORT = ("function", "version", "board", "kind", "host", "verified")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for name in ("function", "board", "kind"):
            text = f"only of this {name}{' of slots' if name == 'kind' else ''}; may be repeated"
            parser.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=text)
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        where = {name: getattr(parsed_args, name) for name in ("function", "board", "kind", "host")}
        return _COLUMNS, [_row(one) for one in self.client.bitstreams(**where)]


class Show(PoolShowOne):
    """Show a bitstream: its digest, who signed it, and why it is not verified.

    Example: fpga-pool bitstream show demo/small/sha256 --host node-1
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("bitstream", metavar="BITSTREAM", help="name (board/kind/function) or uuid")
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        wanted = parsed_args.bitstream
        for one in self.client.bitstreams(host=parsed_args.host):
            if wanted in (one.name, one.uuid):
                return _COLUMNS, _row(one)
        raise NotFound(f"no bitstream {wanted!r}; `fpga-pool bitstream list` shows all")


def _row(one: BitstreamInfo) -> Row:
    return tuple(getattr(one, name) for name in _COLUMNS)
