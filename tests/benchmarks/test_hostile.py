"""How much longer a tenant's batch takes while others hold on to the data ports, and what that leaves of memory.

    pytest tests/benchmarks/test_hostile.py -s

An embedded pool; the others are a process of its own: it opens connections, and opens each again when it is closed.
Pool and tenant have one processor, the others another one, so that it is not their own work that slows the tenant.
Prints the times with and without them, taken in turns; nothing is asserted about them.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import start_pool
from fpga_pool.model.messages.requests import TicketRequest
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.transfer import tokens
from support.hostile import ANSWERED, SPOKEN, STAYS, lane, stranger
from support.servers.process import resident_bytes

JOBS, BYTES = 40, 8_000
ROUNDS = 5
OPTIONS = {
    "standalone": {"hosts": 2, "egress_mbps": 2000, "ingress_mbps": 4000},
    "driver_simulated": {"board": "kintex7", "cards": 1},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05},
}


@pytest.fixture
def processors():
    """Keep this process and what it starts on one processor; return those for the others."""
    all_of_them = os.sched_getaffinity(0)
    ours = {min(all_of_them)}
    os.sched_setaffinity(0, ours)
    yield all_of_them - ours or ours
    os.sched_setaffinity(0, all_of_them)


@pytest.fixture
def pool(processors, tmp_path):
    process, endpoint = start_pool(tmp_path / "pool", OPTIONS)
    with Client(endpoint) as client:
        yield client, process.pid
    process.terminate()
    process.wait(60)


def batch_s(client, directory):
    payloads = [bytes([number]) * BYTES for number in range(JOBS)]
    begun_s = time.monotonic()
    found = client.run_jobs([JobSpec("sha256", data, "node-1") for data in payloads], output_dir=directory)
    took_s = time.monotonic() - begun_s
    for data, job in zip(payloads, found.jobs, strict=True):
        assert job.result.read_text() == f"{hashlib.sha256(data).hexdigest()}\n"
    return took_s


def bad_tokens(client):
    """256 connections whose tokens are none."""
    return [stranger("no token").hex()] * 256


def forged_tokens(client):
    """256 connections whose tokens are signed by a key of their own."""
    grant = tokens.TransferGrant(
        job="j", attempt=1, project_id="p", host="node-1", purpose="send", input_bytes=9, token_id="t", deadline_s=2e9
    )
    return [stranger(tokens.sign([grant], Ed25519PrivateKey.generate())[0]).hex()] * 256


def tokens_of_a_cancelled_batch(client):
    """200 lanes, each with the token of a job that was cancelled."""
    jobs = [
        JobRequest(
            uuid=f"{number:08x}-0000-4000-8000-000000000000", function="sha256", requester="node-1", input_bytes=9
        )
        for number in range(200)
    ]
    batch = client.create_batch(jobs)
    while not all(job.host for job in client.jobs(batch.uuid)):
        time.sleep(0.05)
    wishes = [TicketRequest(job=job.uuid, purpose="send", source_address="127.0.0.1", source_port=9) for job in jobs]
    tickets = client.tickets(batch.uuid, wishes)
    client.cancel(batch.uuid)
    return [lane(ticket.token, b"no input!").hex() for ticket in tickets]


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
    ports = sorted({(host.data_address, host.data_port) for host in client.hosts() if host.name.startswith("node")})
    told = {"ports": ports, "said": attack(client), "pause_s": pause_s, "leaves": leaves, "sources": sources}
    before = most = resident_bytes(pid)
    times_s = {False: [], True: []}
    for number in range(ROUNDS):
        for attacked in (False, True):
            others = None
            if attacked:
                command = [sys.executable, "-m", "support.hostile"]
                others = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[1], text=True)
                os.sched_setaffinity(others.pid, processors)
                json.dump(told, others.stdin)
                others.stdin.close()
                time.sleep(2.0)
            times_s[attacked].append(batch_s(client, tmp_path / f"{number}-{attacked}"))
            most = max(most, resident_bytes(pid))
            if others is not None:
                others.kill()
                others.wait()
                time.sleep(1.0)
    alone_s, attacked_s = (statistics.median(times_s[attacked]) for attacked in (False, True))
    time.sleep(5.0)
    print(
        f"\n{attack.__doc__} From {sources or 'the same'} addresses, closed when they have {leaves}, opened after"
        f" {pause_s:g} s: {JOBS} jobs take {attacked_s:.2f} s instead of {alone_s:.2f} s"
        f" ({attacked_s / alone_s:.2f} times); memory {before / 2**20:.0f} MiB before, {most / 2**20:.0f} at most,"
        f" {resident_bytes(pid) / 2**20:.0f} after"
    )
