"""`fpga-pool bitstream` and `design`: whether hosts can load what the catalogue has, and what tenants submit."""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpga_pool.cli.client.base import LongLister, Moment, NewestLister, PoolLister, PoolShowOne, Row, Table
from fpga_pool.client import Client
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design, DesignManifest

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
        """Describe the options."""
        parser = super().get_parser(prog_name)
        for name in ("function", "board", "kind"):
            text = f"only of this {name}{' of slots' if name == 'kind' else ''}; may be repeated"
            parser.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=text)
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        where = {name: getattr(parsed_args, name) for name in ("function", "board", "kind", "host")}
        return _COLUMNS, [_row(one) for one in self.client.bitstreams(**where)]


class Show(PoolShowOne):
    """Show a bitstream: its digest, who signed it, and why it is not verified.

    Example: fpga-pool bitstream show demo/small/sha256 --host node-1
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("bitstream", metavar="BITSTREAM", help="name (board/kind/function) or uuid")
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        wanted = parsed_args.bitstream
        for one in self.client.bitstreams(host=parsed_args.host):
            if wanted in (one.name, one.uuid):
                return _COLUMNS, _row(one)
        raise NotFound(f"no bitstream {wanted!r}; `fpga-pool bitstream list` shows all")


def _row(one: BitstreamInfo) -> Row:
    return tuple(getattr(one, name) for name in _COLUMNS)


# ---- Designs: functions that tenants submit, and what operators decide on them

_DESIGN_COLUMNS = (
    "uuid", "name", "function", "state", "public", "board", "kind", "size_bytes", "signer", "created_at", "reason",
    "sha256", *(name for name in DesignManifest.__struct_fields__ if name not in ("name", "board", "kind")),
    "project_id",
)  # fmt: skip


def read_manifest(path: str) -> dict[str, Any]:
    """Return the manifest in a TOML file, of which the API checks the fields."""
    try:
        return tomllib.loads(_content(path).decode())
    except ValueError as error:
        raise InvalidInput(f"{path}: {error}") from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None


class CreateDesign(PoolShowOne):
    """Submit a function with its bitstream; an operator decides whether it may be loaded.

    Example: fpga-pool design create my_filter.toml my_filter.bin
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("manifest", metavar="MANIFEST", help="TOML file that describes the function")
        parser.add_argument("bitstream", metavar="BITSTREAM", help="file with the partial bitstream")
        parser.add_argument(
            "--signature", metavar="FILE", help="signature of a signer whom the operator trusts (default: unsigned)"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Send and show."""
        signature = _content(parsed_args.signature) if parsed_args.signature else b""
        manifest = read_manifest(parsed_args.manifest)
        return _design_details(self.client.create_design(manifest, _content(parsed_args.bitstream), signature))


class ListDesigns(NewestLister, LongLister):
    """List designs, newest first."""

    SHORT = ("uuid", "name", "function", "state", "public", "board", "kind", "project_id")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        found = self.client.designs(**self.filters(parsed_args))
        return _DESIGN_COLUMNS, [_design_row(one, _DESIGN_COLUMNS) for one in found]


class _OneDesign(PoolShowOne):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("design", metavar="DESIGN", help="uuid, or name of a design of the project")
        return parser


class ShowDesign(_OneDesign):
    """Show a design: what its function is like, and what was decided on it, and why."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _design_details(self.client.design(_design_uuid(self.client, parsed_args.design)))


class DeleteDesigns(PoolLister):
    """Remove designs whose functions no jobs need any more."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("designs", nargs="+", metavar="DESIGN", help="uuid, or name of a design of the project")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Remove each."""
        gone = self.for_each(parsed_args.designs, lambda one: self.client.delete_design(_design_uuid(self.client, one)))
        columns = ("uuid", "name", "function")
        return columns, [_design_row(one, columns) for one in gone]


class SaveDesign(_OneDesign):
    """Store the bitstream of a design of any project in a file, to decide on it; for operators."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="where to store it; a file that exists is not overwritten")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and store."""
        found = self.client.design_bitstream(_design_uuid(self.client, parsed_args.design))
        try:
            with Path(parsed_args.file).open("xb") as file:
                file.write(found.bitstream)
        except OSError as error:
            raise InvalidInput(f"{parsed_args.file}: cannot be written: {error.strerror}") from None
        return ("file", "size_bytes", "sha256"), (parsed_args.file, len(found.bitstream), found.sha256)


class _Decide(_OneDesign):
    STATE: str | None = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason, shown to the tenant")
        if self.STATE in (None, "APPROVED"):
            visibility = parser.add_mutually_exclusive_group(required=self.STATE is None)
            visibility.add_argument(
                "--public", action="store_true", default=None, help="jobs of all projects may name its function"
            )
            visibility.add_argument(
                "--private", action="store_false", dest="public", default=None, help="jobs of its own project alone"
            )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        change = {"state": self.STATE, "public": getattr(parsed_args, "public", None), "reason": parsed_args.reason}
        return _design_details(self.client.change_design(_design_uuid(self.client, parsed_args.design), **change))


class ApproveDesign(_Decide):
    """Let the function of a design be loaded; for operators."""

    STATE = "APPROVED"


class RejectDesign(_Decide):
    """Refuse a design that was submitted; for operators."""

    STATE = "REJECTED"


class RevokeDesign(_Decide):
    """Withdraw a design: jobs that wait for its function fail, and it is loaded nowhere any more; for operators."""

    STATE = "REVOKED"


class SetDesign(_Decide):
    """Say which projects may name the function of an approved design; for operators."""


def _design_uuid(client: Client, wanted: str) -> str:
    """Return the uuid of a design that is named by it, or by its name in the project."""
    if len(wanted) == 36:
        return wanted
    for one in client.designs(limit=None):
        if wanted == one.name:
            return one.uuid
    raise NotFound(f"no design {wanted!r} in this project; `fpga-pool design list` shows all")


def _design_row(one: Design, columns: Sequence[str]) -> Row:
    shown = {name: getattr(one.manifest, name) for name in DesignManifest.__struct_fields__}
    shown |= {name: getattr(one, name) for name in columns if name not in shown}
    shown |= {"state": str(one.state), "created_at": Moment(one.created_at)}
    return tuple(shown[name] for name in columns)


def _design_details(one: Design) -> tuple[Sequence[str], Row]:
    return _DESIGN_COLUMNS, _design_row(one, _DESIGN_COLUMNS)
