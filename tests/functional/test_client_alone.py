"""The client, installed without the libraries of the services, works with a pool."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Maximum size of a virtual environment with the client, in bytes.
LARGEST_BYTES = 60e6


@pytest.mark.long
def test_the_client_takes_less_than_60_mb_and_runs_batches(pool, tmp_path):
    command = [sys.executable, ROOT / "tools" / "install-size", "--json", "--keep", tmp_path, "client"]
    sizes = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300).stdout)["client"]
    assert sizes["bytes"] + sizes["bytecode_bytes"] < LARGEST_BYTES
    packages = {path.name for path in (tmp_path / "client").glob("lib/python*/site-packages/*")}
    assert "fpga_pool" in packages
    assert not packages & {"numba", "numpy", "scipy"}

    def fpga_pool(*words):
        program = tmp_path / "client" / "bin" / "fpga-pool"
        done = subprocess.run(
            [program, "--endpoint", pool.endpoint, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    source = tmp_path / "input"
    source.write_bytes(b"some words " * 1000)
    arguments = ("--function", "sha256", "--requester", "requester-1", "-f", "json", str(source))
    (row,) = fpga_pool("batch", "create", *arguments)
    assert row["result"] == hashlib.sha256(source.read_bytes()).hexdigest()
    for kind in ("batch", "function", "gang", "host", "job", "pipeline", "slot", "task"):
        fpga_pool(kind, "list", "-f", "json")
