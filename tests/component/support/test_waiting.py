import pytest

from fpga_pool.model.exceptions import ServiceUnavailable
from support import waiting
from support.waiting import wait_until


def test_what_is_found_is_returned_after_looks_that_find_nothing():
    found = iter([None, [], 0, "there"])
    assert wait_until(lambda: next(found), "something is there") == "there"
    assert list(found) == []


def test_a_wait_in_vain_says_for_what():
    with pytest.raises(ServiceUnavailable, match="not within 0 s: pigs fly"):
        wait_until(lambda: False, "pigs fly", 0)


def test_looks_take_a_tenth_of_the_time_at_most(monkeypatch):
    class Clock:
        now_s, pauses_s = 0.0, []

        def monotonic(self):
            return self.now_s

        def sleep(self, pause_s):
            self.now_s += pause_s
            self.pauses_s.append(pause_s)

    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)

    def look(took_s):
        clock.now_s += took_s
        return took_s == 0

    # After checks of 1 ms, 100 ms and 3 s, the pause is the shortest one, nine times the check, and the longest one.
    looks_s = iter([0.001, 0.1, 3.0, 0.0])
    assert waiting.wait_until(lambda: look(next(looks_s)), "the last look")
    assert clock.pauses_s == [0.05, pytest.approx(0.9), 2.0]
