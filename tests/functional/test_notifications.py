"""Versioned notifications of a pool of processes on a real RabbitMQ, by a separate connection that is cut meanwhile."""

import contextlib

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.model.objects.pool import BatchState
from support.notified import listening
from support.relay import Relay
from support.scraping import Scrape
from support.servers.server import free_port
from support.waiting import wait_until


@pytest.fixture
def relay(rabbitmq):
    with contextlib.closing(Relay(rabbitmq.url)) as relay:
        yield relay


@pytest.fixture
def told(rabbitmq):
    with listening(rabbitmq.url) as told:
        yield told


@pytest.mark.timeout(600)
def test_what_happens_is_told_and_work_goes_on_while_nobody_takes_it(
    deployment, rabbitmq, mariadb_url, relay, told, tmp_path
):
    port = free_port()
    options = {
        "oslo_messaging_notifications": {"driver": "messagingv2", "topics": told.topic, "transport_url": relay.url},
    }
    own = {"scheduler-1": {"metrics": {"enabled": True, "scheduler_port": port}}}
    pool = deployment(rabbitmq.url, mariadb_url, agents=2, options=options, own=own)
    client = pool.client("p")

    def compute(name):
        jobs = [JobSpec("sha256", f"{name} {number}".encode(), "node-1") for number in range(4)]
        batch = client.run_jobs(jobs, output_dir=tmp_path / name).batch
        assert batch.state is BatchState.COMPLETED
        return batch

    first = compute("first")
    wait_until(lambda: told.of("batch.ended"), "the end of a batch")
    payload = told.of("batch.ended")[0]
    assert payload["version"] == "1.0"
    shown = {name: payload["batch"][name] for name in ("uuid", "project_id", "state", "jobs", "jobs_completed")}
    assert shown == {"uuid": first.uuid, "project_id": "p", "state": "COMPLETED", "jobs": 4, "jobs_completed": 4}

    relay.part()
    silent = [compute("second").uuid, compute("third").uuid]
    pool.kill("node-2")
    wait_until(lambda: not {host.name: host.alive for host in client.hosts()}["node-2"], "a host to be lost")
    pool.restart("node-2")
    pool.wait_for_hosts(pool.hosts)
    silent.append(compute("fourth").uuid)
    assert len(told.of("batch.ended")) == 1
    relay.cut()
    relay.heal()

    wait_until(lambda: told.of("host.returned"), "what was held up")

    def ended():
        """Return the ended batches without repetitions, as messages in transit during the cut may arrive twice."""
        return [*dict.fromkeys(one["batch"]["uuid"] for one in told.of("batch.ended"))]

    wait_until(lambda: len(ended()) >= 4, "what was held up")
    assert ended() == [first.uuid, *silent]

    # Warnings are in a separate queue, and may arrive later.
    def lost():
        return {one["host"]["name"]: one["host"]["alive"] for one in told.of("host.lost", "warn")}

    wait_until(lambda: lost().get("node-2") is False, "the loss of the host")
    slots = {slot.name for slot in client.slots() if slot.host == "node-2"}
    assert slots
    wait_until(lambda: slots <= {one["slot"]["name"] for one in told.of("slot.faulted", "warn")}, "their faults")
    wait_until(lambda: slots <= {one["slot"]["name"] for one in told.of("slot.recovered")}, "all slots")

    def counted():
        return Scrape(f"http://127.0.0.1:{port}/metrics").values("fpga_pool_notifications_total", "outcome")

    wait_until(lambda: counted().get("sent", 0) >= 4 + 2 + 2 * len(slots), "all to be counted")
    assert counted().keys() == {"sent"}
