"""AES-256 in counter mode.

Input: 32 bytes of key, 16 bytes of initial counter block, then the data to encrypt (or decrypt: the same operation).
Result: as many bytes as there is data.
"""

from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fpga_pool.drivers.slots.functions.streams import chunks, read_exactly

KEY_BYTES = 32
COUNTER_BYTES = 16


def run(source: Path, sink: Path) -> None:
    """Write the encrypted data of `source` to `sink`."""
    with source.open("rb") as file, sink.open("wb") as out:
        key = read_exactly(file, KEY_BYTES, "key")
        counter = read_exactly(file, COUNTER_BYTES, "initial counter block")
        encryptor = Cipher(AES(key), CTR(counter)).encryptor()
        for chunk in chunks(file):
            out.write(encryptor.update(chunk))
        out.write(encryptor.finalize())
