import pytest

from fpga_pool.services.clock import FailureDetector


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def failure_detector(now):
    return FailureDetector(lambda: now[0])


def test_a_value_that_changes_is_never_still(failure_detector, now):
    for value in range(3):
        now[0] += 10
        assert failure_detector.note({"a": value}) == {"a": 0.0}


def test_a_value_is_still_since_it_was_first_seen(failure_detector, now):
    failure_detector.note({"a": 1})
    now[0] += 4
    assert failure_detector.note({"a": 1, "b": 1}) == {"a": 4.0, "b": 0.0}
    now[0] += 1
    assert failure_detector.note({"a": 2, "b": 1}) == {"a": 0.0, "b": 1.0}


def test_what_was_gone_is_new_when_it_is_back(failure_detector, now):
    failure_detector.note({"a": 1})
    now[0] += 4
    failure_detector.note({})
    assert failure_detector.note({"a": 1}) == {"a": 0.0}
    assert failure_detector.names == {"a"}


def test_an_observer_that_was_blind_counts_from_when_it_sees_again(failure_detector, now):
    failure_detector.note({"a": 1})
    now[0] += 1000
    failure_detector.restart()
    assert failure_detector.note({"a": 1}) == {"a": 0.0}
