"""The OpenAPI document agrees with the behavior of the API."""

import pytest
from jsonschema import Draft202012Validator

from fpga_pool.api.app import create_app

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
DESIGN = {
    "name": "mine", "board": "kintex7", "kind": "small", "io_bps": 1e9, "b_s_per_byte": 1e-9, "simulates": "sha256",
    "bitstream": "aGVsbG8=",
}  # fmt: skip


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


@pytest.fixture
def document(api):
    return api.get("/v1/openapi.json").json


def errors(document, schema, value):
    """Return the schema errors of a value. References are resolved in the document."""
    whole = {**schema, "components": document["components"]}
    return [error.message for error in Draft202012Validator(whole).iter_errors(value)]


def schema_of(document, path, method, status):
    content = document["paths"][path][method]["responses"][status]["content"]
    return content["application/json"]["schema"]


def test_every_route_is_described(api, document):
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), method.lower())
        for rule in api.application.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
        if rule.rule.startswith("/v1/") and rule.rule not in ("/v1/", "/v1/openapi.json")
    }
    assert routes == {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert document["openapi"] == "3.1.0"


def followed(document, found):
    """Return the component that `found` refers to, or `found` itself if it is no reference."""
    *_, kind, name = found.get("$ref", "//").split("/")
    return document["components"][kind][name] if name else found


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/v1/services", "get", {200, 400, 401, 403, 406, 429, 503}),
        ("/v1/batches", "post", {201, 400, 401, 403, 404, 406, 409, 413, 415, 429, 503, 507}),
        ("/v1/batches/{uuid}", "get", {200, 304, 400, 401, 403, 404, 406, 429, 503}),
        ("/v1/batches/{uuid}", "delete", {202, 400, 401, 403, 404, 406, 409, 412, 429, 503, 507}),
        ("/v1/quotas/{name}", "put", {200, 400, 401, 403, 406, 409, 412, 413, 415, 429, 503, 507}),
    ],
)
def test_an_operation_has_the_statuses_that_it_can_answer_with(document, path, method, statuses):
    assert {int(status) for status in document["paths"][path][method]["responses"]} == statuses


def test_every_error_has_a_schema_and_every_answer_the_headers_of_all(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, found in operation["responses"].items():
                response = followed(document, found)
                headers = {name for name, one in response["headers"].items() if followed(document, one)["required"]}
                assert headers == {"x-openstack-request-id", "OpenStack-API-Version", "Vary"}, (path, method, status)
                if int(status) >= 400:
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}


def test_the_token_and_the_microversion_are_parameters(api, document):
    assert document["security"] == [{"token": []}]
    assert document["components"]["securitySchemes"]["token"]["name"] == "X-Auth-Token"
    for methods in document["paths"].values():
        for operation in methods.values():
            by_name = {one["name"]: one for one in operation["parameters"]}
            assert by_name["OpenStack-API-Version"]["schema"]["enum"] == ["fpga 1.0", "fpga latest"]
            assert "X-OpenStack-Request-ID" in by_name
    for named in ("fpga 1.0", "fpga latest"):
        assert api.get("/v1/pool", headers={"OpenStack-API-Version": named}).status_code == 200


def test_answers_fit_their_schemas(api, pool, document):
    batch = api.post("/v1/batches", json={"jobs": [JOB]}).json["batch"]["uuid"]
    gang = api.post("/v1/gangs", json={"processes": 1, "runtime_s": 60, "cpu_usage": 0.5}).json["gang"]["uuid"]
    task = api.post("/v1/tasks", json={"function": "sha256", "shares": [{"requester": "node-1", "input_bytes": 5}]})
    slot = api.get("/v1/slots").json["slots"][0]["uuid"]
    subtask = {"name": "a", "function": "sha256", "requester": "node-1", "input_bytes": 5}
    pipeline = api.post("/v1/pipelines", json={"subtasks": [subtask]}).json["pipeline"]["uuid"]
    uuids = {"batches": batch, "gangs": gang, "pipelines": pipeline, "tasks": task.json["task"]["uuid"], "slots": slot}
    uuids["bitstreams"] = api.get("/v1/bitstreams").json["bitstreams"][0]["uuid"]
    uuids["cards"] = api.get("/v1/cards").json["cards"][0]["uuid"]
    uuids["jobs"] = api.get("/v1/jobs").json["jobs"][0]["uuid"]
    uuids["designs"] = api.post("/v1/designs", json=DESIGN).json["design"]["uuid"]
    uuids["instances"] = pool.instance_on("node-1")
    uuids["services"] = api.get("/v1/services").json["services"][0]["uuid"]
    uuids["processors"] = api.get("/v1/processors").json["processors"][0]["uuid"]
    api.put("/v1/quotas/other", json={"jobs": 5})
    names = {"hosts": "node-1", "functions": "sha256", "quotas": "other"}
    for path, methods in document["paths"].items():
        if "get" in methods:
            nouns = path.split("/")[2]
            answer = api.get(path.replace("{uuid}", uuids.get(nouns, "")).replace("{name}", names.get(nouns, "")))
            assert (path, errors(document, schema_of(document, path, "get", "200"), answer.json)) == (path, [])


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ({"jobs": [JOB]}, True),
        ({"jobs": [JOB | {"input_bytes": -1}]}, False),
        ({"jobs": [JOB | {"more": 1}]}, False),
        ({"jobs": [JOB | {"name": "a\x00b"}]}, False),
        ({}, False),
    ],
)
def test_a_body_is_accepted_where_its_schema_allows_it(api, document, body, allowed):
    schema = document["paths"]["/v1/batches"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (errors(document, schema, body) == []) is allowed
    assert (api.post("/v1/batches", json=body).status_code == 201) is allowed


def test_an_unknown_query_parameter_is_refused_by_name(api):
    answer = api.get("/v1/batches?limit=5&colour=red")
    assert answer.status_code == 400
    assert (
        answer.json["errors"][0]["detail"]
        == "query: unknown: ['colour']; known: project_id, state, since, sort, limit, marker, name, function, host"
    )
