"""The login of the Nova runner at Keystone: its configuration and its timeouts."""

import pytest
import requests
from keystoneauth1 import session as keystone_session
from oslo_config import cfg

from fpga_pool.drivers.nova_api import CONNECT_RETRIES, TIMEOUT_S, log_in
from fpga_pool.drivers.runners.nova_servers import Servers
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable

ACCOUNT = """
auth_type = password
auth_url = http://127.0.0.1:1/v3
username = fpga_pool
password = secret
project_name = fpga_pool
user_domain_id = default
project_domain_id = default
"""


def configured(tmp_path, text):
    file = tmp_path / "fpga_pool.conf"
    file.write_text(f"[nova]\n{text}")
    conf = cfg.ConfigOpts()
    conf([], project="test", default_config_files=[str(file)], default_config_dirs=[])
    return conf


@pytest.mark.parametrize(("more", "timeout_s"), [("", TIMEOUT_S), ("timeout = 7", 7)])
def test_nothing_is_asked_before_it_is_needed_and_every_call_has_a_timeout(tmp_path, more, timeout_s):
    cloud = log_in(configured(tmp_path, ACCOUNT + more))
    assert cloud.session.timeout == timeout_s


def test_who_has_no_account_is_told_what_is_missing(tmp_path):
    with pytest.raises(InvalidInput, match=r"\[nova\] auth_type: missing"):
        log_in(configured(tmp_path, ""))


def test_an_account_that_cannot_be_right_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"\[nova\]: .*nosuch"):
        log_in(configured(tmp_path, "auth_type = nosuch"))


class Wire(requests.adapters.BaseAdapter):
    """A transport that accepts every request and loses every answer."""

    def __init__(self):
        super().__init__()
        self.taken = []

    def send(self, request, **_):
        self.taken.append((request.method, request.path_url.partition("?")[0]))
        raise requests.exceptions.ReadTimeout("no answer")

    def close(self):
        pass


@pytest.fixture
def wire(monkeypatch):
    monkeypatch.setattr(keystone_session.time, "sleep", lambda _: None)
    return Wire()


@pytest.mark.filterwarnings("ignore:The 'service_type' parameter")  # the SDK warns of its own call
def test_a_question_is_asked_again_and_a_request_whose_answer_is_lost_is_sent_once(tmp_path, wire):
    """Nova may already build the server. keystoneauth by itself would repeat the request twice, whatever the method."""
    options = "auth_type = none\nendpoint = http://nova.test/v2.1\n"
    cloud = log_in(configured(tmp_path, options))
    cloud.session.session = requests.Session()
    cloud.session.session.mount("http://", wire)
    servers = Servers(cloud, "one", "gang", [])
    with pytest.raises(ServiceUnavailable, match="timed out"):
        servers._ask("POST", "/servers", {"server": {}})
    assert wire.taken.count(("POST", "/v2.1/servers")) == 1
    with pytest.raises(ServiceUnavailable, match="timed out"):
        servers.list()
    assert wire.taken.count(("GET", "/v2.1/servers/detail")) == 1 + CONNECT_RETRIES
