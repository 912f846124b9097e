"""What Prometheus reads of an embedded pool is what the REST API says."""

import subprocess
import sys
from collections import Counter
from uuid import uuid4

import pytest
import requests

from fpga_pool.client import JobSpec
from support.scraping import Scrape
from support.servers.server import free_port


@pytest.fixture
def url():
    return f"http://127.0.0.1:{free_port()}/metrics"


@pytest.fixture
def pool(make_pool, url):
    port = url.split(":")[2].split("/")[0]
    return make_pool({"metrics": {"enabled": True, "standalone_port": port}, "standalone": {"requesters": 1}})


def test_metrics_agree_with_the_rest_api(pool, url, tmp_path):
    """A batch of 12 jobs ends, a slot is drained, a job waits: its function fits no slot that is in service."""
    client = pool.client("project-a")
    jobs = [JobSpec(function, b"some words " * 50, "node-1") for function in ("sha256", "wordcount") for _ in range(6)]
    batch = client.run_jobs(jobs, output_dir=tmp_path).batch
    slots = client.slots()
    drained = client.drain(slots[0].uuid)
    scraped = Scrape(url)

    slots = client.slots()
    assert scraped.values("fpga_pool_slots", "state") == Counter(slot.state for slot in slots)
    assert scraped.values("fpga_pool_slots", "function") == Counter(slot.function for slot in slots)
    assert scraped.total("fpga_pool_slots", state="DRAINED") == (drained.state == "DRAINED")
    assert scraped.total("fpga_pool_cards") == len({(slot.host, slot.card) for slot in slots})
    assert scraped.total("fpga_pool_hosts", state="alive") == len(client.hosts())
    assert scraped.total("fpga_pool_hosts", state="lost") == 0
    assert scraped.total("fpga_pool_shard_owned") == 1

    assert scraped.values("fpga_pool_jobs_ended_total", "state") == {"COMPLETED": batch.jobs}
    assert scraped.values("fpga_pool_jobs_ended_total", "function") == {"sha256": 6, "wordcount": 6}
    assert scraped.total("fpga_pool_job_wait_seconds_count", project="project-a") == batch.jobs
    waited_s = sum(job.started_at - job.created_at for job in client.jobs(batch.uuid))
    assert scraped.total("fpga_pool_job_wait_seconds_sum", project="project-a") == pytest.approx(waited_s)
    ratio = (batch.ended_at - batch.dispatched_at) / batch.planned_makespan_s
    assert scraped.total("fpga_pool_batch_makespan_ratio_sum", policy=batch.policy) == pytest.approx(ratio)
    assert scraped.total("fpga_pool_planning_seconds_count", family="batches", step="decide") >= 1

    # Slots of the simulated board are loaded when first used, and a slot that holds the function is not loaded again.
    reconfigurations = sum(slot.reconfigurations for slot in slots)
    assert scraped.total("fpga_pool_agent_loads_total", outcome="loaded") >= reconfigurations >= 2
    loads = scraped.total("fpga_pool_agent_loads_total", outcome="loaded")
    assert scraped.total("fpga_pool_agent_load_seconds_count") == loads
    assert scraped.total("fpga_pool_agent_received_bytes_total") == sum(len(job.source) for job in jobs)
    assert scraped.values("fpga_pool_agent_streams_total", "event")["staged"] == batch.jobs


def test_the_queue_and_errors_are_told_by_project_and_code(pool, url):
    for slot in pool.client().slots():
        pool.client().drain(slot.uuid)
    job = {"function": "sha256", "requester": "requester-1", "input_bytes": 8}
    answers = [
        requests.post(
            f"{pool.endpoint}/v1/batches", json={"jobs": [job] * count}, headers={"X-Project-Id": project}, timeout=60
        )
        for project, count in (("project-a", 3), ("project-b", 1))
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert (
        requests.get(f"{pool.endpoint}/v1/batches/{'0' * 8}-0000-4000-8000-{'0' * 12}", timeout=60).status_code == 404
    )

    scraped = Scrape(url)
    assert scraped.values("fpga_pool_jobs", "project") == {"project-a": 3, "project-b": 1}
    assert scraped.values("fpga_pool_jobs", "state") == {"PENDING": 4}
    oldest_s = scraped.values("fpga_pool_job_oldest_wait_seconds", "project")
    assert oldest_s.keys() == {"project-a", "project-b"}
    assert all(seconds > 0 for seconds in oldest_s.values())
    assert scraped.total("fpga_pool_api_errors_total", code="fpga_pool.not_found") == 1
    assert scraped.total("fpga_pool_api_requests_total", operation="create_batch", status="201") == 2
    assert scraped.total("fpga_pool_api_request_seconds_count", operation="create_batch") == 2
    assert scraped.total("fpga_pool_scrape_errors_total") == 0


def test_a_taken_port_stops_the_start_with_one_line(pool, url, tmp_path):
    config = tmp_path / "other.conf"
    config.write_text(f"[metrics]\nenabled = true\nstandalone_port = {url.split(':')[2].split('/')[0]}\n")
    command = [sys.executable, "-m", "fpga_pool.cli.daemons.standalone", "--config-file", config, "--port", "0"]
    command += ["--state-dir", tmp_path / "other", "--log-file", tmp_path / "other.log"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("fpga-pool-standalone: [metrics] standalone_port: 127.0.0.1 port ")
