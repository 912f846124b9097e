"""The REST API answers any request with a result or a client error, and never with status 500."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.api.app import create_app
from fpga_pool.api.operations import OPERATIONS
from support.fuzzing import PLAIN, changed_messages

UUID = "12345678-1234-1234-1234-123456789abc"
JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
BODIES = {
    "create_batch": {"name": "n", "policy": "ect", "jobs": [JOB | {"uuid": UUID, "name": "a"}]},
    "create_gang": {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5, "work_s": 5.0, "command": "x"},
    "create_task": {
        "function": "sha256", "topology": "line", "shares": [{"requester": "node-1", "input_bytes": 5}],
        "shapes": [{"slots": 1, "seconds": 2.0}],
    },
    "create_pipeline": {"subtasks": [JOB | {"name": "a"}, {"name": "b", "function": "sha256", "after": ["a"]}]},
    "create_tickets": {
        "tickets": [{"job": UUID, "purpose": "send", "source_address": "127.0.0.1", "source_port": 1}]
    },
    "confirm_results": {"receipts": [{"job": UUID, "sha256": "ab" * 32}]},
    "change_slot": {"drain": False, "reason": "r"},
    "set_quota": {"jobs": 5, "input_bytes": -1},
}  # fmt: skip
BODIES |= {f"plan_{noun}": BODIES[f"create_{noun}"] for noun in ("batch", "gang", "pipeline", "task")}
#: Values of query parameters: known values and arbitrary ones.
VALUES = st.sampled_from(
    ["1", "0", "-1", "1e300", "nan", "99999999999999999999", UUID, "e30=", "bnVsbA==", "\0"]
) | st.text(max_size=20)
TAGS = st.sampled_from(["*", '"0-0"', 'W/"0"', '"', '"-"', ","]) | st.text(
    st.characters(codec="latin-1", categories=["L", "P", "S"])
)
NAMES = st.sampled_from(["limit", "marker", "state", "changed_after", "wait_s", "function"]) | st.text(max_size=8)
SEGMENTS = st.sampled_from([UUID, "node-1", "sha256", "x", "%00", "..", "%2e%2e"]) | st.text(
    st.characters(codec="ascii", exclude_characters="/?#"), min_size=1, max_size=20
)


@pytest.fixture(scope="module")
def api(tmp_path_factory, new_pool):
    bench = new_pool(tmp_path_factory.mktemp("pool"), 100)
    yield create_app(bench).test_client()
    bench.close()


@given(data=st.data())
def test_every_request_has_an_answer(api, data):
    operation = data.draw(st.sampled_from(OPERATIONS))
    path = operation.path
    for part in ("<uuid>", "<name>"):
        if part in path:
            path = path.replace(part, data.draw(SEGMENTS))
    valid = BODIES.get(operation.name)
    body = {} if valid is None else {"json": data.draw(changed_messages([valid]) | PLAIN)}
    query = data.draw(st.dictionaries(NAMES, VALUES, max_size=2))
    if "wait_s" in query:  # do not wait for changes
        query["wait_s"] = "0"
    headers = data.draw(st.dictionaries(st.sampled_from(["If-Match", "If-None-Match"]), TAGS, max_size=1))
    answer = api.open(path, method=operation.method, query_string=query, headers=headers, **body)
    assert answer.status_code < 500, (operation.name, path, query, headers, body, answer.text)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    path=st.text(st.characters(codec="ascii", exclude_characters="?#"), max_size=30),
    body=st.binary(max_size=100),
    kind=st.sampled_from(["application/json", "text/plain", "application/json; charset=utf-7", ""]),
)
def test_every_path_and_body_has_an_answer(api, method, path, body, kind):
    answer = api.open(f"/v1/{path}", method=method, data=body, content_type=kind)
    assert answer.status_code < 500, (method, path, body, answer.text)
