"""Attacks by strangers and tenants on the data ports of an embedded pool, and a tenant's batch to measure meanwhile."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.client import Client, JobSpec
from fpga_pool.experiments.embedded import start_pool
from fpga_pool.model.messages.requests import TicketRequest
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.transfer import tokens
from support.hostile import ATTACKING, lane, stranger

JOBS, BYTES = 40, 8_000
#: Two hosts with one card each; waiting times of the scheduler are short.
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "standalone": {"hosts": 2, "egress_mbps": 2000, "ingress_mbps": 4000},
    "driver_simulated": {"board": "kintex7", "cards": 1},
    "scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05},
}


def silent(_: Client) -> list[str]:
    """Return the data of 256 connections that send only the beginning of their first message."""
    return [stranger("no token")[:5].hex()] * 256


def bad_tokens(_: Client) -> list[str]:
    """Return the data of 256 connections with invalid tokens."""
    return [stranger("no token").hex()] * 256


def forged_tokens(_: Client) -> list[str]:
    """Return the data of 256 connections whose tokens are signed with an unknown key."""
    grant = tokens.TransferGrant(
        job="j", attempt=1, project_id="p", host="node-1", purpose="send", input_bytes=9, token_id="t", deadline_s=2e9
    )
    return [stranger(tokens.sign([grant], Ed25519PrivateKey.generate())[0]).hex()] * 256


def tokens_of_a_cancelled_batch(client: Client) -> list[str]:
    """Return the data of 200 lanes, each with the token of a job that was cancelled."""
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


@contextlib.contextmanager
def separated() -> Iterator[set[int]]:
    """Keep this process and its children on one processor; yield the other processors, if any."""
    all_of_them = os.sched_getaffinity(0)
    ours = {min(all_of_them)}
    os.sched_setaffinity(0, ours)
    yield all_of_them - ours or ours
    os.sched_setaffinity(0, all_of_them)


@contextlib.contextmanager
def running_pool(directory: Path) -> Iterator[tuple[Client, int]]:
    """Run an embedded pool with OPTIONS; yield a client of it and its process ID."""
    process, endpoint = start_pool(directory, OPTIONS)
    with Client(endpoint) as client:
        yield client, process.pid
    process.terminate()
    process.wait(60)


@contextlib.contextmanager
def attacking(
    client: Client, said: list[str], pause_s: float, leaves: str, sources: int, processors: Collection[int]
) -> Iterator[None]:
    """Have a process open connections to the data ports, send `said` on them, and reopen each after it is closed."""
    ports = sorted({(host.data_address, host.data_port) for host in client.hosts() if host.name.startswith("node")})
    told = {"ports": ports, "said": said, "pause_s": pause_s, "leaves": leaves, "sources": sources}
    command = [sys.executable, "-m", "support.hostile"]
    others = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1], text=True
    )
    try:
        os.sched_setaffinity(others.pid, processors)
        assert others.stdin is not None
        assert others.stdout is not None
        json.dump(told, others.stdin)
        others.stdin.close()
        with others.stdout as told_back:
            assert told_back.readline() == f"{ATTACKING}\n", "the attack does not begin"
        yield
        assert others.poll() is None, "the attack has ended"
    finally:
        others.kill()
        others.wait()
        time.sleep(1.0)


def batch_s(client: Client, directory: Path) -> float:
    """Run a batch of small jobs and check their results; return how long it took."""
    payloads = [bytes([number]) * BYTES for number in range(JOBS)]
    begun_s = time.monotonic()
    found = client.run_jobs([JobSpec("sha256", data, "node-1") for data in payloads], output_dir=directory)
    took_s = time.monotonic() - begun_s
    for data, job in zip(payloads, found.jobs, strict=True):
        assert job.result is not None
        assert job.result.read_text() == f"{hashlib.sha256(data).hexdigest()}\n"
    return took_s
