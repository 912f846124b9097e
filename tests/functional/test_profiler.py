"""A trace of OSProfiler through the API, RabbitMQ, a scheduler and its statements."""

import contextlib

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from osprofiler import profiler

from support.waiting import wait_until

KEY = "a key of operators"


class Collector:
    """Keeps what is reported."""

    def __init__(self):
        self.events = []

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.events.append(payload)

    def spans(self, base_id):
        """Return how each span of a trace begins, by its id; they may arrive in any order."""
        reported = [event for event in list(self.events) if event["base_id"] == base_id]
        return {event["trace_id"]: event for event in reported if event["name"].endswith("-start")}

    def has_ended(self, base_id):
        """Return whether each span of a trace has begun and ended."""
        begun = self.spans(base_id)
        ended = {e["trace_id"] for e in list(self.events) if e["base_id"] == base_id and e["name"].endswith("-stop")}
        return begun and ended == set(begun)


@pytest.fixture
def collector(rabbitmq):
    collector = Collector()
    transport = messaging.get_notification_transport(cfg.CONF, rabbitmq.url)
    targets = [messaging.Target(topic="profiler", exchange="openstack")]
    listening = messaging.get_notification_listener(transport, targets, [collector], "threading")
    listening.start()
    yield collector
    listening.stop()
    listening.wait()
    transport.cleanup()


@contextlib.contextmanager
def tracing(key):
    """Have the requests of this thread traced; give the trace's id."""
    try:
        yield profiler.init(key).get_base_id()
    finally:
        profiler.clean()


@pytest.mark.timeout(300)
def test_a_trace_leads_from_the_request_to_the_statements_of_the_scheduler(
    deployment, rabbitmq, mariadb_url, collector
):
    options = {"profiler": {"enabled": True, "hmac_keys": f"another,{KEY}", "trace_sqlalchemy": True}}
    client = deployment(rabbitmq.url, mariadb_url, agents=1, options=options).client("p")
    with tracing("a key of nobody") as refused:
        client.batches()
    with tracing(KEY) as base_id:
        client.batches()
    wait_until(lambda: collector.has_ended(base_id), "the spans of the trace")
    spans = collector.spans(base_id)
    of_kind = {}
    for span in spans.values():
        of_kind.setdefault(span["name"].removesuffix("-start"), []).append(span)
    (request,), (call,), statements = of_kind["wsgi"], of_kind["rpc"], of_kind["db"]
    assert request["info"]["request"]["path"] == "/v1/batches"
    assert (request["service"], request["parent_id"]) == ("fpga-pool-api", base_id)
    assert call["info"]["rpc"] == {"method": "batches"}
    assert (call["service"], call["parent_id"]) == ("fpga-pool-scheduler", request["trace_id"])
    assert {(one["service"], one["parent_id"]) for one in statements} == {("fpga-pool-scheduler", call["trace_id"])}
    assert any("batches" in one["info"]["db"]["statement"] for one in statements)
    assert collector.spans(refused) == {}
