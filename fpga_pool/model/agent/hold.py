"""The life of a hold: a slot is kept for an instance from one command to another."""

import msgspec

from fpga_pool.model.agent.instructions import ForgetHold, Instruction, KeepHold
from fpga_pool.model.agent.objects import Hold, HoldState
from fpga_pool.model.agent.table import AgentRule, AgentTable
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot
from fpga_pool.model.values import changed

Outcome = tuple[Hold | None, list[Instruction]]


class PreparationBegan(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is scrubbed and loaded for the instance, for the first time or again."""

    slot: str


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is scrubbed and loaded."""

    slot: str


class PreparationFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The slot could not be scrubbed or loaded."""

    slot: str
    problem: str


class HoldRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The slot is to be kept: for the same use, or for another one."""

    slot: str
    action: HoldSlot


class FreeRequested(msgspec.Struct, frozen=True, kw_only=True):
    """An instance does not hold the slot any more."""

    slot: str
    action: FreeSlot


def _requested(hold: Hold, event: HoldRequested, now_s: float) -> Outcome:
    """Keep the slot; requested again for the same use, one that is ready stays so."""
    same = hold.ready and _use(hold.action) == _use(event.action)
    after = Hold(action=event.action, state=HoldState.READY if same else HoldState.PREPARING)
    return after, [KeepHold(event.slot, after)]


def _freed(hold: Hold, event: FreeRequested, now_s: float) -> Outcome:
    """Let the slot go, but not in the name of another instance."""
    if hold.action.instance != event.action.instance:
        return hold, []
    return None, [ForgetHold(event.slot)]


def _preparing(hold: Hold, event: PreparationBegan, now_s: float) -> Outcome:
    if hold.state is HoldState.PREPARING:
        return hold, []
    after = changed(hold, state=HoldState.PREPARING, problem="")
    return after, [KeepHold(event.slot, after)]


def _prepared(hold: Hold, event: Prepared, now_s: float) -> Outcome:
    after = changed(hold, state=HoldState.READY)
    return after, [KeepHold(event.slot, after)]


def _troubled(hold: Hold, event: PreparationFailed, now_s: float) -> Outcome:
    after = changed(hold, state=HoldState.TROUBLED, problem=event.problem)
    return after, [KeepHold(event.slot, after)]


def _use(action: HoldSlot) -> tuple[str, str, str]:
    return action.instance, action.project_id, action.function


_RULES: dict[tuple[HoldState, type], AgentRule[Hold]] = {
    **{(state, HoldRequested): _requested for state in HoldState},
    **{(state, FreeRequested): _freed for state in HoldState},
    **{(state, PreparationBegan): _preparing for state in HoldState},
    (HoldState.PREPARING, Prepared): _prepared,
    (HoldState.PREPARING, PreparationFailed): _troubled,
}

HOLD = AgentTable[Hold]("hold of instance", "state", "action.instance", _RULES)
