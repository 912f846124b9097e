"""`fpga-pool-manage keys`, `bitstreams`, `designs`, `rabbitmq` and `prepare`: what services need before they start."""

import argparse
import hashlib
import multiprocessing
import os
import shlex
import signal
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cliff.lister import Lister
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.client.bitstream import read_manifest
from fpga_pool.cli.client.columns import Row, Table
from fpga_pool.conf.catalogue import KEYS, configured_catalogue, private_key
from fpga_pool.conf.policies import compile_loops, policy_names
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable
from fpga_pool.model.objects.bitstreams import DesignManifest
from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.permissions import permissions
from fpga_pool.rpc.transport import EXCHANGE

#: Key pairs by name, with the services that need the private and the public key.
PAIRS = {
    "tokens": ("schedulers", "agents"),
    "bitstreams": ("signer of bitstreams", "agents"),
    "api": ("API", "schedulers"),
    "nova": ("nova-scheduler", "schedulers"),
}


class Create(ManageCommand, Lister):
    """Create the key pairs of the pool, which sign tokens, calls and bitstreams; nothing is overwritten.

    Example: fpga-pool-manage keys create --directory keys
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--directory", type=Path, default=KEYS, help="directory of the keys (default: %(default)s)")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        return ("file", "needed by"), create_key_pairs(parsed_args.directory)


def create_key_pairs(directory: Path) -> Sequence[Row]:
    """Write the key pairs, and return each file with the service that needs it; Conflict if one of them exists."""
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
    """Fill the library for simulated boards with all bitstreams that are missing or not signed with this key.

    Example: fpga-pool-manage bitstreams stock --board demo --key keys/bitstreams.pem
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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

    def take_action(self, parsed_args: argparse.Namespace) -> None:
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
    """Sign a tenant's design (manifest and bitstream) with the key of a signer ([scheduler] design_signers).

    Example: fpga-pool-manage designs sign my_filter.toml my_filter.bin --key signer.pem --output my_filter.sig
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("manifest", metavar="MANIFEST", help="TOML file that describes the function")
        parser.add_argument("bitstream", metavar="BITSTREAM", help="file with the partial bitstream")
        parser.add_argument("--key", metavar="FILE", required=True, help="private key of the signer")
        parser.add_argument("--output", metavar="FILE", required=True, help="where to write the signature")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        key = private_key("--key", parsed_args.key)
        try:
            manifest: DesignManifest = read(DesignManifest, read_manifest(parsed_args.manifest), "manifest")
            sha256 = hashlib.sha256(Path(parsed_args.bitstream).read_bytes()).hexdigest()
            Path(parsed_args.output).write_bytes(key.sign(manifest.signed(sha256)))
        except OSError as error:
            raise InvalidInput(f"{error.filename}: {error.strerror}") from error


class ShowPermissions(ManageCommand):
    """Print the commands that give a RabbitMQ account exactly the permissions that a process of the pool needs.

    Example: fpga-pool-manage rabbitmq permissions agent USER --host node-1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("role", choices=[role.value for role in Role], help="role of the process")
        parser.add_argument("user", metavar="USER", help="account in RabbitMQ")
        parser.add_argument("--host", metavar="HOST", default="", help="name of an agent's host in the pool")
        parser.add_argument(
            "--notifications",
            metavar="TOPIC",
            action="append",
            default=[],
            help="topic of notifications that a scheduler sends; can be repeated",
        )
        parser.add_argument("--vhost", metavar="VHOST", default="/", help="virtual host (default: %(default)s)")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        role = Role(parsed_args.role)
        if (role is Role.AGENT) != bool(parsed_args.host):
            raise InvalidInput("--host: expected for the role agent, and for no other one")
        if parsed_args.notifications and role is not Role.SCHEDULER:
            raise InvalidInput("--notifications: expected for the role scheduler only, the others send none")
        wanted = permissions(role, parsed_args.host, parsed_args.notifications)
        place = ["-p", parsed_args.vhost, parsed_args.user]
        names, keys = [wanted.configure, wanted.write, wanted.read], [EXCHANGE, wanted.topic_write, wanted.topic_read]
        self.print_line(shlex.join(["rabbitmqctl", "set_permissions", *place, *names]))
        self.print_line(shlex.join(["rabbitmqctl", "set_topic_permissions", *place, *keys]))


#: Families of the policies that services use.
FAMILIES = ("batch", "online", "gang", "task")


def _compile(family: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently: the command prints the message
    for name in policy_names(family):
        compile_loops(family, name)


class Prepare(ManageCommand):
    """Compile the loops of all policies, so that no service waits for compilation; run as the user of the services.

    Example: fpga-pool-manage prepare
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if find_spec("numba") is None:
            raise InvalidInput("numba is not installed (extra fast): there is nothing to compile")
        began_s = time.monotonic()
        context = multiprocessing.get_context("fork")
        processes = {family: context.Process(target=_compile, args=[family], daemon=True) for family in FAMILIES}
        for process in processes.values():
            process.start()
        for process in processes.values():
            process.join()
        if failed := [family for family, process in processes.items() if process.exitcode != 0]:
            raise ServiceUnavailable(f"loops were not compiled ({', '.join(failed)}): is there enough memory?")
        self.print_line(f"compiled loops are ready after {time.monotonic() - began_s:.1f} s")
