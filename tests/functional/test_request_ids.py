"""Effects of an API request have its id, on RabbitMQ and MariaDB: events, notifications, and the agent's log."""

import base64
import uuid

import pytest
import requests

from support.notified import listening
from support.waiting import wait_until

TIMEOUT_S = 60
MANIFEST = {"name": "d", "board": "kintex7", "kind": "small", "luts": 100, "io_bps": 1e9, "b_s_per_byte": 1e-9}
INPUT = {"requester": "node-1", "input_bytes": 1000}
JOB = {"function": "sha256", **INPUT}
GANG = {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5}
#: Bodies of requests that create an object of each list.
CREATED = {
    "batches": {"jobs": [JOB]},
    "designs": {**MANIFEST, "simulates": "sha256", "bitstream": base64.b64encode(b"bits").decode()},
    "gangs": GANG,
    "pipelines": {"subtasks": [{"name": "one", **JOB}]},
    "tasks": {"function": "sha256", "shares": [INPUT]},
}


class Api:
    """The API, and requests to it."""

    def __init__(self, endpoint):
        self._endpoint = endpoint

    def __call__(self, method, path, body=None):
        """Return the response, and both ids of the request: the pool's, and the caller's."""
        sent = f"req-{uuid.uuid4()}"
        headers = {"X-Project-Id": "p", "X-Openstack-Request-Id": sent}
        answer = requests.request(method, f"{self._endpoint}/v1/{path}", json=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.ok, answer.text
        return answer.json(), (answer.headers["X-Openstack-Request-Id"], sent)

    def create(self, noun, **more):
        """Return the path of the new object, and the ids of the request."""
        made, cause = self("POST", noun, CREATED[noun] | more)
        (shown,) = (one for one in made.values() if isinstance(one, dict))
        return f"{noun}/{shown['uuid']}", cause

    def causes(self, path):
        """Return the events of an object, oldest first, each with the ids of the causing request."""
        found, _ = self("GET", f"{path}/events")
        return [(one["event"], ids(one)) for one in reversed(found["events"])]


def ids(event):
    """Return both ids of the request that caused an event or a notification."""
    return event["request_id"], event["global_request_id"]


@pytest.fixture
def told(rabbitmq):
    with listening(rabbitmq.url) as told:
        yield told


@pytest.fixture
def pool(deployment, rabbitmq, mariadb_url, told):
    options = {
        "oslo_messaging_notifications": {"driver": "messagingv2", "topics": told.topic},
        "agent": {"gang_processors": "0"},
    }
    return deployment(rabbitmq.url, mariadb_url, agents=1, options=options)


@pytest.fixture
def api(pool):
    return Api(pool.endpoint)


def test_what_a_request_causes_has_its_ids(pool, api, told):
    """1. Objects are created. 2. They are changed. 3. They end. 4. A slot is drained and resumed."""
    made = {noun: api.create(noun) for noun in CREATED}
    for path, cause in made.values():
        assert api.causes(path)[0] == ("Created", cause)
    batch, design = made["batches"][0], made["designs"][0]

    def held_jobs():
        return [one["state"] for one in api("GET", f"{batch}/jobs")[0]["jobs"]] == ["WAITING_INPUT"]

    wait_until(held_jobs, "the agent has the job")
    _, held = api("PATCH", batch, {"held": True})
    _, released = api("PATCH", batch, {"held": False})
    wait_until(held_jobs, "the agent has the job again")
    (job,) = api("GET", f"{batch}/jobs")[0]["jobs"]
    _, cancelled = api("DELETE", batch)
    _, approved = api("PATCH", design, {"state": "APPROVED", "reason": "checked"})
    of_batch, of_job = api.causes(batch), api.causes(f"jobs/{job['uuid']}")
    assert [cause for event, cause in of_batch if event in ("BatchHeld", "BatchReleased")] == [held, released]
    assert ("BatchCancelRequested", cancelled) in of_batch
    assert ("CancelRequested", cancelled) in of_job
    assert {cause for event, cause in of_job if event == "Planned"} == {("", "")}  # planned by the pool itself
    assert api.causes(design)[-1][1] == approved

    ends = {noun: api("DELETE", made[noun][0])[1] for noun in ("gangs", "pipelines", "tasks")}
    for noun, cause in ends.items():
        assert cause in [of for _, of in api.causes(made[noun][0])], noun

    (slot, *_) = api("GET", "slots")[0]["slots"]
    path = f"slots/{slot['uuid']}"
    _, drained = api("PATCH", path, {"drain": True, "reason": "dust"})
    _, resumed = api("PATCH", path, {"drain": False})
    of_slot = api.causes(path)
    assert ("DrainRequested", drained) in of_slot
    assert of_slot[-1][1] == resumed

    waiting, _ = api.create("batches", held=True)
    _, ended = api("DELETE", waiting)  # no agent has to release anything first
    wait_until(lambda: ended in [ids(one) for one in told.of("batch.ended")], "the end of the batch is told")
    assert ids(told.of("design.submitted")[0]) == made["designs"][1]
    assert ids(told.of("design.decided")[0]) == approved
    log = pool.log_file("node-1")
    for cause in (held, cancelled):  # each made the agent release the job
        wait_until(
            lambda cause=cause: [
                line
                for line in log.read_text().splitlines()
                if "1 ReleaseJob" in line and all(one in line for one in cause)
            ],
            "the agent logs it",
        )
