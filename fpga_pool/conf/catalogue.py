"""[functions]: the catalogue of the pool, and checks that the files and directories that options name can be used."""

import os
import ssl
import stat
import sys
import tomllib
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from oslo_config import cfg

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidCatalogue, InvalidInput

#: Directory in which `fpga-pool-manage keys create` stores the keys.
KEYS = Path("/etc/fpga_pool/keys")


def state_directory(option: str, path: str) -> Path:
    """Return a directory that belongs to this process; create it if it does not exist."""
    directory = Path(path)
    if not directory.is_absolute():  # it would depend on where the process is started
        raise InvalidInput(f"{option}: expected an absolute path, found {path!r}")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(f"{option}: cannot create directory {path}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidInput(f"{option}: {path} must be writable for the user of this process")
    return directory


def present_directory(option: str, path: str) -> Path:
    """Return a directory that is filled by others; InvalidInput if it does not exist."""
    if not Path(path).is_dir():
        raise InvalidInput(f"{option}: directory {path} does not exist")
    return Path(path)


def private_key(option: str, path: str) -> Ed25519PrivateKey:
    """Return the private key in a file that other users cannot read."""
    key = _any_private_key(option, path, _content(option, path), 0o600)
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{option}: {path} must contain an Ed25519 key")
    return key


def _any_private_key(option: str, path: str, content: bytes, allowed: int) -> object:
    mode = stat.S_IMODE(Path(path).stat().st_mode)
    if mode & 0o077 & ~allowed:
        raise InvalidInput(
            f"{option}: {path} has mode {mode:04o}, so that other users can read the key; it must be {allowed:04o}"
        )
    try:
        return load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput(f"{option}: {path} does not contain an unencrypted private key in PEM form") from None


def server_tls(conf: cfg.ConfigOpts, group: str, certificate: str, key: str) -> ssl.SSLContext | None:
    """Return the TLS context of a server, from two options of a group; None if they are not set.

    The key may be readable by its group, such as ssl-cert.  InvalidInput names the option and file that are unusable.
    """
    paths = {name: conf[group][name] for name in (certificate, key)}
    given = [name for name, path in paths.items() if path]
    if not given:
        return None
    if len(given) == 1:
        (missing,) = paths.keys() - set(given)
        raise InvalidInput(f"[{group}] {missing}: required because {given[0]} is {paths[given[0]]}; set both or none")
    options = {name: f"[{group}] {name}" for name in paths}
    contents = {name: _content(options[name], path, "") for name, path in paths.items()}
    _any_private_key(options[key], paths[key], contents[key], 0o640)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        x509.load_pem_x509_certificates(contents[certificate])
        context.load_cert_chain(paths[certificate], paths[key])
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{paths[key]} is not the key of the certificate in {paths[certificate]}"
            raise InvalidInput(f"{options[key]}: {reason}") from None
        raise InvalidInput(f"{options[certificate]}: {paths[certificate]} cannot be used: {error}") from None
    except ValueError:
        reason = f"{paths[certificate]} does not contain a certificate in PEM form"
        raise InvalidInput(f"{options[certificate]}: {reason}") from None
    return context


def trusted_authorities(option: str, path: str) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the authorities in a file or directory."""
    directory = Path(path).is_dir()
    try:
        return ssl.create_default_context(capath=path) if directory else ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidInput(f"{option}: {path} cannot be used: {error.strerror or error}") from None


def present_file(option: str, path: str) -> None:
    """Raise InvalidInput if a file cannot be read."""
    _content(option, path, "")


def public_key(option: str, path: str) -> Ed25519PublicKey:
    """Return the public key in a file."""
    return _public_key(option, path, _content(option, path))


def public_keys(option: str, path: str) -> tuple[Ed25519PublicKey, ...]:
    """Return the public keys in a file: while a private key is replaced, the old one and the new one."""
    parts = _content(option, path).split(_BEGIN)
    return tuple(_public_key(option, path, _BEGIN + part) for part in parts[1:] or [b""])


_BEGIN = b"-----BEGIN"


def _public_key(option: str, path: str, content: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidInput(f"{option}: {path} does not contain a public key in PEM form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"{option}: {path} must contain an Ed25519 key")
    return key


_ADVICE = "; `fpga-pool-manage keys create` creates all keys"


def _content(option: str, path: str, advice: str = _ADVICE) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{option}: {path} cannot be read: {error.strerror}{advice}") from error


GROUP = cfg.OptGroup("functions", title="Functions and boards")
OPTS = [
    cfg.StrOpt(
        "catalogue",
        help="Catalogue file, the same for schedulers and agents; defaults to /etc/fpga_pool/catalogue.toml, or else "
        "the catalogue installed with fpga_pool.",
    ),
]


def configured_catalogue(conf: cfg.ConfigOpts) -> Catalogue:
    """Return the catalogue of this pool."""
    return load_catalogue(Path(conf.functions.catalogue) if conf.functions.catalogue else installed_catalogue())


_TOO_DEEP = "nested too deeply; a catalogue has tables of values in tables of functions and boards"


def load_catalogue(path: Path) -> Catalogue:
    """Return the catalogue in the TOML file at `path`; InvalidCatalogue names the file, and the line or key."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidCatalogue(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidCatalogue(f"{path}: line {line}: not UTF-8 text") from error
    except ValueError as error:  # also raised for integers with thousands of digits
        raise InvalidCatalogue(f"{path}: {error}") from error
    except RecursionError:
        raise InvalidCatalogue(f"{path}: {_TOO_DEEP}") from None
    try:
        return Catalogue.from_mapping(data, str(path))
    except RecursionError:  # a wrong value is nested too deeply even to be shown in an error message
        raise InvalidCatalogue(f"{path}: {_TOO_DEEP}") from None


def installed_catalogue() -> Path:
    """Return the path of the operator's catalogue in /etc, or else of the one installed with fpga_pool."""
    places = [
        Path("/etc/fpga_pool/catalogue.toml"),
        Path(sys.prefix) / "etc" / "fpga_pool" / "catalogue.toml",
        Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml",  # a source tree
    ]
    for place in places:
        if place.is_file():
            return place
    raise InvalidCatalogue(f"no catalogue found; looked for {', '.join(map(str, places))}")
