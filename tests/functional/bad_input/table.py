"""The table of bad input in the documentation (doc/source/user/bad-input.csv), and checks of responses against it."""

import csv
import re
import subprocess
import sys
import uuid
from pathlib import Path

import requests

TIMEOUT_S = 120
TABLE = Path(__file__).parents[3] / "doc" / "source" / "user" / "bad-input.csv"
CATALOGUE = Path(__file__).parents[3] / "etc" / "fpga_pool" / "catalogue.toml"


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


def call(pool, method, path, project="bad-input", **arguments):
    headers = {"X-Project-Id": project} | arguments.pop("headers", {})
    return requests.request(method, pool.endpoint + path, headers=headers, timeout=TIMEOUT_S, **arguments)


def create(pool, *, input_bytes=5, **arguments):
    """Create a batch of one valid job; return its uuid."""
    answer = call(pool, *CREATE, json={"jobs": [job(input_bytes=input_bytes)]}, **arguments)
    assert answer.status_code == 201, answer.text
    return answer.json()["batch"]["uuid"]


def fpga_pool(pool, *arguments, cwd):
    """Run the command; return the completed process."""
    run = "import sys; from fpga_pool.cli.client.main import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "--endpoint", pool.endpoint, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


def fits(row, message):
    """Say whether a message matches the documented one, in which `...` matches any text."""
    return re.fullmatch(re.escape(ROWS[row]["Message"]).replace(r"\.\.\.", ".*"), message, re.DOTALL) is not None


def assert_refused(row, answer):
    (error,) = answer.json()["errors"]
    assert (str(answer.status_code), error["code"]) == (ROWS[row]["Answer"], ROWS[row]["Code"]), error
    assert fits(row, error["detail"]), error["detail"]
    assert answer.headers["x-openstack-request-id"] == error["request_id"]


def assert_said(row, done):
    """Check a command's exit status and its message: in the table for a job, otherwise as the only line of stderr."""
    assert str(done.returncode) == ROWS[row]["Command exits"], done.stderr
    wanted = re.escape(ROWS[row]["Message"]).replace(r"\.\.\.", ".*")
    if ROWS[row]["Answer"].startswith("job"):
        assert re.search(wanted, re.sub(r"[\s|]+", " ", done.stdout)), done.stdout  # the message may be wrapped
    else:
        (line,) = done.stderr.splitlines()
        assert re.fullmatch(f"fpga-pool: {wanted}", line), line
