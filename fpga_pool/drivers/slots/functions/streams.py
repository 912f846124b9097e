"""Reading the binary inputs of the functions: little-endian headers, exact sizes, bounded memory."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fpga_pool.model.exceptions import InvalidInput

CHUNK_BYTES = 1 << 20
#: Largest height and width of an image: bounds the memory of the functions that hold whole images.
LARGEST_SIDE = 4096

Image = NDArray[np.uint8]


def chunks(file: BinaryIO, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Return the rest of the file piece by piece."""
    while chunk := file.read(size_bytes):
        yield chunk


def read_exactly(file: BinaryIO, size_bytes: int, what: str) -> bytes:
    """Return the next bytes; InvalidInput if the file ends before."""
    data = file.read(size_bytes)
    if len(data) < size_bytes:
        raise InvalidInput(f"{what}: expected {size_bytes} bytes, the input ends after {len(data)}")
    return data


def read_header(file: BinaryIO, limits: dict[str, int]) -> tuple[int, ...]:
    """Return one unsigned 32-bit little-endian number per name, each from 1 to its limit."""
    data = read_exactly(file, 4 * len(limits), f"header ({', '.join(limits)})")
    values = struct.unpack(f"<{len(limits)}I", data)
    for (name, limit), value in zip(limits.items(), values, strict=True):
        if not 1 <= value <= limit:
            raise InvalidInput(f"header: {name} must be 1..{limit}, found {value}")
    return values


def require_size(source: Path, expected_bytes: int) -> None:
    """Refuse an input that is not exactly as long as its header says."""
    found = source.stat().st_size
    if found != expected_bytes:
        raise InvalidInput(f"input: the header specifies {expected_bytes} bytes in total, found {found}")


def read_image(file: BinaryIO, height: int, width: int, what: str) -> Image:
    """Return the next (height, width) image of 8-bit grey values."""
    return np.frombuffer(read_exactly(file, height * width, what), np.uint8).reshape(height, width)


def read_image_pair(
    source: Path, what: tuple[str, str], limits: dict[str, int]
) -> tuple[tuple[int, ...], Image, Image]:
    """Return the header values (height and width first) and the two images that are the rest of the input."""
    with source.open("rb") as file:
        header = read_header(file, limits)
        height, width = header[:2]
        require_size(source, 4 * len(limits) + 2 * height * width)
        return header, read_image(file, height, width, what[0]), read_image(file, height, width, what[1])
