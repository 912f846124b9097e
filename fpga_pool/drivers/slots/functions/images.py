"""Functions that process photos and video frames, `dnn` and `gmm`, and readers of images."""

import hashlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fpga_pool.drivers.slots.functions.streams import (
    LARGEST_SIDE,
    chunks,
    read_exactly,
    read_header,
    require_size,
)
from fpga_pool.model.exceptions import InvalidInput

PIXELS = 32 * 32
PHOTO_BYTES = 2 * PIXELS
HIDDEN = 64
CLASSES = 10
#: |hidden sum| <= 3072 * 63 * 63 < 2**24; shifted by 12 bits it is < 2978, and 64 * 2978 * 63 < 2**24 again.
LARGEST_WEIGHT = 63
HIDDEN_SHIFT_BITS = 12
_PHOTOS_AT_ONCE = 256

Image = NDArray[np.uint8]


def read_image(file: BinaryIO, height: int, width: int, what: str) -> Image:
    """Return the next image of 8-bit grey values, shape (height, width)."""
    return np.frombuffer(read_exactly(file, height * width, what), np.uint8).reshape(height, width)


def read_image_pair(
    source: Path, what: tuple[str, str], limits: dict[str, int]
) -> tuple[tuple[int, ...], Image, Image]:
    """Return the header values (height and width first) and the two images that follow the header."""
    with source.open("rb") as file:
        header = read_header(file, limits)
        height, width = header[:2]
        require_size(source, 4 * len(limits) + 2 * height * width)
        return header, read_image(file, height, width, what[0]), read_image(file, height, width, what[1])


def weights(name: str, inputs: int, outputs: int) -> NDArray[np.float32]:
    """Return the weights of a layer, shape (inputs, outputs): integers in [-LARGEST_WEIGHT, LARGEST_WEIGHT]."""
    stream = np.frombuffer(hashlib.shake_256(name.encode()).digest(inputs * outputs), np.uint8)
    whole = stream.astype(np.int16) % (2 * LARGEST_WEIGHT + 1) - LARGEST_WEIGHT
    return whole.astype(np.float32).reshape(inputs, outputs)


_FIRST = weights("fpga_pool dnn layer 1", 3 * PIXELS, HIDDEN)
_SECOND = weights("fpga_pool dnn layer 2", HIDDEN, CLASSES)


def dnn(source: Path, sink: Path) -> None:
    """Classify photos with a small quantised neural network with fixed weights.

    Input: photos of 32 x 32 pixels, row by row, each pixel 16 bits little-endian (5 bits red, 6 green, 5 blue): 2048
    bytes per photo, the size in the makespan paper, section 1. Result: one byte per photo, its class 0..9.

    All values are integers small enough for exact sums in 32-bit floats, so every machine gives the same classes,
    whatever its order of summation. The weights are pseudo-random: the network does the same computation as a trained
    one, but its classes have no meaning.
    """
    size_bytes = source.stat().st_size
    if size_bytes == 0 or size_bytes % PHOTO_BYTES:
        raise InvalidInput(f"input: expected one or more photos of {PHOTO_BYTES} bytes each, found {size_bytes} bytes")
    with source.open("rb") as file, sink.open("wb") as out:
        for chunk in chunks(file, _PHOTOS_AT_ONCE * PHOTO_BYTES):
            out.write(_classes(np.frombuffer(chunk, "<u2").reshape(-1, PIXELS)).tobytes())


def _classes(photos: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Return the classes, shape (N,), of photos of shape (N, PIXELS)."""
    channels = np.concatenate([photos >> 11, (photos >> 5) & 0x3F, photos & 0x1F], axis=1)
    hidden = np.maximum(channels.astype(np.float32) @ _FIRST, 0)
    scores = np.floor(hidden / 2**HIDDEN_SHIFT_BITS) @ _SECOND
    classes: NDArray[np.uint8] = np.argmax(scores, axis=1).astype(np.uint8)
    return classes


COMPONENTS = 3
LEARNING_RATE = 0.05
#: Squared distance, in variances, within which a pixel belongs to a component.
NEAR = 6.25
FIRST_VARIANCE = 225.0
LEAST_VARIANCE = 16.0
NEW_WEIGHT = 0.05
#: The heaviest components that together make up this share of a pixel's time are its background.
BACKGROUND_SHARE = 0.7
_LIMITS = {"frames": 2**20, "height": LARGEST_SIDE, "width": LARGEST_SIDE}


class _Mixture:
    """Weights, means and variances, each of shape (COMPONENTS, H, W), sorted by descending weight."""

    def __init__(self, frame: NDArray[np.float64]) -> None:
        self._weight = np.zeros((COMPONENTS, *frame.shape))
        self._weight[0] = 1.0
        self._mean = np.repeat(frame[None], COMPONENTS, axis=0)
        self._variance = np.full_like(self._mean, FIRST_VARIANCE)

    def is_foreground(self, frame: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which pixels of the (H, W) frame are foreground, then update the mixture with the frame."""
        owned, known = self._owners(frame)
        heavier = np.cumsum(self._weight, axis=0) - self._weight
        in_background: NDArray[np.bool_] = np.logical_or.reduce(owned & (heavier < BACKGROUND_SHARE), axis=0)
        self._learn(frame, owned)
        self._replace_lightest(frame, ~known)
        self._sort()
        return ~in_background

    def _owners(self, frame: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the component of each pixel (the heaviest nearby one, as a mask), and whether it has one."""
        near = ((frame - self._mean) ** 2 < NEAR * self._variance) & (self._weight > 0)
        known: NDArray[np.bool_] = np.logical_or.reduce(near, axis=0)
        return near & (np.cumsum(near, axis=0) == 1), known

    def _learn(self, frame: NDArray[np.float64], owned: NDArray[np.bool_]) -> None:
        self._weight += LEARNING_RATE * (owned - self._weight)
        difference = frame - self._mean
        self._mean += np.where(owned, LEARNING_RATE * difference, 0.0)
        self._variance += np.where(owned, LEARNING_RATE * (difference**2 - self._variance), 0.0)
        np.maximum(self._variance, LEAST_VARIANCE, out=self._variance)

    def _replace_lightest(self, frame: NDArray[np.float64], unknown: NDArray[np.bool_]) -> None:
        self._weight[-1][unknown] = NEW_WEIGHT
        self._mean[-1][unknown] = frame[unknown]
        self._variance[-1][unknown] = FIRST_VARIANCE
        self._weight /= self._weight.sum(axis=0)

    def _sort(self) -> None:
        order = np.argsort(-self._weight, axis=0, kind="stable")
        for name in ("_weight", "_mean", "_variance"):
            setattr(self, name, np.take_along_axis(getattr(self, name), order, axis=0))


def gmm(source: Path, sink: Path) -> None:
    """Mark moving objects in a video: a Gaussian mixture per pixel as background model (Stauffer and Grimson 1999).

    Input: unsigned 32-bit frames, height and width, little-endian, then the frames, one byte per pixel. Result: one
    byte per pixel of every frame, 255 = foreground, 0 = background. Each pixel is judged by the mixture before the
    frame updates it; the first frame initialises the mixture and is all background.
    """
    with source.open("rb") as file, sink.open("wb") as out:
        frames, height, width = read_header(file, _LIMITS)
        require_size(source, 12 + frames * height * width)
        mixture: _Mixture | None = None
        for index in range(frames):
            frame = read_image(file, height, width, f"frame {index}").astype(np.float64)
            mixture = mixture or _Mixture(frame)
            out.write(np.where(mixture.is_foreground(frame), np.uint8(255), np.uint8(0)).tobytes())
