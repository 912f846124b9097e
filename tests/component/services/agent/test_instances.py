"""Instances from the hook's request to their end: the real agent, with a hypervisor and a scheduler in memory."""

import contextlib
import threading

import pytest

from fpga_pool.drivers.slots.base import SlotAddress
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable, StorageFull
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot

from .node import SLOTS, xml

SHA256_OF_ABC = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"


def test_a_machine_starts_when_its_slots_are_ready_and_computes_on_them(host, until):
    host.instances.asked("prepare", xml(count=2))
    assert host.held() == SLOTS
    assert all(host.bench.jobs.holds.of(slot).ready for slot in SLOTS)
    host.machines.begin(xml(count=2))
    until(lambda: host.machines.ports("vm") == [0, 1])
    assert host.compute(number=0) == SHA256_OF_ABC
    assert host.compute(number=1) == SHA256_OF_ABC


def test_a_machine_that_ended_leaves_its_slots_scrubbed_to_others(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.compute(data=b"secret")
    host.machines.end("vm")
    until(lambda: host.held() == [] and not any(host.bench.driver.memory(host.bench.address)))
    assert host.slots.held == {}
    until(lambda: host.instances._supervisors == {})


def test_an_end_that_nobody_told_is_noticed(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.machines.end("vm", told=False)
    until(lambda: host.held() == [])


def test_a_start_without_slots_is_refused_and_gives_back_all(host, until):
    with pytest.raises(Conflict, match="cannot give 3 slots"):
        host.instances.asked("prepare", xml(count=3))
    until(lambda: ("ask", "h0") in host.slots.calls and host.instances._supervisors == {})
    assert host.held() == []


def test_a_start_whose_load_fails_is_refused_and_gives_back_all(host, until):
    host.bench.driver.fail_next_load(host.bench.address)
    with pytest.raises(Exception, match="loading sha256 failed"):
        host.instances.asked("prepare", xml())
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_cannot_have_ports_is_refused_before_anything_is_claimed(host):
    with pytest.raises(InvalidInput, match="no controller"):
        host.instances.asked("prepare", xml("bare"))
    assert ("claim", "bare") not in host.slots.calls


def test_a_start_that_failed_after_its_slots_were_ready_gives_them_back_at_once(host, until):
    host.instances.asked("prepare", xml())
    host.instances.asked("release", xml())
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_is_about_to_start_keeps_its_slots_although_it_does_not_run_yet(host):
    host.instances.asked("prepare", xml())
    for _ in range(10):
        host.instances._supervisors["vm"]._inspect()
    assert host.held() == [SLOTS[0]]


def test_a_machine_that_is_started_again_has_slots_whatever_is_heard_of_its_end(host, until):
    """Hard reboot: the end of the old machine is reported during the next start, and after it."""
    host.boot(xml())
    for _ in range(5):
        host.machines.end("vm", told=False)
        host.instances.asked("release", xml())
        host.instances.asked("prepare", xml())
        host.instances.changed("vm")
        assert host.held() == [SLOTS[0]]
        host.machines.begin(xml())
        until(lambda: host.machines.ports("vm") == [0])
    assert host.compute() == SHA256_OF_ABC


def test_a_machine_restored_with_its_ports_is_served_on_them(host, until):
    """Resume after suspend: libvirt saved the channel with the machine."""
    host.instances.asked("prepare", xml())
    host.machines.begin(xml(), ports=[0, 1])
    until(lambda: host.machines.ports("vm") == [0])
    assert host.compute() == SHA256_OF_ABC


def test_guests_are_served_again_after_the_agent_was_started_again(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.restart()
    assert host.held() == [SLOTS[0]]
    assert host.compute() == SHA256_OF_ABC


def test_a_machine_that_ended_while_the_agent_was_away_leaves_its_slots(host, until):
    host.boot(xml())
    host.instances.stop()
    host.bench.stop()
    host.machines.end("vm", told=False)
    host.bench.start()
    host.start()
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_runs_without_slots_gets_them(host, until):
    host.machines.begin(xml())
    host.instances.changed("")
    until(lambda: host.held() == [SLOTS[0]])
    assert host.compute() == SHA256_OF_ABC


def test_slots_are_given_back_when_the_scheduler_is_there_again(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.slots.refusal = ServiceUnavailable("away")
    host.machines.end("vm")
    with pytest.raises(ServiceUnavailable):
        host.instances.asked("prepare", xml("other"))
    host.slots.refusal = None
    until(lambda: host.held() == [] and host.slots.held == {})


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), StorageFull("the database is full")])
def test_a_start_waits_for_a_scheduler_that_gives_no_slots_for_a_moment(host, error):
    host.slots.refusal = error
    back = threading.Timer(0.3, lambda: setattr(host.slots, "refusal", None))
    back.start()
    host.instances.asked("prepare", xml())
    back.join()
    assert host.held() == [SLOTS[0]]


def test_nothing_is_given_back_while_the_hypervisor_does_not_answer(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.machines.silent = True
    for _ in range(5):
        with contextlib.suppress(ServiceUnavailable):
            host.instances._supervisors["vm"]._inspect()
    assert host.held() == [SLOTS[0]]
    host.machines.silent = False
    assert host.compute() == SHA256_OF_ABC


def test_a_slot_that_is_taken_away_takes_its_port_along(host, until):
    host.boot(xml(count=2))
    until(lambda: host.machines.ports("vm") == [0, 1])
    host.bench.execute(host.bench.commands.command(FreeSlot(instance="vm", lease_epoch=1), SLOTS[1]))
    until(lambda: host.machines.ports("vm") == [0])


def test_a_slot_whose_card_was_taken_out_is_logged_once_and_leaves_the_others_served(host, until, caplog):
    host.boot(xml(count=2))
    until(lambda: host.machines.ports("vm") == [0, 1])
    host.instances.stop()
    host.start(without=[SLOTS[1]])
    until(lambda: host.machines.ports("vm") == [0])
    assert host.compute(number=0) == SHA256_OF_ABC
    for _ in range(3):
        host.instances._supervisors["vm"]._inspect()
    lost = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert lost == [f"instance vm: has lost {SLOTS[1]}, which this host no longer has"]


def test_a_machine_without_accelerator_flavor_is_nobodys_business(host):
    host.instances.asked("prepare", xml("plain", count=0))
    host.machines.begin(xml("plain", count=0))
    assert host.instances._supervisors == {}
    assert host.slots.calls == []


# Slots that guests drive directly -----------------------------------------------------------------------------------

ADDRESSES = ["ffff:00:00.0", "ffff:00:00.1"]


@pytest.fixture
def passing(bench, host):
    """Return the compute node with cards that have a PCI address for each slot."""
    host.instances.stop()
    bench.driver.virtual_function = dict(
        zip((SlotAddress(*slot.split("/")[1:]) for slot in SLOTS), ADDRESSES, strict=True)
    ).get
    host.start()
    return host


def test_a_machine_gets_the_functions_of_its_slots_when_these_are_loaded_and_no_channels(passing, until):
    passing.boot(xml(count=2))
    assert all(passing.bench.jobs.holds.of(slot).ready for slot in SLOTS)
    until(lambda: passing.machines.functions("vm") == dict(enumerate(ADDRESSES)))
    assert passing.machines.ports("vm") == []


def test_a_machine_that_cannot_have_channels_may_have_functions(passing, until):
    passing.boot(xml("bare"))
    until(lambda: passing.machines.functions("bare") == {0: ADDRESSES[0]})


def test_functions_and_ports_that_are_not_its_are_taken_from_a_machine(passing, until):
    passing.instances.asked("prepare", xml())
    # The machine has the function of the other slot, as if its slots had changed while the agent was down.
    passing.machines.begin(xml(), ports=[0], functions={0: ADDRESSES[1]})
    until(lambda: passing.machines.functions("vm") == {0: ADDRESSES[0]})
    until(lambda: passing.machines.ports("vm") == [])


def test_a_slot_that_went_to_another_instance_meanwhile_is_not_passed(passing, until, monkeypatch):
    # While a function is removed from the machine, the machine's slot is freed and held for another instance.
    machines, bench, passed = passing.machines, passing.bench, []
    attach, detach = machines.attach_function, machines.detach_function

    def slow_detach(*known):
        monkeypatch.setattr(machines, "detach_function", detach)
        detach(*known)
        passing.slots.held = {"other": [SLOTS[0]]}
        for action in (
            FreeSlot(instance="vm", lease_epoch=1),
            HoldSlot(instance="other", project_id="q", function="sha256", lease_epoch=2),
        ):
            bench.execute(bench.commands.command(action, SLOTS[0]))
        until(lambda: bench.jobs.holds.of(SLOTS[0]).ready)

    monkeypatch.setattr(machines, "detach_function", slow_detach)
    monkeypatch.setattr(machines, "attach_function", lambda *known: passed.append(known[2]) or attach(*known))
    passing.instances.asked("prepare", xml())
    machines.begin(xml(), functions={1: "ffff:00:00.7"})
    until(lambda: machines.functions("vm") == {0: ADDRESSES[1]})
    assert passed == [ADDRESSES[1]]


def test_a_function_that_a_guest_does_not_let_go_keeps_nothing_else_from_it(passing, until, monkeypatch):
    def keep(*_):
        raise Conflict("the guest does not let go of it")

    monkeypatch.setattr(passing.machines, "detach_function", keep)
    passing.instances.asked("prepare", xml(count=2))
    passing.machines.begin(xml(count=2), ports=[0], functions={2: "ffff:00:00.7"})
    until(lambda: passing.machines.functions("vm") == {2: "ffff:00:00.7", **dict(enumerate(ADDRESSES))})
    until(lambda: passing.machines.ports("vm") == [])


def test_a_machine_that_cannot_have_channels_is_refused_a_slot_that_needs_one(passing, until):
    # Only the first slot of this host can be driven by guests directly.
    passing.instances.stop()
    first = SlotAddress(*SLOTS[0].split("/")[1:])
    passing.bench.driver.virtual_function = {first: ADDRESSES[0]}.get
    passing.start()
    with pytest.raises(InvalidInput, match="no controller"):
        passing.instances.asked("prepare", xml("bare", count=2))
    until(lambda: passing.held() == [])


def test_the_functions_of_a_machine_that_ended_go_to_the_next(passing, until):
    passing.boot(xml(count=2))
    until(lambda: len(passing.machines.functions("vm")) == 2)
    passing.machines.end("vm")
    until(lambda: passing.held() == [])
    passing.boot(xml("next"))
    until(lambda: passing.machines.functions("next") == {0: ADDRESSES[0]})


def test_a_function_that_a_machine_lost_is_passed_again(passing, until):
    passing.boot(xml())
    until(lambda: passing.machines.functions("vm") == {0: ADDRESSES[0]})
    passing.machines.detach_function(passing.machines.find("vm"), 0, ADDRESSES[0])
    until(lambda: passing.machines.functions("vm") == {0: ADDRESSES[0]})


def test_a_function_is_not_passed_before_its_slot_is_scrubbed_and_loaded(passing, until, monkeypatch):
    """The machine started while the agent was down."""
    may_load, driver = threading.Event(), passing.bench.driver
    load = driver.load
    monkeypatch.setattr(driver, "load", lambda *arguments: may_load.wait(60) and load(*arguments))
    passing.machines.begin(xml())
    passing.instances.changed("")
    until(lambda: passing.held() == [SLOTS[0]])
    for _ in range(5):
        passing.instances._supervisors["vm"]._inspect()
    assert passing.machines.functions("vm") == {}
    may_load.set()
    until(lambda: passing.machines.functions("vm") == {0: ADDRESSES[0]})
