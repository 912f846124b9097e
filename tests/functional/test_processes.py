"""The services as an operator runs them: processes, RabbitMQ, a database server."""

import hashlib
from pathlib import Path

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.drivers.slots.functions import function_model
from fpga_pool.model.objects.pool import BatchState, LeaseState
from fpga_pool.store.store import Store
from support.scraping import Scrape
from support.servers.process import processes_naming
from support.servers.server import free_port
from support.waiting import wait_until


@pytest.fixture
def work(tmp_path):
    """Jobs of three functions; aes takes its key and counter from the first 48 bytes."""
    jobs = []
    for number in range(1, 7):
        path = tmp_path / f"input-{number}"
        path.write_bytes(f"some words {number} ".encode() * (5000 * number))
        jobs += [JobSpec(function, path, "node-1") for function in ("sha256", "aes", "wordcount")]
    return jobs


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def expected(job: JobSpec, directory: Path) -> str:
    """Return the digest of the function's result, computed here."""
    function_model(job.function)(job.source, directory / "expected")
    return digest((directory / "expected").read_bytes())


def test_a_mixed_batch_is_computed_and_a_graceful_end_leaves_nothing_behind(
    deployment, rabbitmq, mariadb_url, work, tmp_path
):
    ports = {name: free_port() for name in ("scheduler-1", "node-1", "node-2", "api")}
    kinds = dict(zip(ports, ("scheduler", "agent", "agent", "api"), strict=True))
    own = {name: {"metrics": {"enabled": True, f"{kinds[name]}_port": port}} for name, port in ports.items()}
    # A busy machine may be silent for seconds; repeated transfers would change the counters.
    options = {"scheduler": {"host_timeout_s": 60.0}}
    pool = deployment(rabbitmq.url, mariadb_url, agents=2, own=own, options=options, forked=False)
    outcome = pool.client().run_jobs(work, output_dir=tmp_path / "out")
    assert outcome.batch.state is BatchState.COMPLETED
    assert [digest(job.result.read_bytes()) for job in outcome.jobs] == [expected(job, tmp_path) for job in work]

    def jobs_ended():
        found = Scrape(f"http://127.0.0.1:{ports['scheduler-1']}/metrics")
        return found.total("fpga_pool_jobs_ended_total", state="COMPLETED")

    # Jobs are counted a moment after a client sees their end.
    wait_until(lambda: jobs_ended() == len(work), lambda: f"all jobs are counted: {jobs_ended()}")
    scraped = {name: Scrape(f"http://127.0.0.1:{port}/metrics") for name, port in ports.items()}
    assert scraped["scheduler-1"].total("fpga_pool_slots") == len(pool.client().slots())
    received_bytes = [scraped[name].total("fpga_pool_agent_received_bytes_total") for name in ("node-1", "node-2")]
    assert sum(received_bytes) == sum(job.source.stat().st_size for job in work)
    assert scraped["api"].total("fpga_pool_api_requests_total", status="201") >= 1
    assert [one.total("fpga_pool_scrape_errors_total") for one in scraped.values()] == [0.0] * 4

    assert [pool.terminate(name) for name in ("node-1", "node-2", "api", "scheduler-1")] == [0, 0, 0, 0]
    assert processes_naming(str(pool.directory)) == {}
    store = Store(mariadb_url)
    with store.reading() as tx:
        assert [lease for lease in tx.leases() if lease.state is LeaseState.HELD] == []
        assert [shard.owner for shard in tx.shards()] == [""]
    store.close()
