"""Life cycles of a slot, by its agent's observations and the operator's requests, and of a lease on it.

The agent determines the observed state, so any state that it can report may follow any other; for example, a card may
have been unplugged and plugged in again in between.  The table only restricts the transitions that operators request:
a slot becomes DRAINED when nothing runs on it any more, and stays so until it is resumed.
"""

from dataclasses import replace

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import Action, SlotChanged
from fpga_pool.model.objects.pool import Lease, LeaseState, Slot, SlotState


class DrainRequested(Event, frozen=True, kw_only=True):
    """The operator requests that the slot finish its work and get no more."""

    reason: str


class DrainCompleted(Event, frozen=True, kw_only=True):
    """The last job has left the slot."""


class ResumeRequested(Event, frozen=True, kw_only=True):
    """The operator returns the slot to service."""


class HostLost(Event, frozen=True, kw_only=True):
    """The host of the slot has sent no heartbeat for too long, or its key was revoked."""


Outcome = tuple[Slot, list[Action]]


def _changed(slot: Slot, event: SlotChanged, now_s: float) -> Outcome:
    loads = event.state is SlotState.LOADING and slot.state is not SlotState.LOADING
    # The reason for a drain is shown until the slot is resumed; the reason for a fault is dropped with the fault.
    drained_for = slot.reason if slot.drain_requested and slot.state is not SlotState.FAULTED else ""
    changed = replace(
        slot,
        state=event.state,
        function=event.function,
        job=event.job,
        reason=event.reason or drained_for,
        reconfigurations=slot.reconfigurations + loads,
        loaded_at=_loaded_at(slot, event),
    )
    return changed, []


def _loaded_at(slot: Slot, event: SlotChanged) -> float | None:
    """Return when the function that the slot holds after the event was loaded; None if there is none."""
    if event.state is SlotState.LOADING or not event.function:
        return None
    loaded = slot.state is SlotState.LOADING or slot.function != event.function
    return event.at if loaded else slot.loaded_at


def _changed_while_drained(slot: Slot, event: SlotChanged, now_s: float) -> Outcome:
    changed, actions = _changed(slot, event, now_s)
    idle = event.state in (SlotState.EMPTY, SlotState.READY)
    return replace(changed, state=SlotState.DRAINED if idle else event.state), actions


def _resume_drained(slot: Slot, event: ResumeRequested, now_s: float) -> Outcome:
    state = SlotState.READY if slot.function else SlotState.EMPTY
    return replace(slot, state=state, drain_requested=False, reason=""), []


_RULES: dict[tuple[SlotState, type], Rule[Slot]] = {}
for _state in SlotState:
    _RULES[_state, SlotChanged] = _changed
    _RULES[_state, DrainRequested] = sets("reason", drain_requested=True)
    _RULES[_state, ResumeRequested] = sets(drain_requested=False, reason="")
    _RULES[_state, HostLost] = sets(
        state=SlotState.FAULTED, function="", job="", reason="its host is lost", loaded_at=None
    )
for _state in (SlotState.EMPTY, SlotState.READY):
    _RULES[_state, DrainCompleted] = sets(state=SlotState.DRAINED)
_RULES[SlotState.DRAINED, SlotChanged] = _changed_while_drained
_RULES[SlotState.DRAINED, ResumeRequested] = _resume_drained

SLOT = Table[Slot]("slot", _RULES, called_by="name")


# ---- Leases: HELD from the grant until they are released by the holder or revoked by a claim of higher rank


class LeaseReleased(Event, frozen=True, kw_only=True):
    """The holder no longer needs the slot, or has lost it."""


class LeaseBroken(Event, frozen=True, kw_only=True):
    """The instance cannot use the slot, because the slot has failed or does not hold the function."""

    reason: str


class LeaseRestored(Event, frozen=True, kw_only=True):
    """The instance can use the slot again."""


def _lease_broken(lease: Lease, event: LeaseBroken, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, broken=event.reason), []


def _lease_released(lease: Lease, event: LeaseReleased, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, state=LeaseState.RELEASED, released_at=now_s), []


_LEASE_RULES: dict[tuple[LeaseState, type], Rule[Lease]] = {
    (LeaseState.HELD, LeaseBroken): _lease_broken,
    (LeaseState.HELD, LeaseRestored): sets(broken=""),
    (LeaseState.HELD, LeaseReleased): _lease_released,
}

LEASE = Table[Lease]("lease", _LEASE_RULES)
