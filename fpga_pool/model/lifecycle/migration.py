"""The life of a migration: every process is taken off its old processor before any is launched on its new one."""

from dataclasses import dataclass, replace

from fpga_pool.model.lifecycle.table import Rule, Table
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.gangs import Migration, MigrationState


@dataclass(frozen=True, slots=True, kw_only=True)
class AllSaved:
    """Nothing runs on the old processors any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllResumed:
    """All processes run on the new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFailed:
    """A process could not be saved or resumed, a host was lost, or the gang has ended."""

    reason: str


Outcome = tuple[Migration, list[Action]]


def _saved(migration: Migration, event: AllSaved, now_s: float) -> Outcome:
    return replace(migration, state=MigrationState.RESUMING), []


def _resumed(migration: Migration, event: AllResumed, now_s: float) -> Outcome:
    return replace(migration, state=MigrationState.COMPLETED, ended_at=now_s), []


def _failed(migration: Migration, event: MigrationFailed, now_s: float) -> Outcome:
    return replace(migration, state=MigrationState.FAILED, reason=event.reason, ended_at=now_s), []


_RULES: dict[tuple[MigrationState, type], Rule[Migration]] = {
    (MigrationState.SAVING, AllSaved): _saved,
    (MigrationState.RESUMING, AllResumed): _resumed,
    (MigrationState.SAVING, MigrationFailed): _failed,
    (MigrationState.RESUMING, MigrationFailed): _failed,
}

MIGRATION = Table[Migration]("migration", _RULES)
