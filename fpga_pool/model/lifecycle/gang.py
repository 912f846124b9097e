"""Life cycles of a gang (queued, in the background, in the foreground or moving) and of a migration.

Each kind of move that a policy decides is one event here; `model.rules.gang.changes` updates the processes accordingly.
"""

from dataclasses import replace

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.gangs import Gang, GangState, Migration, MigrationState
from fpga_pool.model.values import changed


class StartedBehind(Event, frozen=True, kw_only=True):
    """The gang got processors in the background."""

    #: End of its trial, during which it has the higher priority there; None = no trial.
    trial_ends_at: float | None = None


class StartedInFront(Event, frozen=True, kw_only=True):
    """The gang got processors in the foreground."""

    ends_at: float


class Swapped(Event, frozen=True, kw_only=True):
    """The gang was moved to the foreground of its present processors."""

    ends_at: float


class MoveBegun(Event, frozen=True, kw_only=True):
    """The gang begins to migrate to the foreground of other processors."""

    ends_at: float


class MoveEnded(Event, frozen=True, kw_only=True):
    """All processes of the gang run on the processors that it migrates to."""


class Killed(Event, frozen=True, kw_only=True):
    """The policy restarts the gang from the beginning, in the foreground of other processors."""

    ends_at: float


class Displaced(Event, frozen=True, kw_only=True):
    """The gang has lost its processors because of a failure, and will restart from the beginning."""

    reason: str


class TrialEnded(Event, frozen=True, kw_only=True):
    """The trial of the gang in the background has ended: it has the lower priority from now on."""


class GaveWay(Event, frozen=True, kw_only=True):
    """The gang in the foreground yields its priority to the trial of a gang in the background of its processors."""

    for_s: float


class Completed(Event, frozen=True, kw_only=True):
    """All processes of the gang have completed their work."""

    #: Run time in seconds on dedicated processors.
    ran_s: float


class GangCancelRequested(Event, frozen=True, kw_only=True):
    """The tenant requests the cancellation of the gang."""


class GangCancelled(Event, frozen=True, kw_only=True):
    """Nothing is left of a gang whose cancellation was requested."""


class GangGaveUp(Event, frozen=True, kw_only=True):
    """The gang failed too often."""

    reason: str


Outcome = tuple[Gang, list[Action]]


def _accounted(gang: Gang, now_s: float) -> Gang:
    """Add the time that a gang has had its processors since it entered its present tier."""
    if gang.tier_since is None:
        return gang
    had_s = gang.processes * max(now_s - gang.tier_since, 0.0)
    if gang.state is GangState.BACKGROUND:
        return changed(gang, background_s=gang.background_s + had_s, tier_since=now_s)
    return changed(gang, foreground_s=gang.foreground_s + had_s, tier_since=now_s)


def _placed(gang: Gang, state: GangState, ends_at: float | None, now_s: float) -> Gang:
    return changed(
        _accounted(gang, now_s),
        state=state,
        attempt=gang.attempt + 1,
        ends_at=ends_at,
        reason="",
        tier_since=now_s,
        started_at=now_s if gang.started_at is None else gang.started_at,
    )


def _started_behind(gang: Gang, event: StartedBehind, now_s: float) -> Outcome:
    return changed(_placed(gang, GangState.BACKGROUND, None, now_s), trial_ends_at=event.trial_ends_at), []


def _started_in_front(gang: Gang, event: StartedInFront, now_s: float) -> Outcome:
    return _placed(gang, GangState.FOREGROUND, event.ends_at, now_s), []


def _swapped(gang: Gang, event: Swapped, now_s: float) -> Outcome:
    gang = _accounted(gang, now_s)
    return changed(gang, state=GangState.FOREGROUND, ends_at=event.ends_at, swaps=gang.swaps + 1), []


def _move_begun(gang: Gang, event: MoveBegun, now_s: float) -> Outcome:
    moving = _placed(gang, GangState.MOVING, event.ends_at, now_s)
    return changed(moving, migrations=gang.migrations + 1), []


def _killed(gang: Gang, event: Killed, now_s: float) -> Outcome:
    return changed(_placed(gang, GangState.FOREGROUND, event.ends_at, now_s), kills=gang.kills + 1), []


def _gave_way(gang: Gang, event: GaveWay, now_s: float) -> Outcome:
    ends_at = now_s if gang.ends_at is None else gang.ends_at
    return changed(gang, ends_at=ends_at + event.for_s, gave_way_s=gang.gave_way_s + event.for_s), []


def _displaced(gang: Gang, event: Displaced, now_s: float) -> Outcome:
    queued = changed(
        _accounted(gang, now_s),
        state=GangState.QUEUED,
        ends_at=None,
        tier_since=None,
        gave_way_s=0.0,
        failures=gang.failures + 1,
        reason=event.reason,
    )
    return queued, []


def _ended(gang: Gang, state: GangState, now_s: float, reason: str = "") -> Outcome:
    ended = changed(_accounted(gang, now_s), state=state, ended_at=now_s, ends_at=None, tier_since=None, reason=reason)
    return ended, []


def _completed(gang: Gang, event: Completed, now_s: float) -> Outcome:
    return _ended(changed(gang, ran_s=event.ran_s), GangState.COMPLETED, now_s)


def _cancelled(gang: Gang, event: GangCancelled, now_s: float) -> Outcome:
    return _ended(gang, GangState.CANCELLED, now_s)


def _gave_up(gang: Gang, event: GangGaveUp, now_s: float) -> Outcome:
    return _ended(gang, GangState.FAILED, now_s, event.reason)


_QUEUED, _BACKGROUND, _FOREGROUND, _MOVING = (
    GangState.QUEUED,
    GangState.BACKGROUND,
    GangState.FOREGROUND,
    GangState.MOVING,
)

_RULES: dict[tuple[GangState, type], Rule[Gang]] = {
    (_QUEUED, StartedBehind): _started_behind,
    (_QUEUED, StartedInFront): _started_in_front,
    (_BACKGROUND, Swapped): _swapped,
    (_BACKGROUND, MoveBegun): _move_begun,
    (_BACKGROUND, Killed): _killed,
    (_MOVING, MoveEnded): sets(state=GangState.FOREGROUND),
    (_BACKGROUND, TrialEnded): sets(trial_ends_at=None),
    **{(state, GaveWay): _gave_way for state in (_FOREGROUND, _MOVING)},
    **{(state, Displaced): _displaced for state in (_BACKGROUND, _FOREGROUND, _MOVING)},
    **{(state, Completed): _completed for state in (_BACKGROUND, _FOREGROUND, _MOVING)},
    **{
        (state, GangCancelRequested): sets(cancel_requested=True)
        for state in (_QUEUED, _BACKGROUND, _FOREGROUND, _MOVING)
    },
    **{(state, GangCancelled): _cancelled for state in (_QUEUED, _BACKGROUND, _FOREGROUND, _MOVING)},
    (_QUEUED, GangGaveUp): _gave_up,
}

GANG = Table[Gang]("gang", _RULES)


# ---- Migrations: all processes are saved on their old processors before any is launched on its new one


class AllSaved(Event, frozen=True, kw_only=True):
    """All processes on the old processors have been saved."""


class AllResumed(Event, frozen=True, kw_only=True):
    """All processes run on the new processors."""


class MigrationFailed(Event, frozen=True, kw_only=True):
    """A process could not be saved or resumed, a host was lost, or the gang has ended."""

    reason: str


MigrationOutcome = tuple[Migration, list[Action]]


def _all_resumed(migration: Migration, event: AllResumed, now_s: float) -> MigrationOutcome:
    return replace(migration, state=MigrationState.COMPLETED, ended_at=now_s), []


def _migration_failed(migration: Migration, event: MigrationFailed, now_s: float) -> MigrationOutcome:
    return replace(migration, state=MigrationState.FAILED, reason=event.reason, ended_at=now_s), []


_MIGRATION_RULES: dict[tuple[MigrationState, type], Rule[Migration]] = {
    (MigrationState.SAVING, AllSaved): sets(state=MigrationState.RESUMING),
    (MigrationState.RESUMING, AllResumed): _all_resumed,
    (MigrationState.SAVING, MigrationFailed): _migration_failed,
    (MigrationState.RESUMING, MigrationFailed): _migration_failed,
}

MIGRATION = Table[Migration]("migration", _MIGRATION_RULES)
