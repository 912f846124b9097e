import pytest

from fpga_pool.services.stillness import Stillness


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def stillness(now):
    return Stillness(lambda: now[0])


def test_a_value_that_changes_is_never_still(stillness, now):
    for value in range(3):
        now[0] += 10
        assert stillness.note({"a": value}) == {"a": 0.0}


def test_a_value_is_still_since_it_was_first_seen(stillness, now):
    stillness.note({"a": 1})
    now[0] += 4
    assert stillness.note({"a": 1, "b": 1}) == {"a": 4.0, "b": 0.0}
    now[0] += 1
    assert stillness.note({"a": 2, "b": 1}) == {"a": 0.0, "b": 1.0}


def test_what_was_gone_is_new_when_it_is_back(stillness, now):
    stillness.note({"a": 1})
    now[0] += 4
    stillness.note({})
    assert stillness.note({"a": 1}) == {"a": 0.0}
    assert stillness.names == {"a"}


def test_an_observer_that_was_blind_counts_from_when_it_sees_again(stillness, now):
    stillness.note({"a": 1})
    now[0] += 1000
    stillness.restart()
    assert stillness.note({"a": 1}) == {"a": 0.0}
