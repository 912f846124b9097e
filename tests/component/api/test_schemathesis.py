"""Whatever a persona requests, it is answered as the OpenAPI document says, and learns nothing of another project."""

import functools

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from werkzeug.test import Client

from fpga_pool.api.stack import make_application
from fpga_pool.model.objects.quotas import QuotaLimits
from support.personas import OTHER_PROJECT, PERSONAS, keystone_configuration, known_tokens

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
WORK = {
    "batches": {"jobs": [JOB]},
    "gangs": {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5},
    "pipelines": {"subtasks": [JOB | {"name": "a"}]},
    "tasks": {"function": "sha256", "shares": [{"requester": "node-1", "input_bytes": 5}]},
}
#: In the names of all that the other project has.
SECRET = "aurora"


@pytest.fixture(scope="module")
def application(tmp_path_factory, new_pool):
    """The API as it is served, in front of a pool with work of two projects."""
    bench = new_pool(tmp_path_factory.mktemp("pool"), 100)
    for project_id in ("a" * 32, OTHER_PROJECT):  # this test asks as fast as it can
        bench.set_quota(project_id, QuotaLimits(requests_per_s=10**6))
    with known_tokens():
        yield make_application(keystone_configuration(tmp_path_factory.mktemp("api")), bench, keystone=True)
    bench.close()


@pytest.fixture(scope="module")
def uuids(application):
    """What the project of the personas has, what the other one has, and the pool: uuids of work, jobs and cards."""
    client = Client(application)
    cards = client.get("/v1/cards", headers={"X-Auth-Token": "admin"}).json["cards"]
    return {who: created(client, who) for who in ("member", "other")} | {"pool": [card["uuid"] for card in cards]}


def created(client, who):
    headers = {"X-Auth-Token": who}
    name = SECRET if who == "other" else "plain"
    found = []
    for nouns, body in WORK.items():
        for _ in range(3):  # some are cancelled on the way
            answer = client.post(f"/v1/{nouns}", json=body | {"name": name}, headers=headers)
            found += [thing["uuid"] for thing in answer.json.values() if "uuid" in thing]
    return found + [job["uuid"] for job in client.get("/v1/jobs", headers=headers).json["jobs"]]


@functools.cache
def cases(application):
    schema = schemathesis.openapi.from_wsgi("/v1/openapi.json", application)
    return st.one_of([operation.ok().as_strategy() for operation in schema.get_all_operations()])


@pytest.mark.parametrize("persona", PERSONAS)
@given(data=st.data())
def test_every_answer_is_as_the_document_says(application, uuids, persona, data):
    case = data.draw(cases(application))
    whose = data.draw(st.sampled_from(["nobody", "member", "other", "pool"]))
    if "uuid" in case.path_parameters and whose != "nobody":
        case.path_parameters["uuid"] = data.draw(st.sampled_from(uuids[whose]))
    if "wait_s" in (case.query or {}):  # what waits takes its time
        case.query["wait_s"] = 0
    answer = case.call(headers={"X-Auth-Token": persona})
    case.validate_response(answer, checks=CHECKS)
    if persona not in ("admin", "system admin"):
        assert SECRET not in answer.text
    if whose == "other" and "uuid" in case.path_parameters:
        assert answer.status_code >= 400
