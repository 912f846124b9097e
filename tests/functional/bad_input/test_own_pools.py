"""Documented behavior for bad catalogues, bitstreams and disks, each tested with a separate pool."""

import subprocess
import sys
import uuid

import pytest

from support.disks import Ballast

from .table import CATALOGUE, CREATE, ROWS, assert_refused, assert_said, call, create, fits, fpga_pool, job, one_job

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
    command = [
        sys.executable,
        "-m",
        "fpga_pool.cli.daemons.standalone",
        "--state-dir",
        str(tmp_path / "state"),
        "--port",
        "0",
    ]
    command += ["--catalogue", str(catalogue), "--log-file", str(tmp_path / "pool.log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert f"exit {done.returncode}" == ROWS[row]["Answer"]
    (line,) = done.stderr.splitlines()
    assert fits(row, line), line


@pytest.mark.long
def test_a_full_disk_refuses_new_batches_whole_and_the_pool_goes_on_afterwards(make_pool, small_disk, tmp_path):
    row, disk = "full disk of the database", small_disk(tmp_path / "disk", 32)
    pool = make_pool({"driver_simulated": {"board": "demo"}, "standalone": {"hosts": 1}}, directory=disk)
    first = create(pool)
    ballast = Ballast(disk)
    ballast.fill()
    # Too large to fit into the free space in the database's log.
    wanted = {"uuid": str(uuid.uuid4()), "jobs": [job()] * 5000}
    assert_refused(row, call(pool, *CREATE, json=wanted))
    assert call(pool, "GET", f"/v1/batches/{first}").status_code == 200
    assert call(pool, "GET", f"/v1/batches/{wanted['uuid']}").status_code == 404
    ballast.remove()
    assert call(pool, *CREATE, json=wanted).status_code == 201
    call(pool, "DELETE", f"/v1/batches/{wanted['uuid']}")
    (tmp_path / "FILE").write_bytes(b"abc")
    command = "batch create --function sha256 --requester node-1 FILE"
    done = fpga_pool(pool, *command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
