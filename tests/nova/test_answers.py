"""What is read of what Placement answers, and what a wrong answer means; the other tests have Placement itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cloud  # noqa: F401, I001  # first: on eventlet it replaces parts of the standard library

import json

import pytest
import requests
from keystoneauth1 import exceptions as ks_exc
from nova.scheduler.client import report

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.nova_plugin.placement import slots_left

GOOD = {
    "allocation_requests": [{"allocations": {"card": {"resources": {"CUSTOM_FPGA_SLOT": 1}}}, "mappings": {"": []}}],
    "provider_summaries": {
        "host": {"resources": {"VCPU": {"capacity": 8, "used": 8}}, "traits": []},
        "card": {"resources": {"CUSTOM_FPGA_SLOT": {"capacity": 4, "used": 3}}, "traits": ["CUSTOM_FPGA_POOL"]},
    },
}


class Client:
    """Gives the answer of a test to whatever is asked."""

    def __init__(self, status, content):
        self.answer = requests.Response()
        self.answer.status_code, self.answer._content = status, content

    def get(self, url, version, global_request_id):
        if self.answer.status_code == 0:
            raise ks_exc.ConnectTimeout("no answer")
        return self.answer


@pytest.fixture
def answered(monkeypatch):
    def answer(status, content):
        monkeypatch.setattr(report, "report_client_singleton", lambda: Client(status, content))
        return slots_left("req-1", load_catalogue(installed_catalogue()).function("sha256"))

    return answer


def test_what_is_left_is_told_of_providers_that_have_slots(answered):
    assert answered(200, json.dumps(GOOD).encode()) == {"card": 1}


@pytest.mark.parametrize(
    ("status", "content", "why"),
    [
        (503, b"busy", "status 503"),
        (0, b"", "no answer"),
        (200, json.dumps(GOOD).encode()[:-10], "truncated"),
        (200, b'{"allocation_requests": []}', "provider_summaries"),
        (200, json.dumps(GOOD).replace("3", '"three"').encode(), "Expected `int`"),
    ],
)
def test_an_answer_that_is_none_leaves_it_to_what_the_pool_knows(answered, caplog, status, content, why):
    assert answered(status, content) is None
    assert why in caplog.text
