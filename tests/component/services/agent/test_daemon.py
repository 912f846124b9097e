"""An agent's process: the libraries that it loads, and the order in which its parts are closed."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.cli.admin.keys import create_key_pairs

TIMEOUT_S = 180.0
CONFIG = """\
[DEFAULT]
transport_url = fake:///
rpc_response_timeout = 1
log_file = {0}/log
[agent]
host = node-1
state_dir = {0}/state
data_address = 127.0.0.1
egress_mbps = 1000
ingress_mbps = 1000
token_public_key = {0}/keys/tokens.pub
bitstream_public_key = {0}/keys/bitstreams.pub
bitstream_library = {0}
"""
#: An agent that prints which parts have ended.
PROGRAM = """
import sys
from fpga_pool.cli.daemons import agent
from fpga_pool.cli.daemons.process import run
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.service import AgentService

def told(kind, name):
    real = getattr(kind, name)
    def call(self):
        real(self)
        print(f"{kind.__name__}.{name}", flush=True)
    setattr(kind, name, call)

told(AgentService, "start")
told(AgentService, "drain")
told(agent.Commands, "stop")
told(Journal, "close")
sys.exit(run("fpga-pool-agent", agent.agent))
"""


@pytest.fixture
def launch(tmp_path):
    create_key_pairs(tmp_path / "keys")
    (tmp_path / "state").mkdir()
    launched = []

    def start(more=""):
        (tmp_path / "agent.conf").write_text(CONFIG.format(tmp_path) + more)
        command = [sys.executable, "-P", "-c", PROGRAM, f"--config-file={tmp_path}/agent.conf"]
        launched.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return launched[-1]

    yield start
    for process in launched:
        process.kill()
        process.communicate()


def test_an_agent_loads_no_numpy_even_if_it_has_run_before(launch):
    for _ in range(2):
        process = launch()
        assert process.stdout.readline().strip() == "AgentService.start"
        libraries = Path(f"/proc/{process.pid}/maps").read_text()
        assert "/cryptography/" in libraries
        assert "/numpy/" not in libraries
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)


def test_commands_are_taken_until_running_jobs_have_ended_and_no_longer_than_the_journal(launch, tmp_path):
    process = launch()
    assert process.stdout.readline().strip() == "AgentService.start"
    process.send_signal(signal.SIGTERM)
    ended, _ = process.communicate(timeout=TIMEOUT_S)
    first, second, *_, last = ended.split()
    assert (first, second, last) == ("AgentService.drain", "Commands.stop", "Journal.close")
    assert (process.returncode, " ERROR " in (tmp_path / "log").read_text()) == (0, False)


def test_an_agent_whose_port_is_taken_ends_with_that_alone(launch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = launch(f"data_port = {taken.getsockname()[1]}\n")
        ended, said = process.communicate(timeout=TIMEOUT_S)
    assert "AgentService.start" not in ended
    assert (process.returncode, len(said.splitlines())) == (1, 1), said
    assert "Traceback" not in (tmp_path / "log").read_text()
