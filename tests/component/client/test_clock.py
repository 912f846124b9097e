import math

from fpga_pool.client.session import PoolClock


def test_clock_goes_by_the_quickest_answer_and_is_not_ahead_of_the_pool():
    clock = PoolClock()
    assert clock.monotonic_s(100.0) == math.inf
    clock.note(100.0, 10.5)
    clock.note(101.0, 11.1)  # this answer took 0.4 s less to arrive
    clock.note(102.0, 12.3)
    assert clock.monotonic_s(110.0) == 110.0 - (101.0 - 11.1)


def test_clock_follows_one_that_is_put_back():
    clock = PoolClock()
    clock.note(100.0, 10.0)
    for second in range(1, 33):  # another scheduler answers, whose clock is one second behind
        clock.note(99.0 + second, 10.0 + second)
    assert clock.monotonic_s(199.0) == 110.0
