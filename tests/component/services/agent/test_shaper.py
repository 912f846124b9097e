import math
import threading

import pytest

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.messages.agents import Command, ReleaseFlow, ShapeFlow
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.services.agent import shaper as shaper_module
from fpga_pool.services.agent.shaper import HEAD_START_S, LINGER_S, FlowShaper

#: 4 Mbit/s for 10 s, nothing for 10 s, then 6 Mbit/s for 10 s.
PLAN = (RateSegment(0.0, 10.0, 4e6), RateSegment(20.0, 30.0, 6e6))
BEGIN_S = 1000.0
#: A flow that an earlier agent has left.
LEFT = Flow(
    key="gone.1",
    source_address="192.0.2.1",
    source_port=6000,
    destination_address="192.0.2.2",
    destination_port=9512,
)


class Kernel(EgressDriver):
    """An egress driver without a network. Like the kernel, it keeps its flows when an agent dies."""

    def __init__(self):
        self.limits = {}
        self.refused = set()
        self.foreign, self.tries = set(), []
        self.resets = 0

    def open(self, flow, rate_bps):
        if flow.key in self.foreign:
            self.tries.append(flow.key)
            raise InvalidInput(f"flow {flow.key}: no device is configured for source {flow.source_address}")
        if flow.key in self.refused:
            raise Conflict(f"flow {flow.key}: refused")
        self.limits[flow.key] = LimitedFlow(flow, rate_bps)

    def set_rate(self, key, rate_bps):
        if key not in self.limits:
            raise NotFound(f"flow {key}: not open")
        self.open(self.limits[key].flow, rate_bps)

    def close(self, key):
        self.limits.pop(key, None)

    def flows(self):
        return tuple(self.limits.values())

    def reset(self):
        super().reset()
        self.resets += 1

    def rates(self):
        return {key: limit.rate_bps for key, limit in list(self.limits.items())}


class Clock:
    def __init__(self):
        self.now_s = BEGIN_S

    def __call__(self):
        return self.now_s


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def hand():
    """Return a clock that tests set."""
    return Clock()


@pytest.fixture
def new_shaper(kernel, journal, hand, monkeypatch):
    monkeypatch.setattr("fpga_pool.services.agent.shaper.POLL_S", 0.05)  # how soon it sees a changed clock
    made = []

    def start():
        made.append(FlowShaper(kernel, journal, hand))
        made[-1].start()
        return made[-1]

    yield start
    for shaper in made:
        shaper.stop()


@pytest.fixture
def shape():
    def make(job="j", transfer=PLAN, port=5000, **changes):
        known = {"attempt": 1, "source_address": "192.0.2.1", "destination_address": "192.0.2.2"}
        known |= {"destination_port": 9512, "dispatched_at": BEGIN_S, "source_port": port, "transfer": transfer}
        return ShapeFlow(job=job, **known | changes)

    return make


@pytest.fixture
def note(journal):
    """Return a function that records an action in the journal, like the agent before it executes the action."""

    def command(action):
        name = f"{action.job}.{action.attempt}"
        note = Command(
            id=name + type(action).__name__, shard="s", epoch=1, host="h0", slot="", sequence=0, action=action
        )
        journal.note_flow(note, name)
        return action

    return command


def test_follows_the_plan(new_shaper, kernel, hand, shape, until):
    shaper = new_shaper()
    shaper.take(shape())
    until(lambda: kernel.rates() == {"j.1": 4e6})
    hand.now_s = BEGIN_S + 15.0
    until(lambda: kernel.rates() == {"j.1": 0.0})
    hand.now_s = BEGIN_S + 25.0
    until(lambda: kernel.rates() == {"j.1": 6e6})
    # After the end of its plan, a flow continues at the last rate.
    hand.now_s = BEGIN_S + 35.0
    shaper.take(shape("other", port=5001))
    until(lambda: kernel.rates() == {"j.1": 6e6, "other.1": 6e6})


def test_a_held_flow_is_let_go_a_moment_before_its_time(new_shaper, kernel, hand, shape, until):
    shaper = new_shaper()
    hand.now_s = BEGIN_S + 19.0
    shaper.take(shape())
    until(lambda: kernel.rates() == {"j.1": 0.0})
    hand.now_s = BEGIN_S + 20.0 - HEAD_START_S / 2
    until(lambda: kernel.rates() == {"j.1": 6e6})


def test_release_lifts_the_limit_and_forgets(new_shaper, kernel, journal, shape, note, until):
    shaper = new_shaper()
    for job in ("a", "b"):
        shaper.take(note(shape(job)))
    until(lambda: len(kernel.rates()) == 2)
    shaper.take(ReleaseFlow(job="a", attempt=1))
    until(lambda: list(kernel.rates()) == ["b.1"])
    until(lambda: [action.job for action in journal.flows()] == ["b"])


def test_release_of_what_was_never_shaped_does_nothing(new_shaper, kernel, shape, until):
    shaper = new_shaper()
    shaper.take(ReleaseFlow(job="nothing", attempt=1))
    shaper.take(shape())
    until(lambda: list(kernel.rates()) == ["j.1"])


def test_another_stream_of_the_same_attempt_takes_the_place_of_the_first(new_shaper, kernel, shape, until):
    shaper = new_shaper()
    for port in (5000, 5001):
        shaper.take(shape(port=port))
    until(lambda: [limit.flow.source_port for limit in kernel.flows()] == [5001])


def test_another_plan_for_the_same_stream_changes_its_rate_and_never_lifts_its_limit(
    new_shaper, kernel, hand, shape, until, monkeypatch
):
    closed = []
    monkeypatch.setattr(kernel, "close", closed.append)
    shaper = new_shaper()
    shaper.take(shape())
    until(lambda: kernel.rates() == {"j.1": 4e6})
    hand.now_s = BEGIN_S + 5.0
    shaper.take(shape(transfer=(RateSegment(0.0, 4.0, 7e6),), dispatched_at=BEGIN_S + 5.0))
    until(lambda: kernel.rates() == {"j.1": 7e6})
    assert closed == []


def test_what_a_killed_agent_left_is_lifted_and_what_still_holds_is_set(new_shaper, kernel, shape, note, until):
    note(shape("mine"))
    kernel.open(LEFT, 1e6)
    new_shaper()
    until(lambda: kernel.rates() == {"mine.1": 4e6})
    assert kernel.resets == 1


def test_the_end_lifts_everything_and_the_journal_keeps_the_flows(new_shaper, kernel, journal, shape, note, until):
    shaper = new_shaper()
    shaper.take(note(shape()))
    until(kernel.rates)
    shaper.stop()
    assert kernel.rates() == {}
    assert [action.job for action in journal.flows()] == ["j"]


def test_a_limit_that_is_being_set_while_the_agent_stops_is_lifted(new_shaper, kernel, shape, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()
    opened = kernel.open

    def slowly(flow, rate_bps):
        begun.set()
        assert goes_on.wait(60)
        opened(flow, rate_bps)

    monkeypatch.setattr(kernel, "open", slowly)
    monkeypatch.setattr(shaper_module, "STOP_S", 0.0)
    shaper = new_shaper()
    shaper.take(shape())
    assert begun.wait(60)
    shaper.stop()
    goes_on.set()
    shaper._thread.join(60)
    assert kernel.rates() == {}


def test_a_flow_that_is_refused_does_not_hold_up_the_others_and_is_tried_again(new_shaper, kernel, shape, until):
    kernel.refused.add("bad.1")
    shaper = new_shaper()
    for number, job in enumerate(("a", "bad", "c")):
        shaper.take(shape(job, port=5000 + number))
    until(lambda: kernel.rates() == {"a.1": 4e6, "c.1": 4e6})
    kernel.refused.clear()
    until(lambda: "bad.1" in kernel.rates())


def test_a_flow_for_which_the_host_has_no_device_is_tried_once_and_forgotten(
    new_shaper, kernel, journal, hand, shape, note, until
):
    kernel.foreign.add("foreign.1")
    shaper = new_shaper()
    shaper.take(note(shape("foreign")))
    until(lambda: journal.flows() == [])
    tried = len(kernel.tries)
    shaper.take(note(shape("own", port=5001)))
    hand.now_s = BEGIN_S + 25.0
    until(lambda: kernel.rates() == {"own.1": 6e6})
    assert len(kernel.tries) == tried


def test_a_flow_that_the_kernel_lost_is_opened_again(new_shaper, kernel, hand, shape, until):
    shaper = new_shaper()
    for number, job in enumerate(("lost", "kept")):
        shaper.take(shape(job, port=5000 + number))
    until(lambda: len(kernel.rates()) == 2)
    kernel.close("lost.1")
    hand.now_s = BEGIN_S + 25.0
    until(lambda: kernel.rates() == {"lost.1": 6e6, "kept.1": 6e6})


def test_a_flow_that_nobody_releases_is_let_go_long_after_its_plan(
    new_shaper, kernel, journal, hand, shape, note, until
):
    shaper = new_shaper()
    shaper.take(note(shape()))
    until(kernel.rates)
    hand.now_s = BEGIN_S + 30.0 + LINGER_S + 1.0
    until(lambda: kernel.rates() == {} and journal.flows() == [])


def test_a_plan_without_rates_is_not_limited(new_shaper, kernel, shape, until):
    new_shaper().take(shape(transfer=()))
    until(lambda: kernel.rates() == {"j.1": math.inf})


def test_a_plan_that_makes_no_sense_is_refused(new_shaper, shape):
    with pytest.raises(InvalidInput, match="must begin before it ends"):
        new_shaper().take(shape(transfer=(RateSegment(2.0, 1.0, 1e6),)))


def test_a_stream_to_what_is_no_address_is_refused(new_shaper, shape):
    named = shape(destination_address="responder.example.org")
    with pytest.raises(InvalidInput, match="destination_address: expected an IP address"):
        new_shaper().take(named)
