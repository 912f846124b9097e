"""Each model against a plain reference: loops and numpy code, written from the documented formats."""

import struct

import numpy as np
import pytest

from fpga_pool.drivers.slots.functions import images
from fpga_pool.model.exceptions import InvalidInput


def header(*values):
    return struct.pack(f"<{len(values)}I", *values)


# Matrix-vector product


def mvm_input(matrix, vector):
    return header(*matrix.shape) + vector.astype("<f4").tobytes() + matrix.astype("<f4").tobytes()


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (700, 1000)])
def test_mvm_is_the_product(compute, shape):
    rng = np.random.default_rng(0)
    matrix, vector = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[1]).astype(np.float32)
    result = np.frombuffer(compute("mvm", mvm_input(matrix, vector)), "<f4")
    assert result == pytest.approx((matrix.astype(float) * vector.astype(float)).sum(axis=1), rel=1e-5, abs=1e-5)


def test_mvm_refuses_a_matrix_that_is_not_as_large_as_its_header_says(compute):
    data = mvm_input(np.ones((2, 3)), np.ones(3))
    for wrong in (data[:-1], data + b"x"):
        with pytest.raises(InvalidInput, match="specifies 44 bytes in total"):  # 8 + 4 * 3 + 4 * 6
            compute("mvm", wrong)
    with pytest.raises(InvalidInput, match="rows must be 1"):
        compute("mvm", header(0, 3))
    with pytest.raises(InvalidInput, match="header"):
        compute("mvm", b"abc")


# Photo classification


def reference_class(photo):
    """Return the class of one photo in whole-number arithmetic."""
    first = images.weights("fpga_pool dnn layer 1", 3072, 64).astype(np.int64)
    second = images.weights("fpga_pool dnn layer 2", 64, 10).astype(np.int64)
    channels = [p >> 11 for p in photo] + [(p >> 5) & 63 for p in photo] + [p & 31 for p in photo]
    hidden = np.maximum(np.array(channels, dtype=np.int64) @ first, 0) >> 12
    return int(np.argmax(hidden @ second))


def test_dnn_classes_are_those_of_whole_number_arithmetic(compute):
    photos = np.random.default_rng(1).integers(0, 1 << 16, (20, 1024)).astype("<u2")
    photos[0], photos[1] = 0, 0xFFFF
    expected = [reference_class([int(p) for p in photo]) for photo in photos]
    assert list(compute("dnn", photos.tobytes())) == expected


def test_dnn_tells_photos_apart(compute):
    photos = np.random.default_rng(2).integers(0, 1 << 16, (600, 1024)).astype("<u2")
    classes = compute("dnn", photos.tobytes())
    assert len(classes) == 600
    assert 1 < len(set(classes)) <= 10


@pytest.mark.parametrize("size", [0, 1, 2047, 4097])
def test_dnn_refuses_parts_of_photos(compute, size):
    with pytest.raises(InvalidInput, match="one or more photos of 2048 bytes each"):
        compute("dnn", bytes(size))


# Stereo matching


def reference_disparity(left, right, disparities):
    height, width = left.shape
    best = np.zeros((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            costs = []
            for d in range(min(disparities, width)):
                cost = 0
                for dy in range(-3, 4):
                    for dx in range(-3, 4):
                        row, column = min(max(y + dy, 0), height - 1), min(max(x + dx, 0), width - 1)
                        outside = column - d < 0
                        cost += 255 if outside else abs(int(left[row, column]) - int(right[row, column - d]))
                costs.append(cost)
            best[y, x] = costs.index(min(costs))
    return best


@pytest.mark.parametrize(("height", "width", "disparities"), [(1, 1, 4), (8, 12, 5), (9, 3, 8)])
def test_stereo_finds_the_best_block_by_brute_force(compute, height, width, disparities):
    rng = np.random.default_rng(height)
    left, right = rng.integers(0, 256, (2, height, width), dtype=np.uint8)
    result = compute("stereo", header(height, width, disparities) + left.tobytes() + right.tobytes())
    expected = reference_disparity(left, right, disparities)
    assert np.array_equal(np.frombuffer(result, np.uint8).reshape(height, width), expected)


def test_stereo_finds_a_shift(compute):
    scene = np.random.default_rng(5).integers(0, 256, (40, 80), dtype=np.uint8)
    left, right = scene[:, :60], scene[:, 6:66]
    result = compute("stereo", header(40, 60, 16) + left.tobytes() + right.tobytes())
    assert (np.frombuffer(result, np.uint8).reshape(40, 60)[:, 10:] == 6).all()


def test_stereo_refuses_wrong_sizes(compute):
    with pytest.raises(InvalidInput, match=r"disparities must be 1\.\.128, found 129"):
        compute("stereo", header(2, 2, 129) + bytes(8))
    with pytest.raises(InvalidInput, match=r"height must be 1\.\.4096, found 5000"):
        compute("stereo", header(5000, 2, 4))
    with pytest.raises(InvalidInput, match="specifies 20 bytes in total, found 19"):
        compute("stereo", header(2, 2, 4) + bytes(7))


# Optical flow


def flow(compute, earlier, later):
    result = compute("optical_flow", header(*earlier.shape) + earlier.tobytes() + later.tobytes())
    return np.frombuffer(result, "<f4").reshape(*earlier.shape, 2)


def waves(shift_x=0.0, shift_y=0.0):
    """Return a smooth texture that moved by the given pixels."""
    y, x = np.mgrid[0:48, 0:64].astype(float)
    x, y = x - shift_x, y - shift_y
    return (128 + 50 * np.sin(x / 5) + 50 * np.cos(y / 6) + 20 * np.sin((x + y) / 7)).round().astype(np.uint8)


def test_optical_flow_finds_the_motion(compute):
    inside = flow(compute, waves(), waves(0.6, -0.4))[8:-8, 8:-8]
    assert np.abs(inside - [0.6, -0.4]).mean() < 0.05


def test_optical_flow_is_the_least_squares_solution_of_each_window(compute):
    earlier, later = waves(), waves(0.5, 0.5)
    found = flow(compute, earlier, later)
    gradient_y, gradient_x = np.gradient((earlier.astype(float) + later) / 2)
    change = later.astype(float) - earlier
    for y, x in [(10, 10), (20, 41), (30, 25)]:
        window = np.s_[y - 3 : y + 4, x - 3 : x + 4]
        equations = np.stack([gradient_x[window].ravel(), gradient_y[window].ravel()], axis=1)
        expected = np.linalg.lstsq(equations, -change[window].ravel())[0]
        assert found[y, x] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_optical_flow_of_a_plain_wall_is_zero(compute):
    assert not flow(compute, np.full((9, 9), 7, np.uint8), np.full((9, 9), 200, np.uint8)).any()


def test_optical_flow_refuses_wrong_sizes(compute):
    with pytest.raises(InvalidInput, match="at least 2, found 1 and 5"):
        compute("optical_flow", header(1, 5) + bytes(10))
    with pytest.raises(InvalidInput, match="specifies 16 bytes in total, found 17"):
        compute("optical_flow", header(2, 2) + bytes(9))


# Background model


def reference_mask(values):
    """Return the foreground flags of one pixel over time, computed component by component."""
    mixture = [[1.0, float(values[0]), 225.0], [0.0, float(values[0]), 225.0], [0.0, float(values[0]), 225.0]]
    flags = []
    for value in values:
        near = [w > 0 and (value - m) ** 2 < 6.25 * v for w, m, v in mixture]
        owner = near.index(True) if any(near) else None
        heavier = sum(component[0] for component in mixture[:owner]) if owner is not None else 1.0
        flags.append(heavier >= 0.7)
        for i, component in enumerate(mixture):
            weight, mean, variance = component
            component[0] += 0.05 * ((i == owner) - weight)
            if i == owner:
                component[1] += 0.05 * (value - mean)
                component[2] += 0.05 * ((value - mean) ** 2 - variance)
            component[2] = max(component[2], 16.0)
        if owner is None:
            mixture[-1] = [0.05, float(value), 225.0]
        total = sum(component[0] for component in mixture)
        for component in mixture:
            component[0] /= total
        mixture.sort(key=lambda component: -component[0])
    return flags


def test_gmm_is_the_mixture_of_each_pixel(compute):
    rng = np.random.default_rng(4)
    frames = np.clip(100 + 5 * rng.normal(size=(60, 4, 5)), 0, 255)
    # Some pixels flicker between two backgrounds, an object passes over others.
    frames[::3, 0] += 80
    frames[30:34, 2, 1:3] = 240
    frames = frames.astype(np.uint8)
    result = np.frombuffer(compute("gmm", header(*frames.shape) + frames.tobytes()), np.uint8).reshape(frames.shape)
    for y in range(4):
        for x in range(5):
            expected = reference_mask([int(value) for value in frames[:, y, x]])
            assert [bool(flag) for flag in result[:, y, x]] == expected
    assert (result[30, 2, 1:3] == 255).all()
    assert not result[0].any()


def test_gmm_refuses_wrong_sizes(compute):
    with pytest.raises(InvalidInput, match="specifies 20 bytes in total, found 19"):
        compute("gmm", header(2, 2, 2) + bytes(7))
    with pytest.raises(InvalidInput, match="frames must be"):
        compute("gmm", header(0, 2, 2))


def test_gmm_parameters_are_those_of_the_reference():
    assert (images.LEARNING_RATE, images.NEAR, images.FIRST_VARIANCE, images.LEAST_VARIANCE) == (
        0.05,
        6.25,
        225.0,
        16.0,
    )
    assert (images.NEW_WEIGHT, images.BACKGROUND_SHARE, images.COMPONENTS) == (0.05, 0.7, 3)
