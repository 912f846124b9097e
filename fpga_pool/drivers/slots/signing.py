"""The key pair that signs the bitstreams of a simulated library."""

import os
import stat
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fpga_pool.model.exceptions import InvalidInput


def load_or_create_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key stored at `path` (PEM, mode 0600); make one if there is none yet."""
    if not path.exists():
        _create(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(f"{path}: mode is {mode:04o}, others can use the key; it must be 0600")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{path}: not a private key in PEM form without a password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path}: must hold an Ed25519 key")
    return key


def _create(path: Path) -> None:
    """Write a new key; of several processes that try at once the first wins and all use its key."""
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
