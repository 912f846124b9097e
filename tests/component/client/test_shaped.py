"""Streams to which the requester's host applies their plan. The client does so if the host cannot."""

import threading
import time
from dataclasses import replace

import pytest

from fpga_pool.client.inputs import JobSpec, read_inputs
from fpga_pool.client.stream import Stream, StreamContext, TicketDesk
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import RateSegment

SIZE_BYTES = 100_000
#: One byte per second: a stream of that rate does not end during a test.
SLOW, FAST = RateSegment(0.0, 1e9, 8.0), RateSegment(0.0, 1e9, 1e9)
JOB = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def stream(pool, client, tmp_path):
    """Return a stream that is planned too slow to end. Tests start `stream.thread` and read `stream.sink`."""
    pool.plans_at_once = False
    pool.open_data_port()
    pool.tx.save(replace(pool.tx.host("node-2"), egress_driver="tc"))
    (tmp_path / "input").write_bytes(b"x" * SIZE_BYTES)
    wanted = JobRequest(uuid=JOB, name="", function="sha256", requester="node-2", input_bytes=SIZE_BYTES)
    batch = client.create_batch([wanted])
    pool.plan(batch.uuid, transfer=(SLOW,))
    (job,) = client.jobs(batch.uuid)
    host = next(host for host in client.hosts() if host.name == job.host)
    context = StreamContext(desk=TicketDesk(client, batch.uuid), egress=PacingDriver())
    context.clock.note(time.time(), time.monotonic())
    (source,) = read_inputs([JobSpec("sha256", tmp_path / "input", "node-2")])
    stream = Stream(context, job, host, source, tmp_path / "result")
    stream.sink = tmp_path / "result"
    stream.thread = threading.Thread(target=stream.send)
    yield stream
    stream.cancel()
    stream.thread.join()


def test_a_stream_that_its_host_knows_is_not_held_by_the_client_too(pool, stream):
    stream.thread.start()
    stream.thread.join(60.0)
    assert stream.sink.exists()


def test_the_client_holds_a_stream_whose_source_looks_different_to_the_responder(pool, stream, eventually):
    pool.scheduler.tickets.seen_from = "192.0.2.7:40000"
    stream.thread.start()
    eventually(lambda: stream._pacing is not None)
    assert stream.sent_bytes < SIZE_BYTES
    stream.retime((FAST,), time.time())
    stream.thread.join(60.0)
    assert stream.sink.exists()
