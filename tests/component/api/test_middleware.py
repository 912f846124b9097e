"""Optional middleware: present if it is configured, absent otherwise."""

import pytest
from oslo_config import cfg
from werkzeug.test import Client

from fpga_pool.api.stack import make_application
from fpga_pool.conf.opts import register_opts
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.exceptions import InvalidInput

ORIGIN = "https://horizon.test"


@pytest.fixture
def answer(pool, tmp_path):
    """Send a cross-origin request through a proxy to an API with these options, and return the answer."""

    def ask(options, path="/", host="localhost"):
        file = tmp_path / "api.conf"
        file.write_text(options)
        conf = cfg.ConfigOpts()
        register_opts(conf, policies=False)
        conf([f"--config-file={file}"], project="fpga_pool")
        headers = {"Origin": ORIGIN, "X-Forwarded-Proto": "https", "X-Forwarded-Host": "127.0.0.1:443"}
        application = make_application(conf, pool, keystone=False, instruments=Instruments())
        return Client(application).get(path, headers=headers | {"Host": host})

    return ask


def href(found):
    return found.json["versions"][0]["links"][0]["href"]


def test_nothing_is_said_of_other_origins_and_no_proxy_is_believed_by_default(answer):
    found = answer("")
    assert found.status_code == 200
    assert "Access-Control-Allow-Origin" not in found.headers
    assert href(found) == "http://localhost/v1/"


def test_an_origin_that_is_allowed_is_told_so(answer):
    found = answer(f"[cors]\nallowed_origin = {ORIGIN}\n")
    assert found.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert href(found) == "http://localhost/v1/"


@pytest.mark.parametrize(
    "origin", ["foo", "https://horizon.test/", "https://Horizon.test", "https://horizon.test:port"]
)
def test_an_origin_that_no_browser_sends_is_refused(answer, origin):
    with pytest.raises(
        InvalidInput, match=r"^\[cors\] allowed_origin: expected \* or PROTOCOL://HOST\[:PORT\] in small"
    ):
        answer(f"[cors]\nallowed_origin = {ORIGIN},{origin}\n")


@pytest.mark.parametrize("origin", ["*", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_other_origins_are_accepted(answer, origin):
    assert answer(f"[cors]\nallowed_origin = {origin}\n").status_code == 200


def test_a_proxy_is_believed_where_there_is_one(answer):
    found = answer("[oslo_middleware]\nenable_proxy_headers_parsing = true\n")
    assert href(found) == "https://127.0.0.1/v1/"


@pytest.mark.parametrize(
    ("path", "said"), [("/healthcheck", "the database"), ("/metrics", "process_cpu_seconds_total")]
)
def test_an_api_on_loopback_has_its_health_and_metrics_beside_it_but_not_for_web_pages(answer, path, said):
    detailed = "[healthcheck]\ndetailed = true\n"
    assert said in answer(detailed, path).text
    assert answer(detailed, path, "evil.test").status_code == 400


def test_a_token_that_keystone_is_not_there_to_check_is_not_said_to_be_invalid(pool, tmp_path):
    file = tmp_path / "api.conf"
    absent = "http://127.0.0.1:1/v3"
    file.write_text(
        f"[keystone_authtoken]\nauth_type = password\nauth_url = {absent}\nwww_authenticate_uri = {absent}\n"
        "username = fpga_pool\npassword = x\nhttp_request_max_retries = 0\n"
    )
    conf = cfg.ConfigOpts()
    register_opts(conf, policies=False)
    conf([f"--config-file={file}"], project="fpga_pool")
    api = Client(make_application(conf, pool, keystone=True))
    found = api.get("/v1/slots", headers={"X-Auth-Token": "of somebody"})
    assert (found.status_code, found.json["errors"][0]["code"]) == (503, "fpga_pool.unavailable")
    assert found.json["errors"][0]["detail"].startswith("Keystone, which validates tokens, does not respond")
    assert api.get("/v1/slots").status_code == 401
    assert api.get("/", headers={"X-Auth-Token": "of somebody"}).status_code == 200


def test_a_file_takes_a_process_out_of_service_for_the_load_balancer(answer, tmp_path):
    file = tmp_path / "disabled"
    options = f"[healthcheck]\nbackends = disable_by_file\ndisable_by_file_path = {file}\n"
    assert answer(options, "/healthcheck").status_code == 200
    file.touch()
    assert answer(options, "/healthcheck").status_code == 503
