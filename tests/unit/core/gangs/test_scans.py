"""The compiled scans return the same as their reference in numpy."""

import numpy as np
import pytest

from fpga_pool.core.gangs import scans as kernels

from . import scans_in_numpy as scans

PROCESSORS = 12


@pytest.fixture(params=range(40))
def rng(request):
    return np.random.default_rng(request.param)


def test_lines_stay_in_order(rng):
    lines = [(np.empty(64), np.empty(64, np.int64)) for _ in range(2)]
    there = []
    for gang in rng.permutation(30).tolist():
        key = float(rng.integers(4))
        for module, (keys, rows) in zip((scans, kernels), lines, strict=True):
            module.insert(keys, rows, len(there), key, gang)
        there.append((key, gang))
        if rng.random() < 0.4:
            key, gang = there.pop(int(rng.integers(len(there))))
            for module, (keys, rows) in zip((scans, kernels), lines, strict=True):
                assert not module.remove(keys, rows, len(there) + 1, key, 99)
                assert module.remove(keys, rows, len(there) + 1, key, gang)
        for keys, rows in lines:
            found = zip(keys[: len(there)].tolist(), rows[: len(there)].tolist(), strict=True)
            assert list(found) == sorted(there)


def test_the_head_starts_at_the_same_time(rng):
    count = int(rng.integers(1, 10))
    keys, rows = np.sort(rng.integers(0, 6, count)).astype(float), rng.permutation(20)[:count]
    width = rng.integers(1, 5, 20)
    idle = int(rng.integers(0, 3))
    need = int(rng.integers(1, idle + width[rows].sum() + 1))
    for now_s in (0.0, 3.0):
        for all_ends in (False, True):
            asked = keys, rows, count, width, idle, need, now_s, all_ends
            assert scans.head_start(*asked) == kernels.head_start(*asked)


def test_the_next_to_be_served_is_the_same(rng):
    rows, width, run_s = rng.permutation(20), rng.integers(1, 9, 20), rng.integers(1, 9, 20).astype(float)
    for begin in (0, 3, 20):
        for room in (0, 2, 8):
            for extra in (-1, 1, 3):
                asked = rows, begin, 20, width, run_s, room, 1.0, 3.0, extra
                assert scans.next_fill(*asked) == kernels.next_fill(*asked)


def test_the_next_that_is_narrow_enough_for_the_background_is_the_same(rng):
    rows, width = rng.permutation(20), rng.integers(1, 6, 20)
    behind = rng.integers(-1, 2, PROCESSORS)
    front_usage = rng.choice((0.0, 0.5, 0.7, 0.99), PROCESSORS)
    for begin in (0, 3, 20):
        for usage_threshold in (0.0, 0.6, 0.96):
            asked = rows, begin, 20, width, behind, front_usage, usage_threshold
            found = scans.next_narrow(*asked)
            assert found == kernels.next_narrow(*asked)
            room = ((behind < 0) & (front_usage < usage_threshold)).sum()
            assert found == next((at for at in range(begin, 20) if width[rows[at]] <= room), -1)


def test_the_next_with_room_behind_is_the_same(rng):
    rows, width = rng.permutation(20), rng.integers(1, 6, 20)
    highest = rng.choice((0.3, 0.6, 0.96), 20)
    for value in (width, highest):
        value.flags.writeable = False
    behind = rng.integers(-1, 2, PROCESSORS)
    front_usage = rng.choice((0.0, 0.5, 0.7, 0.99), PROCESSORS)
    for begin in (0, 3, 20):
        asked = rows, begin, 20, width, highest, behind, front_usage, 0.96
        found = scans.next_behind(*asked)
        assert found == kernels.next_behind(*asked)
        # By counting the processors with room below the highest usage of each gang.
        fits = [
            at
            for at in range(begin, 20)
            if ((behind < 0) & (front_usage < min(0.96, highest[rows[at]]))).sum() >= width[rows[at]]
        ]
        assert found == (fits[0] if fits else -1)


def test_processors_and_rates_are_the_same(rng):
    front, behind = rng.integers(-1, 3, PROCESSORS), rng.integers(-1, 3, PROCESSORS)
    front_usage = np.where(front < 0, 0.0, rng.choice((0.5, 0.7, 1.0), PROCESSORS))
    behind_usage = np.where(behind < 0, 0.0, rng.choice((0.5, 0.7, 1.0), PROCESSORS))
    spared = np.sort(rng.permutation(PROCESSORS)[: int(rng.integers(0, 4))])
    for width in (1, 3, PROCESSORS):
        for asked in ((behind, front_usage, 0.96, width), (behind, front_usage, 2.0, width)):
            assert scans.idle_behind(*asked).tolist() == kernels.idle_behind(*asked).tolist()
        for gang in (0, 7):
            of_gang = front, behind, behind_usage, gang, width, spared
            assert scans.idle_in_front(*of_gang).tolist() == kernels.idle_in_front(*of_gang).tolist()
    for gang in range(3):
        processors = np.flatnonzero(behind == gang)
        if len(processors):
            assert scans.all_idle(front, processors) == kernels.all_idle(front, processors)
            placed = front_usage, behind_usage, processors, 0.5, 0.96
            assert scans.behind_rate(*placed) == kernels.behind_rate(*placed)
