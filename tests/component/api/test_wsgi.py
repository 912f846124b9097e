"""`fpga_pool.wsgi.api`, imported in a separate process as by a WSGI server."""

import os
import subprocess
import sys

import pytest

from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key

TIMEOUT_S = 90
#: No scheduler runs, and messages stay within the process.
CONFIG = """
[DEFAULT]
transport_url = fake:///
[keystone_authtoken]
auth_type = none
www_authenticate_uri = http://keystone.test
[healthcheck]
detailed = true
"""
SCRIPT = """
from werkzeug.test import Client
from fpga_pool.wsgi.api import application
client = Client(application)
for path in ("/", "/v1/slots", "/healthcheck"):
    answer = client.get(path, headers={"Accept": "application/json"})
    print(answer.status_code, "no scheduler answers" in answer.text)
"""


def run(tmp_path, config):
    path = tmp_path / "fpga_pool.conf"
    load_or_create_signing_key(tmp_path / "api.pem")
    more = f"[api]\nkey = {tmp_path}/api.pem\n[DEFAULT]\nlog_file = {tmp_path}/log"
    path.write_text(config.replace("[DEFAULT]", more))
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=os.environ | {"OS_FPGA_POOL_CONFIG_FILES": str(path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_wsgi_server_finds_the_application_and_a_load_balancer_its_health(tmp_path):
    done = run(tmp_path, CONFIG)
    assert done.stdout.splitlines() == ["200 False", "401 False", "503 True"], done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "auth_strategy = noauth",
            "[api] auth_strategy: noauth is refused under a WSGI server",
        ),  # the address it will listen on is unknown
        ("port = 99999", "[api] port: expected a whole number from 0 to 65535, found '99999'"),
    ],
)
def test_a_configuration_with_which_it_cannot_serve_is_refused_in_one_line(tmp_path, text, complaint):
    done = run(tmp_path, f"{CONFIG}[api]\n{text}\n")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fpga_pool.wsgi.api: {complaint}")
