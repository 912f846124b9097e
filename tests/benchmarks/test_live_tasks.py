"""One planning cycle of a scheduler for tasks: reading the database, the assignment of slots, and its commit.

    pytest tests/benchmarks/test_live_tasks.py -s

320 slots on 40 hosts, each with 8 cards in a ring, in SQLite; 300 tasks of 1 to 8 slots wait, most of them for a line.
TASKS=100 reduces it to a third, with which slots are still short.  Prints the CPU time of this process,
without compilation of the policy's loops; it is not asserted.
"""

import os
import time
import uuid

import numpy as np
import pytest

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.core.lattice.starting import planned
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import ShareRequest, TaskRequest
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.admission import create_task
from fpga_pool.model.rules.task.decisions import commit_choices, task_detail, task_view
from fpga_pool.model.rules.task.family import choose
from fpga_pool.services.scheduler.planner import quick
from fpga_pool.store import Store

HOSTS, CARDS, TASKS = 40, 8, int(os.environ.get("TASKS", "300"))
SETTINGS = PoolSettings()
CATALOGUE = load_catalogue(installed_catalogue())


@pytest.fixture
def store(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.migrate()
    store.ensure_shards(["s"], 0.0)
    yield store
    store.close()


def fill(begin):
    rng = np.random.default_rng(1)
    with begin() as tx:
        for host in [f"h{number}" for number in range(HOSTS)]:
            address = {"egress_bps": 1e10, "ingress_bps": 1e10, "data_address": "192.0.2.1", "data_port": 1}
            tx.add(Host(name=host, shard="s", heard_at=0.0, **address))
            for card in range(CARDS):
                box = CardLinks(enclosure="box", topology=Cables.RING, cards=CARDS, position=card)
                place = {"card": f"c{card}", "region": "r", "board": "kintex7", "kind": "small"}
                links = str(SlotLinks(card=box))
                tx.add(Slot(name=f"{host}/c{card}/r", host=host, shard="s", links=links, **place))
        for number in range(TASKS):
            shares = tuple(
                ShareRequest(uuid=str(uuid.uuid4()), name="", requester="h0", input_bytes=int(rng.integers(1e6, 1e9)))
                for _ in range(int(rng.integers(1, 9)))
            )
            wish = Topology.RING if len(shares) == CARDS else Topology.LINE
            request = TaskRequest(
                uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="", function="sha256",
                topology=wish, shares=shares,
            )  # fmt: skip
            create_task(tx, request, CATALOGUE, SETTINGS, float(number))


def timed(what, act):
    began_s = time.process_time()
    found = act()
    print(f"{what}: {1000 * (time.process_time() - began_s):.0f} ms")
    return found


def test_one_look_at_300_tasks(store):
    def begin():
        return store.transaction("s")

    fill(begin)
    now_s = float(TASKS)
    policy = load_policy("task", "lattice_plus")
    policy.prepare()
    policy, rng = quick(policy), np.random.default_rng(0)

    def solve(problem):
        return planned(policy, problem, None, rng)

    def look():
        with store.reading("s") as tx:
            return task_view(tx, CATALOGUE, now_s)

    def commit(view, choices):
        with begin() as tx:
            return len(commit_choices(tx, view, choices, SETTINGS, now_s))

    def detail(uuid):
        with store.reading("s") as tx:
            return task_detail(tx, uuid, CATALOGUE, now_s)

    print()
    view = timed("look", look)
    choices = timed("decide, all of them patient", lambda: choose(view, 1e9, solve))
    kept = timed("decide, most of them impatient", lambda: choose(view, 30.0, solve))
    placed = timed(f"commit {len(choices)}", lambda: commit(view, choices))
    again = timed("look again", look)
    timed("decide again, nothing is free", lambda: choose(again, 1e9, solve))
    timed("expected start of the last", lambda: detail(view.tasks[-1].uuid))
    assert placed == len(choices) > 0
    assert kept
