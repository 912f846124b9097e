import logging

import pytest
from oslo_context import context as oslo_context

from fpga_pool.api.app import create_app


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_lists_versions_and_shows_the_one_at_its_address(api):
    (listed,) = api.get("/", headers={"Host": "localhost:9511"}).json["versions"]
    assert (listed["id"], listed["min_version"], listed["max_version"]) == ("v1.0", "1.0", "1.0")
    address = next(link["href"] for link in listed["links"] if link["rel"] == "self")
    assert address == "http://localhost:9511/v1/"
    assert api.get(address).json["version"]["id"] == listed["id"]


@pytest.mark.parametrize(
    "accept",
    [
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",  # Firefox
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        "application/json;q=0.5, text/*",
    ],
)
def test_a_browser_is_led_from_the_root_to_the_dashboard(api, accept):
    answer = api.get("/", headers={"Accept": accept}, base_url="http://localhost/accelerators")
    assert (answer.status_code, answer.location) == (303, "/accelerators/dashboard/")
    assert "Accept" in answer.vary


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/html, application/json", "image/png"])
def test_clients_that_do_not_prefer_a_page_get_the_versions_at_the_root(api, accept):
    answer = api.get("/", headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert "Accept" in answer.vary


@pytest.mark.parametrize("path", ["/", "/v1/", "/v1/openapi.json", "/v1/functions"])
def test_a_parameter_that_a_path_does_not_have_is_refused(api, path):
    answer = api.get(path, query_string={"colour": "blue"})
    assert (answer.status_code, "colour" in answer.json["errors"][0]["detail"]) == (400, True)


@pytest.mark.parametrize("wanted", ["fpga 1.0", "fpga latest", "compute 2.90", ""])
def test_answers_say_which_microversion_they_have(api, wanted):
    answer = api.get("/v1/functions", headers={"OpenStack-API-Version": wanted})
    assert answer.status_code == 200
    assert answer.headers["OpenStack-API-Version"] == "fpga 1.0"
    assert "OpenStack-API-Version" in answer.vary


@pytest.mark.parametrize(
    ("wanted", "status"), [("fpga 1.1", 406), ("fpga 0.9", 406), ("fpga new", 400), ("1.0", 400), ("fpga", 400)]
)
def test_a_microversion_that_is_not_there_is_refused(api, wanted, status):
    answer = api.get("/v1/functions", headers={"OpenStack-API-Version": wanted})
    assert answer.status_code == status
    assert answer.headers["OpenStack-API-Version"] == "fpga 1.0"
    [error] = answer.json["errors"]
    assert [error.get(name) for name in ("min_version", "max_version")] == ["1.0" if status == 406 else None] * 2


def test_each_answer_and_log_line_carries_a_request_id(api, caplog):
    """The log handler sees the id of the request's context, which oslo.log puts before each line."""
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(oslo_context.get_current().request_id)
    logger = logging.getLogger("fpga_pool.api.app")
    logger.addHandler(handler)
    caplog.set_level(logging.DEBUG, logger.name)
    try:
        answers = [api.get("/v1/slots").headers["x-openstack-request-id"] for _ in range(2)]
    finally:
        logger.removeHandler(handler)
    assert told == answers
    assert len(set(told)) == 2


def test_refused_requests_do_not_fill_the_log(api, caplog):
    caplog.set_level(logging.INFO, "fpga_pool.api.app")
    assert {api.post("/v1/batches", json={}).status_code for _ in range(30)} == {400}
    lines = [record for record in caplog.records if record.name == "fpga_pool.api.app"]
    # The first ten are logged at once, then one per ten seconds.
    assert 10 <= len(lines) < 30


def test_a_path_writes_no_line_of_its_own_into_the_log_and_not_a_long_one(api, caplog):
    caplog.set_level(logging.DEBUG, "fpga_pool.api.app")
    api.get("/v1/foo%0a2026-11-23 CRITICAL forged" + "x" * 10_000)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fpga_pool.api.app"]
    assert "foo\\n2026" in line
    assert "\n" not in line
    assert len(line) < 300


@pytest.mark.parametrize("header", ["X-Project-Id", "X-User-Id"])
@pytest.mark.parametrize("value", ["", "a" * 65, "a b", "../x", "a\u00e9"])
def test_refuses_identity_that_is_none(api, header, value):
    answer = api.get("/v1/batches", headers={header: value})
    assert answer.status_code == 400
    assert header in answer.json["errors"][0]["detail"]


def test_refuses_foreign_host_name(api):
    # A page at evil.example that reaches 127.0.0.1 by DNS rebinding.
    assert api.get("/v1/slots", headers={"Host": "evil.example:9511"}).status_code == 400


@pytest.mark.parametrize("name", ["127.0.0.1:9511", "localhost", "[::1]:9511"])
def test_takes_loopback_names(api, name):
    assert api.get("/v1/slots", headers={"Host": name}).status_code == 200
