from fpga_pool.nova_plugin.pool import Breaker


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_who_does_not_answer_is_left_alone_for_a_while_and_then_asked_once():
    clock = Clock()
    breaker = Breaker(2, 30.0, clock)
    breaker.note_failure()
    assert breaker.closed()
    breaker.note_failure()
    assert not breaker.closed()
    clock.now_s = 30.0
    assert breaker.closed()
    assert not breaker.closed()  # the call that was let through is not answered yet
    breaker.note_answer()
    assert breaker.closed()


def test_an_answer_between_failures_begins_the_count_again():
    breaker = Breaker(2, 30.0, Clock())
    breaker.note_failure()
    breaker.note_answer()
    breaker.note_failure()
    assert breaker.closed()
