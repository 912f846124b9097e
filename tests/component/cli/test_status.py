"""`fpga-pool-status upgrade check` on a valid configuration, and on configurations with a single fault."""

import contextlib
import json
import sqlite3

import pytest

from fpga_pool.cli.admin import status
from fpga_pool.cli.admin.keys import create_key_pairs
from fpga_pool.services.agent.journal import Journal

NAMES = (
    "Values of options",
    "Names of options",
    "Message bus",
    "Keystone",
    "Private keys",
    "Catalogue of functions",
    "Policy file of the API",
    "Schema of the database",
    "Journal of the agent",
    "Placement",
)


@pytest.fixture
def config(tmp_path, new_database):
    """Return a configuration with which all services can start."""
    path = tmp_path / "fpga_pool.conf"
    path.write_text(
        f"[database]\nconnection = {new_database(tmp_path / 'pool.sqlite')}\n"
        f"[scheduler]\ntoken_key = {tmp_path}/keys/tokens.pem\n[api]\nkey = {tmp_path}/keys/api.pem\n"
        f"[agent]\nstate_dir = {tmp_path}\n"
        "[keystone_authtoken]\nauth_type = password\nauth_url = http://127.0.0.1:9/v3\n"
    )
    create_key_pairs(tmp_path / "keys")
    return path


@pytest.fixture
def check(config, capsys):
    """Return a function that runs the checks with more configuration, and returns status and results by name."""

    def run(more=""):
        config.write_text(config.read_text() + more)
        capsys.readouterr()
        code = status.main([f"--config-file={config}", "upgrade", "check", "--json"])
        found = json.loads(capsys.readouterr().out)["checks"]
        return code, {one["check"]: (one["result"], one["details"] or "") for one in found}

    return run


def test_a_pool_that_can_start_passes_every_check(check):
    code, found = check()
    assert (code, tuple(found)) == (0, NAMES)
    assert {result for result, _ in found.values()} == {0}


@pytest.mark.parametrize(
    ("more", "name", "says"),
    [
        ("[scheduler]\ndefault_policy = nosuch\n", "Values of options", "nosuch"),
        (
            "[DEFAULT]\ntransport_url = rabit://u:p@h\n",
            "Message bus",
            "transport_url: expected a URL such as",
        ),
        (
            "[DEFAULT]\ntransport_url = rabbit://u:p@h:99999\n",
            "Message bus",
            "expected a port from 1 to 65535, found",
        ),
        ("[DEFAULT]\nrpc_response_timeout = soon\n", "Message bus", "[DEFAULT] rpc_response_timeout: expected"),
        ("[oslo_messaging_rabbit]\nssl = perhaps\n", "Message bus", "[oslo_messaging_rabbit] ssl: expected true or"),
        ("[keystone_authtoken]\nauth_type = nosuch\n", "Keystone", "[keystone_authtoken] auth_type: The plugin nosuch"),
        (
            "[keystone_authtoken]\nauth_url = https://127.0.0.1:9/v3\ncafile = /nowhere.pem\n",
            "Keystone",
            "[keystone_authtoken] cafile: ",
        ),
        ("[functions]\ncatalogue = /nowhere.toml\n", "Catalogue of functions", "/nowhere.toml"),
        ("[database]\nretry_interval = -3\n", "Schema of the database", "[database] retry_interval: expected a whole"),
        ("[database]\nconnection = sqlite:////dev/null/pool.sqlite\n", "Schema of the database", ""),
        (
            "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:9\n",
            "Placement",
            "",
        ),
    ],
)
def test_what_would_stop_a_service_fails_its_check_and_no_other(check, more, name, says):
    code, found = check(more)
    assert code == 2
    assert {check for check, (result, _) in found.items() if result == 2} == {name}
    assert says in found[name][1]
    assert found[name][1] != ""


def test_a_name_that_no_option_has_fails(check):
    code, found = check("[agent]\negress_mpbs = 60\n")
    assert code == 2
    assert found["Names of options"][1].endswith("[agent] egress_mpbs: no such option; did you mean egress_mbps?")


def test_a_user_of_the_api_without_the_address_of_keystone_fails(config, check):
    config.write_text(config.read_text().partition("auth_url")[0])
    code, found = check()
    assert (code, found["Keystone"][0]) == (2, 2)
    assert found["Keystone"][1].endswith("parameters which were not given: auth_url")


def test_an_api_without_a_user_of_its_own_in_keystone_is_a_warning_and_without_keystone_none(config, check):
    config.write_text(config.read_text().partition("[keystone_authtoken]")[0])
    code, found = check()
    assert (code, found["Keystone"]) == (1, (1, "[keystone_authtoken] auth_type is not set; needed where the API runs"))
    code, found = check("[api]\nauth_strategy = noauth\n")
    assert (code, found["Keystone"]) == (0, (0, "not used: [api] auth_strategy is noauth"))


def test_a_key_that_others_can_read_fails(check, tmp_path):
    (tmp_path / "keys" / "api.pem").chmod(0o644)
    code, found = check()
    assert (code, found["Private keys"][0]) == (2, 2)
    assert "must be 0600" in found["Private keys"][1]


def test_a_key_of_a_service_that_runs_elsewhere_is_a_warning(check, tmp_path):
    (tmp_path / "keys" / "api.pem").unlink()
    code, found = check()
    assert (code, found["Private keys"][0]) == (1, 1)
    assert "[api] key" in found["Private keys"][1]


def test_a_journal_that_the_agent_of_this_version_cannot_take_up_fails_and_another_stays_as_it_is(check, tmp_path):
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    kept = path.read_bytes()
    assert check()[0] == 0
    assert path.read_bytes() == kept
    with contextlib.closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 99")
    for says in (
        "written by a later version of the agent (schema 99, ",
        "not a journal of an agent: file is not a database",
    ):
        code, found = check()
        assert (code, found["Journal of the agent"][0]) == (2, 2)
        assert says in found["Journal of the agent"][1]
        path.write_bytes(b"no database" * 1000)


def test_a_rule_that_refers_to_no_other_fails(check, tmp_path):
    (tmp_path / "policy.yaml").write_text('"fpga_pool:list_slots": "rule:nosuch"\n')
    code, found = check(f"[oslo_policy]\npolicy_file = {tmp_path}/policy.yaml\n")
    assert (code, found["Policy file of the API"][0]) == (2, 2)


@pytest.mark.parametrize("name", ["none", "."])
def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path, capsys, name):
    assert status.main([f"--config-file={tmp_path / name}", "upgrade", "check"]) == 255
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fpga-pool-status: ")
    assert str(tmp_path) in line
