"""Hostile connections to the data ports neither exclude tenants nor leave memory occupied.

Pool and tenant run on one processor, the hostile clients on another.  The limit is far above measured values
(`tests/benchmarks/test_hostile.py`); it detects a tenant that has to wait for hostile clients.
"""

import statistics

import pytest

from support.attacks import (
    attacking,
    bad_tokens,
    batch_s,
    forged_tokens,
    running_pool,
    separated,
    silent,
    tokens_of_a_cancelled_batch,
)
from support.hostile import ANSWERED, SPOKEN, STAYS
from support.servers.process import resident_bytes
from support.streams import Canary

ROUNDS = 3
#: A batch during which this machine stalled for this many seconds is repeated, at most this many times.
STALLED_S, TRIES = 0.5, 5
LONGEST, MOST = 5.0, 1.25

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def processors():
    with separated() as others:
        yield others


@pytest.fixture(scope="module")
def pool(processors, tmp_path_factory):
    with running_pool(tmp_path_factory.mktemp("hostile") / "pool") as running:
        yield running


@pytest.mark.parametrize(
    ("attack", "pause_s", "leaves", "sources"),
    [
        (silent, 0.1, STAYS, 0),
        (silent, 0.1, STAYS, 256),
        (bad_tokens, 0.0, ANSWERED, 0),
        (forged_tokens, 0.0, SPOKEN, 256),
        (tokens_of_a_cancelled_batch, 0.1, STAYS, 0),
    ],
)
def test_a_tenant_is_served_beside_hostile_connections(pool, processors, attack, pause_s, leaves, sources, tmp_path):
    client, pid = pool
    batch_s(client, tmp_path / "first")
    said, before = attack(client), resident_bytes(pid)

    def measured_s(name):
        for number in range(TRIES):
            with Canary() as canary:
                took_s = batch_s(client, tmp_path / f"{name}-{number}")
            if canary.worst_s < STALLED_S:
                break
        return took_s

    alone_s, attacked_s = [], []
    for number in range(ROUNDS):
        alone_s.append(measured_s(f"{number}-alone"))
        with attacking(client, said, pause_s, leaves, sources, processors):
            attacked_s.append(measured_s(f"{number}-attacked"))
    assert statistics.median(attacked_s) <= LONGEST * statistics.median(alone_s)
    assert resident_bytes(pid) <= MOST * before
