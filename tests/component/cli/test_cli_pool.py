import errno
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest

from fpga_pool.client import Client
from fpga_pool.client.session import SERVICE_TYPE
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import Lease, LeaseKind, RateSegment
from fpga_pool.services.scheduler import hardware
from fpga_pool.store import purge as purging

from .conftest import Terminal

UNKNOWN = "00000000-0000-0000-0000-000000000001"
LONG_NAME = "compute-rack12-007"


def test_slot_list(run):
    rows = run("slot", "list", "-f", "json").json
    assert [row["name"] for row in rows] == ["node-1/card-0/r0", "node-2/card-0/r0"]
    assert rows[0]["reconfigurations"] == 0
    assert rows[0]["drain_requested"] is False


def test_columns_of_a_list_may_be_chosen_from_all(run):
    answer = run("slot", "list", "-c", "reconfigurations", "--sort-column", "uuid")
    assert [line.strip("| ") for line in answer.out.splitlines() if "|" in line] == ["reconfigurations", "0", "0"]


def test_a_host_is_shown_with_what_it_has_measured(run):
    shown = run("host", "show", "node-1", "-f", "json").json
    assert (shown["name"], shown["alive"], shown["busy_cpus"], shown["cpus"]) == ("node-1", True, 6.25, 8.0)
    assert (shown["memory_bytes"], shown["used_bytes"], shown["received_bps"]) == (1 << 34, 1 << 33, 2.5e6)
    assert (shown["cpu_pressure"], shown["io_pressure"]) == (0.125, None)
    assert shown["guest_cpus"] == ["00000000-0000-0000-0000-000000000009=1.5"]
    assert shown["dma_bps"] == ["card-0=4e+09"]
    assert "2.5 Mbit/s" in run("host", "show", "node-1").out


def test_a_host_that_has_not_measured_yet_is_shown_and_an_unknown_one_named(run):
    shown = run("host", "show", "node-2", "-f", "json").json
    assert (shown["name"], shown["measured_at"], shown["busy_cpus"]) == ("node-2", "", "")
    assert run("host", "show", "node-3").err == "fpga-pool: no host 'node-3'; `fpga-pool host list` shows all\n"


def test_slot_is_drained_by_name_and_resumed_by_uuid(run, pool):
    drained = run("slot", "drain", "node-1/card-0/r0", "--reason", "loud fan", "-f", "json").json
    assert (drained["state"], drained["reason"]) == ("DRAINED", "loud fan")
    assert run("slot", "resume", drained["uuid"], "-f", "json").json["state"] == "EMPTY"


def test_a_slot_is_shown_with_what_holds_it(run, pool):
    free = run("slot", "show", "node-1/card-0/r0", "-f", "json").json
    assert (free["name"], free["state"], free["held_by"], free["holder"]) == ("node-1/card-0/r0", "EMPTY", None, "")
    fields = {"kind": LeaseKind.TASK, "holder": UNKNOWN, "project_id": "demo", "epoch": 1, "revocable": False}
    pool.tx.add(Lease(uuid=str(uuid.uuid4()), slot=free["name"], granted_at=1000.0, **fields))
    held = run("slot", "show", free["uuid"], "-f", "json").json
    assert (held["held_by"], held["holder"], held["holder_project_id"]) == ("task", UNKNOWN, "demo")
    assert held["leased_at"] == "1970-01-01T00:16:40.000000+00:00"
    assert run("slot", "show", "node-1/card-0/r9").err.startswith("fpga-pool: no slot 'node-1/card-0/r9'")


def test_events_of_a_slot_by_its_name_tell_who_drained_it_and_why(run):
    run("slot", "drain", "node-1/card-0/r0", "--reason", "loud fan")
    rows = run("event", "list", "slot", "node-1/card-0/r0", "-f", "json").json
    assert [(row["event"], row["before"], row["after"], row["reason"]) for row in rows] == [
        ("DrainCompleted", "EMPTY", "DRAINED", ""),
        ("DrainRequested", "EMPTY", "EMPTY", "loud fan"),
    ]
    (last,) = run("event", "list", "slot", "node-1/card-0/r0", "--sort", "at:asc", "--marker", 1, "-f", "json").json
    assert (last["number"], last["event"]) == (2, "DrainCompleted")
    (drained,) = run(
        *("event", "list", "slot", "node-1/card-0/r0", "--event", "DrainRequested", "--since", "1h", "-f", "json")
    ).json
    assert drained["number"] == 1
    assert run("event", "list", "slot", "node-1/card-0/r0", "--until", "1h", "-f", "json").json == []
    assert "request_id" in run("event", "list", "slot", "node-1/card-0/r0", "--long").out
    assert run("event", "list", "lease", "x").status == 2


def test_events_of_a_card_a_function_and_a_quota_are_listed_by_their_names(run):
    run("card", "drain", "node-1/card-0", "--reason", "loud fan")
    rows = run("event", "list", "card", "node-1/card-0", "-f", "json").json
    assert [(row["event"], row["reason"]) for row in rows] == [
        ("DrainCompleted", "slot node-1/card-0/r0"),
        ("DrainRequested", "slot node-1/card-0/r0: loud fan"),
    ]
    run("quota", "set", "other", "--jobs", 5)
    (row,) = run("event", "list", "quota", "other", "-f", "json").json
    assert (row["event"], row["reason"]) == ("LimitsSet", "jobs default -> 5")
    assert run("event", "list", "function", "sha256", "-f", "json").json == []
    assert run("event", "list", "function", "nonsense").status == 1


def test_a_processor_a_service_and_an_instance_are_shown(run, pool):
    listed = run("processor", "list", "-f", "json").json
    shown = run("processor", "show", listed[0]["name"], "-f", "json").json
    assert {name: shown[name] for name in listed[0]} == listed[0]
    assert run("processor", "show", shown["uuid"], "-f", "json").json == shown
    service = run("service", "list", "-f", "json").json[0]
    shown = run("service", "show", service["name"], "-f", "json").json
    assert (shown["name"], shown["kind"], shown["state"]) == (service["name"], service["kind"], "up")
    assert run("service", "show", shown["uuid"], "-f", "json").json["name"] == service["name"]
    vm = pool.instance_on("node-1")
    shown = run("instance", "show", vm, "-f", "json").json
    assert (shown["uuid"], shown["host"], len(shown["slot_list"])) == (vm, "node-1", 1)
    assert run("instance", "show", UNKNOWN).err == f"fpga-pool: no instance {UNKNOWN} that holds slots\n"
    assert run("service", "show", "nothing").status == 1


def test_events_of_all_objects_are_listed_with_these(run, client):
    run("slot", "drain", "node-1/card-0/r0", "--reason", "loud fan")
    gang = client.create_gang(1, 60.0, 0.5, name="wide")
    (mine,) = run("event", "list", "-f", "json").json
    assert (mine["kind"], mine["uuid"], mine["name"], mine["event"]) == ("gang", gang.uuid, "wide", "Created")
    rows = run("event", "list", "slot", "--all-projects", "--host", "node-1", "--since", "1h", "-f", "json").json
    assert [(row["name"], row["event"]) for row in rows] == [
        ("node-1/card-0/r0", "DrainCompleted"),
        ("node-1/card-0/r0", "DrainRequested"),
    ]
    assert len(run("event", "list", "--all-projects", "--limit", 2, "-f", "json").json) == 2
    assert run("event", "list", "--all-projects", "--name", "wide", "--event", "Planned", "-f", "json").json == []
    assert "request_id" in run("event", "list", "--long").out
    of_one = ["gang", gang.uuid]
    for wrong in (["--sort", "at:asc"], ["--marker", 1], [*of_one, "--host", "node-1"], [*of_one, "--all-projects"]):
        assert run("event", "list", *wrong).status == 2


def test_bitstreams_are_listed_and_shown_by_name(run):
    rows = run("bitstream", "list", "-f", "json").json
    assert [(row["function"], row["kind"], row["verified"]) for row in rows] == [
        ("sha256", "large", False),
        ("sha256", "small", True),
    ]
    assert len(run("bitstream", "list", "--kind", "small", "--function", "sha256", "-f", "json").json) == 1
    assert max(map(len, run("bitstream", "list").out.splitlines())) <= 80
    shown = run("bitstream", "show", rows[0]["name"], "--host", "node-2", "-f", "json").json
    assert (shown["uuid"], shown["host"], shown["reason"]) == (rows[0]["uuid"], "node-2", "not in the library")
    assert run("bitstream", "show", "x").err == ("fpga-pool: no bitstream 'x'; `fpga-pool bitstream list` shows all\n")
    assert run("bitstream", "list", "--host", "node-9").status == 1


def test_card_list(run):
    rows = run("card", "list", "-f", "json").json
    assert [(row["name"], row["state"], row["slots"]) for row in rows] == [
        ("node-1/card-0", "in_service", 1),
        ("node-2/card-0", "in_service", 1),
    ]
    assert run("card", "list", "--host", "node-2", "--state", "in_service", "-c", "name", "-f", "value").out == (
        "node-2/card-0\n"
    )
    assert max(map(len, run("card", "list").out.splitlines())) <= 80


def test_card_is_drained_by_name_shown_and_resumed_by_uuid(run):
    drained = run("card", "drain", "node-1/card-0", "--reason", "loud fan", "-f", "json").json
    assert (drained["state"], drained["drain_requested"], drained["user_list"]) == ("out_of_service", True, [])
    assert "node-1/card-0/r0  DRAINED  loud fan" in run("card", "show", "node-1/card-0").out
    assert run("card", "resume", drained["uuid"], "-f", "json").json["state"] == "in_service"


def test_a_card_that_its_agent_has_is_drained_and_not_removed(run, pool):
    answer = run("card", "remove", "node-1/card-0", "--timeout", "0.001")
    assert (answer.status, answer.err.count("\n")) == (1, 1)
    assert "not removed, but drained: the agent of node-1 reports them" in answer.err
    pool.tx.save(replace(pool.tx.host("node-1"), alive=False))
    assert run("card", "remove", "node-1/card-0", "-f", "json").json["name"] == "node-1/card-0"
    gone = run("card", "show", "node-1/card-0")
    assert (gone.status, gone.err) == (1, "fpga-pool: no card 'node-1/card-0'; `fpga-pool card list` shows all\n")


def test_unknown_slot_fails_in_one_line(run):
    answer = run("slot", "drain", "node-9")
    assert (answer.status, answer.err.count("\n")) == (1, 1)
    assert "no slot 'node-9'" in answer.err


def test_host_list(run):
    row = run("host", "list", "-f", "json").json[0]
    assert (row["egress_bps"], row["ingress_bps"], row["data_port"]) == (1e9, None, 9)
    assert "unlimited" in run("host", "list").out


def test_inputs_under_way_are_listed_with_planned_and_measured_rates(run, pool, client):
    job = {"function": "sha256", "requester": "node-2", "input_bytes": 1000, "name": "a.bin"}
    created = JobRequest(**job, uuid=str(uuid.uuid4()))
    client.create_batch([created])
    pool.receives(created.uuid, 2.5e6)
    assert [row["planned_bps"] for row in run("flow", "list", "-f", "json").json] == [None]
    pool.retime(created.uuid, (RateSegment(0.0, 1e6, 8e6),))
    (row,) = run("flow", "list", "--all-projects", "-f", "json").json
    assert (row["name"], row["requester"], row["host"]) == ("a.bin", "node-2", "node-1")
    assert (row["planned_bps"], row["measured_bps"]) == (8e6, 2.5e6)
    assert run("flow", "list", "--project-id", "another", "-f", "json").json == []
    assert "| 8 Mbit/s    | 2.5 Mbit/s   |" in run("flow", "list").out


def test_function_list(run):
    row = next(row for row in run("function", "list", "-f", "json").json if row["name"] == "sha256")
    assert (row["slot_kinds"], row["slots"]) == (["small", "large"], 2)


def test_a_function_is_shown_as_it_is_listed(run):
    listed = run("function", "list", "-f", "json").json
    assert [run("function", "show", row["name"], "-f", "json").json for row in listed] == listed
    answer = run("function", "show", "sha3")
    assert (answer.status, answer.err) == (1, "fpga-pool: no function 'sha3'\n")


def test_function_calibrate(run, pool, client):
    job = {"name": "", "function": "sha256", "requester": "node-2", "input_bytes": 1000}
    client.create_batch([JobRequest(**job, uuid=str(uuid.uuid4())) for _ in range(3)])
    pool.has_run(pool.first_jobs())
    (row,) = run("function", "calibrate", "sha256", "-f", "json").json
    assert (row["runs"], row["mean_relative_error"] >= 0) == (3, True)
    assert run("function", "calibrate", "sha3").status == 2


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
    assert answer.err == "fpga-pool: no pool responds at http://127.0.0.1:9: is its API running there?\n"


@pytest.mark.parametrize("words", ["slot list", "--help", "help", "batch --help", "slot drain node-1/sim0/slot0"])
def test_without_a_standard_output_nothing_is_done_and_that_is_told(words):
    done = program(f"{words} >&-")
    assert (done.returncode, done.stderr) == (1, "fpga-pool: standard output is closed, so nothing was done\n")


def test_without_a_standard_error_nothing_of_it_comes_on_standard_output():
    done = program("--endpoint http://127.0.0.1:1 slot list 2>&-")
    assert (done.returncode, done.stdout) == (1, "")


def program(line):
    command = f"{sys.executable} -P -W ignore -m fpga_pool.cli.client.main {line}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=200, check=False)


def test_debug_tells_the_trace(run):
    answer = run("--debug", "slot", "list", endpoint="http://127.0.0.1:9")
    assert answer.status == 1
    assert "Traceback" in answer.err


def test_endpoint_comes_from_the_environment(commands, monkeypatch):
    from fpga_pool.cli.client.main import PoolApp

    monkeypatch.setenv("FPGA_POOL_ENDPOINT", "http://127.0.0.1:1234")
    assert PoolApp(commands).parser.parse_args([]).endpoint == "http://127.0.0.1:1234"


@pytest.mark.parametrize("argv", [["slot", "drain", "--help"], ["help", "slot", "drain"]])
def test_help_of_a_command_is_its_own(run, argv):
    answer = run(*argv)
    assert answer.status == 0
    assert answer.out.startswith("usage: fpga-pool slot drain ")
    assert "--reason" in answer.out


def test_a_group_lists_its_commands(run):
    answers = [run("slot", "--help"), run("help", "slot"), run("slot")]
    # The name of the group alone is not a command.
    assert [answer.status for answer in answers] == [0, 0, 2]
    for answer in answers:
        listed = [line.strip() for line in answer.out.splitlines() if line.startswith("  ")]
        assert listed == ["slot drain", "slot list", "slot resume", "slot show"]


def test_help_needs_no_cloud(run, monkeypatch):
    monkeypatch.setenv("OS_CLOUD", "nowhere")
    assert [run(*argv).status for argv in (["--help"], ["slot", "list", "--help"])] == [0, 0]
    assert run("--os-cloud", "nowhere", "slot", "list").status == 2


def test_a_pool_that_asks_for_no_token_needs_no_cloud(run, monkeypatch):
    monkeypatch.setenv("OS_CLOUD", "nowhere")
    assert run("slot", "list").status == 0


# openstacksdk passes its own class an argument that this class warns of.
@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
def test_a_pool_that_asks_for_a_token_gets_that_of_the_cloud_of_the_environment(run, cloud, clouds_yaml, monkeypatch):
    monkeypatch.setenv("OS_CLOUD", "test")
    assert run("function", "list", endpoint=cloud.catalogue[SERVICE_TYPE]).status == 0
    monkeypatch.delenv("OS_CLOUD")
    assert run("function", "list", endpoint=cloud.catalogue[SERVICE_TYPE]).status == 1


def test_a_list_of_hosts_fits_80_columns(run, pool, monkeypatch):
    host = replace(
        pool.tx.hosts()[0], name=LONG_NAME, egress_bps=100e9, ingress_bps=98.76e6, data_address="192.168.100.200"
    )
    monkeypatch.setattr(Client, "hosts", lambda self, **_: [host])
    assert_short_and_long(run, "host")


def test_a_list_of_slots_fits_80_columns(run, pool, monkeypatch):
    slot = replace(pool.tx.slots()[0], name=f"{LONG_NAME}/card-0/r0", function="optical_flow", reason="a loud fan " * 9)
    monkeypatch.setattr(Client, "slots", lambda self, **_: [slot])
    assert_short_and_long(run, "slot")


def assert_short_and_long(run, noun):
    short, long, data = (run(noun, "list", *more) for more in ([], ["--long"], ["-f", "json"]))
    assert max(map(len, short.out.splitlines())) <= 80
    shown, shown_long = (
        [word.strip() for word in out.split("\n")[1].strip("|").split("|")] for out in (short.out, long.out)
    )
    assert set(shown) < set(shown_long) == set(data.json[0])
    assert shown[0] == "name"


def test_a_command_of_several_goes_on_after_an_error_and_counts_them(run, client):
    gangs = [client.create_gang(1, 60.0, 0.5).uuid for _ in range(2)]
    answer = run("gang", "cancel", gangs[0], UNKNOWN, gangs[1], "-f", "json")
    assert answer.status == 1
    assert [row["uuid"] for row in answer.json] == gangs
    assert answer.err == f"fpga-pool: no gang {UNKNOWN}\nfpga-pool: 1 of 3 failed\n"


@pytest.mark.parametrize("noun", ["batch", "gang", "pipeline", "task"])
def test_each_kind_of_work_is_cancelled_as_far_as_possible(run, noun):
    answer = run(noun, "cancel", UNKNOWN, UNKNOWN, "-f", "json")
    assert (answer.status, answer.json) == (1, [])
    # In the pool, a pipeline is a batch whose jobs depend on each other.
    kind = "batch" if noun == "pipeline" else noun
    assert answer.err.splitlines() == [*2 * [f"fpga-pool: no {kind} {UNKNOWN}"], "fpga-pool: 2 of 2 failed"]


def test_ctrl_c_ends_a_command_in_one_line(run, monkeypatch):
    def interrupted(self, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "slots", interrupted)
    answer = run("slot", "list")
    assert (answer.status, answer.out, answer.err) == (130, "", "fpga-pool: interrupted\n")


def test_a_removal_of_a_card_that_is_interrupted_says_that_the_card_stays_drained(run, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    answer = run("card", "remove", "node-1/card-0")
    says = "fpga-pool: interrupted: card node-1/card-0 stays drained until `card resume`\n"
    assert (answer.status, answer.err) == (130, says)
    monkeypatch.undo()
    assert run("card", "show", "node-1/card-0", "-f", "json").json["drain_requested"]


def test_a_pipe_that_was_closed_ends_a_command_as_the_shell_would(run, monkeypatch):
    def broken(self, text):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(Terminal, "write", broken)
    assert run("slot", "list").status == 128 + signal.SIGPIPE


def test_a_log_file_that_cannot_be_written_is_wrong_usage(run, tmp_path, capsys):
    assert run("--log-file", tmp_path, "slot", "list").status == 2
    assert capsys.readouterr().err == f"fpga-pool: --log-file {tmp_path}: cannot be written: Is a directory\n"


def test_a_column_that_is_not_there_is_wrong_usage(run):
    answer = run("quota", "show", "-c", "nothing", "-c", "no_more")
    says = "fpga-pool: -c nothing, no_more: no such column; there are resource, limit, default, used\n"
    assert (answer.status, answer.err) == (2, says)
    assert run("quota", "show", "-c", "Resource", "-c", "nothing", "-f", "value").status == 0


def test_an_error_of_the_system_is_one_line(run, monkeypatch):
    def full(self, **_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/some file")

    monkeypatch.setattr(Client, "slots", full)
    answer = run("slot", "list")
    assert (answer.status, answer.out, answer.err) == (1, "", "fpga-pool: /tmp/some file: No space left on device\n")
    assert "Traceback" in run("--debug", "slot", "list").err


def test_services_are_listed(run):
    rows = run("service", "list", "-f", "json").json
    assert [(row["kind"], row["name"], row["state"]) for row in rows] == [
        ("agent", "node-1", "up"),
        ("agent", "node-2", "up"),
        ("scheduler", "test", "up"),
    ]
    after = run("service", "list", "--marker", "agent/node-1", "--limit", "1", "-f", "json").json
    assert [row["name"] for row in after] == ["node-2"]
    last = run("service", "list", "--sort", "kind:desc", "--limit", "1", "-f", "json").json
    assert [row["name"] for row in last] == ["test"]


def test_the_authorities_of_a_pool_that_speaks_https_are_named(run, pool, serve, certificate):
    from fpga_pool.conf.catalogue import server_tls

    files = dict(zip(("tls_cert", "tls_key"), certificate, strict=True))
    url = serve(pool, tls=server_tls({"api": files}, "api", *files))
    assert len(run("--os-cacert", certificate[0], "slot", "list", "-f", "json", endpoint=url).json) == 2
    refused = run("slot", "list", endpoint=url)
    assert (refused.status, refused.err) == (
        2,
        f"fpga-pool: {url}: its certificate is not trusted: self-signed certificate\n",
    )


def test_work_that_ended_is_counted_and_removed_however_often_the_pool_has_to_be_asked(run, client, monkeypatch):
    # Each request runs one transaction per kind of work, with one batch at most.
    monkeypatch.setattr(hardware, "PURGE_S", 0.0)
    monkeypatch.setattr(purging, "BATCHES_AT_ONCE", 1)
    asked = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
    jobs = [JobRequest(**asked, uuid=str(uuid.uuid4())) for _ in range(3)]
    uuids = [client.create_batch([job], held=True).uuid for job in jobs]
    for ended in uuids[:2]:
        client.cancel(ended)

    def purge(*words):
        return {row["kind"]: row.get("found", row.get("removed")) for row in run("work", "purge", *words).json}

    now = ("--before", "0s", "-f", "json")
    assert purge(*now, "--dry-run")["batches"] == 2
    assert purge(*now, "--project-id", "another") == dict.fromkeys(purging.KINDS, 0)
    assert purge("--before", "1d", "-f", "json")["batches"] == 0
    assert purge(*now, "--project-id", "demo") == {**dict.fromkeys(purging.KINDS, 0), "batches": 2, "jobs": 2}
    assert [batch.uuid for batch in client.batches()] == uuids[2:]
    assert run("work", "purge").status == 2
