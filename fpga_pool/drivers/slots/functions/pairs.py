"""Functions that process pairs of images: `optical_flow` and `stereo`. They need scipy."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import convolve1d, uniform_filter  # type: ignore[attr-defined]  # exported by a computed __all__

from fpga_pool.drivers.slots.functions.images import read_image_pair
from fpga_pool.drivers.slots.functions.streams import LARGEST_SIDE
from fpga_pool.model.exceptions import InvalidInput

WINDOW = 7
#: Least determinant of the mean structure tensor that counts as texture, in grey values to the fourth.
LEAST_TEXTURE = 1.0


def optical_flow(source: Path, sink: Path) -> None:
    """Compute the motion between two images: Lucas-Kanade optical flow over 7 x 7 windows.

    Input: unsigned 32-bit height and width (at least 2), little-endian, then the earlier and the later image, one byte
    per pixel. Result: height x width pairs of little-endian 32-bit floats, motion in x and in y, in pixels; zero where
    the window has too little texture.
    """
    limits = {"height": LARGEST_SIDE, "width": LARGEST_SIDE}
    (height, width), earlier, later = read_image_pair(source, ("earlier image", "later image"), limits)
    if min(height, width) < 2:
        raise InvalidInput(f"header: height and width must be at least 2, found {height} and {width}")
    sink.write_bytes(_flow(earlier.astype(np.float64), later.astype(np.float64)).astype("<f4").tobytes())


def _flow(earlier: NDArray[np.float64], later: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the motion, shape (H, W, 2): the least-squares solution of Ix u + Iy v = -It in each window."""
    gradient_y, gradient_x = np.gradient((earlier + later) / 2)
    change = later - earlier
    xx, xy, yy = _mean(np.square(gradient_x)), _mean(gradient_x * gradient_y), _mean(np.square(gradient_y))
    xt, yt = _mean(gradient_x * change), _mean(gradient_y * change)
    determinant = xx * yy - xy**2
    textured = determinant >= LEAST_TEXTURE
    divisor = np.where(textured, determinant, 1.0)
    u = np.where(textured, (xy * yt - yy * xt) / divisor, 0.0)
    v = np.where(textured, (xy * xt - xx * yt) / divisor, 0.0)
    return np.stack([u, v], axis=-1)


def _mean(values: ArrayLike) -> NDArray[np.float64]:
    """Return the mean over the window around each pixel, with border pixels repeated outwards."""
    means: NDArray[np.float64] = uniform_filter(values, WINDOW, mode="nearest")
    return means


BLOCK = 7
MOST_DISPARITIES = 128
_LIMITS = {"height": LARGEST_SIDE, "width": LARGEST_SIDE, "disparities": MOST_DISPARITIES}
#: Difference for columns outside the right image: the largest possible difference of two pixels.
OUTSIDE = 255


def stereo(source: Path, sink: Path) -> None:
    """Compute the disparity of two camera images by block matching.

    Input: unsigned 32-bit height, width and number of disparities, little-endian, then the left and the right image,
    one byte per pixel. Result: height x width bytes, the disparity d of each pixel of the left image: where the sum of
    absolute differences between the 7 x 7 blocks left[y, x] and right[y, x - d] is least (the smallest such d).
    """
    (height, width, disparities), left, right = read_image_pair(source, ("left image", "right image"), _LIMITS)
    least = np.full((height, width), np.iinfo(np.int32).max, np.int32)
    best = np.zeros((height, width), np.uint8)
    ones = np.ones(BLOCK, np.int32)
    for disparity in range(min(disparities, width)):
        difference = np.full((height, width), OUTSIDE, np.int32)
        shifted = right[:, : width - disparity].astype(np.int32)
        difference[:, disparity:] = np.abs(left[:, disparity:].astype(np.int32) - shifted)
        cost = convolve1d(convolve1d(difference, ones, 0, mode="nearest"), ones, 1, mode="nearest")
        better = cost < least
        least[better] = cost[better]
        best[better] = disparity
    sink.write_bytes(best.tobytes())
