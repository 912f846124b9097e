"""One planning cycle of a scheduler for gangs: reading the database, the policy's moves, and their commit.

    pytest tests/benchmarks/test_live_gangs.py -s

320 processors on 40 hosts, in SQLite; 300 gangs of 1 to 64 processes wait, of which the first cycle places as many as
fit in both tiers.  Prints the CPU time of this process, which is not asserted.
"""

import time
import uuid

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import Processor, processor_name
from fpga_pool.model.objects.pool import Host
from fpga_pool.model.rules.gang.admission import create_gang
from fpga_pool.model.rules.gang.decisions import commit_gang_moves, decided_moves, gang_outlooks, gang_view
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.store import Store

HOSTS, PER_HOST, GANGS = 40, 8, 300
SETTINGS = PoolSettings()


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
            limits = {"egress_bps": 1e9, "ingress_bps": 1e9, "data_address": "", "data_port": 0}
            tx.add(Host(name=host, shard="s", heard_at=0.0, **limits))
            for number in range(PER_HOST):
                tx.add(Processor(name=processor_name(host, number), host=host, number=number, shard="s"))
    with begin() as tx:
        for number in range(GANGS):
            width, runtime_s = int(np.ceil(2 ** rng.uniform(0, 6))), float(rng.uniform(60, 20_000))
            wanted = {"processes": width, "runtime_s": runtime_s, "cpu_usage": float(rng.uniform(0.4, 0.9))}
            name = str(uuid.UUID(int=number))
            create_gang(tx, GangRequest(uuid=name, project_id="p", user_id="u", name="", **wanted), float(number))


def test_a_look_at_three_hundred_gangs(store):
    shard = store.acquire_shard("s", "me", 0.0)
    fill(lambda: store.transaction("s", "me", shard.epoch))
    policy, rng = load_policy("gang", "measy_plus"), np.random.default_rng(0)
    now_s = float(GANGS)

    def timed(act):
        begin_s = time.process_time()
        done = act()
        return done, 1000 * (time.process_time() - begin_s)

    def look():
        with store.reading("s") as tx:
            return gang_view(tx, SETTINGS, policy, now_s)

    def commit(view, moves):
        with store.transaction("s", "me", shard.epoch) as tx:
            return commit_gang_moves(tx, view, moves, SETTINGS)

    policy.prepare()  # as a scheduler does when it starts
    view, look_ms = timed(look)
    moves, decide_ms = timed(lambda: decided_moves(view, lambda tiers: policy.decide(tiers, None, now_s, rng)))
    moved, commit_ms = timed(lambda: commit(view, moves))
    assert len(moved) == len(moves) > 0
    view, again_ms = timed(look)
    moves, idle_ms = timed(lambda: decided_moves(view, lambda tiers: policy.decide(tiers, None, now_s, rng)))
    assert moves == []  # nothing is left to do

    def show():
        with store.reading("s") as tx:
            return gang_outlooks(tx, SETTINGS, policy, now_s)

    said, show_ms = timed(show)
    assert len(said) == sum(gang.state != "FOREGROUND" for gang in view.gangs)
    print(
        f"\n{GANGS} gangs, {HOSTS * PER_HOST} processors: look {look_ms:.0f} ms, decide {decide_ms:.0f} ms, commit of "
        f"{len(moved)} moves {commit_ms:.0f} ms; with nothing to do look {again_ms:.0f} ms, decide {idle_ms:.0f} ms; "
        f"all expected starts {show_ms:.0f} ms"
    )
