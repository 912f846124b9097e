"""The audit of gangs reports every contradiction, and nothing in a consistent pool."""

from dataclasses import replace

import pytest

from fpga_pool.model.flavor import Tier
from fpga_pool.model.objects.gangs import Gang, GangState, Process, Processor, ProcessState
from fpga_pool.model.rules.shared.audit import audit_gangs, audit_gangs_at_rest


@pytest.fixture
def contents(new_gang_pool):
    """Return the processors, gangs and processes of a gang of two in the foreground and one of one behind it."""
    pool = new_gang_pool({"h0": 1, "h1": 1})
    pool.create(2)
    pool.create(1)
    pool.settle()
    kinds = (pool.store.all(kind) for kind in (Processor, Gang, Process))
    return [sorted(kind, key=lambda thing: thing.uuid) for kind in kinds]


def findings(contents):
    return sorted(audit_gangs(*contents))


def test_a_sound_pool_has_nothing_to_tell_and_is_not_idle(contents):
    assert findings(contents) == []
    assert len(list(audit_gangs_at_rest(*contents[1:]))) == 5  # two gangs, three processes


def test_two_processes_in_one_place_are_told(contents):
    behind = next(process for process in contents[2] if process.tier is Tier.BACKGROUND)
    contents[2][contents[2].index(behind)] = replace(behind, tier=Tier.FOREGROUND)
    place = f"{behind.processor}/foreground"
    assert findings(contents) == [
        f"gang {behind.gang_uuid}: is BACKGROUND, but 1 of its processes are in another tier",
        f"{place}: used by 2 processes",
    ]


def test_a_gang_that_lacks_a_process_is_told(contents):
    lost = next(process for process in contents[2] if process.tier is Tier.FOREGROUND)
    contents[2].remove(lost)
    assert findings(contents) == [f"gang {lost.gang_uuid}: is FOREGROUND, but has 1 of its 2 processes"]


def test_processes_of_gangs_that_wait_or_have_ended_are_told(contents):
    gangs = contents[1]
    gangs[0] = replace(gangs[0], state=GangState.QUEUED)
    told = findings(contents)
    assert [words.split(": ")[1][:25] for words in told] == ["should have no processes,"]
    ended = gangs.pop(0)
    assert findings(contents) == [f"gang {ended.uuid}: has ended, but a process of it was not stopped"]
    contents[2] = [
        replace(process, state=ProcessState.STOPPING) if process.gang_uuid == ended.uuid else process
        for process in contents[2]
    ]
    assert findings(contents) == []


def test_a_process_on_a_processor_that_is_not_there_is_told(contents):
    contents[0].pop()
    assert any("which does not exist" in words for words in findings(contents))
