import logging

import pytest
from oslo_context import context as oslo_context

from fpga_pool.api.app import create_app


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_lists_versions(api):
    assert api.get("/").json["versions"][0]["id"] == "v1.0"


def test_each_answer_and_log_line_carries_a_request_id(api, caplog):
    """oslo.log puts the id of the current context before each line."""
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
    assert header in answer.json["error"]["message"]


def test_refuses_foreign_host_name(api):
    # A page at evil.example whose name was rebound to 127.0.0.1.
    assert api.get("/v1/slots", headers={"Host": "evil.example:9511"}).status_code == 400


@pytest.mark.parametrize("name", ["127.0.0.1:9511", "localhost", "[::1]:9511"])
def test_takes_loopback_names(api, name):
    assert api.get("/v1/slots", headers={"Host": name}).status_code == 200
