"""The program of one requester: sends one job's input from its own network, and receives the result.

It prints "ready", reads the uuid of the batch, and prints nothing else unless it fails.  It calls the API from the
network in which it was started; only the stream is in the requester's namespace.
"""

import argparse
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import JobSpec, read_inputs
from fpga_pool.client.stream import Stream, StreamContext, TicketDesk
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.model.messages.requests import Ticket, TicketRequest
from fpga_pool.model.objects.pool import Job, JobState, RateSegment
from fpga_pool.transfer.client import Connection
from support.testbed.network import inside

#: How long before the planned start of sending the stream is opened.
_AHEAD_S = 0.5
_POLL_S = 0.1
_PLAN_TIMEOUT_S = 60.0
#: A transfer from time 0 on, as fast as TCP can.
_AT_ONCE = (RateSegment(0.0, 1e9, math.inf),)


class _UncontrolledDesk(TicketDesk):
    """Gets tickets with no rate limit."""

    def get(self, request: TicketRequest) -> Ticket:
        return replace(super().get(request), transfer=_AT_ONCE)


class _NamespacedStream(Stream):
    """A stream whose socket is in another network namespace than the rest of the program."""

    def __init__(self, namespace: str, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._namespace = namespace

    def _connect(self) -> Connection:
        with inside(self._namespace):
            return super()._connect()


def main() -> int:
    """Send one job; return 1 if it has no result."""
    arguments = _parser().parse_args()
    print("ready", flush=True)
    batch_uuid = sys.stdin.readline().strip()
    try:
        with PoolApi(arguments.api) as api:
            _send(api, batch_uuid, arguments)
    except (FpgaPoolError, OSError) as error:
        print(error, flush=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="send", description=main.__doc__)
    for name in ("api", "namespace", "job"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("source", "sink"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--uncontrolled", action="store_true", help="send at once, as fast as TCP can")
    return parser


def _send(api: PoolApi, batch_uuid: str, arguments: argparse.Namespace) -> None:
    job, now_at = _planned(api, batch_uuid, arguments.job)
    host = next(host for host in api.hosts() if host.name == job.host)
    desk = (_UncontrolledDesk if arguments.uncontrolled else TicketDesk)(api, batch_uuid)
    spec = JobSpec(job.function, arguments.source, job.requester)
    context = StreamContext(desk=desk, egress=PacingDriver())
    begin_s = 0.0 if arguments.uncontrolled or not job.transfer else job.transfer[0].begin_s
    time.sleep(max((job.dispatched_at or 0.0) + begin_s - now_at - _AHEAD_S, 0.0))
    _NamespacedStream(arguments.namespace, context, job, host, read_inputs([spec])[0], arguments.sink).send()


def _planned(api: PoolApi, batch_uuid: str, name: str) -> tuple[Job, float]:
    """Wait for the plan; return the job with this name, and the API's time."""
    end_s = time.monotonic() + _PLAN_TIMEOUT_S
    while time.monotonic() < end_s:
        found = api.job_list(batch_uuid)
        job = next(job for job in found.jobs if job.name == name)
        if job.state is JobState.WAITING_INPUT:
            return job, found.at
        time.sleep(_POLL_S)
    raise ServiceUnavailable(f"no plan in {_PLAN_TIMEOUT_S:g} s")


if __name__ == "__main__":
    sys.exit(main())
