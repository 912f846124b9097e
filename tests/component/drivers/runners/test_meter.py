"""The reported progress of a process whose CPU time is read at intervals."""

from fpga_pool.drivers.runners.domain import Meter


def told(meter, readings):
    return [meter.measure(done_s, now_s) for now_s, done_s in readings]


def test_a_process_that_goes_on_evenly_is_told_of_once():
    meter = Meter()
    said = told(meter, [(float(t), 0.9 * t) for t in range(60)])
    # The first reading gives the position, the next one after 2 s the rate. After that nothing new is reported.
    assert len(set(said)) == 2
    assert abs(said[-1].rate - 0.9) < 1e-9


def test_a_process_that_becomes_slower_is_told_of_again():
    meter = Meter()
    told(meter, [(float(t), float(t)) for t in range(10)])
    slow = told(meter, [(float(t), 10 + 0.2 * (t - 10)) for t in range(10, 40)])[-1]
    assert 0.15 < slow.rate < 0.25
    # The report is accurate to a tenth of the time since it was made, or to a second.
    assert abs(slow.done_s + slow.rate * (39 - slow.at) - (10 + 0.2 * 29)) <= max(1.0, 0.1 * (39 - slow.at))


def test_a_process_that_stands_still_has_no_rate():
    meter = Meter()
    told(meter, [(float(t), float(t)) for t in range(5)])
    assert told(meter, [(float(t), 5.0) for t in range(5, 20)])[-1].rate == 0.0
