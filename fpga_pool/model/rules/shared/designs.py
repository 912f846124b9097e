"""Designs of tenants: their storage, approval and functions, and the consequences of their withdrawal."""

import hashlib
from collections.abc import Callable, Collection, Iterable

from fpga_pool.model.catalogue import Catalogue, checked_function
from fpga_pool.model.exceptions import Conflict, InvalidCatalogue, InvalidInput, NotFound, UnknownFunction
from fpga_pool.model.lifecycle.design import DESIGN, Approved, MadePrivate, Published, Rejected, Revoked
from fpga_pool.model.lifecycle.job import GaveUp
from fpga_pool.model.messages.agents import LoadFunction
from fpga_pool.model.messages.work import DesignChange, DesignRequest
from fpga_pool.model.objects.bitstreams import (
    Design,
    DesignManifest,
    DesignState,
    function_of,
    is_design,
)
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.pool import Job, JobState, SlotState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.batch.placing import usable
from fpga_pool.model.rules.shared.changes import change_job, send
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import counted

#: Error code of jobs whose function was withdrawn.
WITHDRAWN = "fpga_pool.design_withdrawn"
_DECISIONS = {"APPROVED": Approved, "REJECTED": Rejected, "REVOKED": Revoked}
#: States of designs that may have been loaded.
DECIDED = (DesignState.APPROVED, DesignState.REVOKED)


def create_design(
    tx: Transaction, request: DesignRequest, catalogue: Catalogue, now_s: float, signer: str = "", *, approve: bool
) -> Design:
    """Store a design, which waits for a decision unless `approve`; the caller stores the bitstream itself.

    `signer` is the trusted signer of the bitstream.  Raises InvalidInput, or a subclass, naming the invalid field.
    """
    manifest = DesignManifest(**{name: getattr(request, name) for name in DesignManifest.__struct_fields__})
    if manifest.simulates not in catalogue.functions:
        known = ", ".join(catalogue.functions)
        raise UnknownFunction(f"simulates: {manifest.simulates!r} is not in the catalogue; known: {known}")
    try:
        region_bytes = catalogue.board(manifest.board).regions[manifest.kind].bitstream_bytes
    except (NotFound, KeyError):
        raise InvalidInput(f"kind: no board {manifest.board!r} with slots of kind {manifest.kind!r}") from None
    if len(request.bitstream) > region_bytes:
        raise InvalidInput(
            f"bitstream: {len(request.bitstream)} bytes, a bitstream for this kind has at most {region_bytes}"
        )
    design = Design(
        uuid=request.uuid,
        project_id=request.project_id,
        user_id=request.user_id,
        function=function_of(manifest.name, request.uuid),
        manifest=manifest,
        size_bytes=len(request.bitstream),
        sha256=hashlib.sha256(request.bitstream).hexdigest(),
        created_at=now_s,
        signer=signer,
        history=created(now_s, DesignState.SUBMITTED),
    )
    try:
        checked_function(catalogue, design)
    except InvalidCatalogue as error:
        raise InvalidInput(str(error)) from None
    if approve:
        design, _ = DESIGN.transition(design, Approved(reason=f"signed by {signer}"), now_s)
    tx.add(design)
    return design


def visible_design(tx: Transaction, uuid: str, project_id: str | None) -> Design:
    """Return a design of the project (None = any), or a public one. Raises NotFound for all others."""
    design = tx.design(uuid)
    if project_id not in (None, design.project_id) and not design.public:
        raise NotFound(f"no design {uuid}")
    return design


def unused_design(tx: Transaction, uuid: str, project_id: str | None, jobs: Callable[[str], int], seen: Seen) -> Design:
    """Return a design of the project (None = any) that may be removed; `jobs` counts the open jobs of a function.

    Raises Conflict if jobs of its function have not ended, or instances hold slots with it, in any state of the design.
    """
    design = tx.design(uuid) if project_id is None else visible_design(tx, uuid, project_id)
    if project_id not in (None, design.project_id):
        raise NotFound(f"no design {uuid} of this project")
    require_seen(design, seen)
    if count := jobs(design.function):
        raise Conflict(f"design {uuid}: {counted(count, 'job')} of {design.function} must end first; cancel them")
    if holders := {lease.holder for lease in tx.leases() if lease.function == design.function}:
        held_by = counted(len(holders), "instance")
        raise Conflict(f"design {uuid}: {held_by} of {design.function} must be deleted first")
    return design


def change_design(tx: Transaction, uuid: str, change: DesignChange, now_s: float, seen: Seen = None) -> Design:
    """Decide on a design. Raises InvalidTransition if the decision is not possible in its state."""
    design = tx.design(uuid)
    require_seen(design, seen)
    events: list[object] = [] if change.state is None else [_DECISIONS[change.state](reason=change.reason)]
    if change.public is not None:
        events.append((Published if change.public else MadePrivate)(reason=change.reason))
    for event in events:
        design, _ = DESIGN.transition(design, event, now_s)
    if events:
        tx.save(design)
    return tx.design(uuid)


# ---- Withdrawal


def withdraw(
    tx: Transaction, jobs: Iterable[Job], approved: Collection[str], catalogue: Catalogue, now_s: float
) -> int:
    """End these jobs of withdrawn designs, unless they already compute, and overwrite such designs in slots.

    Free slots that hold the function of a design that is not `approved` load one of the catalogue instead.  Returns
    the number of jobs that were ended and slots that will be overwritten.
    """
    ended = [job for job in jobs if job.state in (JobState.PENDING, JobState.WAITING_INPUT, JobState.STAGED)]
    for job in ended:
        reason = f"function {job.function} was revoked, or its design deleted"
        change_job(tx, tx.job(job.uuid), GaveUp(code=WITHDRAWN, reason=reason), now_s)
    slots = [
        slot
        for slot in tx.slots()
        if slot.state is SlotState.READY and is_design(slot.function) and slot.function not in approved
    ]
    names = [slot.name for slot in slots]
    taken = {lease.slot for lease in tx.leases(slots=names)} | tx.occupied(names) if names else set()
    overwritten = 0
    for slot in slots:
        others = (name for name in sorted(catalogue.functions) if catalogue.fits(name, slot.board, slot.kind))
        function = next(others, None)
        if function is not None and usable(slot, tx.host(slot.host), taken):
            send(tx, slot.name, LoadFunction(function=function, replaces=slot.function))
            overwritten += 1
    return len(ended) + overwritten
