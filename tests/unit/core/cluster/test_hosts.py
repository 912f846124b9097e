"""The live pool's choice of a host; the simulator's node policy chooses the unit of the host."""

from collections import deque

import numpy as np
import pytest

from fpga_pool.core.cluster.nodes import EctUnit
from fpga_pool.core.cluster.policies import EarliestHost, HostsView, HostUnit, Option
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit


def host_unit(name, kind, backlog_s=0.0, places=1):
    unit = Unit(kind=kind, places=places, memory_gb=np.inf, backlog_s=backlog_s, queue=deque())
    return HostUnit(unit=unit, places=[f"{name}{number}" for number in range(places)])


def option(host, cpu, slots, *, estimate_s=(8.0, 2.0), input_s=0.0):
    return Option(
        host=host, units=[cpu, *slots], estimate_s=estimate_s, load_s=[0.0] * (1 + len(slots)), input_s=input_s
    )


def place(*options):
    return EarliestHost().decide(HostsView(options=list(options)), None, 0.0, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(20))
def test_on_one_host_it_places_as_the_node_policy_of_the_simulator(seed):
    rng = np.random.default_rng(seed)
    backlogs_s, estimate_s = rng.uniform(0, 10, 4), tuple(rng.uniform(1, 10, 2))
    units = [host_unit("cpu", CPU, places=2), *(host_unit(f"slot{i}-", ACCELERATOR, backlogs_s[i]) for i in range(4))]
    subtask = Subtask(
        task=0, step=0, type=0, estimate_s=estimate_s, memory_gb=0.0, accelerator_memory_gb=0.0, ready_s=0.0
    )
    view = NodeView(number=0, kind=0, types=1, resources=(), units=[one.unit for one in units], memory_gb=np.inf)
    chosen = EctUnit(corun=False, admission=False).bind(view, subtask, rng)
    wanted = units[chosen].places[0]
    (placed,) = place([option("h", units[0], units[1:], estimate_s=estimate_s)])
    assert placed.place == wanted


def test_the_way_of_the_input_counts_only_beyond_the_wait():
    near = option("near", host_unit("c", CPU), [host_unit("near", ACCELERATOR, 3.0)], estimate_s=(np.inf, 2.0))
    far = option("far", host_unit("c", CPU), [host_unit("far", ACCELERATOR)], estimate_s=(np.inf, 2.0), input_s=2.5)
    (placed,) = place([near, far])
    assert (placed.host, placed.start_s, placed.work_s) == ("far", 2.5, 2.0)


def test_subtasks_see_those_before_them():
    slots = [host_unit("slot", ACCELERATOR)]
    cpu = host_unit("cpu", CPU, places=1)
    options = [option("h", cpu, slots, estimate_s=(5.0, 2.0))]
    # The slot takes 2 s, then 2 + 2 s; the CPU takes 5 s, less than 2 + 2 + 2 s on the slot.
    assert [one.place for one in place(options, options, options)] == ["slot0", "slot0", "cpu0"]


def test_a_subtask_without_a_place_is_left_out():
    assert place([option("h", host_unit("c", CPU), [], estimate_s=(np.inf, np.inf))]) == []
