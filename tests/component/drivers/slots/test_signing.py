import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key
from fpga_pool.model.exceptions import InvalidInput


def raw(key):
    return key.private_bytes_raw()


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "state" / "signing.pem"
    key = load_or_create_signing_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert raw(load_or_create_signing_key(path)) == raw(key)
    assert [entry.name for entry in path.parent.iterdir()] == ["signing.pem"]


def test_all_who_start_at_once_get_the_same_key(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(load_or_create_signing_key, [tmp_path / "signing.pem"] * 8))
    assert len({raw(key) for key in keys}) == 1


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "signing.pem"
    load_or_create_signing_key(path)
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match=r"mode is 0644, .* must be 0600"):
        load_or_create_signing_key(path)


def test_what_is_no_ed25519_key_is_refused(tmp_path):
    path = tmp_path / "signing.pem"
    path.write_text("no key")
    path.chmod(0o600)
    with pytest.raises(InvalidInput, match="not an unencrypted private key in PEM form"):
        load_or_create_signing_key(path)
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(other)
    with pytest.raises(InvalidInput, match="must contain an Ed25519 key"):
        load_or_create_signing_key(path)
