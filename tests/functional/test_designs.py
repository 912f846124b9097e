"""Designs of tenants, from submission to revocation, on the embedded pool and on RabbitMQ and MariaDB."""

import hashlib
import json
import subprocess
import sys
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fpga_pool.client import Subtask
from fpga_pool.conf.catalogue import installed_catalogue
from fpga_pool.model.exceptions import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
    UnknownFunction,
)
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.bitstreams import MOST_DESIGN_BYTES
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.objects.quotas import QuotaLimits
from support.waiting import wait_until

BITSTREAM = b"a partial bitstream " * 50_000
MANIFEST = {
    "name": "digests",
    "board": "kintex7",
    "kind": "small",
    "luts": 100,
    "io_bps": 1e9,
    "b_s_per_byte": 1e-9,
    "simulates": "sha256",
}
DATA = b"some words " * 1000
DIGEST = hashlib.sha256(DATA).hexdigest().encode() + b"\n"


def digest_of(client, function, directory):
    """Return the pool's result of a function of DATA."""
    result = client.run(function, [DATA], requester="node-1", output_dir=directory)
    assert result.batch.state is BatchState.COMPLETED, [job.reason for job in result.jobs]
    return result.jobs[0].result.read_bytes()


def from_submission_to_revocation(owner, other, operator, directory):
    """Test the permissions of three users on a design, in the order of its life cycle."""
    design = owner.create_design(MANIFEST, BITSTREAM)
    assert (design.state, design.public, design.sha256) == ("SUBMITTED", False, hashlib.sha256(BITSTREAM).hexdigest())
    with pytest.raises(Conflict, match="has a design 'digests'"):
        owner.create_design(MANIFEST, BITSTREAM)
    with pytest.raises(UnknownFunction):  # not approved yet
        owner.run(design.function, [DATA], requester="node-1")

    # The operator inspects and approves it; until it is public, only its project may use it.
    assert operator.design_bitstream(design.uuid).bitstream == BITSTREAM
    assert operator.change_design(design.uuid, state="APPROVED", reason="checked").state == "APPROVED"
    assert digest_of(owner, design.function, directory / "owner") == DIGEST
    assert design.function in {one.name for one in owner.functions()}
    assert (other.designs(), [one for one in other.functions() if one.name == design.function]) == ([], [])
    for refused in (other.design, other.delete_design):
        with pytest.raises(NotFound):
            refused(design.uuid)
    with pytest.raises(UnknownFunction):
        other.run(design.function, [DATA], requester="node-1")
    operator.change_design(design.uuid, public=True)
    assert digest_of(other, design.function, directory / "other") == DIGEST
    task = other.run_task(design.function, [DATA, DATA], requester="node-1", output_dir=directory / "task")
    pipeline = other.run_pipeline(
        [Subtask("one", design.function, source=DATA, requester="node-1"), Subtask("two", "wordcount", after=("one",))],
        output_dir=directory / "pipeline",
    )
    assert [job.result.read_bytes() for job in task.jobs] == [DIGEST, DIGEST]
    assert pipeline.jobs[-1].result.read_bytes() == b"1\n"
    with pytest.raises(NotFound):
        other.delete_design(design.uuid)

    # Jobs that wait for it end when it is revoked, and no slot contains it afterwards.
    job = JobRequest(uuid=str(uuid4()), function=design.function, requester="node-1", input_bytes=len(DATA))
    waits = owner.create_batch([job], held=True)
    with pytest.raises(Conflict, match="1 job of"):
        owner.delete_design(design.uuid)
    assert operator.change_design(design.uuid, state="REVOKED", reason="a fault was found").public is False
    (job,) = owner.jobs(waits.uuid)
    assert (job.state, job.error_code) == (JobState.FAILED, "fpga_pool.design_withdrawn")
    assert "was revoked" in job.reason
    with pytest.raises(UnknownFunction):
        owner.run(design.function, [DATA], requester="node-1")
    wait_until(lambda: all(slot.function != design.function for slot in operator.slots()), "the slots are overwritten")
    assert all(slot.state is not SlotState.FAULTED for slot in operator.slots())
    assert [event.event for event in owner.events("designs", design.uuid)][::-1] == [
        "Created", "Approved", "Published", "Revoked",
    ]  # fmt: skip
    assert owner.delete_design(design.uuid).uuid == design.uuid
    assert owner.designs() == []
    # Another design with the same name is another function.
    again = owner.create_design(MANIFEST, BITSTREAM)
    assert again.function != design.function
    with pytest.raises(NotFound):
        operator.delete_design(again.uuid)
    assert operator.delete_design(again.uuid, again.project_id).uuid == again.uuid


def test_a_design_on_the_embedded_pool(pool, tmp_path):
    operator = pool.client("operators")
    from_submission_to_revocation(pool.client("project-a"), pool.client("project-b"), operator, tmp_path)


def test_what_a_design_may_use_is_limited_and_checked(pool):
    client = pool.client("project-c")
    pool.client().set_quota("project-c", QuotaLimits(design_bytes=len(BITSTREAM) - 1))
    with pytest.raises(QuotaExceeded, match="design_bytes"):
        client.create_design(MANIFEST, BITSTREAM)
    with pytest.raises(InvalidInput, match="signature: not one of a trusted signer"):
        client.create_design(MANIFEST, b"small", signature=b"x" * 64)
    design = client.create_design(MANIFEST, b"small")
    with pytest.raises(InvalidTransition, match="Revoked is not possible in state SUBMITTED"):
        pool.client().change_design(design.uuid, state="REVOKED")
    client.delete_design(design.uuid)


def command(endpoint, project, *words, code=0):
    """Run one `fpga-pool` command; return its output, as JSON if requested."""
    line = [sys.executable, "-m", "fpga_pool.cli.client.main", "--endpoint", endpoint, "--project", project]
    done = subprocess.run([*line, *map(str, words)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_designs_on_rabbitmq_and_mariadb_by_commands_with_a_trusted_signer(deployment, rabbitmq, mariadb_url, tmp_path):
    key = Ed25519PrivateKey.generate()
    (tmp_path / "signer.pem").touch(0o600)
    (tmp_path / "signer.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "signer.pub").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    catalogue = tmp_path / "catalogue.toml"  # with bitstreams of the maximum size of a design
    text = installed_catalogue().read_text()
    catalogue.write_text(text.replace("bitstream_bytes = 1716544", f"bitstream_bytes = {MOST_DESIGN_BYTES}"))
    trust = {
        "scheduler": {
            "design_signers": tmp_path / "signer.pub",
            "signed_designs_are_approved": True,
            "host_timeout_s": 60.0,  # a busy machine may be silent for seconds
        },
        "functions": {"catalogue": catalogue},
    }
    pool = deployment(rabbitmq.url, mariadb_url, schedulers=2, agents=1, options=trust)
    owner, other, operator = (pool.client(name) for name in ("project-a", "project-b", "operators"))
    # The two schedulers take the requests in turn, and either may own the shard.
    from_submission_to_revocation(owner, other, operator, tmp_path)

    manifest, bitstream, signature = tmp_path / "design.toml", tmp_path / "design.bin", tmp_path / "design.sig"
    manifest.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in MANIFEST.items()))
    # It is sent over the bus and stored in the database in one piece.
    bitstream.write_bytes(hashlib.shake_256(b"seed").digest(MOST_DESIGN_BYTES))
    pool.manage("designs", "sign", str(manifest), str(bitstream), "--key", str(tmp_path / "signer.pem"),
                "--output", str(signature))  # fmt: skip
    words = ("design", "create", manifest, bitstream, "--signature", signature, "-f", "json")
    shown = command(pool.endpoint, "project-a", *words)
    assert (shown["state"], len(shown["signer"]), shown["reason"]) == ("APPROVED", 43, f"signed by {shown['signer']}")
    pool.restart("scheduler-1")
    assert digest_of(owner, shown["function"], tmp_path / "signed") == DIGEST
    assert "no design 'digests'" in command(pool.endpoint, "project-b", "design", "show", "digests", code=1)
    command(pool.endpoint, "operators", "design", "revoke", shown["uuid"], "--reason", "withdrawn by its vendor")
    row = command(pool.endpoint, "project-a", "design", "list", "-f", "json")[0]
    assert (row["state"], row["name"]) == ("REVOKED", "digests")
    refused = command(pool.endpoint, "project-a", "batch", "create", "--function", shown["function"],
                      "--requester", "node-1", manifest, code=2)  # fmt: skip
    assert "does not belong to an approved design that the project may use" in refused
    command(pool.endpoint, "project-a", "design", "delete", "digests")
    assert command(pool.endpoint, "project-a", "design", "list", "-f", "json") == []
