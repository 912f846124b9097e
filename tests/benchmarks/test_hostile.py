"""The slowdown of a tenant's batch while hostile clients occupy the data ports, and the memory that remains in use.

    pytest tests/benchmarks/test_hostile.py -s

An embedded pool is attacked by a separate process, which opens connections, and opens each again when it is closed.
Pool and tenant run on one processor, the attacker on another, so that its own work does not slow the tenant.  Prints
the times with and without the attack, measured alternately; they are not asserted.
"""

import statistics
import time

import pytest

from support.attacks import (
    JOBS,
    attacking,
    bad_tokens,
    batch_s,
    forged_tokens,
    running_pool,
    separated,
    tokens_of_a_cancelled_batch,
)
from support.hostile import ANSWERED, SPOKEN, STAYS
from support.servers.process import resident_bytes

ROUNDS = 5


@pytest.fixture
def processors():
    with separated() as others:
        yield others


@pytest.fixture
def pool(processors, tmp_path):
    with running_pool(tmp_path / "pool") as running:
        yield running


@pytest.mark.parametrize(
    ("attack", "pause_s", "leaves", "sources"),
    [
        (bad_tokens, 0.1, STAYS, 0),
        (bad_tokens, 0.0, ANSWERED, 0),
        (bad_tokens, 0.0, SPOKEN, 0),
        (forged_tokens, 0.0, ANSWERED, 0),
        (forged_tokens, 0.0, SPOKEN, 0),
        (forged_tokens, 0.0, ANSWERED, 256),
        (forged_tokens, 0.0, SPOKEN, 256),
        (tokens_of_a_cancelled_batch, 0.1, STAYS, 0),
    ],
)
def test_hostile(pool, processors, attack, pause_s, leaves, sources, tmp_path):
    client, pid = pool
    batch_s(client, tmp_path / "first")
    said = attack(client)
    before = most = resident_bytes(pid)
    times_s = {False: [], True: []}
    for number in range(ROUNDS):
        times_s[False].append(batch_s(client, tmp_path / f"{number}-alone"))
        with attacking(client, said, pause_s, leaves, sources, processors):
            times_s[True].append(batch_s(client, tmp_path / f"{number}-attacked"))
            most = max(most, resident_bytes(pid))
    alone_s, attacked_s = (statistics.median(times_s[attacked]) for attacked in (False, True))
    time.sleep(5.0)
    print(
        f"\n{attack.__doc__} From {sources or 'the same'} addresses, closed when they have {leaves}, opened after"
        f" {pause_s:g} s: {JOBS} jobs take {attacked_s:.2f} s instead of {alone_s:.2f} s"
        f" ({attacked_s / alone_s:.2f} times); memory {before / 2**20:.0f} MiB before, {most / 2**20:.0f} at most,"
        f" {resident_bytes(pid) / 2**20:.0f} after"
    )
