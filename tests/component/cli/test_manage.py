import hashlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.cli.admin import keys
from fpga_pool.cli.admin.main import ManageApp
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue, public_key
from fpga_pool.conf.policies import compile_loops
from fpga_pool.model.objects.bitstreams import DesignManifest
from fpga_pool.model.objects.hosts import ApiProcess, Enrolment
from fpga_pool.model.objects.pool import Batch, Host, Job, JobState, LeaseKind, Run, Slot, SlotState
from fpga_pool.model.rules.shared.changes import new_lease
from fpga_pool.rpc.identity import key_text
from fpga_pool.store.store import Store


class Terminal(io.StringIO):
    """A stream that is not a terminal."""


@pytest.fixture
def manage(tmp_path):
    """Return a function that runs `fpga-pool-manage` on a SQLite database and returns status, output and errors."""
    config = tmp_path / "fpga_pool.conf"
    config.write_text(
        f"[database]\nconnection = sqlite:///{tmp_path}/pool.sqlite\n"
        f"[agent]\nbitstream_library = {tmp_path}/bitstreams\n"
    )

    def run(*words, file=config):
        out, err = Terminal(), Terminal()
        status = ManageApp(stdout=out, stderr=err).run([f"--config-file={file}", *map(str, words)])
        return status, out.getvalue(), err.getvalue()

    return run


@pytest.mark.parametrize("words", [("db", "check"), ("host", "list"), ("db", "purge", "--older-than", "1"), ("audit",)])
def test_a_schema_that_is_too_old_is_told_with_the_command_that_helps(manage, words):
    assert manage("db", "version") == (0, "\n", "")
    status, _, complaint = manage(*words)
    assert status == 1
    assert complaint == (
        "fpga-pool-manage: the database is older than this version of fpga_pool: upgrade it first (fpga-pool-manage "
        "db sync)\n"
    )


def test_sync_brings_the_schema_to_this_version(manage):
    status, revision, _ = manage("db", "sync")
    assert status == 0
    assert manage("db", "version")[1] == revision
    assert manage("db", "check") == (0, "the schema matches this version of fpga_pool\n", "")


def test_purge_counts_first_and_then_removes_what_is_old(manage, tmp_path):
    manage("db", "sync")
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.change_enrolment("offers", lambda _known, _pending: Enrolment(host="offers", offered="k", changed_at=1.0))
    for words, column, names in ((["--dry-run"], "found", ["offers"]), ([], "removed", [])):
        status, out, _ = manage("db", "purge", "--older-than", 1, *words, "-f", "json")
        rows = {row["kind"]: row[column] for row in json.loads(out)}
        assert (status, rows["offers"], rows["batches"]) == (0, 1, 0)
        assert [one.host for one in store.enrolments()] == names
    store.close()


@pytest.mark.parametrize("days", ["0", "-1", "soon"])
def test_a_purge_wants_an_age(manage, days):
    assert manage("db", "purge", "--older-than", days)[0] == 2


def test_services_lists_schedulers_apis_and_the_owners_of_shards(manage, tmp_path):
    manage("db", "sync")
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.beat("scheduler-1", 10.0)
    store.beat("controller:7", 10.0, ApiProcess)
    store.ensure_shards(["shard-1", "shard-2"], 10.0)
    store.acquire_shard("shard-2", "scheduler-1", 11.0)
    store.close()
    rows = json.loads(manage("service", "list", "-f", "json")[1])
    assert [(row["kind"], row["name"], row["owner"]) for row in rows] == [
        ("scheduler", "scheduler-1", ""),
        ("api", "controller:7", ""),
        ("shard", "shard-1", ""),
        ("shard", "shard-2", "scheduler-1"),
    ]


def test_keys_are_private_and_never_overwritten(manage, tmp_path):
    status, out, _ = manage("keys", "create", "--directory", tmp_path / "keys", "-f", "json")
    assert (status, len(json.loads(out))) == (0, 8)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()}
    pairs = ("tokens", "bitstreams", "api", "nova")
    assert modes == {f"{pair}.{half}": mode for pair in pairs for half, mode in (("pem", 0o600), ("pub", 0o644))}
    before = (tmp_path / "keys" / "tokens.pem").read_bytes()
    (tmp_path / "keys" / "tokens.pub").unlink()
    status, _, complaint = manage("keys", "create", "--directory", tmp_path / "keys")
    assert (status, before) == (1, (tmp_path / "keys" / "tokens.pem").read_bytes())
    assert "tokens.pem exists: a new key would invalidate everything signed with the old one" in complaint


def test_hosts_are_enrolled_approved_and_revoked(manage):
    manage("db", "sync")
    codes = json.loads(manage("host", "enroll", "h1", "h2", "-f", "json")[1])
    assert [len(one["enrolment_code"]) for one in codes] == [24, 24]
    keys = (key_text(Ed25519PrivateKey.generate().public_key()) for _ in itertools.count())
    key = next(key for key in keys if key.startswith("-"))  # a key that looks like an option
    assert manage("host", "approve", "h1", key) == (0, f"h1: approved {key}\n", "")
    rows = json.loads(manage("host", "list", "-f", "json")[1])
    assert [(row["host"], row["state"], row["key"]) for row in rows] == [("h1", "enrolled", key), ("h2", "invited", "")]
    assert manage("host", "approve", "--all") == (0, "", "")  # h2 has not sent a key
    assert manage("host", "revoke", "h1") == (0, "h1: revoked\n", "")
    assert manage("host", "revoke", "h1")[0] == 1
    assert manage("host", "approve", "h1", "secret")[2].startswith("fpga-pool-manage: key: expected the 43 characters")
    assert manage("host", "approve", "h1")[2] == "fpga-pool-manage: expected HOST and KEY, or --all\n"


def test_permissions_of_an_account_are_printed_as_commands(manage):
    status, printed, _ = manage("rabbitmq", "permissions", "agent", "me", "--host", "h1.example", "--vhost", "v")
    names, keys = [shlex.split(line) for line in printed.splitlines()]
    assert (status, names[:5]) == (0, ["rabbitmqctl", "set_permissions", "-p", "v", "me"])
    assert keys[:6] == ["rabbitmqctl", "set_topic_permissions", "-p", "v", "me", "fpga_pool"]
    _, write, read = names[5:]
    others = ["fpga_pool.agent.h1xexample", "fpga_pool.agent.h2", "fpga_pool.scheduler", "reply_0"]
    names = ["fpga_pool", "fpga_pool.agent.h1.example", "amq.default", "reply_" + 32 * "0", *others]
    assert [name for name in names if re.search(write, name)] == names[:3]
    assert [name for name in names if re.search(read, name)] == [*names[:2], names[3]]
    status, printed, _ = manage("rabbitmq", "permissions", "scheduler", "me", "--notifications", "no.tes")
    assert (status, printed.count(r"no\.tes\.[a-z]+")) == (0, 4)  # permissions to configure, write and bind its queues
    assert manage("rabbitmq", "permissions", "api", "me", "--notifications", "x")[0] == 2
    assert manage("rabbitmq", "permissions", "agent", "me")[0] == 2
    assert manage("rabbitmq", "permissions", "api", "me", "--host", "h1")[0] == 2


def test_the_library_is_stocked_for_a_board(manage, tmp_path):
    manage("keys", "create", "--directory", tmp_path / "keys")
    key = tmp_path / "keys" / "bitstreams.pem"
    assert manage("bitstreams", "stock", "--board", "demo", "--key", key)[0] == 0
    assert (tmp_path / "bitstreams" / "demo" / "small" / "sha256.bit").exists()
    status, _, complaint = manage("bitstreams", "stock", "--board", "none", "--key", key)
    assert (status, "none" in complaint) == (1, True)


def test_a_design_is_signed_by_the_key_of_a_signer(manage, tmp_path):
    manage("keys", "create", "--directory", tmp_path / "keys")
    manifest, bitstream, signature = (tmp_path / name for name in ("mine.toml", "mine.bin", "mine.sig"))
    text = 'name = "mine"\nboard = "demo"\nkind = "small"\nio_bps = 1e9\nb_s_per_byte = 1e-9\nsimulates = "sha256"\n'
    manifest.write_text(text)
    bitstream.write_bytes(b"a partial bitstream")
    words = ("designs", "sign", manifest, bitstream, "--key", tmp_path / "keys" / "bitstreams.pem")
    assert manage(*words, "--output", signature)[0] == 0
    wanted = DesignManifest(**tomllib.loads(text))
    key = public_key("key", tmp_path / "keys" / "bitstreams.pub")
    key.verify(signature.read_bytes(), wanted.signed(hashlib.sha256(b"a partial bitstream").hexdigest()))
    manifest.write_text(text.replace("mine", "Mine"))
    status, _, complaint = manage(*words, "--output", signature)
    assert (status, "manifest.name: expected 1 to 40 lower-case letters" in complaint) == (2, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "[database] connection: set it to the URL of the pool's database"),
        ("[database]\nconnection = nothing://x/y\n", "[database] connection: "),
        ("[database]\nconnection = what\n", "[database] connection: "),
        (
            "[database]\nconnection = sqlite://\nmax_pool_size = -3\n",
            "[database] max_pool_size: expected a whole number",
        ),
        ("[database]\nconnection = sqlite://\nmax_overflow = -9\n", "[database] max_overflow: expected a whole number"),
        (
            "[database]\nconnection = sqlite://\npool_timeout = -1\n",
            "[database] pool_timeout: expected a whole number of seconds, at least 0",
        ),
        ("[api]\nport = 99999\n", "[api] port: expected a whole number from 0 to 65535"),
    ],
)
def test_a_wrong_configuration_is_one_line(manage, tmp_path, text, reason):
    file = tmp_path / "other.conf"
    file.write_text(text)
    status, _, complaint = manage("db", "sync", file=file)
    assert status == 2
    assert complaint.startswith(f"fpga-pool-manage: {reason}")
    assert complaint.count("\n") == 1


def test_a_missing_configuration_file_is_told(manage, tmp_path):
    status, _, complaint = manage("db", "sync", file=tmp_path / "none")
    assert status == 2
    assert "none" in complaint


def test_an_audit_says_what_is_wrong_and_its_status_says_whether_anything_is(manage, tmp_path):
    manage("db", "sync")
    assert manage("audit", "--idle") == (0, "no problems found\n", "")
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.ensure_shards(["s"], 0.0)
    with store.transaction("s") as tx:
        tx.add(Host(name="h", egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=1, heard_at=0.0))
    store.close()
    assert manage("audit") == (1, "host h: is in shard default, which does not exist\n", "")


@pytest.fixture
def two_hosts(manage, tmp_path):
    """Store a host with an EMPTY slot, and a host with a slot that is FAULTED although instance i-1 holds it."""
    manage("db", "sync")
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.ensure_shards(["default"], 0.0)
    with store.transaction("default") as tx:
        for name, state in (("a", SlotState.EMPTY), ("b", SlotState.FAULTED)):
            tx.add(
                Host(name=name, egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=1, heard_at=0.0),
                Slot(name=f"{name}/c0/r0", host=name, card="c0", region="r0", board="demo", kind="small", state=state),
            )
        tx.add(new_lease(tx, "b/c0/r0", LeaseKind.INSTANCE, "i-1", 0.0, project_id="p", function="sha256"))
    store.close()


def test_explain_says_of_every_host_whether_an_instance_could_go_there_and_why(manage, two_hosts):
    status, table, _ = manage("explain", "i-1", "--function", "sha256", "-f", "json")
    assert status == 0
    assert [(row["host"], row["passes"], row["slots held"]) for row in json.loads(table)] == [
        ("a", True, 0),
        ("b", False, 1),
    ]
    assert "1 empty" in json.loads(table)[0]["why"]
    # The work of 3600 s on the fastest board takes 60 times as long on this one.
    terms = [(float(row["benefit"]), float(row["completes in s"])) for row in json.loads(table)[:1]]
    speedup = load_catalogue(installed_catalogue()).functions["sha256"].speedup_on("demo")
    assert terms == [(pytest.approx(speedup, abs=0.01), pytest.approx(60 * 3600.0, rel=0.01))]
    assert json.loads(table)[1]["benefit"] == ""
    assert "1 out of service" in json.loads(table)[1]["why"]
    assert json.loads(table)[1]["why"].endswith("; held by the instance, but FAULTED: 1")


def _record_runs(url):
    """Record runs of aes, which takes twice as long beside sha256 as alone, and of sha256, which is not slowed down."""
    store = Store(url)
    with store.transaction("default") as tx:
        batch = Batch(uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="", policy="", created_at=0.0, jobs=48)
        tx.add(batch)
        for number in range(48):
            function, together = ("aes", "sha256")[number % 2], number // 2 % 2
            job = Job(
                uuid=str(uuid.uuid4()), batch_uuid=batch.uuid, project_id="p", user_id="u", index=number, name="",
                function=function, requester="a", input_bytes=10**6, created_at=0.0, attempt=1, host="a",
                slot=f"a/c0/r{number % 2}", state=JobState.COMPLETED,
            )  # fmt: skip
            took_s = 2.0 if function == "sha256" else 1.0 + together
            ended_at = 100.0 * (number // 2) + (0.0 if together or function == "aes" else 50.0)
            run = Run(
                job=job.uuid, attempt=1, function=function, board="demo", input_bytes=10**6, compute_s=took_s,
                finished_at=ended_at,
            )  # fmt: skip
            tx.add(job)
            tx.record_run(run)
    store.close()


def test_refit_shows_what_neighbours_cost_and_explain_counts_it(manage, two_hosts, tmp_path):
    status, table, _ = manage("refit", "-f", "json")
    assert (status, json.loads(table)) == (0, [])
    url = f"sqlite:///{tmp_path}/pool.sqlite"
    _record_runs(url)
    status, table, _ = manage("refit", "-f", "json")
    times = {(row["function"], row["beside"]): float(row["times as long"]) for row in json.loads(table)}
    assert times["aes", "sha256"] == pytest.approx(2.0, abs=0.3)
    assert times["sha256", "aes"] == pytest.approx(1.0, abs=0.1)

    asked = ("explain", "i-1", "--function", "aes", "--stay", "100", "-f", "json")
    alone_s = float(json.loads(manage(*asked)[1])[0]["completes in s"])
    store = Store(url)
    with store.transaction("default") as tx:
        # Another instance holds a slot with sha256 on the same card.
        beside = {"card": "c0", "board": "demo", "kind": "small", "state": SlotState.BUSY, "function": "sha256"}
        tx.add(Slot(name="a/c0/r1", host="a", region="r1", **beside))
        tx.add(new_lease(tx, "a/c0/r1", LeaseKind.INSTANCE, "i-2", 0.0, project_id="p", function="sha256"))
    store.close()
    beside_s = float(json.loads(manage(*asked)[1])[0]["completes in s"])
    assert beside_s / alone_s == pytest.approx(times["aes", "sha256"], rel=0.01)


def test_an_instance_without_its_accelerator_is_named_by_the_audit_and_the_start_of_a_scheduler(
    manage, two_hosts, tmp_path
):
    held = "slot b/c0/r0: is FAULTED, but instance i-1 holds it\n"
    assert manage("audit") == (1, held, "")
    # An operator has replaced sha256 by another function, and starts a scheduler.
    (tmp_path / "catalogue.toml").write_text(installed_catalogue().read_text().replace("sha256", "sha512"))
    manage("keys", "create", "--directory", tmp_path / "keys")
    with (tmp_path / "fpga_pool.conf").open("a") as config:
        config.write(f"[functions]\ncatalogue = {tmp_path}/catalogue.toml\n[scheduler]\nstate_dir = {tmp_path}/state\n")
        for option, name in (
            ("token_key", "tokens.pem"),
            ("api_public_key", "api.pub"),
            ("nova_public_key", "nova.pub"),
        ):
            config.write(f"{option} = {tmp_path}/keys/{name}\n")
    gone = "slot b/c0/r0: instance i-1 uses sha256, which is not in the catalogue\n"
    assert manage("audit") == (1, held + gone, "")
    command = [sys.executable, "-m", "fpga_pool.cli.daemons.scheduler", f"--config-file={tmp_path}/fpga_pool.conf"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=300)
    complaint = "the catalogue lacks functions that instances use: sha256 by i-1; delete the instances first"
    assert (refused.returncode, complaint in refused.stderr) == (2, True), refused.stderr


def test_a_flavor_that_is_larger_than_every_host_is_refused_before_a_cloud_is_asked(manage, two_hosts):
    size = ("--count", "3", "--ram", "512", "--disk", "1", "--vcpus", "1")
    status, _, complaint = manage("flavor", "create", "f", "--function", "sha256", *size)
    assert status == 2
    assert complaint == "fpga-pool-manage: fpga_pool:count: no host has 3 slots for sha256, at most 1\n"


def test_explain_says_where_no_slots_are_linked_as_asked(manage, tmp_path):
    manage("db", "sync")
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.ensure_shards(["default"], 0.0)
    with store.transaction("default") as tx:
        for name, between in (("a", "line"), ("b", "ring")):
            tx.add(
                Host(name=name, egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=1, heard_at=0.0),
                *(
                    Slot(
                        name=f"{name}/c0/r{number}", host=name, card="c0", region=f"r{number}", board="demo",
                        kind="small", links=f"- full 1 0 {between} 3 {number}",
                    )
                    for number in range(3)
                ),
            )  # fmt: skip
    store.close()
    asked = ("explain", "i-1", "--function", "sha256", "--count", "3", "--topology", "ring", "-f", "json")
    status, table, _ = manage(*asked)
    assert status == 0
    assert [(row["host"], row["passes"]) for row in json.loads(table)] == [("a", False), ("b", True)]
    assert json.loads(table)[0]["why"].endswith("no ring of 3 free on one card: at most 2 have these links")


def test_explain_names_a_function_that_is_not_in_the_catalogue(manage):
    manage("db", "sync")
    status, _, complaint = manage("explain", "i-1", "--function", "nothing")
    assert status == 2
    assert "'nothing' is not in the catalogue" in complaint


@pytest.mark.parametrize("wrong", ["i1", "i1=auto", "=foreground", "i1=first"])
def test_a_tier_that_is_none_is_wrong_usage(manage, wrong):
    assert manage("tier", "set", "compute-1", wrong)[0] == 2


def test_prepare_compiles_the_loops_of_policies(manage, monkeypatch, tmp_path):
    def compile_and_note(family, name):
        compile_loops(family, name)
        (tmp_path / f"compiled {family} {name}").touch()  # runs in a separate process

    monkeypatch.setattr(keys, "compile_loops", compile_and_note)
    status, said, complaint = manage("prepare")
    assert (status, complaint) == (0, "")
    assert said.startswith("compiled loops are ready after ")
    compiled = {tuple(path.name.split()[1:]) for path in tmp_path.glob("compiled *")}
    assert compiled >= {("batch", "makespan"), ("gang", "easy"), ("task", "lattice_plus"), ("online", "benefit")}


def test_prepare_says_what_it_could_not_compile(manage, monkeypatch):
    monkeypatch.setattr(keys, "compile_loops", lambda family, name: os._exit(9 * (family == "gang")))
    status, _, complaint = manage("prepare")
    assert status == 1
    assert complaint.splitlines()[-1].endswith("loops were not compiled (gang): is there enough memory?")


def test_prepare_says_that_numba_is_missing(manage, monkeypatch):
    monkeypatch.setattr(keys, "find_spec", lambda name: None)
    status, said, complaint = manage("prepare")
    assert (status, said) == (2, "")
    assert "numba is not installed" in complaint


@pytest.mark.parametrize("words", [["host", "enroll", "--help"], ["help", "host", "enroll"]])
def test_help_of_a_command_is_its_own(manage, words):
    status, out, _ = manage(*words)
    assert (status, out.partition(" [-h]")[0]) == (0, "usage: fpga-pool-manage host enroll")


def test_a_group_lists_its_commands(manage):
    answers = [manage("tier", "--help"), manage("tier")]
    # The name of the group alone is not a command.
    assert [status for status, _, _ in answers] == [0, 2]
    for _, out, _ in answers:
        assert [line.strip() for line in out.splitlines() if line.startswith("  ")] == ["tier list", "tier set"]


@pytest.mark.parametrize(
    ("cause", "status", "complaint"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "/tmp/some file"), 1, "/tmp/some file: No space left on device"),
        (TimeoutError("no answer"), 1, "no answer"),
    ],
)
def test_what_interrupts_a_command_is_one_line(manage, monkeypatch, cause, status, complaint):
    def fail(self):
        raise cause

    monkeypatch.setattr(Store, "schema_version", fail)
    assert manage("db", "version") == (status, "", f"fpga-pool-manage: {complaint}\n")
