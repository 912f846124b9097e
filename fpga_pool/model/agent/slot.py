"""Life cycles of a slot on its agent (its current activity, and its state for the pool) and of a hold on it.

One executor acts on a slot, one instruction after the other, and each of its answers is an event here.  When the slot
is FREE, `machine.Agent` chooses the next activity by the slot's queue and hold.
"""

from typing import Any

import msgspec

from fpga_pool.model.agent.events import (
    CardSeen,
    ComputationEnded,
    ComputationFailed,
    ComputationOverdue,
    Loaded,
    LoadFailed,
    LoadRefused,
    Scrubbed,
    ScrubFailed,
)
from fpga_pool.model.agent.instructions import (
    AgentRule,
    AgentTable,
    BeginGuestUse,
    CheckCard,
    Compute,
    EndGuestUse,
    ForgetHold,
    Instruction,
    KeepHold,
    LoadSlot,
    Report,
    ReportLater,
    ScrubSlot,
    StopComputation,
)
from fpga_pool.model.agent.objects import UNKNOWN, Activity, AgentSlot, HeldJob, Hold, HoldState
from fpga_pool.model.fields import short_reason
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot, LoadFunction
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import changed

Outcome = tuple[AgentSlot, list[Instruction]]


class LoadBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is to load a function, for jobs or for the instance that it is prepared for."""

    function: str


class PreparationBegun(msgspec.Struct, frozen=True, kw_only=True):
    """An instance is to get the slot, which is scrubbed and then loaded."""

    hold: HoldSlot


class ComputationBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The slot begins to compute a job."""

    job: HeldJob


class UseBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The instance begins to use the slot."""

    hold: HoldSlot


class UseEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The instance that uses the slot no longer holds it."""


class RestBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The function that the instance needs cannot be loaded now."""

    after_s: float


class RestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The load is retried, or the slot gets something else to do."""


class AheadWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The pool requests the load of a function if the slot has nothing else to do now; None cancels the request."""

    action: LoadFunction | None


def _becomes(slot: AgentSlot, state: SlotState, function: str, now_s: float, **others: Any) -> Outcome:
    """Return the slot with another state for the pool, and the report on it."""
    known: dict[str, Any] = {"job": "", "attempt": 0, "reason": "", "unannounced": False}
    after = changed(slot, state=state, function=function, changed_at=now_s, **known | others)
    return after, [Report(after.report())]


def _fails(slot: AgentSlot, reason: str, now_s: float) -> Outcome:
    """Return the slot FAULTED, with unknown memory content."""
    guest: list[Instruction] = [EndGuestUse(slot.name)] if slot.lent_to is not None else []
    after, reports = _becomes(
        slot,
        SlotState.FAULTED,
        "",
        now_s,
        activity=Activity.FAULTED,
        reason=short_reason(reason),
        memory_of=UNKNOWN,
        preparing=None,
        lent_to=None,
        ahead=None,
    )
    waiting, check = _pause(after)
    return waiting, [*reports, *guest, *check]


def _pause(slot: AgentSlot) -> Outcome:
    """Have the slot checked after a pause, and double the pause for the next time, up to its maximum."""
    doubled_s = min(2 * slot.fault_pause_s, slot.parameters.fault_pause_s[1])
    return changed(slot, fault_pause_s=doubled_s), [CheckCard(slot.name, slot.fault_pause_s)]


# Loading and scrubbing -----------------------------------------------------------------------------------------


def _load(slot: AgentSlot, event: LoadBegun, now_s: float) -> Outcome:
    if not slot.loads:
        return _becomes(slot, SlotState.READY, event.function, now_s, preparing=None)
    after, reports = _becomes(
        slot, SlotState.LOADING, event.function, now_s, activity=Activity.LOADING, before=slot.function
    )
    return after, [*reports, LoadSlot(slot.name, event.function)]


def _loaded(slot: AgentSlot, event: Loaded, now_s: float) -> Outcome:
    free = {"activity": Activity.FREE, "before": "", "preparing": None}
    pause_s = slot.parameters.fault_pause_s[0]
    return _becomes(slot, SlotState.READY, slot.function, now_s, **free, fault_pause_s=pause_s)


def _load_refused(slot: AgentSlot, event: LoadRefused, now_s: float) -> Outcome:
    state = SlotState.READY if slot.before else SlotState.EMPTY
    return _becomes(slot, state, slot.before, now_s, activity=Activity.FREE, before="", preparing=None)


def _failed(slot: AgentSlot, event: LoadFailed | ScrubFailed, now_s: float) -> Outcome:
    return _fails(slot, event.reason, now_s)


def _prepare(slot: AgentSlot, event: PreparationBegun, now_s: float) -> Outcome:
    after = changed(slot, activity=Activity.SCRUBBING, preparing=event.hold, lent_to=None)
    return after, [EndGuestUse(slot.name), ScrubSlot(slot.name)]


def _scrubbed(slot: AgentSlot, event: Scrubbed, now_s: float) -> Outcome:
    scrubbed = changed(slot, activity=Activity.FREE, memory_of=None)
    if slot.preparing is None:
        return scrubbed, []
    # Load the function even if it is loaded already: this resets a function that guests control themselves.
    return _load(scrubbed, LoadBegun(function=slot.preparing.function), now_s)


# Computing -----------------------------------------------------------------------------------------------------


def _compute(slot: AgentSlot, event: ComputationBegun, now_s: float) -> Outcome:
    assignment = event.job.assignment
    after, _ = _becomes(
        slot,
        SlotState.BUSY,
        slot.function,
        now_s,
        activity=Activity.COMPUTING,
        job=assignment.job,
        attempt=assignment.attempt,
        memory_of=assignment.project_id,
    )
    limit_s = slot.parameters.hang_factor * assignment.expected_s + slot.parameters.hang_grace_s
    scrub = slot.memory_of is not None and slot.memory_of != assignment.project_id
    return after, [ReportLater(after.report()), Compute(slot.name, event.job, scrub, limit_s)]


def _computed(slot: AgentSlot, event: ComputationEnded, now_s: float) -> Outcome:
    after, _ = _becomes(slot, SlotState.READY, slot.function, now_s, activity=Activity.FREE, unannounced=True)
    return after, []


def _computation_failed(slot: AgentSlot, event: ComputationFailed, now_s: float) -> Outcome:
    if event.slot_failed:
        return _fails(slot, event.message, now_s)
    return _becomes(slot, SlotState.READY, slot.function, now_s, activity=Activity.FREE)


def _overdue(slot: AgentSlot, event: ComputationOverdue, now_s: float) -> Outcome:
    return slot, [StopComputation(slot.name, event.job, event.attempt)]


# Used by an instance -------------------------------------------------------------------------------------------


def _lend(slot: AgentSlot, event: UseBegun, now_s: float) -> Outcome:
    after = changed(slot, activity=Activity.LENT, lent_to=event.hold, memory_of=event.hold.instance)
    return after, [BeginGuestUse(slot.name, event.hold)]


def _take_back(slot: AgentSlot, event: UseEnded, now_s: float) -> Outcome:
    after = changed(slot, activity=Activity.SCRUBBING, lent_to=None)
    return after, [EndGuestUse(slot.name), ScrubSlot(slot.name)]


def _rest(slot: AgentSlot, event: RestBegun, now_s: float) -> Outcome:
    return changed(slot, activity=Activity.RESTING), [CheckCard(slot.name, event.after_s)]


def _rested(slot: AgentSlot, event: RestEnded, now_s: float) -> Outcome:
    return changed(slot, activity=Activity.FREE), []


# Checks of the card --------------------------------------------------------------------------------------------


def _seen(slot: AgentSlot, event: CardSeen, now_s: float) -> Outcome:
    """Update the slot by a check of its card, which may have failed, or returned after a moment with empty slots."""
    if not event.present:
        return _fails(slot, event.reason or "its card does not answer", now_s)
    # For a worker of the CPU pool, the software that was used last is irrelevant.
    state = SlotState.READY if event.function else SlotState.EMPTY
    if not slot.loads or (slot.state, slot.function) == (state, event.function):
        return slot, []
    return _becomes(slot, state, event.function, now_s, memory_of=UNKNOWN)


def _seen_after_fault(slot: AgentSlot, event: CardSeen, now_s: float) -> Outcome:
    """Offer the slot again if its card answers: the next load repairs it, or fails again."""
    if not event.present:
        return _pause(slot)
    return _becomes(slot, SlotState.EMPTY, "", now_s, activity=Activity.FREE)


def _seen_at_rest(slot: AgentSlot, event: CardSeen, now_s: float) -> Outcome:
    return _seen(changed(slot, activity=Activity.FREE), event, now_s)


def _ahead(slot: AgentSlot, event: AheadWanted, now_s: float) -> Outcome:
    return changed(slot, ahead=event.action), []


_RULES: dict[tuple[Activity, type], AgentRule[AgentSlot]] = {
    (Activity.FREE, LoadBegun): _load,
    (Activity.FREE, PreparationBegun): _prepare,
    (Activity.FREE, ComputationBegun): _compute,
    (Activity.FREE, UseBegun): _lend,
    (Activity.FREE, RestBegun): _rest,
    (Activity.FREE, CardSeen): _seen,
    (Activity.LOADING, Loaded): _loaded,
    (Activity.LOADING, LoadRefused): _load_refused,
    (Activity.LOADING, LoadFailed): _failed,
    (Activity.SCRUBBING, Scrubbed): _scrubbed,
    (Activity.SCRUBBING, ScrubFailed): _failed,
    (Activity.COMPUTING, ComputationEnded): _computed,
    (Activity.COMPUTING, ComputationFailed): _computation_failed,
    (Activity.COMPUTING, ComputationOverdue): _overdue,
    (Activity.LENT, PreparationBegun): _prepare,
    (Activity.LENT, UseBegun): _lend,
    (Activity.LENT, UseEnded): _take_back,
    (Activity.LENT, CardSeen): _seen,
    (Activity.RESTING, RestBegun): _rest,
    (Activity.RESTING, RestEnded): _rested,
    (Activity.RESTING, CardSeen): _seen_at_rest,
    (Activity.FAULTED, CardSeen): _seen_after_fault,
    **{(activity, AheadWanted): _ahead for activity in Activity},
}

SLOT = AgentTable[AgentSlot]("slot", "activity", "name", _RULES)


# ---- Holds: a slot is held for an instance from one command until another one frees it

HoldOutcome = tuple[Hold | None, list[Instruction]]


class PreparationBegan(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is going to be scrubbed and loaded for the instance, for the first time or again."""

    slot: str


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The slot has been scrubbed and loaded."""

    slot: str


class PreparationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The slot could not be scrubbed or loaded."""

    slot: str
    problem: str


class HoldRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is to be held, for the same use as before or for another one."""

    slot: str
    action: HoldSlot


class FreeRequested(msgspec.Struct, frozen=True, kw_only=True):
    """An instance no longer holds the slot."""

    slot: str
    action: FreeSlot


def _requested(hold: Hold, event: HoldRequested, now_s: float) -> HoldOutcome:
    """Hold the slot; if it is READY for the same use, it stays so, otherwise it is prepared."""
    same = hold.ready and _use(hold.action) == _use(event.action)
    after = Hold(action=event.action, state=HoldState.READY if same else HoldState.PREPARING)
    return after, [KeepHold(event.slot, after)]


def _hold_freed(hold: Hold, event: FreeRequested, now_s: float) -> HoldOutcome:
    """Release the hold, unless the command names another instance than the holder."""
    if hold.action.instance != event.action.instance:
        return hold, []
    return None, [ForgetHold(event.slot)]


def _hold_preparing(hold: Hold, event: PreparationBegan, now_s: float) -> HoldOutcome:
    if hold.state is HoldState.PREPARING:
        return hold, []
    after = changed(hold, state=HoldState.PREPARING, problem="")
    return after, [KeepHold(event.slot, after)]


def _hold_prepared(hold: Hold, event: Prepared, now_s: float) -> HoldOutcome:
    after = changed(hold, state=HoldState.READY)
    return after, [KeepHold(event.slot, after)]


def _troubled(hold: Hold, event: PreparationFailed, now_s: float) -> HoldOutcome:
    after = changed(hold, state=HoldState.TROUBLED, problem=event.problem)
    return after, [KeepHold(event.slot, after)]


def _use(action: HoldSlot) -> tuple[str, str, str]:
    return action.instance, action.project_id, action.function


_HOLD_RULES: dict[tuple[HoldState, type], AgentRule[Hold]] = {
    **{(state, HoldRequested): _requested for state in HoldState},
    **{(state, FreeRequested): _hold_freed for state in HoldState},
    **{(state, PreparationBegan): _hold_preparing for state in HoldState},
    (HoldState.PREPARING, Prepared): _hold_prepared,
    (HoldState.PREPARING, PreparationFailed): _troubled,
}

HOLD = AgentTable[Hold]("hold of instance", "state", "action.instance", _HOLD_RULES)
