"""The guests of a host in their tiers, while guests and the agent start and stop."""

import contextlib
import time

import pytest

from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.drivers.tiers.simulated import SimulatedTiers
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier
from fpga_pool.services.agent.tiers.service import Tiers

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
INTERVAL_S = 0.02
PATIENCE_S = 60.0


class Accounts:
    """The allocations of Placement. Changes are accepted while `refusal` is None."""

    def __init__(self):
        self.allocated = {}
        self.refusal = None
        self.reserved = self.syncs = 0

    def sync(self, reserved=0):
        self.reserved = reserved
        self.syncs += 1

    def tiers(self):
        if isinstance(self.refusal, ServiceUnavailable):
            raise self.refusal
        return dict(self.allocated)

    def exchange(self, tiers):
        if self.refusal is not None:
            raise self.refusal
        if self.reserved and BEHIND in tiers.values():
            raise Conflict("no room")
        self.allocated |= {each: tier for each, tier in tiers.items() if each in self.allocated}


class Bench:
    """A host with guests that are described by files."""

    def __init__(self, directory):
        self.directory, self.accounts, self.running = directory, None, None
        (directory / "guests").mkdir()

    def driver(self):
        return SimulatedTiers(self.directory / "guests", host_pcpus=4)

    def boot(self, name, tier, vcpus=1):
        (self.directory / "guests" / f"{name}.xml").write_text(
            f"<domain><name>{name}</name><uuid>{name}</uuid><vcpu>{vcpus}</vcpu>"
            f"<metadata>{wish(tier) if tier else ''}</metadata></domain>"
        )

    def end(self, name):
        (self.directory / "guests" / f"{name}.xml").unlink()

    def start(self, pcpus=(0, 1)):
        self.running = Tiers(
            self.driver(), pcpus, self.directory / "tiers.json", self.accounts, INTERVAL_S, usage_threshold=0.96
        )
        self.running.start()
        return self.running

    def stop(self):
        if self.running is not None:
            self.running.stop()
            self.running = None

    def seen(self):
        return {guest.instance: (guest.tier, guest.pcpus) for guest in self.driver().guests()}

    def until_true(self, condition):
        give_up_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_s
            time.sleep(INTERVAL_S)

    def until(self, expected):
        give_up_s = time.monotonic() + PATIENCE_S
        while self.seen() != expected:
            assert time.monotonic() < give_up_s, self.seen()
            time.sleep(INTERVAL_S)
        time.sleep(3 * INTERVAL_S)  # the state stays the same
        assert self.seen() == expected


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.stop()


def test_guests_are_put_into_their_tiers_when_they_start_and_others_are_left_alone(bench):
    bench.start()
    bench.boot("front", "foreground")
    bench.until({"front": (FRONT, (0,))})
    bench.boot("behind", "background")
    bench.boot("plain", None)
    bench.until({"front": (FRONT, (0,)), "behind": (BEHIND, (1,))})
    assert not (bench.directory / "guests" / "plain.tier").exists()


def test_a_pcpu_carries_one_guest_of_each_tier_and_who_finds_none_is_left_as_it_is(bench, caplog):
    bench.boot("a", "foreground", vcpus=2)
    bench.start()
    bench.until({"a": (FRONT, (0, 1))})
    bench.boot("b", "foreground")
    bench.boot("c", "background", vcpus=2)
    bench.until({"a": (FRONT, (0, 1)), "b": (None, ()), "c": (BEHIND, (0, 1))})
    complaints = [record.message for record in caplog.records if "guest b" in record.message]
    assert complaints == ["guest b: not changed: 1 pCPUs requested in the foreground, but only 0 of 2 are free there"]
    bench.end("a")  # a may be rebooting; but b needs a pCPU now
    bench.until({"b": (FRONT, (0,)), "c": (BEHIND, (0, 1))})


def test_a_swap_is_restored_after_a_hard_reboot_and_by_the_next_agent(bench):
    bench.boot("a", "foreground")
    bench.boot("b", "background")
    bench.start(pcpus=(3,))
    bench.until({"a": (FRONT, (3,)), "b": (BEHIND, (3,))})
    bench.running.swap("a", "b")
    swapped = {"a": (BEHIND, (3,)), "b": (FRONT, (3,))}
    assert bench.seen() == swapped
    bench.until(swapped)

    bench.end("b")

    def nothing_is_left():  # a reboot clears its settings; an inspection in progress may write them once more
        with contextlib.suppress(NotFound):
            bench.driver().cpu_times_s("b")
        return not (bench.directory / "guests" / "b.tier").exists()

    bench.until_true(nothing_is_left)
    bench.boot("b", "background")
    bench.until(swapped)

    bench.stop()
    # Steps that a killed agent had not done, or had half done.
    bench.driver().set_tiers({"b": BEHIND})
    bench.driver().release("a")
    bench.start(pcpus=(3,))
    bench.until(swapped)


def test_what_a_dead_agent_left_of_a_guest_that_is_not_the_pools_is_given_back(bench):
    bench.boot("a", "foreground")
    bench.driver().place("a", FRONT, [0])
    bench.boot("a", None)
    assert bench.seen() == {"a": (FRONT, (0,))}
    bench.start()
    bench.until({})


def test_auto_is_in_the_background_until_there_is_room_in_the_foreground(bench):
    bench.boot("a", "foreground")
    bench.start(pcpus=(1,))
    bench.until({"a": (FRONT, (1,))})
    bench.boot("c", "auto")
    bench.until({"a": (FRONT, (1,)), "c": (BEHIND, (1,))})
    bench.boot("a", None)  # it no longer requests a tier
    bench.until({"c": (FRONT, (1,))})


def test_who_is_gone_for_long_is_not_waited_for(bench, monkeypatch):
    bench.boot("a", "foreground")
    bench.start(pcpus=(1,))
    bench.until({"a": (FRONT, (1,))})
    bench.end("a")
    bench.boot("c", "auto")
    bench.until({"c": (BEHIND, (1,))})
    monkeypatch.setattr("fpga_pool.services.agent.tiers.service.FORGET_S", 0.1)
    bench.until({"c": (FRONT, (1,))})


def test_changes_that_cannot_be_are_refused_and_change_nothing(bench):
    bench.boot("a", "foreground", vcpus=2)
    bench.boot("b", "background")
    bench.start()
    before = {"a": (FRONT, (0, 1)), "b": (BEHIND, (0,))}
    bench.until(before)
    with pytest.raises(Conflict):
        bench.running.set_tiers({"b": FRONT})
    with pytest.raises(NotFound, match="guest x"):
        bench.running.set_tiers({"a": BEHIND, "x": FRONT})
    with pytest.raises(NotFound, match="guest x"):
        bench.running.swap("a", "x")
    with pytest.raises(InvalidInput):
        bench.running.set_tiers({"b": Tier.AUTO})
    bench.until(before)


def test_a_change_that_placement_refuses_does_not_happen(bench):
    bench.accounts = Accounts()
    bench.boot("a", "foreground")
    bench.boot("b", "background")
    bench.accounts.allocated = {"a": FRONT, "b": BEHIND}
    bench.start(pcpus=(0,))
    before = {"a": (FRONT, (0,)), "b": (BEHIND, (0,))}
    bench.until(before)
    for refusal in (Conflict("no room"), ServiceUnavailable("away")):
        bench.accounts.refusal = refusal
        with pytest.raises(type(refusal)):
            bench.running.swap("a", "b")
        bench.until(before)
    bench.accounts.refusal = None
    bench.running.swap("a", "b")
    bench.until({"a": (BEHIND, (0,)), "b": (FRONT, (0,))})
    assert bench.accounts.allocated == {"a": BEHIND, "b": FRONT}


def test_what_placement_has_allocated_comes_before_what_an_agent_had_written(bench):
    """The agent was killed after the exchange in Placement and before it updated its own file."""
    bench.accounts = Accounts()
    bench.accounts.allocated = {"a": FRONT, "b": BEHIND}
    bench.boot("a", "foreground")
    bench.boot("b", "background")
    bench.start(pcpus=(0,))
    bench.until({"a": (FRONT, (0,)), "b": (BEHIND, (0,))})
    bench.stop()
    bench.accounts.allocated = {"a": BEHIND, "b": FRONT}
    bench.start(pcpus=(0,))
    bench.until({"a": (BEHIND, (0,)), "b": (FRONT, (0,))})


def test_auto_takes_no_foreground_that_placement_did_not_give(bench):
    bench.accounts = Accounts()
    bench.boot("a", "auto")
    bench.boot("stranger", "auto")
    bench.accounts.allocated = {"a": BEHIND}
    bench.start()
    bench.until({"a": (FRONT, (0,)), "stranger": (BEHIND, (1,))})
    assert bench.accounts.allocated == {"a": FRONT}


def test_the_background_of_a_pcpu_that_its_foreground_uses_wholly_is_reserved_until_it_is_changed(bench, monkeypatch):
    monkeypatch.setattr("fpga_pool.services.agent.tiers.service.SHORTEST_S", 0.1)
    monkeypatch.setattr("fpga_pool.services.agent.tiers.service.RESERVE_S", 0.0)
    bench.accounts = Accounts()
    bench.boot("a", "foreground")
    bench.accounts.allocated = {"a": FRONT}
    bench.start()
    bench.until_true(lambda: bench.accounts.reserved == 1)
    monkeypatch.setattr("fpga_pool.services.agent.tiers.service.RESERVE_S", 1e9)
    begun = bench.accounts.syncs
    bench.until_true(lambda: bench.accounts.syncs > begun + 1)  # the inspection in progress has ended
    bench.running.set_tiers({"a": BEHIND})  # it frees the background itself
    bench.until({"a": (BEHIND, (0,))})
    assert (bench.accounts.reserved, bench.accounts.allocated) == (0, {"a": BEHIND})


def test_pcpus_that_are_taken_from_the_tiers_are_left(bench):
    bench.boot("a", "foreground")
    bench.start(pcpus=(0,))
    bench.until({"a": (FRONT, (0,))})
    bench.stop()
    bench.start(pcpus=(2, 3))
    bench.until({"a": (FRONT, (2,))})


def test_usage_is_measured_per_vcpu(bench):
    bench.boot("a", "foreground", vcpus=2)
    tiers = bench.start()
    bench.until({"a": (FRONT, (0, 1))})
    tiers._inspecting.stop()
    # The clock stands still between its reading and the measurement of the guest.
    now = [time.monotonic()]
    tiers._meter._now_s = tiers._driver._now_s = lambda: now[0]
    for _ in range(2):
        now[0] += 10.0
        tiers._inspect()
    # The guest uses all of its vCPUs in the foreground.
    (guest,) = tiers.guests()
    assert guest.usage == guest.pcpu_usage == pytest.approx((1.0, 1.0))
    assert (guest.wanted, guest.tier, guest.pcpus) == (FRONT, FRONT, (0, 1))
