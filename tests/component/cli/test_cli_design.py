import hashlib

import pytest

BITSTREAM = b"a partial bitstream"
MANIFEST = """\
name = "mine"
board = "kintex7"
kind = "small"
io_bps = 1e9
b_s_per_byte = 1e-9
simulates = "sha256"
"""


@pytest.fixture
def files(tmp_path):
    """Return the paths of a manifest and of a bitstream."""
    (tmp_path / "mine.toml").write_text(MANIFEST)
    (tmp_path / "mine.bin").write_bytes(BITSTREAM)
    return tmp_path / "mine.toml", tmp_path / "mine.bin"


def test_a_design_is_submitted_decided_on_by_an_operator_and_deleted(run, files, tmp_path):
    made = run("design", "create", *files, "-f", "json").json
    assert (made["state"], made["function"], made["kind"]) == ("SUBMITTED", f"mine.{made['uuid'][:8]}", "small")
    (row,) = run("design", "list", "--all-projects", "--state", "SUBMITTED", "-f", "json").json
    assert (row["name"], row["project_id"], row["size_bytes"], row["speedup"]) == ("mine", "demo", len(BITSTREAM), 1.0)
    assert "speedup" not in run("design", "list").out
    saved = run("design", "save", made["uuid"], tmp_path / "review.bin", "-f", "json").json
    assert saved["sha256"] == hashlib.sha256(BITSTREAM).hexdigest() == made["sha256"]
    assert (tmp_path / "review.bin").read_bytes() == BITSTREAM
    assert run("design", "save", made["uuid"], tmp_path / "review.bin").status != 0  # the file exists
    assert run("design", "reject", "mine", "--reason", "too large", "-f", "json").json["reason"] == "too large"
    approved = run("design", "approve", "mine", "--public", "-f", "json").json
    assert (approved["state"], approved["public"]) == ("APPROVED", True)
    assert run("design", "set", "mine", "--private", "-f", "json").json["public"] is False
    assert run("design", "set", "mine").status == 2  # nothing to set
    assert run("design", "revoke", "mine", "-f", "json").json["state"] == "REVOKED"
    events = run("event", "list", "design", "mine", "-f", "json").json
    assert [event["event"] for event in events] == [
        "Revoked", "MadePrivate", "Published", "Approved", "Rejected", "Created",
    ]  # fmt: skip
    assert run("design", "show", "mine", "-f", "json").json["simulates"] == "sha256"
    assert [row["name"] for row in run("design", "delete", "mine", "-f", "json").json] == ["mine"]
    assert "no design 'mine'" in run("design", "show", "mine").err


def test_an_operator_is_shown_the_design_of_another_project_that_is_to_be_approved(run, files):
    made = run("--project", "theirs", "design", "create", *files, "-f", "json").json
    assert f"no design {made['uuid']}" in run("design", "show", made["uuid"]).err
    for named in (["mine", "--project-id", "theirs"], [made["uuid"], "--all-projects"]):
        assert run("design", "show", *named, "-f", "json").json["uuid"] == made["uuid"]


def test_an_operator_deletes_the_design_of_another_project_by_its_name_there(run, files):
    made = run("--project", "theirs", "design", "create", *files, "-f", "json").json
    assert "no design 'mine'" in run("design", "delete", "mine").err
    assert f"no design {made['uuid']}" in run("design", "delete", made["uuid"]).err
    (row,) = run("design", "delete", "mine", "--project-id", "theirs", "-f", "json").json
    assert row["uuid"] == made["uuid"]
    assert run("design", "list", "--all-projects", "-f", "json").json == []


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ("name = ", "mine.toml: Invalid value"),
        (MANIFEST + "colour = 1", "unknown: ['colour']"),
        (MANIFEST.replace("io_bps = 1e9\n", ""), "missing: io_bps"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_what_is_wrong(run, files, manifest, complaint):
    files[0].write_text(manifest)
    answer = run("design", "create", *files)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert complaint in answer.err


def test_a_file_that_cannot_be_read_is_named(run, files):
    files[1].unlink()
    answer = run("design", "create", *files)
    assert (answer.status, "mine.bin: cannot be read: No such file" in answer.err) == (2, True)
