"""Slots as enclosures, and schedules on them as slots: linked as requested on every host, and no slot used twice."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_bench import solve

from fpga_pool.core.lattice.topology import Links
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.links import ALONE, CardLinks, SlotLinks, slot_links
from fpga_pool.model.objects.pool import Slot, SlotState
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.instance.linking import SlotCandidate, choose_candidates
from fpga_pool.model.rules.task.candidates import (
    EarliestStart,
    HostSlots,
    choose_slots,
    earliest_slots,
    enclosures_of,
    holds,
    in_path_order,
)
from fpga_pool.model.rules.task.decisions import TaskView
from fpga_pool.model.rules.task.family import choose


def slot(host, card, place, links, function=""):
    return Slot(
        name=f"{host}/c{card}/r{place}", host=host, card=f"c{card}", region=f"r{place}", board="b", kind="k",
        links=str(links), state=SlotState.READY if function else SlotState.EMPTY, function=function,
    )  # fmt: skip


def host(name, cards, slots, cables, between, missing=()):
    """Return a host with `cards` cards in an enclosure (none if `cables` is None), without the `missing` slots."""
    made = []
    for number in range(cards * slots):
        card, place = divmod(number, slots)
        if number not in missing:
            alone = CardLinks(slots=between)
            box = CardLinks(enclosure="box", topology=cables or Cables.LINE, cards=cards, position=card, slots=between)
            links = SlotLinks(card=alone if cables is None else box, slots=slots, position=place)
            made.append(slot(name, card, place, links))
    return HostSlots(
        name, "s", tuple(made), tuple(SlotCandidate(s.card, s.card, slot_links(s.links), 0.0) for s in made)
    )


def task(number, count, topology):
    return Task(
        uuid=f"t{number}", project_id="p", user_id="u", name="", function="f", slots=count, shares=count,
        topology=topology, input_bytes=1, created_at=float(number),
    )  # fmt: skip


hosts = st.builds(
    host, st.sampled_from(["a", "b"]), st.integers(1, 4), st.integers(1, 3), st.sampled_from([None, *Cables]),
    st.sampled_from([None, *Cables]), st.sets(st.integers(0, 11), max_size=4),
)  # fmt: skip
wishes = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(list(Topology)), st.integers(1, 9)), min_size=1)


def are_linked(on_host, names, topology):
    """Return whether the slots are linked, by the function that checks claims."""
    candidates = [
        candidate for slot, candidate in zip(on_host.slots, on_host.candidates, strict=True) if slot.name in names
    ]
    return choose_candidates(candidates, Links[topology.name], len(names)) is not None


def view(candidates, tasks, shapes, ready_s):
    return TaskView(
        now_s=0.0, tasks=tuple(tasks), left_out={}, shapes=shapes, load_s=dict.fromkeys(shapes, 0.5),
        candidates={"f": tuple(candidates)}, ready_s=ready_s, idle=frozenset(n for n, at in ready_s.items() if at == 0),
        held=frozenset(name for name, at in ready_s.items() if at > 0), older=(),
    )  # fmt: skip


@given(
    candidates=st.lists(hosts, min_size=1, max_size=2, unique_by=lambda on_host: on_host.host),
    wishes=wishes,
    impatient=st.integers(0, 2),
    busy=st.booleans(),
)
def test_chosen_slots_are_linked_as_asked_and_no_slot_is_chosen_twice(candidates, wishes, impatient, busy):
    everything = [task(number, count, topology) for number, (count, topology, _) in enumerate(wishes)]
    tasks = [one for one in everything if any(holds(on_host, one.topology, one.slots) for on_host in candidates)]
    shapes = {one.uuid: ((one.slots, float(wishes[int(one.uuid[1:])][2])),) for one in tasks}
    ready_s = {
        slot.name: float(busy * (number % 3)) for on_host in candidates for number, slot in enumerate(on_host.slots)
    }
    seen = view(candidates, tasks, shapes, ready_s)
    patience_s = 0.0 - tasks[impatient - 1].created_at if impatient and len(tasks) >= impatient else 1.0
    choices = choose(seen, patience_s, solve)
    taken = set()
    for choice in choices:
        (on_host,) = {
            slot.host: on_host for on_host in candidates for slot in on_host.slots if slot.name in choice.slots
        }.values()
        assert len(set(choice.slots)) == choice.task.slots
        assert seen.idle.issuperset(choice.slots)
        assert taken.isdisjoint(choice.slots)
        assert are_linked(on_host, choice.slots, choice.task.topology)
        taken |= set(choice.slots)
    # If all slots are free, at least one task begins.
    assert busy or bool(choices) == bool(tasks)


@pytest.mark.parametrize(
    ("cables", "between", "sizes"),
    [
        (Cables.RING, Cables.LINE, [6]),  # three cards of two slots, unrolled
        (Cables.RING, None, [3]),  # a path uses one slot of each card
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


def test_without_a_schedule_tasks_begin_in_order_of_arrival():
    on_host = host("a", 3, 1, Cables.LINE, None)
    tasks = [task(0, 2, Topology.LINE), task(1, 2, Topology.LINE), task(2, 1, Topology.ANY)]
    shapes = {one.uuid: ((one.slots, 1.0),) for one in tasks}
    seen = view([on_host], tasks, shapes, dict.fromkeys((slot.name for slot in on_host.slots), 0.0))
    assert [choice.task.uuid for choice in choose(seen, 99.0, lambda _: None)] == ["t0", "t2"]


@given(on_host=hosts, count=st.integers(1, 4), topology=st.sampled_from(list(Topology)), seed=st.randoms())
def test_the_soonest_slots_are_linked_and_none_are_that_are_free_sooner(on_host, count, topology, seed):
    ready_s = {slot.name: float(seed.randrange(4)) for slot in on_host.slots}
    found = earliest_slots(on_host, topology, count, ready_s)
    assert (found is not None) == holds(on_host, topology, count)
    if found is not None:
        at, slots = found
        assert are_linked(on_host, slots, topology)
        assert at == max(ready_s[name] for name in slots)
        sooner = {name for name, moment in ready_s.items() if moment < at}
        assert choose_slots(on_host, topology, count, sooner) is None


@given(
    candidates=st.lists(hosts, min_size=1, max_size=2, unique_by=lambda on_host: on_host.host),
    asked=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(list(Topology))), max_size=6),
)
def test_what_is_found_while_slots_are_taken_is_what_a_search_from_the_beginning_finds(candidates, asked):
    ready_s = {slot.name: float(number % 3) for on_host in candidates for number, slot in enumerate(on_host.slots)}
    earliest = EarliestStart({"f": candidates}, ready_s)
    for until, (count, topology) in enumerate(asked, start=5):
        every = [earliest_slots(on_host, topology, count, ready_s) for on_host in candidates]
        expected = min((found for found in every if found is not None), key=lambda found: found[0], default=None)
        assert earliest.find("f", topology, count) == expected
        if expected is not None:
            ready_s |= dict.fromkeys(expected[1], float(until))
            earliest.take(expected[1], float(until))


def test_a_card_without_an_enclosure_is_alone():
    (on_host,) = [host("a", 1, 3, None, Cables.FULL)]
    assert slot_links(on_host.slots[0].links).card == ALONE
    assert holds(on_host, Topology.RING, 3)
