import hashlib
import shutil
import subprocess

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.drivers.slots.functions import streams
from fpga_pool.model.exceptions import InvalidInput

EACH_EXAMPLE_REWRITES_THE_FILES = [HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3_000_001])
def test_sha256_is_that_of_hashlib(compute, size):
    data = np.random.default_rng(size).bytes(size)
    assert compute("sha256", data) == hashlib.sha256(data).hexdigest().encode() + b"\n"


@settings(suppress_health_check=EACH_EXAMPLE_REWRITES_THE_FILES)
@given(st.text(alphabet="ab \t\n\v\f\ré0", max_size=200))
def test_wordcount_is_that_of_split(compute, text):
    # bytes.split() without arguments splits at runs of ASCII white space, as wc -w does.
    assert int(compute("wordcount", text.encode())) == len(text.encode().split())


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7])
def test_wordcount_does_not_depend_on_where_chunks_end(compute, monkeypatch, chunk_bytes):
    chunks = streams.chunks
    monkeypatch.setattr(streams, "chunks", lambda file: chunks(file, chunk_bytes))
    assert compute("wordcount", b"  one two\n\nthree f ") == b"4\n"


@pytest.mark.skipif(shutil.which("wc") is None, reason="needs wc")
def test_wordcount_agrees_with_wc(compute):
    rng = np.random.default_rng(3)
    data = rng.choice(np.frombuffer(b"abcdefg \n\t", np.uint8), 2_500_000).tobytes()
    expected = subprocess.run(["wc", "-w"], input=data, capture_output=True, check=True).stdout
    assert int(compute("wordcount", data)) == int(expected)


def test_aes_matches_the_published_vector(compute):
    # NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt, first block.
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    assert compute("aes", key + counter + plain).hex() == "601ec313775789a5b7a7f504bbf3d228"


@pytest.mark.parametrize("size", [0, 1, 16, (1 << 20) - 48, 2_000_003])
def test_aes_decrypts_to_the_input(compute, size):
    data = np.random.default_rng(size).bytes(48 + size)
    key, counter, plain = data[:32], data[32:48], data[48:]
    decryptor = Cipher(AES(key), CTR(counter)).decryptor()
    assert decryptor.update(compute("aes", data)) + decryptor.finalize() == plain


@pytest.mark.parametrize(
    ("size", "message"),
    [(0, "key: expected 32 bytes"), (31, "key: expected 32 bytes"), (47, "initial counter block: expected 16 bytes")],
)
def test_aes_refuses_an_input_without_key_and_counter(compute, size, message):
    with pytest.raises(InvalidInput, match=message):
        compute("aes", bytes(size))
