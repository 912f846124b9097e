"""Files and directories that options name: whether they can be used is found out at start, not at the first job."""

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from fpga_pool.model.exceptions import InvalidInput

#: Where `fpga-pool-manage keys create` puts them.
KEYS = Path("/etc/fpga_pool/keys")


def state_directory(option: str, path: str) -> Path:
    """Return a directory that belongs to this process; make it if there is none yet."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(f"{option}: {path} cannot be made a directory: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidInput(f"{option}: {path} must be writable for the user of this process")
    return directory


def present_directory(option: str, path: str) -> Path:
    """Return a directory that somebody else fills."""
    if not Path(path).is_dir():
        raise InvalidInput(f"{option}: there is no directory {path}")
    return Path(path)


def private_key(option: str, path: str) -> Ed25519PrivateKey:
    """Return the private key in a file that nobody else can read."""
    content = _content(option, path)
    mode = stat.S_IMODE(Path(path).stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(f"{option}: {path} has mode {mode:04o}, others can use the key; it must be 0600")
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput(f"{option}: {path} holds no private key in PEM form without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{option}: {path} must hold an Ed25519 key")
    return key


def public_key(option: str, path: str) -> Ed25519PublicKey:
    """Return the public key in a file."""
    try:
        key = load_pem_public_key(_content(option, path))
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidInput(f"{option}: {path} holds no public key in PEM form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"{option}: {path} must hold an Ed25519 key")
    return key


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{option}: {path} cannot be read: {error.strerror}; `fpga-pool-manage keys create` makes all keys"
        ) from error
