"""Any request of any persona is answered according to the OpenAPI document, and reveals nothing of another project.

Each operation is requested by each persona, with data that fit its schema and with data that do not.
"""

import functools
import zlib

import pytest
import schemathesis
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from werkzeug.test import Client

from fpga_pool.api import versions
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.api.stack import make_application
from fpga_pool.model.objects.quotas import QuotaLimits
from support.permissions import BODIES, OPERATE, SYSTEM
from support.personas import OTHER_PROJECT, PROJECT, SOME_UNLESS_LONG, keystone_configuration, known_tokens

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
WORK = {"batches": "create_batch", "gangs": "create_gang", "pipelines": "create_pipeline", "tasks": "create_task",
        "designs": "create_design"}  # fmt: skip
#: A part of the names of all objects of the other project.
SECRET = "aurora"
#: Operations that take only names, or no parameters at all, so that no data can violate their schema.
NEVER_UNFITTING = {"show_host", "show_function", "show_pool", "show_quota"}
BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.fixture(scope="module")
def application(tmp_path_factory, new_pool):
    """Return the API, with its middleware, in front of a pool with work of two projects."""
    bench = new_pool(tmp_path_factory.mktemp("pool"), 100)
    for project_id in (PROJECT, OTHER_PROJECT):  # the test must not be limited by its rate of requests
        bench.set_quota(project_id, QuotaLimits(requests_per_s=10**6))
    with known_tokens():
        yield make_application(keystone_configuration(tmp_path_factory.mktemp("api")), bench, keystone=True)
    bench.close()


@pytest.fixture(scope="module")
def objects(application):
    """Return the uuids of the objects of the personas' project, of the other project and of the pool, by noun."""
    client = Client(application)
    found = {who: created(client, who) for who in ("member", "other")}
    for nouns in ("cards", "slots", "bitstreams"):
        listed = client.get(f"/v1/{nouns}", headers={"X-Auth-Token": "admin"}).json[nouns]
        for who in found:
            found[who][nouns] = [one["uuid"] for one in listed]
    for names in found.values():
        names |= {"hosts": ["node-1"], "functions": ["sha256"], "quotas": [OTHER_PROJECT]}
    return found


def created(client, who):
    headers, found = {"X-Auth-Token": who}, {}
    for nouns, operation in WORK.items():
        found[nouns] = []
        for number in range(3):  # some of them get cancelled during the test
            name = f"{SECRET if who == 'other' else 'plain'}_{number}"
            answer = client.post(f"/v1/{nouns}", json=BODIES[operation] | {"name": name}, headers=headers)
            assert answer.status_code == 201, answer.text
            found[nouns] += [thing["uuid"] for thing in answer.json.values() if "uuid" in thing]
    found["jobs"] = [job["uuid"] for job in client.get("/v1/jobs", headers=headers).json["jobs"]]
    return found


@functools.cache
def cases(application, mode):
    """Return a strategy that generates requests, for each operation name."""
    schema = schemathesis.openapi.from_wsgi("/v1/openapi.json", application)
    schema.config.generation.update(modes=[mode])
    # The token is that of the persona.
    schema.config.generation.with_security_parameters = False
    # The schema does not describe version headers of other services, which are accepted.
    fixed = {"headers": {versions.HEADER: versions.names()[-1]}} if mode is GenerationMode.NEGATIVE else {}
    operations = [one.ok() for one in schema.get_all_operations()]
    return {one.definition.raw["operationId"]: one.as_strategy(generation_mode=mode, **fixed) for one in operations}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fitting", "unfitting"])
@pytest.mark.parametrize("persona", SOME_UNLESS_LONG)
def test_every_answer_is_as_the_document_says(application, objects, persona, mode):
    requests, wrong = cases(application, mode), {}
    assert requests.keys() == BY_NAME.keys()
    for name, generated in requests.items():
        if mode is GenerationMode.POSITIVE or name not in NEVER_UNFITTING:
            try:
                request(BY_NAME[name], generated, objects, persona)
            except (Exception, FailureGroup) as error:  # to report all failures together
                wrong[name] = "\n".join(map(str, getattr(error, "exceptions", [error])))
    assert wrong == {}, "\n".join(f"{name}: {what}" for name, what in wrong.items())


def request(operation, generated, objects, persona):
    """Request an operation with several sets of data, including requests for the objects of each project."""
    nouns = operation.path.split("/")[2]

    @settings(max_examples=max(settings.default.max_examples // 10, 1))
    @given(case=generated, whose=st.sampled_from(["member", "other", "nobody"]), data=st.data())
    def ask(case, whose, data):
        some = objects.get(whose, {}).get(nouns, [])
        names = {one for one in ("uuid", "name") if f"<{one}>" in operation.path and fits(case, ParameterLocation.PATH)}
        if some:
            case.path_parameters |= {name: data.draw(st.sampled_from(some)) for name in names}
        body = BODIES.get(operation.name)
        if body and fits(case, ParameterLocation.BODY) and data.draw(st.sampled_from([True, False])):
            case.body = body
        if "wait_s" in (case.query or {}):  # do not wait for changes
            case.query["wait_s"] = 0
        answer = case.call(headers={"X-Auth-Token": persona})
        case.validate_response(answer, checks=CHECKS)
        if persona not in OPERATE | SYSTEM:
            assert SECRET not in answer.text
            if some and names and whose == "other" and nouns in {*WORK, "jobs"}:
                assert answer.status_code >= 400

    if settings.default.derandomize:  # the examples differ between personas, but are the same in every run
        ask = seed(zlib.crc32(f"{operation.name} {persona}".encode()))(ask)
    ask()


def fits(case, part):
    """Return whether a part of a request fits the schema, or is absent."""
    found = case.meta.components.get(part)
    return found is None or not found.mode.is_negative
