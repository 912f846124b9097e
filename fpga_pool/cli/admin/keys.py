"""`fpga-pool-manage keys`, `bitstreams` and `designs`: the pool's key pairs, and what is signed with such keys."""

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cliff.lister import Lister
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.client.base import Row, Table
from fpga_pool.cli.client.bitstream import read_manifest
from fpga_pool.conf.catalogue import KEYS, configured_catalogue, private_key
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.objects.bitstreams import DesignManifest

#: What each pair is for, and who needs which half.
PAIRS = {
    "tokens": ("schedulers", "agents"),
    "bitstreams": ("signer of bitstreams", "agents"),
    "api": ("API", "schedulers"),
    "nova": ("nova-scheduler", "schedulers"),
}


class Create(ManageCommand, Lister):
    """Make the key pairs of the pool, which sign tokens, calls and bitstreams; nothing is overwritten."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--directory", type=Path, default=KEYS, help="directory of the keys (default: %(default)s)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Make them all, or none."""
        return ("file", "needed by"), create_key_pairs(parsed_args.directory)


def create_key_pairs(directory: Path) -> Sequence[Row]:
    """Write the pairs; return each file with who needs it."""
    present = [path for name in PAIRS for path in _files(directory, name) if path.exists()]
    if present:
        raise Conflict(
            f"{present[0]} exists: a new key would invalidate everything signed with the old one; remove it first"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        rows: list[Row] = []
        for name, users in PAIRS.items():
            key = Ed25519PrivateKey.generate()
            private, public = _files(directory, name)
            _write(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
            _write(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
            rows += zip((str(private), str(public)), users, strict=True)
    except OSError as error:
        raise InvalidInput(f"--directory: {error}") from error
    return rows


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.pem", directory / f"{name}.pub"


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(content)


class FillLibrary(ManageCommand):
    """Fill the library for simulated boards: for each function and region what is missing or not of this key."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--board",
            metavar="BOARD",
            action="append",
            help="board of the catalogue; may be repeated (default: [driver_simulated] board)",
        )
        parser.add_argument(
            "--key",
            metavar="FILE",
            default=str(KEYS / "bitstreams.pem"),
            help="private key that signs the bitstreams (default: %(default)s)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Build and sign."""
        catalogue, root = configured_catalogue(self.conf), Path(self.conf.agent.bitstream_library)
        key = private_key("--key", parsed_args.key)
        library = BitstreamLibrary(root)
        for name in parsed_args.board or [self.conf.driver_simulated.board]:
            try:
                library.fill(catalogue, catalogue.board(name), key)
            except OSError as error:
                raise InvalidInput(f"[agent] bitstream_library: {error}") from error
            self.print_line(f"{name}: {root / name}")


class SignDesign(ManageCommand):
    """Sign a tenant's design, its manifest and its bitstream, with the key of a signer ([scheduler] design_signers)."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("manifest", metavar="MANIFEST", help="TOML file that describes the function")
        parser.add_argument("bitstream", metavar="BITSTREAM", help="file with the partial bitstream")
        parser.add_argument("--key", metavar="FILE", required=True, help="private key of the signer")
        parser.add_argument("--output", metavar="FILE", required=True, help="where to write the signature")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Sign."""
        key = private_key("--key", parsed_args.key)
        try:
            manifest: DesignManifest = read(DesignManifest, read_manifest(parsed_args.manifest), "manifest")
            sha256 = hashlib.sha256(Path(parsed_args.bitstream).read_bytes()).hexdigest()
            Path(parsed_args.output).write_bytes(key.sign(manifest.signed(sha256)))
        except OSError as error:
            raise InvalidInput(f"{error.filename}: {error.strerror}") from error
