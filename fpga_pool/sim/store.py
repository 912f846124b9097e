"""The pool's objects in memory, with an index for all lookups other than by name."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.gangs import ENDED_GANGS, LIVE_PROCESSES, Gang, Process
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    Batch,
    BatchState,
    Host,
    Job,
    JobState,
    Lease,
    LeaseState,
    Run,
    Shard,
)
from fpga_pool.model.objects.tasks import ENDED_TASKS, Task
from fpga_pool.sim.store_transaction import MemoryTransaction, key_of

#: Group of all work that has not ended, including results not yet fetched.
_OPEN = ("open", "")


class Index:
    """Objects by group, and by name within each group, for lookups other than by name.

    Without the index, every lookup of the jobs of a slot would scan all jobs ever stored.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], dict[str, Any]] = {}

    def replace(self, key: str, before: Any, after: Any) -> None:
        """Replace the object under a key; `before` is None for a new object, `after` is None for a removed one."""
        was, now = _groups_of(before), _groups_of(after)
        for group in was:
            if group not in now:
                members = self._groups[group]
                del members[key]
                if not members:
                    del self._groups[group]
        for group in now:
            self._groups.setdefault(group, {})[key] = after

    def members(self, noun: str, of: str = "") -> list[Any]:
        """Return the members of a group, in the order in which they joined it."""
        return list(self._groups.get((noun, of), {}).values())


def _groups_of(thing: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(thing, Job):
        batch = ("batch", thing.batch_uuid)
        if thing.state is JobState.PENDING:
            return batch, _OPEN, ("pending", "")
        if thing.state in ACTIVE_JOBS:
            return batch, _OPEN, ("active", ""), ("slot", thing.slot)
        return (batch, _OPEN, ("held", thing.host)) if thing.state is JobState.RESULT_HELD else (batch,)
    if isinstance(thing, Batch):
        return (("waiting", ""),) if thing.waits_for and thing.state is BatchState.PENDING else ()
    if isinstance(thing, Lease):
        return (("lease", ""), ("lease", thing.slot)) if thing.state is LeaseState.HELD else ()
    if isinstance(thing, Process):
        live = thing.state in LIVE_PROCESSES
        return (_OPEN, ("process", ""), ("process", thing.gang_uuid)) if live else ()
    if isinstance(thing, Gang):
        return (_OPEN, ("gang", "")) if thing.state not in ENDED_GANGS else ()
    if isinstance(thing, Task):
        return (_OPEN, ("task", "")) if thing.state not in ENDED_TASKS else ()
    return ()


T = TypeVar("T")


class MemoryStore:
    """All objects of one simulated pool, and its outbox.

    Transactions are serial, in a single thread.  A transaction that fails is undone completely.
    """

    def __init__(self) -> None:
        self._tables: dict[type, dict[str, Any]] = {}
        self._index = Index()
        self.outbox: list[Command] = []
        self.time_models: dict[tuple[str, str], TimeModel] = {}
        self._shards: dict[str, Shard] = {}
        #: Number of transactions that have changed anything other than hosts (their last heartbeats).
        self.changes = 0
        #: Called for each object that a transaction has changed, with the object before (None if new) and after.
        self.watch: Callable[[Any, Any], None] | None = None
        #: Replacements of the current transaction, oldest first: kind, key, the object before (None if new).
        self._replaced: list[tuple[type, str, Any]] = []

    def acquire_shard(self, name: str, owner: str, now_s: float) -> Shard:
        """Make `owner` the owner of a shard, in a new epoch; a simulation has no contention."""
        held = self._shards.get(name, Shard(name=name, owner="", epoch=0, renewed_at=now_s))
        self._shards[name] = replace(held, owner=owner, epoch=held.epoch + 1, renewed_at=now_s)
        return self._shards[name]

    @contextmanager
    def transaction(self, shard: str, owner: str, epoch: int) -> Iterator[MemoryTransaction]:
        """Begin a transaction on a shard; raises StaleEpoch if the shard has another owner or epoch."""
        held = self._shards.get(shard)
        if held is None or (held.owner, held.epoch) != (owner, epoch):
            raise StaleEpoch(f"shard {shard}: {owner} does not own it in epoch {epoch}")
        self._replaced, outbox = [], list(self.outbox)
        try:
            yield MemoryTransaction(self, held)
        except BaseException:
            self._undo()
            self.outbox[:] = outbox
            raise
        self._shards[shard] = replace(held, pool_generation=held.pool_generation + 1)
        self.changes += any(kind is not Host for kind, _, _ in self._replaced)
        if self.watch is not None:
            first = {(kind, key): before for kind, key, before in reversed(self._replaced)}
            for kind, key in dict.fromkeys((kind, key) for kind, key, _ in self._replaced):
                if (after := self._tables[kind].get(key)) is not None:
                    self.watch(first[kind, key], after)

    @contextmanager
    def reading(self) -> Iterator[MemoryTransaction]:
        """Begin a read-only transaction on no shard, which sees the whole pool."""
        yield MemoryTransaction(self, Shard(name="", owner="", epoch=0, renewed_at=0.0))

    @contextmanager
    def trial(self) -> Iterator[MemoryTransaction]:
        """Begin a transaction on no shard; its changes are undone at the end."""
        self._replaced = []
        try:
            yield MemoryTransaction(self, Shard(name="", owner="", epoch=0, renewed_at=0.0))
        finally:
            self._undo()

    @property
    def shards(self) -> list[Shard]:
        """All shards."""
        return list(self._shards.values())

    def undelivered(self, shard: str, limit: int) -> list[Command]:
        return [command for command in self.outbox if command.shard == shard][:limit]

    def delivered(self, shard: str, owner: str, epoch: int, ids: Collection[str]) -> None:
        del owner, epoch  # one thread: the shard cannot have been taken between two events
        self.outbox[:] = [command for command in self.outbox if command.shard != shard or command.id not in ids]

    def get(self, kind: type[T], key: str) -> T | None:
        """Return one object."""
        found: T | None = self._tables.get(kind, {}).get(key)
        return found

    def all(self, kind: type[T]) -> list[T]:
        """Return all objects of a kind."""
        return list(self._tables.get(kind, {}).values())

    def table(self, kind: type[T]) -> Mapping[str, T]:
        """Return all objects of a kind, by name."""
        return self._tables.get(kind, {})

    def put(self, thing: Any) -> None:
        """Store an object."""
        key = thing.job if isinstance(thing, Run) else key_of(thing)
        table = self._tables.setdefault(type(thing), {})
        before = table.get(key)
        self._replaced.append((type(thing), key, before))
        table[key] = thing
        self._index.replace(key, before, thing)

    def remove(self, kind: type, key: str) -> None:
        """Remove an object, if it exists."""
        before = self._tables.get(kind, {}).pop(key, None)
        if before is not None:
            self._replaced.append((kind, key, before))
            self._index.replace(key, before, None)

    def members(self, noun: str, of: str = "") -> list[Any]:
        """Return the objects of a group of the index."""
        return self._index.members(noun, of)

    def _undo(self) -> None:
        for kind, key, before in reversed(self._replaced):
            self._index.replace(key, self._tables[kind].get(key), before)
            if before is None:
                self._tables[kind].pop(key, None)
            else:
                self._tables[kind][key] = before
