"""Functions that process byte streams (`aes`, `mvm`, `sha256`, `wordcount`), and readers of binary inputs.

The readers use bounded memory. Headers are little-endian. Inputs must have exactly the size that the header specifies.
Numpy is imported by the functions that compute with it, so that an agent without such jobs does not load it.
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fpga_pool.model.exceptions import InvalidInput

CHUNK_BYTES = 1 << 20
#: Largest height and width of an image. Bounds the memory of functions that hold whole images.
LARGEST_SIDE = 4096


def chunks(file: BinaryIO, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the rest of the file in chunks."""
    while chunk := file.read(size_bytes):
        yield chunk


def read_exactly(file: BinaryIO, size_bytes: int, what: str) -> bytes:
    """Return the next `size_bytes` bytes. Raises InvalidInput if the file is shorter."""
    data = file.read(size_bytes)
    if len(data) < size_bytes:
        raise InvalidInput(f"{what}: expected {size_bytes} bytes, the input ends after {len(data)}")
    return data


def read_header(file: BinaryIO, limits: dict[str, int]) -> tuple[int, ...]:
    """Read one unsigned 32-bit little-endian number per name, each in the range from 1 to its limit."""
    data = read_exactly(file, 4 * len(limits), f"header ({', '.join(limits)})")
    values = struct.unpack(f"<{len(limits)}I", data)
    for (name, limit), value in zip(limits.items(), values, strict=True):
        if not 1 <= value <= limit:
            raise InvalidInput(f"header: {name} must be 1..{limit}, found {value}")
    return values


def require_size(source: Path, expected_bytes: int) -> None:
    """Raise InvalidInput unless the input is exactly as long as its header specifies."""
    found = source.stat().st_size
    if found != expected_bytes:
        raise InvalidInput(f"input: the header specifies {expected_bytes} bytes in total, found {found}")


# ---- Functions


def sha256(source: Path, sink: Path) -> None:
    """Compute the SHA-256 of the input.  Result: 64 hexadecimal digits and a newline."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    sink.write_text(f"{digest.hexdigest()}\n")


def wordcount(source: Path, sink: Path) -> None:
    """Count the words of a text, as `wc -w` counts: runs of bytes that are not ASCII white space.

    Result: the decimal number and a newline.
    """
    import numpy as np

    # Whether each byte value is ASCII white space, shape (256,).
    is_space = np.isin(np.arange(256), np.frombuffer(b" \t\n\v\f\r", np.uint8))
    words = 0
    after_space = True
    with source.open("rb") as file:
        for chunk in chunks(file):
            space = is_space[np.frombuffer(chunk, np.uint8)]
            # A word begins where a non-space follows a space. `after_space` is carried over from the last chunk.
            words += int(after_space and not space[0]) + int(np.count_nonzero(space[:-1] > space[1:]))
            after_space = bool(space[-1])
    sink.write_text(f"{words}\n")


KEY_BYTES = 32
COUNTER_BYTES = 16


def aes(source: Path, sink: Path) -> None:
    """Encrypt or decrypt data with AES-256 in counter mode.

    Input: 32 bytes of key, 16 bytes of initial counter block, then the data to encrypt (or decrypt: the same
    operation). Result: as many bytes as there is data.
    """
    with source.open("rb") as file, sink.open("wb") as out:
        key = read_exactly(file, KEY_BYTES, "key")
        counter = read_exactly(file, COUNTER_BYTES, "initial counter block")
        encryptor = Cipher(AES(key), CTR(counter)).encryptor()
        for chunk in chunks(file):
            out.write(encryptor.update(chunk))
        out.write(encryptor.finalize())


_MVM_LIMITS = {"rows": 2**32 - 1, "columns": 2**20}


def mvm(source: Path, sink: Path) -> None:
    """Compute a matrix-vector product.

    Input: unsigned 32-bit rows and columns, the vector (columns), then the matrix row by row; all values 32-bit floats,
    little-endian. Result: rows 32-bit floats, little-endian; sums are taken in 64 bits.
    """
    import numpy as np

    float32 = np.dtype("<f4")
    with source.open("rb") as file, sink.open("wb") as out:
        rows, columns = read_header(file, _MVM_LIMITS)
        require_size(source, 8 + 4 * columns * (1 + rows))
        vector = np.frombuffer(read_exactly(file, 4 * columns, "vector"), float32).astype(np.float64)
        rows_at_once = max(1, CHUNK_BYTES // (4 * columns))
        for first in range(0, rows, rows_at_once):
            count = min(rows_at_once, rows - first)
            block = np.frombuffer(read_exactly(file, 4 * columns * count, "matrix"), float32)
            # Values beyond the range of 32-bit floats become infinite, as in the accelerator's own arithmetic.
            with np.errstate(over="ignore", invalid="ignore"):
                product = (block.reshape(count, columns).astype(np.float64) @ vector).astype(float32)
            out.write(product.tobytes())
