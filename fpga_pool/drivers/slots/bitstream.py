"""Partial bitstreams: the signed artefacts that load a function into a region kind of a board, and their signing key.

A file consists of the canonical manifest (JSON, sorted keys, one line), a line with its hexadecimal Ed25519 signature
(empty if unsigned), and the payload.  The manifest contains the SHA-256 of the payload, so the signature covers both.
"""

import hashlib
import json
import os
import re
import stat
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fpga_pool.model.catalogue import Board, Catalogue, Function
from fpga_pool.model.exceptions import BitstreamRefused, InvalidInput, NotFound
from fpga_pool.model.objects.bitstreams import DesignManifest


def load_or_create_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key stored at `path` (PEM, mode 0600); create it if it does not exist."""
    if not path.exists():
        _create(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(f"{path}: mode is {mode:04o}, so that other users can read the key; it must be 0600")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{path}: not an unencrypted private key in PEM form: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path}: must contain an Ed25519 key")
    return key


def _create(path: Path) -> None:
    """Write a new key. If several processes do so concurrently, the first wins and all use its key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # NamedTemporaryFile creates with mode 0600.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
        try:
            path.hardlink_to(file.name)
        except FileExistsError:
            return


FORMAT_VERSION = 1

#: Limit of the search for a line end. A manifest has a few hundred bytes.
_LONGEST_LINE = 4096
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The target of a bitstream, and the digest of its payload."""

    format_version: int
    board: str
    region_kind: str
    function: str
    function_version: str
    size_bytes: int
    sha256: str

    def canonical(self) -> bytes:
        """Return the bytes that are signed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Parse a manifest. Raises BitstreamRefused unless it has exactly the expected fields."""
        try:
            data = json.loads(line)
        except ValueError as error:
            raise BitstreamRefused(f"manifest: not JSON: {error}") from None
        if not isinstance(data, dict) or set(data) != {field.name for field in fields(cls)}:
            raise BitstreamRefused(f"manifest: expected the keys {', '.join(field.name for field in fields(cls))}")
        for field in fields(cls):
            if type(data[field.name]) is not field.type:
                raise BitstreamRefused(f"manifest: {field.name} is of the wrong type")
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Bitstream:
    """A partial bitstream as read. Its content is untrusted until `verify` has succeeded."""

    manifest: Manifest
    #: Empty = unsigned.
    signature: bytes
    payload: bytes

    def encode(self) -> bytes:
        """Return the content of the bitstream's file."""
        return b"\n".join((self.manifest.canonical(), self.signature.hex().encode(), self.payload))

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Parse the content of a file. Raises BitstreamRefused if it is not a bitstream."""
        manifest_end = content.find(b"\n", 0, _LONGEST_LINE)
        signature_end = content.find(b"\n", manifest_end + 1, manifest_end + _LONGEST_LINE)
        if manifest_end < 0 or signature_end < 0:
            raise BitstreamRefused("not a bitstream: manifest and signature lines are missing")
        try:
            signature = bytes.fromhex(content[manifest_end + 1 : signature_end].decode())
        except ValueError:
            raise BitstreamRefused("signature: not hexadecimal") from None
        return cls(Manifest.parse(content[:manifest_end]), signature, content[signature_end + 1 :])


def build(board: Board, region_kind: str, function: Function, key: Ed25519PrivateKey) -> Bitstream:
    """Return a signed bitstream for the simulated library, with a pseudo-random payload derived from the names."""
    size_bytes = board.regions[region_kind].bitstream_bytes
    seed = f"{board.name}/{region_kind}/{function.name}/{function.version}".encode()
    payload = hashlib.shake_256(seed).digest(size_bytes)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        board=board.name,
        region_kind=region_kind,
        function=function.name,
        function_version=function.version,
        size_bytes=size_bytes,
        sha256=hashlib.sha256(payload).hexdigest(),
    )
    return Bitstream(manifest, key.sign(manifest.canonical()), payload)


def of_design(design: DesignManifest, function: str, payload: bytes) -> Bitstream:
    """Return the unsigned bitstream of a design, which is trusted by its digest instead (`SlotDriver.admit`)."""
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        board=design.board,
        region_kind=design.kind,
        function=function,
        function_version=design.version,
        size_bytes=len(payload),
        sha256=hashlib.sha256(payload).hexdigest(),
    )
    return Bitstream(manifest, b"", payload)


def is_signed(bitstream: Bitstream, public_key: Ed25519PublicKey) -> bool:
    """Return whether the signature is valid for the manifest under this key."""
    try:
        public_key.verify(bitstream.signature, bitstream.manifest.canonical())
    except InvalidSignature:
        return False
    return True


def verify(
    bitstream: Bitstream, public_key: Ed25519PublicKey, board: str, region_kind: str, function: Function
) -> None:
    """Raise BitstreamRefused unless the bitstream is signed, unaltered, and for this board, region and function."""
    # The signature is checked first: without it nothing in the manifest can be trusted.
    if not bitstream.signature:
        raise BitstreamRefused(f"bitstream of {function.name} is unsigned")
    if not is_signed(bitstream, public_key):
        raise BitstreamRefused(
            f"bitstream of {function.name}: the signature does not match the manifest and the trusted key"
        )
    verify_content(bitstream, board, region_kind, function)


def verify_content(bitstream: Bitstream, board: str, region_kind: str, function: Function) -> None:
    """Raise BitstreamRefused unless the bitstream is unaltered and made for this board, region kind and function."""
    manifest = bitstream.manifest
    expected = {
        "format_version": FORMAT_VERSION,
        "board": board,
        "region_kind": region_kind,
        "function": function.name,
        "function_version": function.version,
        "size_bytes": len(bitstream.payload),
        "sha256": hashlib.sha256(bitstream.payload).hexdigest(),
    }
    for name, wanted in expected.items():
        found = getattr(manifest, name)
        if found != wanted:
            raise BitstreamRefused(f"bitstream of {function.name}: {name} is {found!r}, expected {wanted!r}")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers see the old or the new content, never a part of it, even after a crash."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


class BitstreamLibrary:
    """Bitstreams in a directory: ROOT/BOARD/KIND/FUNCTION.bit, in their current versions."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, function: str, board: str, kind: str) -> Bitstream:
        """Return the bitstream, unverified. Raises NotFound if the library does not contain it."""
        path = self._path(function, board, kind)
        try:
            return Bitstream.decode(path.read_bytes())
        except FileNotFoundError:
            raise NotFound(f"no bitstream of {function} for {kind} regions of {board} in the library") from None

    def write(self, bitstream: Bitstream) -> None:
        """Store the bitstream and replace an earlier version atomically."""
        manifest = bitstream.manifest
        path = self._path(manifest.function, manifest.board, manifest.region_kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, bitstream.encode())

    def fill(self, catalogue: Catalogue, board: Board, key: Ed25519PrivateKey) -> None:
        """Build the bitstreams of this board that are missing, or are for another version or under another key."""
        for function, kind in catalogue.loadable(board):
            if not self._holds(board, kind, function, key):
                self.write(build(board, kind, function, key))

    def _holds(self, board: Board, kind: str, function: Function, key: Ed25519PrivateKey) -> bool:
        try:
            bitstream = self.read(function.name, board.name, kind)
            verify(bitstream, key.public_key(), board.name, kind, function)
        except (NotFound, BitstreamRefused):
            return False
        return bitstream.manifest.size_bytes == board.regions[kind].bitstream_bytes

    def _path(self, function: str, board: str, kind: str) -> Path:
        for name in (function, board, kind):
            if not _SAFE_NAME.fullmatch(name):
                raise NotFound(f"{name!r} is not a valid name of a function, board or region kind")
        return self._root / board / kind / f"{function}.bit"
