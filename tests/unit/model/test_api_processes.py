"""The API processes that the pool remembers."""

import pytest

from fpga_pool.model.objects.hosts import (
    DOWN_S,
    FORGOTTEN_S,
    MOST_API_PROCESSES,
    ApiProcess,
    api_process_name,
    superfluous_processes,
)


@pytest.mark.parametrize(
    ("silent_s", "is_up", "is_forgotten"),
    [(DOWN_S, True, False), (DOWN_S + 1, False, False), (FORGOTTEN_S, False, False), (FORGOTTEN_S + 1, False, True)],
)
def test_one_that_is_silent_is_down_and_later_forgotten(silent_s, is_up, is_forgotten):
    one = ApiProcess(name="a:1", heard_at=100.0)
    assert (one.is_up(100.0 + silent_s), one.is_forgotten(100.0 + silent_s)) == (is_up, is_forgotten)


def test_those_that_were_heard_last_are_kept_and_the_one_that_speaks_has_room():
    known = [ApiProcess(name=f"a:{n}", heard_at=float(n)) for n in range(1, MOST_API_PROCESSES + 1)]
    assert superfluous_processes(known, "a:1", now_s=300.0) == []
    assert superfluous_processes(known, "b:1", now_s=300.0) == ["a:1"]
    # Processes up to a:9 have been silent for more than an hour.
    assert set(superfluous_processes(known, "a:4", now_s=FORGOTTEN_S + 9.5)) == {f"a:{n}" for n in range(1, 10)} - {
        "a:4"
    }


def test_a_name_is_no_longer_than_the_database_takes():
    assert len(api_process_name("h" * 255, 2**31 - 1)) <= 255
