"""Photo classification by a small quantised neural network with fixed weights.

Input: photos of 32 x 32 pixels, row by row, each pixel 16 bits little-endian (5 bits red, 6 green, 5 blue): 2048
bytes per photo, the size in the makespan paper, section 1.  Result: one byte per photo, its class 0..9.

All values are whole numbers small enough that 32-bit floats add them exactly, so every machine, whatever its order of
summation, gives the same classes.  The weights are pseudo-random: the network computes as a trained one does, but its
classes mean nothing.
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fpga_pool.drivers.slots.functions.streams import chunks
from fpga_pool.model.exceptions import InvalidInput

PIXELS = 32 * 32
PHOTO_BYTES = 2 * PIXELS
HIDDEN = 64
CLASSES = 10
#: |hidden sum| <= 3072 * 63 * 63 < 2**24; shifted by 12 bits it is < 2978, and 64 * 2978 * 63 < 2**24 again.
LARGEST_WEIGHT = 63
HIDDEN_SHIFT_BITS = 12
_PHOTOS_AT_ONCE = 256


def weights(name: str, inputs: int, outputs: int) -> NDArray[np.float32]:
    """Return the (inputs, outputs) weights of a layer: whole numbers up to LARGEST_WEIGHT either way."""
    stream = np.frombuffer(hashlib.shake_256(name.encode()).digest(inputs * outputs), np.uint8)
    whole = stream.astype(np.int16) % (2 * LARGEST_WEIGHT + 1) - LARGEST_WEIGHT
    return whole.astype(np.float32).reshape(inputs, outputs)


_FIRST = weights("fpga_pool dnn layer 1", 3 * PIXELS, HIDDEN)
_SECOND = weights("fpga_pool dnn layer 2", HIDDEN, CLASSES)


def run(source: Path, sink: Path) -> None:
    """Write the class of every photo in `source` to `sink`."""
    size_bytes = source.stat().st_size
    if size_bytes == 0 or size_bytes % PHOTO_BYTES:
        raise InvalidInput(f"input: expected one or more photos of {PHOTO_BYTES} bytes each, found {size_bytes} bytes")
    with source.open("rb") as file, sink.open("wb") as out:
        for chunk in chunks(file, _PHOTOS_AT_ONCE * PHOTO_BYTES):
            out.write(_classes(np.frombuffer(chunk, "<u2").reshape(-1, PIXELS)).tobytes())


def _classes(photos: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Return the (N,) classes of (N, PIXELS) photos."""
    channels = np.concatenate([photos >> 11, (photos >> 5) & 0x3F, photos & 0x1F], axis=1)
    hidden = np.maximum(channels.astype(np.float32) @ _FIRST, 0)
    scores = np.floor(hidden / 2**HIDDEN_SHIFT_BITS) @ _SECOND
    classes: NDArray[np.uint8] = np.argmax(scores, axis=1).astype(np.uint8)
    return classes
