"""Who the Nova runner is at Keystone: what is configured, and how long it waits for answers."""

import pytest
from oslo_config import cfg

from fpga_pool.drivers.runners.nova_login import TIMEOUT_S, log_in
from fpga_pool.model.exceptions import InvalidInput

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
