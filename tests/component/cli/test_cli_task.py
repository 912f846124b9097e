from uuid import uuid4

import pytest

from fpga_pool.client import Client
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import ShareRequest
from fpga_pool.model.objects.tasks import TaskShape


def test_a_task_that_waits_is_listed_shown_and_cancelled(run, pool, serve):
    shares = [ShareRequest(uuid=str(uuid4()), name="", requester="node-1", input_bytes=5) for _ in range(1)]
    with Client(serve(pool)) as client:
        made = client.create_task("sha256", shares, topology=Topology.RING, name="weather")
    assert [row["uuid"] for row in run("task", "list", "-f", "json").json] == [made.uuid]
    shown = run("task", "show", made.uuid, "-f", "json").json
    assert (shown["state"], shown["slots"], shown["topology"]) == ("QUEUED", 1, "ring")
    assert [share["state"] for share in shown["share_list"]] == ["PENDING"]
    assert "weather" in run("task", "show", made.uuid).out
    assert run("task", "cancel", made.uuid, "-f", "json").json[0]["state"] == "CANCELLED"
    assert run("task", "cancel", made.uuid).status == 1


def test_the_shapes_of_a_malleable_task_are_listed_and_shown(run, pool, serve):
    shares = [ShareRequest(uuid=str(uuid4()), name="", requester="node-1", input_bytes=5) for _ in range(4)]
    shapes = [TaskShape(4), TaskShape(1, seconds=2.5)]
    with Client(serve(pool)) as client:
        made = client.create_task("sha256", shares, shapes=shapes)
        assert client.task(made.uuid).task.shapes == made.shapes == tuple(shapes)
    assert [row["shapes"] for row in run("task", "list", "-f", "json").json] == ["4, 1:2.5"]
    assert run("task", "show", made.uuid, "-f", "json").json["shapes"] == "4, 1:2.5"


def test_a_dry_run_of_a_task_shows_slots_and_times_and_stores_nothing(run, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"12345")
    words = ["--function", "sha256", "--requester", "node-1", "--shape", "1:2.5", tmp_path / "a.bin"]
    plan = run("task", "create", "--dry-run", *words, "-f", "json").json
    assert (plan["slots"], plan["loads"], plan["ahead"], plan["input_bytes"]) == (1, 1, 0, 5)
    assert (plan["lower_bound_s"], plan["pending_reason"]) == (2.5, "")
    (share,) = plan["share_list"]
    assert (share["name"], share["slot"], share["loads"]) == ("a.bin", plan["slot_list"][0], True)
    planned = run("plan", "create", "task", *words)
    assert f"0  a.bin  {share['slot']}  " in planned.out
    assert max(map(len, planned.out.splitlines())) <= 80
    assert run("plan", "create", "task", *words, "-f", "json").json.keys() == plan.keys()
    head, row = run("task", "create", "--dry-run", *words, "-f", "csv").out.splitlines()
    assert head == '"index","name","function","host","slot","start_s","end_s","loads"'
    assert row.startswith('0,"a.bin","sha256","node-1",')
    assert run("task", "list", "-f", "json").json == []
    assert run("task", "create", "--dry-run", "--no-wait", *words).status == 2


def test_a_task_that_is_not_there_fails_in_one_line(run):
    answer = run("task", "show", "00000000-0000-0000-0000-000000000000")
    assert (answer.status, answer.err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--function", "sha256", "--requester", "node-1", "--topology", "star", "FILE"],
        ["--function", "sha256", "--requester", "node-1", "--shape", "two", "FILE"],
        ["--function", "sha256", "--requester", "node-1", "--shape", "2:", "FILE"],
        ["--function", "sha256", "FILE"],
        ["--function", "sha256", "--requester", "node-1"],
    ],
)
def test_wrong_usage(run, words):
    assert run("task", "create", *words).status == 2
