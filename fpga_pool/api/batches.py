"""Batches: ``/v1/batches``."""

import base64
import ipaddress
import json
import math
import uuid
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, current_app, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from fpga_pool.api import schemas, views
from fpga_pool.api.errors import known_uuid, own_or_new_uuid, page_limit, page_marker, scheduler, tenant
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import TicketRequest
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch.admission import BatchRequest, JobRequest
from fpga_pool.rpc.scheduler_api import LONGEST_WAIT_S

batches = Blueprint("batches", __name__, url_prefix="/v1/batches")


@batches.get("")
def list_batches() -> ResponseReturnValue:
    """List the project's batches, newest first, a page at a time."""
    limit = page_limit(request.args.get("limit"))
    marker = page_marker(request.args.get("marker"))
    found = scheduler().batches(tenant().project_id, limit, marker)
    answer: dict[str, Any] = {"batches": [views.batch(batch) for batch in found], "links": []}
    if len(found) == limit:
        href = url_for(".list_batches", limit=limit, marker=found[-1].uuid)
        answer["links"].append({"rel": "next", "href": href})
    return jsonify(answer)


@batches.post("")
def create() -> ResponseReturnValue:
    """Take a new batch; once this is answered it will not be lost."""
    document = schemas.body()
    _check_number_of_jobs(document)
    wanted = schemas.check(schemas.BATCH, document)
    batch = scheduler().create_batch(_batch_request(wanted))
    location = url_for(".show", batch_uuid=batch.uuid)
    return jsonify({"batch": views.batch(batch)}), 201, {"Location": location}


@batches.get("/<batch_uuid>")
def show(batch_uuid: str) -> ResponseReturnValue:
    """Show one batch, with its history."""
    batch = scheduler().batch(tenant().project_id, known_uuid("batch", batch_uuid))
    return jsonify({"batch": {**views.batch(batch), "history": views.history(batch.history)}})


@batches.delete("/<batch_uuid>")
def cancel(batch_uuid: str) -> ResponseReturnValue:
    """Ask for the end of a batch; it is over when its state says so."""
    batch = scheduler().cancel_batch(tenant().project_id, known_uuid("batch", batch_uuid))
    return jsonify({"batch": views.batch(batch)}), 202


@batches.get("/<batch_uuid>/jobs")
def jobs(batch_uuid: str) -> ResponseReturnValue:
    """List the jobs of a batch, by index; `at` is the time in the pool, on the clock of all the times in it.

    With `changed_after`, the `seen` of an earlier answer (or nothing), those that have changed since; where none has,
    the answer comes when one does, or after `wait_s`.
    """
    found = scheduler().batch_jobs(
        tenant().project_id,
        known_uuid("batch", batch_uuid),
        [_state(text) for text in request.args.getlist("state")],
        _seen(request.args.get("changed_after")),
        _wait_s(request.args.get("wait_s", "0")),
    )
    shown = [views.job(job) for job in found.jobs]
    return jsonify({"jobs": shown, "seen": _shown_seen(found.seen), "at": views.time(found.at)})


@batches.post("/<batch_uuid>/tickets")
def tickets(batch_uuid: str) -> ResponseReturnValue:
    """Give leave to move the bytes of jobs; a ticket holds a secret and is for once."""
    wanted = schemas.check(schemas.TICKETS, schemas.body())["tickets"]
    requests = [
        TicketRequest(
            job=str(uuid.UUID(item["job"])),
            purpose=item["purpose"],
            source_address=_address(item["source_address"]),
            source_port=int(item["source_port"]),
        )
        for item in wanted
    ]
    given = scheduler().tickets(tenant().project_id, known_uuid("batch", batch_uuid), requests)
    return jsonify({"tickets": [views.ticket(ticket) for ticket in given]}), 200, {"Cache-Control": "no-store"}


def _check_number_of_jobs(document: Any) -> None:
    """Refuse a batch that is too large before each of its jobs is looked at."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    most = current_app.config["MAX_BATCH_JOBS"]
    if isinstance(jobs, list) and len(jobs) > most:
        raise InvalidInput(f"jobs: {len(jobs)} jobs in one batch, at most {most} are accepted; split the batch")


def _batch_request(wanted: dict[str, Any]) -> BatchRequest:
    return BatchRequest(
        uuid=own_or_new_uuid(wanted),
        project_id=tenant().project_id,
        user_id=tenant().user_id,
        name=wanted.get("name", ""),
        policy=wanted.get("policy", ""),
        jobs=tuple(
            JobRequest(
                uuid=own_or_new_uuid(job),
                name=job.get("name", ""),
                function=job["function"],
                requester=job["requester"],
                input_bytes=int(job["input_bytes"]),
            )
            for job in wanted["jobs"]
        ),
    )


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise InvalidInput(f"source_address: expected an IP address, found {text[:60]!r}") from None
    return text


def _state(text: str) -> JobState:
    try:
        return JobState(text.upper())
    except ValueError:
        raise InvalidInput(f"state: expected one of {', '.join(JobState)}, found {text[:20]!r}") from None


def _shown_seen(seen: Mapping[str, int]) -> str:
    """Return the state that was seen as one opaque token."""
    return base64.urlsafe_b64encode(json.dumps(dict(seen)).encode()).decode()


def _seen(text: str | None) -> dict[str, int] | None:
    if not text:
        return None if text is None else {}
    try:
        seen = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, RecursionError):
        seen = None
    if not isinstance(seen, dict) or not all(type(n) is int and 0 <= n < 2**63 for n in seen.values()):
        raise InvalidInput(f"changed_after: expected the `seen` value of an earlier response, found {text[:20]!r}")
    return seen


def _wait_s(text: str) -> float:
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = math.nan
    if not 0 <= wait_s <= LONGEST_WAIT_S:
        raise InvalidInput(f"wait_s: expected 0 to {LONGEST_WAIT_S:g}, found {text[:20]!r}")
    return wait_s
