"""What the documentation's table of bad input promises (doc/source/user/bad-input.csv), asked of real pools."""

import csv
import hashlib
import os
import re
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import requests

from fpga_pool.dataplane import frames
from fpga_pool.dataplane.client import connect
from fpga_pool.experiments.waiting import wait_until
from fpga_pool.model.exceptions import TransferRefused

TIMEOUT_S = 30
TABLE = Path(__file__).parents[2] / "doc" / "source" / "user" / "bad-input.csv"
CATALOGUE = Path(__file__).parents[2] / "etc" / "fpga_pool" / "catalogue.toml"


def documented() -> dict[str, dict[str, str]]:
    with TABLE.open(newline="") as file:
        return {row["Input"]: {name: cell.strip("`") for name, cell in row.items()} for row in csv.DictReader(file)}


ROWS = documented()


def job(**changes):
    return {"function": "sha256", "requester": "node-1", "input_bytes": 5} | changes


def one_job(**changes):
    return {"json": {"jobs": [job(**changes)]}}


CREATE = ("POST", "/v1/batches")
TWICE = str(uuid.UUID(int=7))

#: What a client sends that nothing else is needed for.
REQUESTS = {
    "unknown function": (*CREATE, one_job(function="fft")),
    "negative size": (*CREATE, one_job(input_bytes=-1)),
    "absurd size": (*CREATE, one_job(input_bytes=2**40 + 1)),
    "size that is no whole number": (*CREATE, one_job(input_bytes=1.5)),
    "unknown requester": (*CREATE, one_job(requester="nobody")),
    "unknown policy": (*CREATE, {"json": {"policy": "best", "jobs": [job()]}}),
    "batch of 0": (*CREATE, {"json": {"jobs": []}}),
    "task on more slots than a host has": (
        "POST",
        "/v1/tasks",
        {"json": {"function": "sha256", "topology": "line", "shares": [{"requester": "node-1", "input_bytes": 5}] * 5}},
    ),
    "batch of 100,000": (*CREATE, {"json": {"jobs": [job()] * 100_000}}),
    "unknown key": (*CREATE, one_job(inputbytes=5)),
    "missing key": (*CREATE, {"json": {"jobs": [{"function": "sha256", "input_bytes": 5}]}}),
    "body that is not JSON": (*CREATE, {"data": "{", "headers": {"Content-Type": "application/json"}}),
    "body of another type": (*CREATE, {"data": "jobs"}),
    "body of 40 MB": (*CREATE, {"data": b" " * 40_000_000, "headers": {"Content-Type": "application/json"}}),
    "one id twice in a batch": (*CREATE, {"json": {"jobs": [job(uuid=TWICE), job(uuid=TWICE)]}}),
    "batch that never was": ("GET", "/v1/batches/mine", {}),
    "project that is no name": (*CREATE, {**one_job(), "headers": {"X-Project-Id": "a b"}}),
    "slot that never was": ("GET", f"/v1/slots/{uuid.UUID(int=1)}", {}),
    "method that is not there": ("PUT", "/v1/batches", {}),
    "request under a foreign name": ("GET", "/v1/batches", {"headers": {"Host": "pool.example.org"}}),
}

#: What a user types; FILE is a small file that is there.
COMMANDS = {
    "unknown function": "batch create --function fft --requester node-1 FILE",
    "unknown requester": "batch create --function sha256 --requester nobody FILE",
    "unknown policy": "batch create --function sha256 --requester node-1 --policy best FILE",
    "task on more slots than a host has": "task create --function sha256 --requester node-1 --topology line"
    + " FILE" * 5,
    "batch of 100,000": "batch create --function sha256 --requester node-1" + " FILE" * 100_000,
    "batch that never was": "batch show mine",
    "project that is no name": "--project a:b batch create --function sha256 --requester node-1 FILE",
    "slot that never was": "slot drain node-1/sim0/slot9",
    "file that cannot be read": "batch create --function sha256 --requester node-1 nowhere.bin",
    "input that its function cannot take": "batch create --function mvm --requester node-1 FILE",
}

#: Rows with a test of their own below.
OWN_TEST = {
    "no slot kind fits",
    "duplicate id of a batch",
    "duplicate id of a job",
    "another project's batch: show",
    "another project's batch: jobs",
    "another project's batch: cancel",
    "another project's batch: tickets",
    "cancel of a batch that ended",
    "altered bitstream",
    "token used twice",
    "token of another host",
    "altered token",
    "no token",
    "more bytes than announced",
    "stream that breaks off",
    "other bytes than the digest says",
    "broken catalogue: not TOML",
    "broken catalogue: unknown key",
    "broken catalogue: missing file",
    "full disk of the database",
}


def call(pool, method, path, project="bad-input", **arguments):
    headers = {"X-Project-Id": project} | arguments.pop("headers", {})
    return requests.request(method, pool.endpoint + path, headers=headers, timeout=TIMEOUT_S, **arguments)


def create(pool, *, input_bytes=5, **arguments):
    """Create a batch of one job that is right; return its uuid."""
    answer = call(pool, *CREATE, json={"jobs": [job(input_bytes=input_bytes)]}, **arguments)
    assert answer.status_code == 201, answer.text
    return answer.json()["batch"]["uuid"]


def fpga_pool(pool, *arguments, cwd):
    """Run the command; return how it ended."""
    run = "import sys; from fpga_pool.cmd.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "--endpoint", pool.endpoint, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


def fits(row, message):
    """Say whether a message is the documented one, `...` standing for anything."""
    return re.fullmatch(re.escape(ROWS[row]["Message"]).replace(r"\.\.\.", ".*"), message, re.DOTALL) is not None


def assert_refused(row, answer):
    error = answer.json()["error"]
    assert (str(answer.status_code), error["code"]) == (ROWS[row]["Answer"], ROWS[row]["Code"]), error
    assert fits(row, error["message"]), error["message"]
    assert answer.headers["x-openstack-request-id"] == error["request_id"]


def assert_said(row, done):
    """Check a command: its exit status, and what it says: in its table of a job, otherwise in one line of its own."""
    assert str(done.returncode) == ROWS[row]["Command exits"], done.stderr
    wanted = re.escape(ROWS[row]["Message"]).replace(r"\.\.\.", ".*")
    if ROWS[row]["Answer"].startswith("job"):
        assert re.search(wanted, done.stdout), done.stdout
    else:
        (line,) = done.stderr.splitlines()
        assert re.fullmatch(f"fpga-pool: {wanted}", line), line


def test_every_documented_row_is_tested():
    assert set(REQUESTS) | set(COMMANDS) | OWN_TEST == set(ROWS)


@pytest.mark.parametrize("row", REQUESTS)
def test_bad_requests_get_the_documented_answer_and_nothing_is_stored(pool, row):
    method, path, arguments = REQUESTS[row]
    assert_refused(row, call(pool, method, path, **arguments))
    assert call(pool, "GET", "/v1/batches").json()["batches"] == []


@pytest.mark.parametrize("row", COMMANDS)
def test_commands_tell_in_one_line_what_is_wrong(pool, row, tmp_path):
    (tmp_path / "FILE").write_bytes(b"abc")
    assert_said(row, fpga_pool(pool, *COMMANDS[row].split(), cwd=tmp_path))


def test_an_id_that_exists_is_refused_and_the_first_batch_stays(pool):
    batch, job_uuid = str(uuid.uuid4()), str(uuid.uuid4())
    wanted = {"uuid": batch, "jobs": [job(uuid=job_uuid)]}
    assert call(pool, *CREATE, project="doubles", json=wanted).status_code == 201
    assert_refused("duplicate id of a batch", call(pool, *CREATE, project="doubles", json={**wanted, "jobs": [job()]}))
    assert_refused("duplicate id of a job", call(pool, *CREATE, project="doubles", json={"jobs": wanted["jobs"]}))
    assert [found["uuid"] for found in call(pool, "GET", "/v1/batches", "doubles").json()["batches"]] == [batch]
    call(pool, "DELETE", f"/v1/batches/{batch}", "doubles")


def test_another_projects_batch_looks_as_if_it_did_not_exist(pool, tmp_path):
    path = f"/v1/batches/{create(pool, project='owner')}"
    ticket = {"job": TWICE, "purpose": "send", "source_address": "127.0.0.1", "source_port": 1}
    assert_refused("another project's batch: show", call(pool, "GET", path))
    assert_refused("another project's batch: jobs", call(pool, "GET", f"{path}/jobs"))
    assert_refused("another project's batch: cancel", call(pool, "DELETE", path))
    assert_refused(
        "another project's batch: tickets", call(pool, "POST", f"{path}/tickets", json={"tickets": [ticket]})
    )
    for verb in ("show", "cancel"):
        said = fpga_pool(pool, "--project", "thief", "batch", verb, path.rsplit("/", 1)[1], cwd=tmp_path)
        assert_said(f"another project's batch: {verb}", said)
    owned = call(pool, "GET", path, "owner").json()["batch"]
    assert (owned["state"], owned["cancel_requested"]) in (("PENDING", False), ("RUNNING", False))
    call(pool, "DELETE", path, "owner")


def test_a_batch_that_ended_is_not_cancelled_again(pool, tmp_path):
    path = f"/v1/batches/{create(pool, project='ended')}"
    assert call(pool, "DELETE", path, "ended").status_code == 202
    wait_until(lambda: call(pool, "GET", path, "ended").json()["batch"]["state"] == "CANCELLED", "it is cancelled")
    assert_refused("cancel of a batch that ended", call(pool, "DELETE", path, "ended"))
    said = fpga_pool(pool, "--project", "ended", "batch", "cancel", path.rsplit("/", 1)[1], cwd=tmp_path)
    assert_said("cancel of a batch that ended", said)


# The data plane -------------------------------------------------------------------------------------------------


class Waiting:
    """A batch of one job that waits for its input, and its data port."""

    def __init__(self, pool, input_bytes=5):
        self._pool = pool
        self.path = f"/v1/batches/{create(pool, project='streams', input_bytes=input_bytes)}"
        wait_until(lambda: self.job["state"] == "WAITING_INPUT", "the job waits for its input")
        self.host = self.job["host"]

    @property
    def job(self):
        return call(self._pool, "GET", f"{self.path}/jobs", "streams").json()["jobs"][0]

    def connect(self, host=None):
        hosts = {one["name"]: one for one in call(self._pool, "GET", "/v1/hosts").json()["hosts"]}
        port = hosts[host or self.host]
        return connect((port["data_address"], port["data_port"]), TIMEOUT_S)

    def token(self):
        wanted = {"job": self.job["uuid"], "purpose": "send", "source_address": "127.0.0.1", "source_port": 1}
        answer = call(self._pool, "POST", f"{self.path}/tickets", "streams", json={"tickets": [wanted]})
        return answer.json()["tickets"][0]["token"]

    def cancel(self):
        call(self._pool, "DELETE", self.path, "streams")


@pytest.fixture
def waiting(pool):
    one = Waiting(pool)
    yield one
    one.cancel()


def send(connection, token, *, data=b"abcde", digest_of=b"abcde"):
    """Speak the protocol by hand, so that a client can be wrong; return what the server says after `accept`."""
    wire = connection._wire
    wire.send(frames.Hello(token))
    connection._expect(frames.Accept)
    if data:
        wire.send_bytes(memoryview(frames.encode_data_header(len(data)) + data))
    if digest_of is not None:
        wire.send(frames.Trailer(hashlib.sha256(digest_of).hexdigest()))
    return connection._expect(frames.Staged)


def refusal_of(row, talk):
    with pytest.raises(TransferRefused) as refused:
        talk()
    assert refused.value.reason == ROWS[row]["Code"]
    assert fits(row, str(refused.value)), refused.value


def test_a_token_is_good_for_one_stream(waiting):
    token = waiting.token()
    with waiting.connect() as first:
        first._wire.send(frames.Hello(token))
        first._expect(frames.Accept)
    with waiting.connect() as second:
        refusal_of("token used twice", lambda: send(second, token))
    with waiting.connect() as third:
        assert send(third, waiting.token()).received_bytes == 5


def test_tokens_that_are_not_for_this_stream_are_refused(pool, waiting):
    token = waiting.token()
    other = next(f"node-{n}" for n in (1, 2) if f"node-{n}" != waiting.host)
    altered = token[:-4] + ("AAAA" if not token.endswith("AAAA") else "BBBB")
    for row, host, said in (
        ("token of another host", other, token),
        ("altered token", waiting.host, altered),
        ("no token", waiting.host, ""),
    ):
        with waiting.connect(host) as connection:
            refusal_of(row, lambda connection=connection, said=said: send(connection, said))
    assert waiting.job["state"] == "WAITING_INPUT"


def test_wrong_bytes_are_refused_and_the_right_ones_taken_afterwards(waiting):
    with waiting.connect() as connection:
        refusal_of("more bytes than announced", lambda: send(connection, waiting.token(), data=b"abcdef"))
    with waiting.connect() as connection:
        refusal_of("other bytes than the digest says", lambda: send(connection, waiting.token(), data=b"abcdX"))
    with waiting.connect() as connection:
        refusal_of("stream that breaks off", lambda: break_off(connection, waiting.token()))
    assert waiting.job["state"] == "WAITING_INPUT"
    with waiting.connect() as connection:
        # Two bytes are there already.
        assert send(connection, waiting.token(), data=b"cde").received_bytes == 5


def break_off(connection, token):
    """Send two of five bytes, and end only this side of the connection."""
    connection._wire.send(frames.Hello(token))
    connection._expect(frames.Accept)
    connection._wire.send_bytes(memoryview(frames.encode_data_header(2) + b"ab"))
    connection.socket.shutdown(socket.SHUT_WR)
    connection._expect(frames.Staged)


# Pools of their own ---------------------------------------------------------------------------------------------

HUGE = """
[functions.fft]
version = "1.0"
slot_kinds = ["huge"]
io_bps = 1e9
preemptible = false
cpu_time = { a_s = 0.0, b_s_per_byte = 1e-8 }
source = "test"
[functions.fft.fpga_time]
big = { a_s = 0.0, b_s_per_byte = 1e-9 }

[boards.big]
slots = ["huge"]
configuration_bps = 1e9
dma_bps = 1e9
source = "test"
[boards.big.regions]
huge = { luts = 1000, bitstream_bytes = 1024 }
"""


def test_a_function_that_no_slot_can_hold_is_refused(make_pool, tmp_path):
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(CATALOGUE.read_text() + HUGE)
    pool = make_pool({"standalone": {"hosts": 1, "catalogue": catalogue}})
    assert_refused("no slot kind fits", call(pool, *CREATE, **one_job(function="fft")))
    assert call(pool, "GET", "/v1/batches").json()["batches"] == []
    (tmp_path / "FILE").write_bytes(b"abc")
    command = "batch create --function fft --requester node-1 FILE"
    assert_said("no slot kind fits", fpga_pool(pool, *command.split(), cwd=tmp_path))


def test_an_altered_bitstream_fails_its_job_and_nothing_else(make_pool, tmp_path):
    pool = make_pool({"standalone": {"hosts": 1}})
    for path in (pool.state_dir / "bitstreams").rglob("gmm.bit"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (tmp_path / "FILE").write_bytes(b"abc")
    command = "batch create --function gmm --requester node-1 FILE"
    assert_said("altered bitstream", fpga_pool(pool, *command.split(), cwd=tmp_path))
    (batch,) = call(pool, "GET", "/v1/batches", "demo").json()["batches"]
    (failed,) = call(pool, "GET", f"/v1/batches/{batch['uuid']}/jobs", "demo").json()["jobs"]
    assert f"job {failed['state']}" == ROWS["altered bitstream"]["Answer"]
    assert failed["error_code"] == ROWS["altered bitstream"]["Code"]
    assert fits("altered bitstream", failed["reason"])
    assert {slot["state"] for slot in call(pool, "GET", "/v1/slots").json()["slots"]} <= {"EMPTY", "READY"}
    done = fpga_pool(pool, *command.replace("gmm", "sha256").split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("row", "content"),
    [
        ("broken catalogue: not TOML", "format_version = 1\n[functions.aes\n"),
        (
            "broken catalogue: unknown key",
            CATALOGUE.read_text().replace("[functions.aes]\n", "[functions.aes]\nspeed = 2\n"),
        ),
        ("broken catalogue: missing file", None),
    ],
)
def test_a_broken_catalogue_is_told_in_one_line_and_the_pool_does_not_start(tmp_path, row, content):
    catalogue = tmp_path / "catalogue.toml"
    if content is not None:
        catalogue.write_text(content)
    command = [sys.executable, "-m", "fpga_pool.cmd.standalone", "--state-dir", str(tmp_path / "state"), "--port", "0"]
    command += ["--catalogue", str(catalogue), "--log-file", str(tmp_path / "pool.log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"exit {done.returncode}" == ROWS[row]["Answer"]
    (line,) = done.stderr.splitlines()
    assert fits(row, line), line


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small file system is not possible here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place):
    """Take all the room that is left."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return ballast


def test_a_full_disk_refuses_new_batches_whole_and_the_pool_goes_on_afterwards(make_pool, small_disk, tmp_path):
    row = "full disk of the database"
    pool = make_pool({"driver_simulated": {"board": "demo"}, "standalone": {"hosts": 1}}, directory=small_disk)
    first = create(pool)
    ballast = fill(small_disk)
    # Large enough not to fit into what the database's log has left.
    wanted = {"uuid": str(uuid.uuid4()), "jobs": [job()] * 5000}
    assert_refused(row, call(pool, *CREATE, json=wanted))
    assert call(pool, "GET", f"/v1/batches/{first}").status_code == 200
    assert call(pool, "GET", f"/v1/batches/{wanted['uuid']}").status_code == 404
    ballast.unlink()
    assert call(pool, *CREATE, json=wanted).status_code == 201
    call(pool, "DELETE", f"/v1/batches/{wanted['uuid']}")
    (tmp_path / "FILE").write_bytes(b"abc")
    command = "batch create --function sha256 --requester node-1 FILE"
    done = fpga_pool(pool, *command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
