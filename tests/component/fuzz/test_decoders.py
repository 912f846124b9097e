"""Any input from outside is either decoded or refused with the documented error. No other exception is raised."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.cli.client.pipeline import read_pipeline
from fpga_pool.cli.sim.cluster import make_law
from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.drivers.guests.domain import parse as parse_domain
from fpga_pool.guest import frames as guest_frames
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.agents import (
    AssignJob,
    Command,
    Heartbeat,
    JobFinished,
    ObservedJob,
    ObservedSlot,
    ReleaseJob,
    Report,
    SlotChanged,
)
from fpga_pool.model.messages.requests import TicketRequests
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.sim.cluster.tables import read_trace as read_cluster_trace
from fpga_pool.sim.cluster.tables import read_world
from fpga_pool.sim.files import read_problem
from fpga_pool.sim.gangs.trace import read_trace as read_gangs
from fpga_pool.sim.lattice.files import read_problem as read_tasks
from fpga_pool.sim.scenario.reading import read_scenario
from fpga_pool.store import Store
from fpga_pool.transfer import frames
from support.fuzzing import changed_bytes, changed_messages
from support.guests import DOMAIN

ROOT = Path(__file__).parents[3]
UUID = "12345678-1234-1234-1234-123456789abc"
OWNER = {"uuid": UUID, "project_id": "p", "user_id": "u", "name": "n"}
SENT = {"uuid": UUID, "name": "a", "requester": "h", "input_bytes": 5}

COMMAND = {"id": "c", "shard": "s", "epoch": 1, "host": "h", "slot": "h/0/0", "sequence": 2}
ASSIGNED = {"type": "AssignJob", "job": "j", "attempt": 1, "function": "f", "input_bytes": 3, "order": 1}
SLOT = ObservedSlot(slot="h/c/r", card="c", region="r", board="b", kind="k", state=SlotState.EMPTY)
HEARTBEAT = Heartbeat(
    host="h", agent_id="a", boot=1, beat=2, at=3.0, egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=9,
    slots=(SLOT,), jobs=(ObservedJob(job="j", attempt=1, slot="h/c/r"),),
)  # fmt: skip
REPORTS = [
    JobFinished(job="j", attempt=1, at=2.0, compute_s=0.5, result_bytes=3, result_sha256="ab" * 32),
    SlotChanged(slot="h/c/r", at=2.0, state=SlotState.READY, function="f", job="", reason=""),
]

MESSAGES = {
    Command: [COMMAND | {"action": to_plain(ReleaseJob(job="j"))}, COMMAND | {"action": ASSIGNED}],
    Heartbeat: [to_plain(HEARTBEAT)],
    list[tuple[int, Report]]: [[[number, to_plain(report)] for number, report in enumerate(REPORTS)]],
    BatchRequest: [OWNER | {"policy": "", "jobs": [SENT | {"function": "f"}]}],
    TaskRequest: [OWNER | {"function": "f", "shares": [SENT], "shapes": [{"slots": 1, "seconds": 2.0}]}],
    GangRequest: [OWNER | {"processes": 2, "runtime_s": 60.0, "cpu_usage": 0.5, "command": "x"}],
    PipelineRequest: [OWNER | {"subtasks": [SENT | {"function": "f"}, {"uuid": UUID, "name": "b", "function": "f"}]}],
    TicketRequests: [
        {"tickets": [{"job": UUID, "purpose": "send", "source_address": "::1", "source_port": 4}]},
    ],
}


@pytest.mark.parametrize("wanted", MESSAGES, ids=lambda wanted: getattr(wanted, "__name__", "reports"))
@given(data=st.data())
def test_messages(wanted, data):
    with contextlib.suppress(InvalidInput):
        read(wanted, data.draw(changed_messages(MESSAGES[wanted])))


def test_the_messages_that_are_changed_are_right():
    wrong = {Command: 1}  # the number of complete samples; the other commands are incomplete
    for wanted, valid in MESSAGES.items():
        for plain in valid[: wrong.get(wanted, len(valid))]:
            read(wanted, plain)
    assert AssignJob.__struct_config__.tag == ASSIGNED["type"]


@given(
    st.binary(max_size=200)
    | changed_messages([{"version": frames.VERSION, "type": name} for name in sorted(frames._TYPES)]).map(
        lambda plain: json.dumps(plain, default=str).encode()
    )
)
def test_frames(body):
    with contextlib.suppress(frames.BadFrame):
        frames.encode(frames.decode(body))


@given(st.binary(min_size=5, max_size=5))
def test_headers_of_frames(header):
    with contextlib.suppress(frames.BadFrame):
        assert 0 < frames.decode_header(header).length <= max(frames.MAX_CONTROL_BYTES, frames.MAX_DATA_BYTES)


@pytest.fixture(scope="module")
def packed(tmp_path_factory, new_database):
    store = Store(new_database(tmp_path_factory.mktemp("pool") / "pool.sqlite"))
    yield json.loads(json.dumps(store.pool_columns().to_plain()))
    store.close()


@given(data=st.data())
def test_columns_of_the_pool(packed, data):
    plain = data.draw(changed_messages([packed]))
    if isinstance(plain, dict):
        with contextlib.suppress(InvalidInput):
            PoolColumns.from_plain(plain)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "input"


@given(content=changed_bytes([(ROOT / "etc/fpga_pool/catalogue.toml").read_bytes()]))
def test_catalogues(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        load_catalogue(file)


SCENARIOS = [path.read_bytes() for path in sorted((ROOT / "doc/source/user/scenarios").glob("*.toml"))]


@given(content=changed_bytes(SCENARIOS))
def test_scenarios(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_scenario(file)


def problem():
    """Return a file of arrays that lacks expected names and has values of different kinds."""
    content = io.BytesIO()
    np.savez(content, seconds=np.ones((2, 2)), names=np.array(["a", "b"]))
    return content.getvalue()


@given(content=changed_bytes([problem()]))
def test_problems(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_problem(file)


GUEST = [
    {"id": "1", "op": "describe"},
    {"id": "2", "op": "run", "function": "", "bytes": 5},
    {"id": "2", "op": "data", "data": b"12345"},
    {"id": "2", "op": "end", "sha256": "ab" * 32},
]


@given(content=changed_bytes([b"".join(guest_frames.encode(message) for message in GUEST)]), cuts=st.data())
def test_lines_of_guests(content, cuts):
    whole = guest_frames.Lines().feed(content)
    lines, read_bytes, found = guest_frames.Lines(), 0, []
    while read_bytes < len(content):
        size = cuts.draw(st.integers(1, 200))
        found += lines.feed(content[read_bytes : read_bytes + size])
        read_bytes += size
    assert found == whole
    for message in whole:
        assert isinstance(message["id"], str)
        assert isinstance(message["op"], str)
        assert isinstance(message.get("data", b""), bytes)


@given(message=changed_messages([{**message, "data": "MTIz"} for message in GUEST]))
def test_messages_of_guests(message):
    decoded = guest_frames.decode(json.dumps(message, default=str).encode())
    if decoded is not None:
        guest_frames.encode(decoded)


TASKS = {
    "format_version": 1,
    "enclosures": [{"fpgas": 8, "links": "ring"}, {"fpgas": 3, "links": "full"}],
    "load_s": 0.5,
    "tasks": [
        {"id": "t0", "workload": "w0", "seconds": 12.5, "fpgas": 3, "links": "line", "function": "aes"},
        {"id": "t1", "seconds": 6, "fpgas": 2, "shapes": [[4, 3.5], [2, 6.0]], "arrival_s": 2.5},
    ],
}


@given(content=changed_messages([TASKS]))
def test_task_files(file, content):
    file.write_text(json.dumps(content, default=str))
    with contextlib.suppress(InvalidInput):
        read_tasks(file)


WORLDS = [path.read_bytes() for path in sorted((ROOT / "doc/source/user/worlds").glob("*.toml"))]


@given(content=changed_bytes(WORLDS))
def test_worlds(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_world(file, make_law)


@given(content=changed_bytes([b"arrival_s,pipeline,input_mb\n0,video,80\n15,still,400\n"]))
def test_traces_of_clusters(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_cluster_trace(file, {"video": 0, "still": 1})


GANGS = b"""; Version: 2.2
1 0 -1 100 4 -1 -1 4 200 -1 1 7 -1 -1 -1 -1 -1 -1
2 5 -1 10 1 -1 -1 1 20 -1 1 7 -1 -1 -1 -1 -1 -1
"""


@given(content=changed_bytes([GANGS]))
def test_traces_of_gangs(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_gangs(file, 8)


PIPELINE = b"""name = "p"
requester = "node-1"
[[subtasks]]
name = "a"
function = "sha256"
input = "a.bin"
[[subtasks]]
name = "b"
function = "sha256"
after = ["a"]
"""


@given(content=changed_bytes([PIPELINE]))
def test_pipeline_files(file, content):
    file.write_bytes(content)
    with contextlib.suppress(InvalidInput):
        read_pipeline(file)


@given(content=changed_bytes([DOMAIN.format(uuid=UUID, function="sha256", slots=2, project="p").encode()]))
def test_domains(content):
    with contextlib.suppress(InvalidInput):
        parse_domain(content.decode(errors="surrogateescape"))
