"""The announcements of API processes to a scheduler, and the list of these processes."""

import pytest

from fpga_pool.model.exceptions import InvalidInput, Unauthenticated
from fpga_pool.model.objects.hosts import DOWN_S, FORGOTTEN_S
from fpga_pool.rpc.identity import Role


def listed_apis(running):
    return {one.name: one.up for one in running.api.services() if one.kind == "api"}


def test_a_process_of_the_api_is_listed_under_the_name_that_it_signs_with_until_it_ends(bench, jumping_clock):
    """Two processes of one host announce themselves. One ends, the other is silent, then speaks, and is forgotten."""
    bench.clock = jumping_clock
    running = bench.start(bench.new_service())
    mine, others = (running.api.by(Role.API, name) for name in ("controller-1", "controller-2"))
    mine.announce(7)
    mine.announce(8)
    mine.announce(7)
    assert listed_apis(running) == {"controller-1:7": True, "controller-1:8": True}
    others.announce(7, ending=True)  # its host has no such process
    assert len(listed_apis(running)) == 2
    mine.announce(8, ending=True)
    jumping_clock.ahead_s += DOWN_S + 1
    assert listed_apis(running) == {"controller-1:7": False}
    mine.announce(7)
    assert listed_apis(running) == {"controller-1:7": True}
    jumping_clock.ahead_s += FORGOTTEN_S + 1
    assert listed_apis(running) == {}
    others.announce(1)
    with running.store.reading() as tx:
        assert [one.name for one in tx.api_processes()] == ["controller-2:1"]


@pytest.mark.parametrize("process", [0, -1, 2**31, "1"])
def test_what_is_no_process_is_not_announced(running, process):
    with pytest.raises(InvalidInput, match="process: expected"):
        running.api.announce(process)


def test_within_a_message_of_several_calls_the_name_is_that_of_the_message(running):
    caller = running.api.by(Role.API, "controller-1")
    call = {"method": "announce", "args": {"process": 7, "ending": False}}
    caller._asked(60.0, "together", {"calls": [[{"name": "another"}, call]]}, {})
    assert listed_apis(running) == {"controller-1:7": True}


@pytest.mark.parametrize("role", [Role.AGENT, Role.NOVA, Role.SCHEDULER])
def test_nobody_but_an_api_announces_one(running, role):
    with pytest.raises(Unauthenticated):
        running.api.by(role, "node-1").announce(7)
