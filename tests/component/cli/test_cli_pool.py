import pytest


def test_slot_list(run):
    rows = run("slot", "list", "-f", "json").json
    assert [row["name"] for row in rows] == ["node-1/card-0/r0", "node-2/card-0/r0"]
    assert rows[0]["reconfigurations"] == 0
    assert rows[0]["drain_requested"] is False


def test_slot_is_drained_by_name_and_resumed_by_uuid(run, pool):
    drained = run("slot", "drain", "node-1/card-0/r0", "--reason", "loud fan", "-f", "json").json
    assert (drained["state"], drained["reason"]) == ("DRAINED", "loud fan")
    assert run("slot", "resume", drained["uuid"], "-f", "json").json["state"] == "EMPTY"


def test_unknown_slot_fails_in_one_line(run):
    answer = run("slot", "drain", "node-9")
    assert (answer.status, answer.err.count("\n")) == (1, 1)
    assert "no slot 'node-9'" in answer.err


def test_host_list(run):
    row = run("host", "list", "-f", "json").json[0]
    assert (row["egress_bps"], row["ingress_bps"], row["data_port"]) == (1e9, None, 9)
    assert "unlimited" in run("host", "list").out


def test_function_list(run):
    (row,) = run("function", "list", "-f", "json").json
    assert (row["slot_kinds"], row["speedup"]) == (["small", "large"], 12.5)


def test_function_calibrate(run):
    (row,) = run("function", "calibrate", "sha256", "-f", "json").json
    assert (row["runs"], row["mean_relative_error"]) == (3, 0.125)
    assert run("function", "calibrate", "sha3").status == 1


@pytest.mark.parametrize("argv", [(), ("slot",), ("nothing",), ("slot", "drain"), ("slot", "list", "--no-such")])
def test_wrong_usage(run, argv):
    assert run(*argv).status == 2


def test_help_lists_the_commands(run):
    answer = run("--help")
    assert answer.status == 0
    assert all(command in answer.out for command in ("batch create", "slot drain", "function calibrate"))


def test_pool_that_is_not_there_fails_in_one_line(run):
    answer = run("slot", "list", endpoint="http://127.0.0.1:9")
    assert answer.status == 1
    assert answer.err == "fpga-pool: no pool responds at http://127.0.0.1:9: is fpga-pool-standalone running there?\n"


def test_debug_tells_the_trace(run):
    answer = run("--debug", "slot", "list", endpoint="http://127.0.0.1:9")
    assert answer.status == 1
    assert "Traceback" in answer.err


def test_endpoint_comes_from_the_environment(commands, monkeypatch):
    from fpga_pool.cli.client.main import PoolApp

    monkeypatch.setenv("FPGA_POOL_ENDPOINT", "http://127.0.0.1:1234")
    assert PoolApp(commands).parser.parse_args([]).endpoint == "http://127.0.0.1:1234"
