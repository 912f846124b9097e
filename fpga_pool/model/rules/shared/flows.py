"""Flows of inputs: the requester's host limits the input stream of each job to its planned rates."""

import uuid
from dataclasses import replace

from fpga_pool.model.messages.agents import Command, ReleaseFlow, ShapeFlow
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.objects.hosts import server_of
from fpga_pool.model.objects.pool import Job, JobState
from fpga_pool.model.rules.shared.admission import can_hold, sending_host
from fpga_pool.model.transaction import Transaction


def can_shape(tx: Transaction, job: Job) -> bool:
    """Return whether the stream of a job has planned rates, and the requester's host can limit it to them."""
    remote = job.requester != job.host and job.input_bytes > SMALL_INPUT_BYTES and bool(job.transfer)
    return remote and can_hold(tx, job)


def shape_flow(tx: Transaction, job: Job, source: str) -> None:
    """Make the requester's host limit the stream that the responder has seen from `source` to its planned rates.

    A connection carries the input of one job. A job seen from the same source earlier has lost its connection, so its
    flow is released.  The sources of servers are told apart by requester, because tenant networks may overlap.
    """
    if job.flow == source:
        return
    for other in tx.active_jobs(flow=source):
        apart = other.requester != job.requester and (server_of(other.requester) or server_of(job.requester))
        if other.host == job.host and other.state is JobState.WAITING_INPUT and not apart:
            release_flow(tx, other)
            tx.save(replace(other, flow=""))
    seen = replace(job, flow=source)
    tx.save(seen)
    hold_flow(tx, seen)


def hold_flow(tx: Transaction, job: Job) -> None:
    """Command the requester's host to limit the stream of a job to its plan."""
    responder = tx.host(job.host)
    source_address, _, source_port = job.flow.rpartition(":")
    dispatched_at = job.dispatched_at or job.created_at
    shape = ShapeFlow(
        job=job.uuid,
        attempt=job.attempt,
        source_address=source_address,
        source_port=int(source_port),
        destination_address=responder.data_address,
        destination_port=responder.data_port,
        dispatched_at=dispatched_at,
        transfer=job.transfer,
        server=server_of(job.requester),
    )
    _send_to_sender(tx, job, f"shape {job.generation}", shape)


def release_flow(tx: Transaction, job: Job) -> None:
    """Command the requester's host to forget the stream of a job."""
    release = ReleaseFlow(job=job.uuid, attempt=job.attempt)
    _send_to_sender(tx, job, f"release {job.generation}", release)


def _send_to_sender(tx: Transaction, job: Job, what: str, action: ShapeFlow | ReleaseFlow) -> None:
    """Send a command about a job's flow; its id is deterministic, because each command goes with a change of the job.

    Nothing is sent if the requester is a server that has ended: the limits of its flows ended with its taps.
    """
    host = sending_host(tx, job)
    if not host:
        return
    tx.send(
        Command(
            id=str(uuid.uuid5(uuid.UUID(action.job), what)),
            shard=tx.shard.name,
            epoch=tx.shard.epoch,
            host=host,
            slot="",
            sequence=0,
            action=action,
        )
    )
