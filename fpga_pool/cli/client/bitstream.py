"""`fpga-pool bitstream` and `design`: the bitstreams of the catalogue on hosts, and the designs of tenants."""

import argparse
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fpga_pool.cli.client.base import (
    LongLister,
    NewestLister,
    OneObject,
    OneOrSeveral,
    OneWork,
    Pages,
    PoolLister,
    PoolShowOne,
    Several,
    uuid_of,
)
from fpga_pool.cli.client.columns import Columns, One, single
from fpga_pool.cli.files import content_of
from fpga_pool.client import Client
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.bitstreams import Design, DesignManifest

_COLUMNS = (
    "name", "function", "version", "board", "kind", "host", "verified", "reason", "signer", "sha256", "size_bytes",
    "uuid",
)  # fmt: skip


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="HOST", help="look into the library of this host (default: of the first with such a card)"
    )


class List(Pages, LongLister):
    """List the bitstreams of the catalogue for the boards of the pool, and whether they are present and verified.

    Example: fpga-pool bitstream list --board demo --host node-1
    """

    SHORT = ("function", "version", "board", "kind", "host", "verified")
    FILTERS: Mapping[str, str] = {"function": "FUNCTION", "board": "BOARD", "kind": "KIND"}
    ASK, COLUMNS = Client.bitstreams, _COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        _add_host(parser)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"host": parsed_args.host}


class Show(PoolShowOne):
    """Show a bitstream: its digest, its signer, and the reason if it is not verified.

    Example: fpga-pool bitstream show demo/small/sha256 --host node-1
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("bitstream", metavar="BITSTREAM", help="name (board/kind/function) or uuid")
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        host = parsed_args.host
        uuid = uuid_of("bitstream", self.client.bitstreams(host=host), parsed_args.bitstream)
        return single(self.client.bitstream(uuid, host), _COLUMNS)


# ---- Designs: functions that tenants submit, and the decisions of operators on them


def _of_manifest(name: str) -> tuple[str, Callable[[Design], Any]]:
    return name, lambda design: getattr(design.manifest, name)


_BOARD, _KIND = _of_manifest("board"), _of_manifest("kind")
_DESIGN_COLUMNS: Columns = (
    "name", "uuid", "function", "state", "public", _BOARD, _KIND, "size_bytes", "signer", "created_at", "reason",
    "sha256",
    *(_of_manifest(name) for name in DesignManifest.__struct_fields__ if name not in ("name", "board", "kind")),
    "project_id",
)  # fmt: skip


def read_manifest(path: str) -> dict[str, Any]:
    """Return the manifest in a TOML file; the API checks its fields."""
    try:
        return tomllib.loads(content_of(Path(path)).decode())
    except ValueError as error:
        raise InvalidInput(f"{path}: {error}") from None


class CreateDesign(PoolShowOne):
    """Submit a function with its bitstream; an operator decides whether it may be loaded.

    Example: fpga-pool design create my_filter.toml my_filter.bin
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("manifest", metavar="MANIFEST", help="TOML file that describes the function")
        parser.add_argument("bitstream", metavar="BITSTREAM", help="file with the partial bitstream")
        parser.add_argument(
            "--signature", metavar="FILE", help="signature of a signer whom the operator trusts (default: unsigned)"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        signature = content_of(Path(parsed_args.signature)) if parsed_args.signature else b""
        manifest = read_manifest(parsed_args.manifest)
        return single(
            self.client.create_design(manifest, content_of(Path(parsed_args.bitstream)), signature), _DESIGN_COLUMNS
        )


class ListDesigns(NewestLister, LongLister):
    """List designs, newest first.

    Example: fpga-pool design list --state SUBMITTED --all-projects
    """

    ASK, COLUMNS = Client.designs, _DESIGN_COLUMNS
    SHORT = ("uuid", "function", "state", "public")
    take_action = PoolLister.take_action  # its columns always include the project


class _OneDesign(OneObject):
    NOUN, COLUMNS = "design", _DESIGN_COLUMNS

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        # An operator names a design of another project by its uuid.
        return super().ask(self.uuid_of_work(self.NOUN, arguments[0]), *arguments[1:], **filters)


class ShowDesign(OneWork):
    """Show a design: its function, the decision on it, and the reason.

    Example: fpga-pool design show my_filter
    """

    NOUN, ASK, COLUMNS = "design", Client.design, _DESIGN_COLUMNS


class DeleteDesigns(Several):
    """Remove designs whose functions are no longer used by jobs or instances.

    Example: fpga-pool design delete my_filter
    """

    NOUN, ASK, COLUMNS = "design", Client.delete_design, _DESIGN_COLUMNS[:3]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--project-id", metavar="ID", help="project that they are of (admins only; default: own)")

    def changes(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return {"project_id": parsed_args.project_id}


class SaveDesign(_OneDesign):
    """Save the bitstream of a design of any project to a file, for a review; for operators.

    Example: fpga-pool design save UUID my_filter.bin
    """

    ASK = Client.design_bitstream

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", help="where to store it; a file that exists is not overwritten")

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        found = self.ask(parsed_args.design)
        try:
            with Path(parsed_args.file).open("xb") as file:
                file.write(found.bitstream)
        except OSError as error:
            raise InvalidInput(f"{parsed_args.file}: cannot be written: {error.strerror}") from None
        return ("file", "size_bytes", "sha256"), (parsed_args.file, len(found.bitstream), found.sha256)


class _Decide(_OneDesign, OneOrSeveral):
    ASK, TABLE = Client.change_design, ListDesigns.SHORT
    STATE: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason, shown to the tenant")
        if self.STATE in (None, "APPROVED"):
            visibility = parser.add_mutually_exclusive_group(required=self.STATE is None)
            visibility.add_argument(
                "--public", action="store_true", default=None, help="jobs of all projects may name its function"
            )
            visibility.add_argument(
                "--private", action="store_false", dest="public", default=None, help="jobs of its own project alone"
            )

    def change(self, name: str, parsed_args: argparse.Namespace) -> Any:
        public = getattr(parsed_args, "public", None)
        return self.ask(name, state=self.STATE, public=public, reason=parsed_args.reason)


class ApproveDesign(_Decide):
    """Approve designs, so that their functions may be loaded; for operators.

    Example: fpga-pool design approve UUID --public --reason reviewed
    """

    STATE = "APPROVED"


class RejectDesign(_Decide):
    """Refuse designs that were submitted; for operators.

    Example: fpga-pool design reject UUID --reason "its time model is wrong"
    """

    STATE = "REJECTED"


class RevokeDesign(_Decide):
    """Withdraw designs: jobs that wait for their functions fail, and these are no longer loaded; for operators.

    Example: fpga-pool design revoke UUID --reason "it hangs"
    """

    STATE = "REVOKED"


class SetDesign(_Decide):
    """Change which projects may use the functions of approved designs; for operators.

    Example: fpga-pool design set UUID --private
    """
