"""The metrics of an embedded pool in Prometheus agree with the REST API."""

import contextlib
import json
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from fpga_pool.client import JobSpec
from support.scraping import Scrape
from support.servers.process import dies_with_us, spawn
from support.servers.server import free_port
from support.waiting import wait_until

ETC = Path(__file__).parents[2] / "etc" / "fpga_pool"
#: Queries of the Grafana dashboard by panel; several queries of a panel are combined by `or`.
QUERIES = {
    panel["title"]: " or ".join(f"({target['expr']})" for target in panel["targets"])
    for panel in json.loads((ETC / "grafana-dashboard.json").read_text())["panels"]
    if "targets" in panel
}


@pytest.fixture
def url():
    return f"http://127.0.0.1:{free_port()}/metrics"


@pytest.fixture
def pool(make_pool, url):
    return make_pool(
        {"metrics": {"enabled": True, "standalone_port": urlsplit(url).port}, "standalone": {"requesters": 1}}
    )


def test_metrics_agree_with_the_rest_api(pool, url, tmp_path):
    """A batch of 12 jobs ends and a slot is drained; Prometheus itself evaluates the queries of the dashboard."""
    client = pool.client("project-a")
    jobs = [JobSpec(function, b"some words " * 50, "node-1") for function in ("sha256", "wordcount") for _ in range(6)]
    batch = client.run_jobs(jobs, output_dir=tmp_path).batch
    slots = client.slots()
    drained = client.drain(slots[0].uuid)
    # Jobs are counted a moment after a client sees their end.
    counters = "fpga_pool_jobs_ended_total", "fpga_pool_job_wait_seconds_count", "fpga_pool_batch_makespan_ratio_count"
    wait_until(
        lambda: [Scrape(url).total(counter) for counter in counters] == [len(jobs), len(jobs), 1],
        "jobs and batch are counted",
    )
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
    assert scraped.total("fpga_pool_job_wait_seconds_sum", project="project-a") == pytest.approx(waited_s, abs=1e-3)
    ratio = (batch.ended_at - batch.dispatched_at) / batch.planned_makespan_s
    assert scraped.total("fpga_pool_batch_makespan_ratio_sum", policy=batch.policy) == pytest.approx(ratio, abs=1e-3)
    assert scraped.total("fpga_pool_planning_seconds_count", family="batch", step="decide") >= 1

    # Slots of the simulated board are loaded when first used, and a slot that holds the function is not loaded again.
    reconfigurations = sum(slot.reconfigurations for slot in slots)
    assert scraped.total("fpga_pool_agent_loads_total", outcome="loaded") >= reconfigurations >= 2
    loads = scraped.total("fpga_pool_agent_loads_total", outcome="loaded")
    assert scraped.total("fpga_pool_agent_load_seconds_count") == loads
    assert scraped.total("fpga_pool_agent_received_bytes_total") == sum(len(job.source) for job in jobs)
    assert scraped.values("fpga_pool_agent_streams_total", "event")["staged"] == batch.jobs

    measured = "fpga_pool_agent_host_memory_bytes"
    wait_until(lambda: Scrape(url).total(measured), "the host has been measured", timeout_s=180)
    # No jobs are left, and the other events have not occurred.
    silent = {
        "Jobs by state",
        "Queue by project",
        "Errors of jobs by code",
        "Errors of policies",
        "Errors of requests by code",
        "Refused messages by code",
        "Streams refused by reason",
        "Tasks and gangs",
    } | (set() if Path("/proc/pressure/cpu").exists() else {"Greatest pressure"})
    with prometheus(tmp_path / "prometheus", url) as answers:
        # After a scrape that timed out, Prometheus returns nothing until the next one.
        wait_until(
            lambda: {title for title, query in QUERIES.items() if not answers(query)} == silent,
            f"all panels show something but {sorted(silent)}",
        )


@contextlib.contextmanager
def prometheus(directory, url):
    """Run Prometheus on the pool; yield a function that evaluates queries, once there are enough scrapes for rates."""
    directory.mkdir()
    port = free_port()
    target = urlsplit(url).netloc
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "fpga-pool-standalone", "static_configs": [{"targets": [target]}]}],
        "rule_files": [str(ETC / "prometheus-alerts.yaml")],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    process = spawn(dies_with_us(command), directory / "log")

    def evaluated(query):
        query = query.replace("$__rate_interval", "1m")
        answer = requests.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}, timeout=60)
        assert answer.status_code == 200, f"{query}: {answer.text}"
        return answer.json()["data"]["result"]

    def scraped_often():
        try:
            (count,) = evaluated('sum_over_time(up{job="fpga-pool-standalone"}[1m])')
        except (requests.ConnectionError, AssertionError, ValueError):  # it is still starting
            return False
        return float(count["value"][1]) >= 4

    try:
        wait_until(scraped_often, "Prometheus has scraped the pool")
        yield evaluated
    finally:
        process.kill()
        process.wait(120)


def test_the_queue_is_counted_by_project_and_errors_by_code(pool, url):
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


def test_a_taken_port_stops_the_start_with_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "pool.conf"
        config.write_text(f"[metrics]\nenabled = true\nstandalone_port = {port}\n[standalone]\nhosts = 1\n")
        command = [sys.executable, "-m", "fpga_pool.cli.daemons.standalone", "--config-file", config, "--port", "0"]
        command += ["--state-dir", tmp_path / "state", "--log-file", tmp_path / "pool.log"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fpga-pool-standalone: [metrics] standalone_port: 127.0.0.1 port {port} is in use")
