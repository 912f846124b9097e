"""The embedded pool as its users see it: commands, the client library, restarts."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from uuid import uuid4

import pytest
import requests

from fpga_pool.client import JobSpec
from fpga_pool.experiments.embedded import start_pool, stop_pool
from fpga_pool.model.objects.pool import BatchState, SlotState
from support.servers.process import resident_bytes, wake_ups
from support.waiting import wait_until

#: An embedded pool at rest takes 140 MB, and 300 MB once a batch has needed the planner's compiled loops.
MOST_BYTES_AT_REST = 200e6
#: Per second, of seven agents, a scheduler and the API together: 35 to 60, and 200 when their loops looked for work.
MOST_WAKE_UPS_AT_REST = 100


def fpga_pool(pool, *words, code=0):
    """Run one `fpga-pool` command; return its output, as JSON if requested."""
    command = [sys.executable, "-m", "fpga_pool.cli.client.main", "--endpoint", pool.endpoint, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout + done.stderr


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"file-{number}" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(b"some words " * (1000 * number))
    return paths


def test_batch_create_gives_the_digests_that_sha256sum_gives(pool, files, tmp_path):
    out = tmp_path / "out"
    rows = fpga_pool(
        pool,
        "batch",
        "create",
        "--function",
        "sha256",
        "--requester",
        "node-1",
        "--output-dir",
        out,
        "-f",
        "json",
        *files,
    )
    sums = subprocess.run(["sha256sum", *files], capture_output=True, text=True, check=True).stdout.split()[::2]
    assert [(out / f"{path.name}.sha256").read_text().strip() for path in files] == sums
    assert len(rows) == len(files)


@pytest.mark.long
def test_a_pool_at_rest_takes_little_memory_and_is_seldom_woken(tmp_path):
    process, _ = start_pool(tmp_path, {})
    try:
        time.sleep(20.0)  # until loops rest
        assert resident_bytes(process.pid) < MOST_BYTES_AT_REST
        before = wake_ups(process.pid)
        time.sleep(10.0)
        assert wake_ups(process.pid) - before < MOST_WAKE_UPS_AT_REST * 10.0
    finally:
        stop_pool(process)


def test_health_and_metrics_of_the_whole_pool_are_beside_the_api(pool):
    answers = [requests.get(f"{pool.endpoint}/{path}", timeout=60) for path in ("healthcheck", "metrics")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert 'fpga_pool_hosts{state="alive"} ' in answers[1].text


def test_a_signal_has_a_running_pool_write_a_report(make_pool, tmp_path):
    options = {"oslo_reports": {"log_dir": tmp_path}, "standalone": {"hosts": 1, "requesters": 0}}
    pool = make_pool(options, forked=False)  # not forked, as an operator starts it
    pool.process.send_signal(signal.SIGUSR2)

    def written():
        return [path.read_text() for path in tmp_path.glob("fpga-pool-standalone_gurumeditation_*")]

    wait_until(lambda: any("load_ahead = " in report for report in written()), "the report is written")
    assert pool.client().slots()
    assert pool.stop() == 0


def test_a_batch_is_listed_shown_and_watched_by_its_project_alone(pool, files):
    client = pool.client("project-a")
    uuid = client.run("wordcount", files, requester="requester-1").batch.uuid
    mine = fpga_pool(pool, "--project", "project-a", "batch", "list", "-f", "json")
    assert [row["state"] for row in mine if uuid in row.values()] == ["COMPLETED"]
    assert not any(uuid in row.values() for row in fpga_pool(pool, "batch", "list", "-f", "json"))
    shown = fpga_pool(pool, "--project", "project-a", "batch", "show", uuid, "-f", "json")
    assert shown["state"] == "COMPLETED"
    assert "COMPLETED" in fpga_pool(pool, "--project", "project-a", "batch", "watch", uuid)
    assert f"no batch {uuid}" in fpga_pool(pool, "batch", "show", uuid, code=1)


def test_slots_are_drained_and_resumed_by_name(pool):
    name = fpga_pool(pool, "slot", "list", "-f", "json")[0]["name"]
    fpga_pool(pool, "slot", "drain", name)
    client = pool.client()

    def state():
        return next(slot.state for slot in client.slots() if slot.name == name)

    # Jobs of other tests may have to end there first.
    wait_until(lambda: state() is SlotState.DRAINED, lambda: f"the slot is drained: {state()}")
    fpga_pool(pool, "slot", "resume", name)
    wait_until(lambda: state() in (SlotState.EMPTY, SlotState.READY), lambda: f"the slot is free: {state()}")


def test_cards_are_drained_and_resumed_by_name_and_stay_while_their_agent_has_them(pool):
    name = fpga_pool(pool, "card", "list", "-f", "json")[0]["name"]
    drained = fpga_pool(pool, "card", "drain", name, "--reason", "dust", "-f", "json")
    assert {slot["reason"] for slot in drained["slot_list"]} == {"dust"}
    assert f"the agent of {drained['host']} reports them" in fpga_pool(
        pool, "card", "remove", name, "--timeout", "0.001", code=1
    )
    assert fpga_pool(pool, "card", "resume", name, "-f", "json")["state"] == "in_service"
    rows = fpga_pool(pool, "event", "list", "slot", "--all-projects", "--event", "ResumeRequested", "-f", "json")
    assert {row["name"] for row in rows} >= {slot["name"] for slot in drained["slot_list"]}


def test_bitstreams_of_the_catalogue_are_verified(pool):
    rows = fpga_pool(pool, "bitstream", "list", "-f", "json")
    assert {"aes", "sha256", "wordcount"} <= {row["function"] for row in rows}
    assert {(row["verified"], row["reason"], len(row["signer"])) for row in rows} == {(True, "", 43)}


def test_hosts_functions_and_the_fit_of_their_time_models_are_listed(pool, files):
    pool.client().run("sha256", files, requester="node-1")
    assert [host["name"] for host in fpga_pool(pool, "host", "list", "-f", "json")][:3] == [
        "node-1",
        "node-2",
        "node-3",
    ]
    assert {"aes", "sha256", "wordcount"} <= {row["name"] for row in fpga_pool(pool, "function", "list", "-f", "json")}
    rows = fpga_pool(pool, "function", "calibrate", "-f", "json")
    assert all(row["runs"] >= 1 for row in rows)
    assert "sha256" in {row["function"] for row in rows}


@pytest.mark.long
def test_a_batch_without_slots_to_run_on_is_cancelled(make_pool, tmp_path):
    pool = make_pool({"standalone": {"hosts": 1, "requesters": 1}})
    client = pool.client()
    for slot in client.slots():
        client.drain(slot.uuid)
    runner = client.runner([JobSpec("sha256", b"data", "requester-1")], output_dir=tmp_path)
    runner._create()
    fpga_pool(pool, "batch", "cancel", runner.batch_uuid)
    assert client.batch(runner.batch_uuid).state is BatchState.CANCELLED


def test_a_restarted_pool_remembers(make_pool, files):
    """1. A batch runs, and a slot is drained. 2. The pool restarts. 3. Batch and slot are unchanged."""
    pool = make_pool()
    client = pool.client()
    batch = client.run("sha256", files, requester="node-1").batch
    drained = client.drain(client.slots()[0].uuid)
    assert pool.stop() == 0
    pool.start()
    client = pool.client()
    assert client.batch(batch.uuid).state is BatchState.COMPLETED
    assert client.slot(drained.uuid).slot.state is SlotState.DRAINED
    again = client.run("sha256", files, requester="node-1")
    assert [job.result.read_text().strip() for job in again.jobs] == [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    ]


def test_a_second_pool_on_the_same_state_is_refused(pool):
    command = [sys.executable, "-m", "fpga_pool.cli.daemons.standalone", "--state-dir", pool.state_dir, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert f"another pool runs on {pool.state_dir}" in done.stderr
    assert pool.client().slots()


@pytest.mark.long
def test_the_demonstration_computes_over_a_users_own_files(files, tmp_path):
    command = [sys.executable, "-m", "fpga_pool.experiments.demo", "--output", tmp_path / "demo"]
    command += ["--policy", "ect", "--rounds", "2"]
    columns = os.environ | {"COLUMNS": "80"}
    done = subprocess.run([*command, *files], env=columns, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\u2026" not in done.stdout, "a table does not fit 80 columns"
    assert "18 of 18 results are correct" in done.stdout  # 3 files x 3 functions x 2 rounds
    assert "rounds of each policy: 2" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if "ect " in line and "%" in line)
    assert re.search(r" \d+\.\d\d(-\d+\.\d\d)? .* %", row), "the range of what was measured"
    digest = (tmp_path / "demo" / "ect" / "results" / "file-1.sha256").read_text().strip()
    assert digest == hashlib.sha256(files[1].read_bytes()).hexdigest()
    assert f"sha256 of file-1:\n    {digest}\n" in done.stdout
    assert (tmp_path / "demo" / "gantt.svg").stat().st_size > 0
    assert (tmp_path / "demo" / "gantt.png").stat().st_size > 0


def test_inputs_and_results_are_encrypted_where_tls_is_configured(make_pool, files, tmp_path, certificate):
    cert, key = certificate
    pool = make_pool({"standalone": {"hosts": 1}, "agent": {"data_tls_cert": cert, "data_tls_key": key}})
    words = ["batch", "create", "--function", "sha256", "--requester", "requester-1", "--output-dir", tmp_path / "out"]
    assert "is not trusted" in re.sub(r"[\s|]+", " ", fpga_pool(pool, *words, files[1], code=1))
    fpga_pool(pool, *words, "--ca", cert, files[1])
    digest = (tmp_path / "out" / "file-1.sha256").read_text().strip()
    assert digest == hashlib.sha256(files[1].read_bytes()).hexdigest()
    assert all(host.data_tls for host in pool.client().hosts())


def test_the_log_of_the_scheduler_has_the_id_of_the_request(pool):
    given = f"req-{uuid4()}"
    gang = {"processes": 1, "runtime_s": 0.1, "cpu_usage": 0.5}
    answer = requests.post(
        f"{pool.endpoint}/v1/gangs", json=gang, headers={"X-Openstack-Request-Id": given}, timeout=60
    )
    assert answer.status_code == 201
    own = answer.headers["X-Openstack-Request-Id"]
    (line,) = (line for line in pool.log().splitlines() if f"gang {answer.json()['gang']['uuid']} of project" in line)
    assert "fpga_pool.services.scheduler" in line
    assert own != given
    assert own in line
    assert given in line
