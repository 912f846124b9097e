import pytest
from oslo_messaging import MessagingTimeout, RemoteError

from fpga_pool.api.app import create_app
from fpga_pool.model import exceptions


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (exceptions.InvalidInput, 400),
        (exceptions.UnknownFunction, 400),
        (exceptions.UnknownRequester, 400),
        (exceptions.NoSlotFits, 400),
        (exceptions.NotFound, 404),
        (exceptions.Conflict, 409),
        (exceptions.DuplicateId, 409),
        (exceptions.InvalidTransition, 409),
        (exceptions.StaleEpoch, 409),
        (exceptions.TooManyRequests, 429),
        (exceptions.InvalidCatalogue, 500),
        (exceptions.SlotFault, 500),
        (exceptions.ServiceUnavailable, 503),
        (exceptions.StorageFull, 507),
    ],
)
def test_domain_error_has_its_status_and_code(pool, error, status):
    pool.breaks["slots"] = [error("what is wrong")]
    answer = create_app(pool).test_client().get("/v1/slots")
    assert answer.status_code == status
    (found,) = answer.json["errors"]
    assert (found["code"], found["status"], found["detail"]) == (error.code, status, "what is wrong")
    assert found["title"]
    assert found["request_id"] == answer.headers["x-openstack-request-id"]


def test_silent_scheduler_is_unavailable(pool):
    pool.breaks["slots"] = [MessagingTimeout("no reply to message id 1")]
    answer = create_app(pool).test_client().get("/v1/slots")
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (503, "fpga_pool.unavailable")


def test_failure_elsewhere_is_told_without_its_content(pool):
    pool.breaks["slots"] = [RemoteError("KeyError", "secret", ["trace"])]
    answer = create_app(pool).test_client().get("/v1/slots")
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (500, "fpga_pool.error")
    assert "secret" not in answer.text
    assert "trace" not in answer.text


def test_error_that_came_by_rpc_is_told_without_the_traceback(pool):
    # oslo.messaging gives remote exceptions a __str__ with the traceback. The original message is the argument.
    class Remote(exceptions.NotFound):
        def __str__(self):
            return "no slot\nTraceback: ..."

    pool.breaks["slots"] = [Remote("no slot")]
    assert create_app(pool).test_client().get("/v1/slots").json["errors"][0]["detail"] == "no slot"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "fpga_pool.no_such_path"),
        ("PUT", "/v1/batches", 405, "fpga_pool.method_not_allowed"),
        ("POST", "/v1/batches", 415, "fpga_pool.unsupported_media_type"),
        ("POST", "/v1/batches", 413, "fpga_pool.too_large"),
        ("GET", "/v1/hosts", 406, "fpga_pool.unsupported_version"),
    ],
)
def test_error_before_a_resource_has_the_same_form(pool, method, path, status, code):
    more = {"data": b" " * 5000, "content_type": "application/json"} if status == 413 else {}
    more |= {"headers": {"OpenStack-API-Version": "fpga 99.0"}} if status == 406 else {}
    answer = create_app(pool, max_body_bytes=1000).test_client().open(path, method=method, **more)
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (status, code)
    assert answer.json["errors"][0]["request_id"].startswith("req-")


def test_a_path_that_leads_nowhere_is_answered_with_where_the_paths_are(pool):
    said = create_app(pool).test_client().get("/v2/batches").json["errors"][0]["detail"]
    assert said == "no such path; /v1/openapi.json describes the available ones"
