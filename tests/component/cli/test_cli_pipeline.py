import xml.etree.ElementTree as ElementTree

import pytest

from fpga_pool.cli.files import read_pipeline
from fpga_pool.client import Client
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.work import SubtaskRequest

FILE = """
name = "backup"
requester = "node-1"

[[subtasks]]
name = "left"
function = "aes"
input = "left.bin"
header = "key.bin"

[[subtasks]]
name = "right"
function = "sha256"
input = "left.bin"
requester = "node-2"

[[subtasks]]
name = "both"
function = "sha256"
after = ["left", "right"]
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "left.bin").write_bytes(b"left")
    (tmp_path / "key.bin").write_bytes(b"key")

    def file(text=FILE):
        (tmp_path / "pipeline.toml").write_text(text)
        return tmp_path / "pipeline.toml"

    return file


def test_a_dry_run_of_a_pipeline_shows_all_its_subtasks_and_stores_nothing(run, write):
    text = FILE.replace('"aes"', '"sha256"').replace('header = "key.bin"', "")
    plan = run("pipeline", "create", "--dry-run", write(text), "-f", "json").json
    left, right, both = plan["subtask_list"]
    assert (left["slot"], right["slot"]) != ("", "")
    assert both["start_s"] >= max(left["end_s"], right["end_s"])
    assert plan["planned_makespan_s"] == both["end_s"] >= plan["lower_bound_s"] > 0
    planned = run("plan", "create", "pipeline", write(text))
    assert "2  both  node-" in planned.out
    assert max(map(len, planned.out.splitlines())) <= 80
    assert run("pipeline", "list", "-f", "json").json == []


def test_a_file_describes_a_pipeline(write):
    name, subtasks = read_pipeline(path := write())
    assert name == "backup"
    assert [(one.name, one.requester, one.header, one.after) for one in subtasks] == [
        ("left", "node-1", b"key", ()),
        ("right", "node-2", b"", ()),
        ("both", "", b"", ("left", "right")),
    ]
    assert subtasks[0].source == path.parent / "left.bin"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (FILE.replace("[[subtasks]]", "[[subtasks"), "not a TOML file"),
        (FILE.replace('after = ["left", "right"]', ""), r"subtasks\[2\]: expected input or after, and not both"),
        (FILE.replace('requester = "node-1"', "", 1), r"subtasks\[0\]: expected a requester"),
        (FILE.replace('"key.bin"', '"lost.bin"'), r"subtasks\[0\].header: lost.bin: cannot be read"),
        (FILE.replace("function", "fonction", 1), r"subtasks\[0\]"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(write, text, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        read_pipeline(write(text))


def test_a_pipeline_is_listed_shown_drawn_and_cancelled(run, pool, serve, tmp_path):
    uuids = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
    known = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
    subtasks = [
        SubtaskRequest(uuid=uuids[2], name="both", function="sha256", after=("left", "right")),
        SubtaskRequest(uuid=uuids[0], name="left", **known),
        SubtaskRequest(uuid=uuids[1], name="right", **known),
    ]
    with Client(serve(pool)) as client:
        made = client.create_pipeline(subtasks, name="backup")
    assert [row["uuid"] for row in run("pipeline", "list", "-f", "json").json] == [made.uuid]
    shown = run("pipeline", "show", made.uuid, "-f", "json", "--svg", str(tmp_path / "graph.svg")).json
    assert shown["graph"].splitlines() == [
        "left (sha256) PENDING",
        "right (sha256) PENDING",
        "   left + right -> both (sha256) PENDING",
    ]
    assert shown["pending_reason"] == "it is about to be planned"
    assert shown["expected_at"] >= shown["created_at"]
    drawn = ElementTree.fromstring((tmp_path / "graph.svg").read_text())
    svg = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{svg}g")) == 3
    assert len(drawn.findall(f"{svg}path")) == 2
    assert run("pipeline", "cancel", made.uuid, "-f", "json").json[0]["state"] == "CANCELLED"
    assert run("pipeline", "watch", made.uuid, "--no-progress").status == 1
    assert run("pipeline", "create", str(tmp_path / "nothing.toml")).status == 2
