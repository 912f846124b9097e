"""Tasks of one to four slots beside batches, on hosts with rings of cards; slots fail, and an agent is killed.

Each share is a separate file, and its result shows whether the right bytes were processed.
"""

import hashlib
import json
import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from fpga_pool.client import RunSettings
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import ShareRequest
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.objects.tasks import TaskShape, TaskState
from support.waiting import wait_until

PATIENT = RunSettings(patience_s=90.0, timeout_s=400.0)
SHAPES = [(1, "any"), (4, "ring"), (2, "line"), (3, "line"), (2, "ring"), (4, "line"), (3, "any"), (1, "line")]
#: The slots of one card are not linked, so a path takes one slot of each card.
RING = {
    "driver_simulated": {"board": "kintex7", "cards": 4},
    "scheduler": {"task_patience_s": 1.0},
    "agent": {"slot_links": "none", "enclosure": "box ring sim0,sim1,sim2,sim3"},
}


class Shares:
    """Tasks in separate threads, and their outcomes."""

    def __init__(self, directory, client, requester):
        self._directory, self._client, self._requester = directory, client, requester
        self._threads, self._wrong = [], []
        self.ended = 0

    def start(self, count, topology):
        """Start a task; its files are larger than one burst, and all different."""
        number = len(self._threads)
        payloads = [f"{number} {share} ".encode() * 20_000 for share in range(count)]
        thread = threading.Thread(target=self._run, args=(number, payloads, Topology(topology)), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, number, payloads, topology):
        result = self._client.run_task(
            "sha256", payloads, requester=self._requester, topology=topology, name=f"task-{number}",
            output_dir=self._directory / f"task-{number}", settings=PATIENT,
        )  # fmt: skip
        for payload, share in zip(payloads, result.jobs, strict=True):
            expected = hashlib.sha256(payload).hexdigest().encode() + b"\n"
            if share.result is None or share.result.read_bytes() != expected:
                self._wrong.append(f"task-{number}: {share.state} {share.reason or 'with a wrong result'}")
        self.ended += 1

    def wrong(self, timeout_s):
        """Wait until all tasks have ended; return errors."""
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
        return self._wrong + [f"{len(self._threads) - self.ended} tasks have not ended"] * any(
            thread.is_alive() for thread in self._threads
        )


def linked(task):
    """Return whether the slots of a task are on one host, on different cards that form a path of the ring."""
    places = [share.slot.split("/") for share in task.share_list]
    cards = {int(card.removeprefix("sim")) for _, card, _ in places}
    steps = sum((card + 1) % 4 in cards for card in cards)
    return len({host for host, *_ in places}) == 1 and len(cards) == len(places) and steps >= len(cards) - 1


def fpga_pool(pool, *words, code=0):
    command = [
        sys.executable,
        "-m",
        "fpga_pool.cli.client.main",
        "--endpoint",
        pool.endpoint,
        *map(str, words),
        "-f",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


@pytest.mark.timeout(600)
def test_tasks_and_batches_share_slots_that_fail_and_all_results_are_right(
    make_pool, new_work, end_and_audit_embedded, tmp_path
):
    faults = {"load_fails": 0.02, "card_disappears": 0.02, "card_returns_after_s": 0.5, "fault_seed": 3}
    options = {**RING, "driver_simulated": RING["driver_simulated"] | faults}
    pool = make_pool({**options, "standalone": {"hosts": 2}})
    client = pool.client()
    work = new_work(["requester-1"], 60)
    shares = Shares(tmp_path / "shares", client, "requester-2")
    for number, (count, topology) in enumerate(SHAPES):
        work.start(client, range(7 * number, 7 * number + 7), PATIENT)
        shares.start(count, topology)
    assert shares.wrong(300) == []
    work.wait(200)
    assert work.wrong() == []
    tasks = [client.task(task.uuid) for task in client.tasks()]
    assert {task.task.state for task in tasks} == {TaskState.COMPLETED}
    assert sorted(len(task.share_list) for task in tasks) == sorted(count for count, _ in SHAPES)
    # A task that lost a slot has shares of two attempts, possibly on two hosts.
    assert all(linked(task) for task in tasks if task.task.attempt == 1 and task.task.topology is not Topology.ANY)
    assert len(end_and_audit_embedded(pool)) == 56 + sum(count for count, _ in SHAPES)


@pytest.mark.long
def test_a_task_is_created_listed_shown_and_cancelled_by_command(make_pool, tmp_path):
    pool = make_pool({**RING, "standalone": {"hosts": 1}})
    files = [tmp_path / f"part-{number}" for number in range(4)]
    for number, path in enumerate(files):
        path.write_bytes(b"%d" % number * 100_000)
    rows = fpga_pool(
        pool, "task", "create", "--function", "sha256", "--topology", "ring", "--requester", "requester-1", *files
    )
    sums = subprocess.run(["sha256sum", *files], capture_output=True, text=True, check=True).stdout.split()[::2]
    assert [row["result"] for row in rows] == sums
    assert {row["slot"].split("/")[1] for row in rows} == {"sim0", "sim1", "sim2", "sim3"}
    (listed,) = fpga_pool(pool, "task", "list")
    assert (listed["state"], listed["slots"], listed["topology"]) == ("COMPLETED", 4, "ring")
    shown = fpga_pool(pool, "task", "show", listed["uuid"])
    assert [share["state"] for share in shown["share_list"]] == ["COMPLETED"] * 4
    waits = pool.client().create_task("sha256", pool_shares(2), topology=Topology.LINE)
    cancelled = fpga_pool(pool, "task", "cancel", waits.uuid)
    assert cancelled[0]["cancel_requested"]
    wait_until(lambda: pool.client().task(waits.uuid).task.state is TaskState.CANCELLED, "cancelled")
    assert "at most 4 exist" in fpga_pool(
        pool, "task", "create", "--function", "sha256", "--topology", "line", "--requester", "requester-1",
        *files, files[0], code=2,
    )  # fmt: skip


def test_a_malleable_task_runs_on_the_slots_that_are_left_and_all_results_are_right(make_pool, tmp_path):
    pool = make_pool({**RING, "standalone": {"hosts": 1}})
    client = pool.client()
    files = [tmp_path / f"part-{number}" for number in range(5)]
    for number, path in enumerate(files):
        path.write_bytes(b"%d" % number * 100_000)
    drained = [slot for slot in client.slots() if slot.card == "sim0"]
    for slot in drained:
        client.drain(slot.uuid)
    words = ["--function", "sha256", "--topology", "line", "--requester", "requester-1", "--shape", 4, "--shape", 2]
    rows = fpga_pool(pool, "task", "create", *words, *files)
    sums = subprocess.run(["sha256sum", *files], capture_output=True, text=True, check=True).stdout.split()[::2]
    assert [row["result"] for row in rows] == sums
    (listed,) = fpga_pool(pool, "task", "list")
    assert (listed["state"], listed["slots"], listed["shapes"]) == ("COMPLETED", 2, "4, 2")
    assert [[row["slot"] for row in rows].count(slot) for slot in dict.fromkeys(row["slot"] for row in rows)] == [3, 2]
    # All five are free again, and the task takes the fastest shape.
    for slot in drained:
        client.resume(slot.uuid)
    result = client.run_task(
        "sha256", files, requester="requester-1", shapes=[TaskShape(4), TaskShape(2)], output_dir=tmp_path / "again"
    )
    assert [share.result.read_text().split()[0] for share in result.jobs] == sums
    assert len({share.slot for share in result.jobs}) == 4


def pool_shares(count):
    """Return shares whose inputs are never sent."""
    return [
        ShareRequest(uuid=str(uuid4()), name="", requester="requester-1", input_bytes=100_000) for _ in range(count)
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tasks_on_real_parts_survive_a_killed_agent_and_a_drained_slot(
    deployment, rabbitmq, mariadb_url, new_work, end_and_audit, tmp_path
):
    pool = deployment(rabbitmq.url, mariadb_url, schedulers=2, agents=2, options=RING)
    client = pool.client()
    work = new_work(pool.hosts, 40)
    shares = Shares(tmp_path / "shares", client, pool.hosts[0])
    for number, (count, topology) in enumerate(SHAPES):
        work.start(client, range(5 * number, 5 * number + 5), PATIENT)
        shares.start(count, topology)
    # On a loaded machine all may have ended before the first check.
    wait_until(lambda: any(task.state is not TaskState.QUEUED for task in client.tasks()), "a task runs, or has run")
    pool.kill("node-2")
    drained = next(slot for slot in client.slots() if slot.host == "node-1")
    client.drain(drained.uuid)
    pool.restart("node-2")
    time.sleep(1.0)
    client.resume(drained.uuid)
    assert shares.wrong(300) == []
    work.wait(200)
    assert work.wrong() == []
    assert {task.state for task in client.tasks()} == {TaskState.COMPLETED}
    assert {batch.state for batch in client.batches()} == {BatchState.COMPLETED}
    assert len(end_and_audit(pool, mariadb_url)) == 40 + sum(count for count, _ in SHAPES)
