from types import SimpleNamespace

from fpga_pool.services import clock as clock_module
from fpga_pool.services.clock import SteadyClock


def test_it_does_not_follow_the_systems_clock(monkeypatch):
    clock = SteadyClock()
    before = clock()
    monkeypatch.setattr(clock_module.time, "time", lambda: 0.0)
    assert before <= clock() < before + 60


def test_a_clock_that_was_started_behind_the_pool_goes_on_from_the_pools_time(monkeypatch, caplog):
    now_s, at_s = 1e9, 0.0
    # Time passes only when the test lets it. Otherwise, a twentieth of a second would change the logged difference.
    there = SimpleNamespace(time=lambda: now_s - 3600, monotonic=lambda: at_s)
    monkeypatch.setattr(clock_module, "time", there)
    clock = SteadyClock()
    clock.advance_to(now_s)
    assert clock() == now_s
    assert "differs from the pool's by 3600.0 s" in caplog.text
    at_s = 2.0
    clock.advance_to(now_s - 5)
    assert clock() == now_s + 2


def test_it_is_steady_since_its_last_large_correction(monkeypatch):
    at_s = 1000.0
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: at_s)
    clock = SteadyClock()
    at_s = 1100.0
    clock.advance_to(clock() + 5)
    assert clock.steady_s == 100.0
    clock.agree(clock() - 3600, clock(), clock())
    assert clock.steady_s == 0.0
    at_s = 1130.0
    assert clock.steady_s == 30.0


def test_it_follows_another_clock_that_cannot_be_the_same(caplog):
    clock = SteadyClock()
    asked_at = clock()
    clock.agree(asked_at - 3600, asked_at, asked_at + 2)
    # The other clock was read half way between request and answer, at asked_at + 1 of this clock.
    assert asked_at - 3601 <= clock() < asked_at - 3601 + 60
    assert "differs from the pool's by -3601" in caplog.text


def test_it_stays_as_it_is_while_the_other_may_be_the_same():
    clock = SteadyClock()
    offset_s = clock._offset_s
    clock.agree(100.5, 100.0, 101.0)
    assert clock._offset_s == offset_s
