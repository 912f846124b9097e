"""The samples of notifications match what is sent, and a changed payload has a new version."""

import hashlib
import json

import pytest

from fpga_pool.model.lifecycle.notifications import KINDS
from support.notification_samples import DIRECTORY, file_of, sample

#: The version of each kind, and a digest of the names in its payload.  Added fields raise the minor version, any other
#: change raises the major one.
VERSIONS = {
    "slot.faulted": ("1.0", "ed4d8ada"),
    "slot.recovered": ("1.0", "ed4d8ada"),
    "host.lost": ("1.0", "6393ba06"),
    "host.returned": ("1.0", "6393ba06"),
    "batch.ended": ("1.0", "b5f9806a"),
    "pipeline.ended": ("1.0", "6059f3bf"),
    "task.ended": ("1.0", "b1878122"),
    "design.submitted": ("1.0", "d613e4cb"),
    "design.decided": ("1.0", "d613e4cb"),
    "gang.ended": ("1.0", "6d685e8f"),
    "lease.begun": ("1.0", "e0eb7cae"),
    "lease.broken": ("1.0", "e0eb7cae"),
    "lease.restored": ("1.0", "e0eb7cae"),
    "lease.ended": ("1.0", "e0eb7cae"),
}

each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.event_type)


@each
def test_the_sample_of_a_kind_is_what_is_sent(kind):
    made = sample(kind)
    assert file_of(kind).read_text() == made, "PYTHONPATH=tests python -m support.notification_samples writes it"
    assert json.loads(made)["payload"].keys() == {
        "version",
        "at",
        "reason",
        "request_id",
        "global_request_id",
        kind.noun,
    }


@each
def test_another_payload_has_another_version(kind):
    digest = hashlib.sha256(" ".join(kind.fields).encode()).hexdigest()[:8]
    assert VERSIONS[kind.event_type] == (kind.version, digest)


def test_there_is_a_sample_of_each_kind_and_no_other():
    assert {file.name for file in DIRECTORY.iterdir()} == {file_of(kind).name for kind in KINDS}
