"""Slots as enclosures, and schedules on them as slots again: linked as asked whatever the host, and no slot twice."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_bench import solve

from fpga_pool.core.lattice.tasks import Links
from fpga_pool.core.lattice.tasks import Topology as Cables
from fpga_pool.model.flavor import Topology
from fpga_pool.model.links import ALONE, CardLinks, SlotLinks, slot_links
from fpga_pool.model.objects import Slot, SlotState
from fpga_pool.model.pool.linking import Spot, choose_spots
from fpga_pool.model.pool.task_enclosures import enclosures_of, fits_somewhere, in_path_order, solved
from fpga_pool.model.pool.task_rooms import HostRoom, Soonest, choose_slots, holds, soonest_slots
from fpga_pool.model.tasks import Task


def slot(host, card, place, links, function=""):
    return Slot(
        name=f"{host}/c{card}/r{place}", host=host, card=f"c{card}", region=f"r{place}", board="b", kind="k",
        links=str(links), state=SlotState.READY if function else SlotState.EMPTY, function=function,
    )  # fmt: skip


def host(name, cards, slots, cables, between, missing=()):
    """A host with so many cards in an enclosure (None = none), without the slots whose numbers are missing."""
    made = []
    for number in range(cards * slots):
        card, place = divmod(number, slots)
        if number not in missing:
            alone = CardLinks(slots=between)
            box = CardLinks(enclosure="box", topology=cables or Cables.LINE, cards=cards, position=card, slots=between)
            links = SlotLinks(card=alone if cables is None else box, slots=slots, position=place)
            made.append(slot(name, card, place, links))
    return HostRoom(name, "s", tuple(made), tuple(Spot(s.card, s.card, slot_links(s.links), 0.0) for s in made))


def task(number, count, topology):
    return Task(
        uuid=f"t{number}", project_id="p", user_id="u", name="", function="f", slots=count, topology=topology,
        input_bytes=1, created_at=float(number),
    )  # fmt: skip


hosts = st.builds(
    host, st.sampled_from(["a", "b"]), st.integers(1, 4), st.integers(1, 3), st.sampled_from([None, *Cables]),
    st.sampled_from([None, *Cables]), st.sets(st.integers(0, 11), max_size=4),
)  # fmt: skip
wishes = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(list(Topology)), st.integers(1, 9)), min_size=1)


def are_linked(room, names, topology):
    """The same that a claim is held against."""
    spots = [spot for slot, spot in zip(room.slots, room.spots, strict=True) if slot.name in names]
    return choose_spots(spots, Links[topology.name], len(names)) is not None


@settings(max_examples=200, deadline=None)
@given(rooms=st.lists(hosts, min_size=1, max_size=2, unique_by=lambda room: room.host), wishes=wishes)
def test_tasks_that_come_first_in_a_schedule_have_slots_of_their_own_that_are_linked_as_asked(rooms, wishes):
    tasks = [task(number, count, topology) for number, (count, topology, _) in enumerate(wishes)]
    work_s = {one.uuid: float(seconds) for one, (_, _, seconds) in zip(tasks, wishes, strict=True)}
    names = [slot.name for room in rooms for slot in room.slots]
    ready_s = {name: float(number % 3) for number, name in enumerate(names)}
    taken = set()
    first = solved(tasks, {"f": rooms}, work_s, dict.fromkeys(work_s, 0.5), ready_s, solve)
    for one, slots in first:
        (room,) = {slot.host: room for room in rooms for slot in room.slots if slot.name in slots}.values()
        assert len(set(slots)) == one.slots
        assert taken.isdisjoint(slots)
        assert are_linked(room, slots, one.topology)
        taken |= set(slots)
    # Whom a schedule knows a place for can be placed, and one of those comes first.
    known = [one for one in tasks if fits_somewhere(enclosures_of(rooms), one.topology, one.slots)]
    assert all(any(holds(room, one.topology, one.slots) for room in rooms) for one in known)
    assert bool(first) == bool(known)


@pytest.mark.parametrize(
    ("cables", "between", "sizes"),
    [
        (Cables.RING, Cables.LINE, [6]),  # three cards of two: unrolled
        (Cables.RING, None, [3]),  # a path takes one of each card
        (Cables.FULL, Cables.FULL, [6]),
        (Cables.FULL, Cables.LINE, [3]),
        (None, Cables.FULL, [2, 2, 2]),
        (None, None, [1] * 6),
    ],
)
def test_cards_with_several_slots_are_unrolled(cables, between, sizes):
    assert [len(box.members) for box in enclosures_of([host("a", 3, 2, cables, between)])] == sizes


def test_a_path_over_the_seam_of_a_ring_begins_before_it():
    (box,) = enclosures_of([host("a", 5, 1, Cables.RING, Cables.FULL)])
    assert in_path_order([0, 1, 4], box) == [4, 0, 1]
    assert in_path_order([1, 2, 3], box) == [1, 2, 3]
    assert in_path_order([0, 1, 2, 3, 4], box) == [0, 1, 2, 3, 4]


def test_a_solver_that_cannot_say_leaves_the_question_open():
    one = task(0, 1, Topology.ANY)
    room = host("a", 1, 1, None, None)
    assert solved([one], {"f": [room]}, {"t0": 1.0}, {"t0": 0.0}, {"a/c0/r0": 0.0}, lambda _: None) is None


@given(room=hosts, count=st.integers(1, 4), topology=st.sampled_from(list(Topology)), seed=st.randoms())
def test_the_soonest_slots_are_linked_and_none_are_that_are_free_sooner(room, count, topology, seed):
    ready_at = {slot.name: float(seed.randrange(4)) for slot in room.slots}
    found = soonest_slots(room, topology, count, ready_at)
    assert (found is not None) == holds(room, topology, count)
    if found is not None:
        at, slots = found
        assert are_linked(room, slots, topology)
        assert at == max(ready_at[name] for name in slots)
        sooner = {name for name, moment in ready_at.items() if moment < at}
        assert choose_slots(room, topology, count, sooner) is None


@given(
    rooms=st.lists(hosts, min_size=1, max_size=2, unique_by=lambda room: room.host),
    asked=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(list(Topology))), max_size=6),
)
def test_what_is_found_while_slots_are_taken_is_what_a_search_from_the_beginning_finds(rooms, asked):
    ready_at = {slot.name: float(number % 3) for room in rooms for number, slot in enumerate(room.slots)}
    soonest = Soonest({"f": rooms}, ready_at)
    for until, (count, topology) in enumerate(asked, start=5):
        every = [soonest_slots(room, topology, count, ready_at) for room in rooms]
        expected = min((found for found in every if found is not None), key=lambda found: found[0], default=None)
        assert soonest.find("f", topology, count) == expected
        if expected is not None:
            ready_at |= dict.fromkeys(expected[1], float(until))
            soonest.take(expected[1], float(until))


def test_a_card_without_an_enclosure_is_alone():
    (room,) = [host("a", 1, 3, None, Cables.FULL)]
    assert slot_links(room.slots[0].links).card == ALONE
    assert holds(room, Topology.RING, 3)
