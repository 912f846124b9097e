"""Depth from two cameras: disparity by block matching.

Input: unsigned 32-bit height, width and number of disparities, little-endian, then the left and the right image, one
byte per pixel.  Result: height x width bytes, the disparity d of each pixel of the left image: where the sum of
absolute differences between the 7 x 7 blocks left[y, x] and right[y, x - d] is least (the smallest such d).
"""

from pathlib import Path

import numpy as np
from scipy.ndimage import convolve1d  # type: ignore[attr-defined]  # exported by a computed __all__

from fpga_pool.drivers.slots.functions.streams import LARGEST_SIDE, read_image_pair

BLOCK = 7
MOST_DISPARITIES = 128
_LIMITS = {"height": LARGEST_SIDE, "width": LARGEST_SIDE, "disparities": MOST_DISPARITIES}
#: Difference where the right image has no such column: no real difference is larger.
OUTSIDE = 255


def run(source: Path, sink: Path) -> None:
    """Write the disparity map of the two images in `source` to `sink`."""
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
