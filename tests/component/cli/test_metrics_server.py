"""Web pages cannot read metrics that are served on a loopback address."""

import pytest
from werkzeug.test import Client

from fpga_pool.api.http.server import closed_to_pages
from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import Instruments


@pytest.fixture
def metrics():
    instruments = Instruments(10)
    instruments.count(table.REQUESTS, "list_slots", "200")
    return Client(closed_to_pages(instruments.application()))


@pytest.mark.parametrize("host", ["127.0.0.1:9513", "localhost", "[::1]:9513"])
def test_metrics_are_served_under_loopback_names(metrics, host):
    answer = metrics.get("/metrics", headers={"Host": host})
    assert (answer.status_code, b"fpga_pool_" in answer.data) == (200, True)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.0.2.1:9513", "[::1", ""])
def test_metrics_are_refused_under_foreign_names(metrics, host):
    answer = metrics.get("/metrics", headers={"Host": host})
    assert (answer.status_code, b"fpga_pool_" in answer.data) == (400, False)
    assert answer.json["errors"][0]["detail"] == "Host: expected the loopback address on which this is served"
