"""The store's cache of hosts, slots, leases, jobs and designs, so that not every transaction has to read them.

All but designs change only in transactions on their shard, each of which increments the shard's generation.  Objects
read or committed in one generation are valid as long as the shard has that generation, so a transaction reads the
generations and takes the objects from the cache.  If another process has changed the shard, its generation differs and
the shard is read again.  Designs belong to no shard: a change of a design counts as a change of every shard.

The last heartbeat of a host (`Host.beat`, `Host.heard_at`) is an exception: it is stored without a transaction on the
shard, and a caller that needs it calls `host(name, heard=True)`.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, Select

from fpga_pool.model.objects.bitstreams import Design, DesignState
from fpga_pool.model.objects.pool import ACTIVE_JOBS, ENDED_JOBS, Host, Job, JobState, Lease, Slot
from fpga_pool.model.transaction import Backlog, backlogs_of
from fpga_pool.store import statements
from fpga_pool.store.reads import Reads
from fpga_pool.store.statements import Scoped

ValueT = TypeVar("ValueT")

#: Maximum number of jobs under way that are cached for a shard; those that changed last are kept.
JOBS = 4096
#: Minimum number of generations between two reads of all jobs under way of a shard for the cache, as these are useless
#: if another process changes the shard, too; the same after there were too many jobs; maximum number of jobs read.
JOBS_READ_EVERY, TOO_MANY_JOBS_EVERY, JOBS_READ = 100, 10_000, JOBS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMemory:
    """Cached values of a shard in one generation: hosts and slots in order of names, leases in force, some jobs."""

    generation: int
    #: By class and key (leases: by slot).
    values: Mapping[type, Mapping[str, Any]]
    #: Backlogs of the slots; None = not read in this generation.
    backlogs: Sequence[Backlog] | None = None
    #: Whether the values contain all jobs under way: they were read, and all that began later were added.
    has_all_jobs: bool = False
    #: Functions of designs, by requested states; valid because a change of a design counts as a change of every shard.
    designs: Mapping[frozenset[DesignState], Sequence[str]] = field(default_factory=dict)

    def jobs_under_way(self) -> Iterator[tuple[str, Job]]:
        """Yield the uuid and the job of each cached job under way."""
        jobs: Mapping[str, Job] = self.values[Job]
        return ((uuid, job) for uuid, job in jobs.items() if job.state in ACTIVE_JOBS)


class Memory:
    """Cache of the shards in their last known generations; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[str, ShardMemory] = {}
        #: By shard: the generation from which on its jobs under way may be read again.
        self._jobs_read_from: dict[str, int] = {}

    def at(self, generations: Mapping[str, int] | None) -> dict[str, ShardMemory]:
        """Return the cached shards with exactly these generations; None = in any generation."""
        with self._lock:
            known = self._shards.items()
            return {
                name: shard for name, shard in known if generations is None or shard.generation == generations.get(name)
            }

    def learn(self, name: str, found: ShardMemory) -> None:
        """Cache a shard that was read, unless the same or a later generation is cached."""
        with self._lock:
            known = self._shards.get(name)
            if known is None or known.generation < found.generation:
                self._shards[name] = found

    def follow(self, name: str, generation: int, changes: Mapping[type, Mapping[str, Any]] | None) -> None:
        """Apply the changes that a transaction has committed to a shard in this generation; None = drop the shard.

        The changes are by class and key (leases: by slot); the value None removes an entry from the cache.
        """
        with self._lock:
            known = self._shards.get(name)
            if known is None or known.generation != generation:
                return
            if changes is None:
                del self._shards[name]
                return
            values = {cls: _with(of_class, changes.get(cls)) for cls, of_class in known.values.items()}
            has_all_jobs = known.has_all_jobs and len(values[Job]) <= JOBS
            if len(values[Job]) > JOBS:
                values[Job] = dict(list(values[Job].items())[-JOBS // 2 :])
            self._shards[name] = ShardMemory(
                generation=generation + 1, values=values, has_all_jobs=has_all_jobs, designs=known.designs
            )

    def learn_backlogs(self, name: str, generation: int, found: Sequence[Backlog]) -> None:
        """Cache the backlogs of the slots of a shard, if it is cached in this generation."""
        with self._lock:
            known = self._shards.get(name)
            if known is not None and known.generation == generation:
                self._shards[name] = replace(known, backlogs=found, has_all_jobs=known.has_all_jobs or not found)

    def wants_jobs(self, name: str, generation: int) -> bool:
        """Return whether all jobs under way of a shard may be read now."""
        with self._lock:
            return generation >= self._jobs_read_from.get(name, 0)

    def learn_jobs(self, name: str, generation: int, found: Sequence[Job]) -> None:
        """Cache all jobs under way of a shard in this generation; more than JOBS_READ are incomplete and not cached."""
        are_all = len(found) <= JOBS_READ
        with self._lock:
            self._jobs_read_from[name] = generation + (JOBS_READ_EVERY if are_all else TOO_MANY_JOBS_EVERY)
            known = self._shards.get(name)
            if are_all and known is not None and known.generation == generation:
                jobs = {**known.values[Job], **{job.uuid: job for job in found}}
                self._shards[name] = replace(known, values={**known.values, Job: jobs}, has_all_jobs=True)

    def learn_designs(self, name: str, generation: int, states: frozenset[DesignState], found: Sequence[str]) -> None:
        """Cache the functions of the designs in some states, if the shard is cached in this generation."""
        with self._lock:
            known = self._shards.get(name)
            if known is not None and known.generation == generation:
                self._shards[name] = replace(known, designs={**known.designs, states: found})


def _with(known: Mapping[str, Any], changes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not changes:
        return known
    merged = {**known, **changes}
    for key in [key for key, value in changes.items() if value is None]:
        del merged[key]
    return merged


class RememberingReads(Reads):
    """Reads that use the cache if it is valid for the present generations of the shards."""

    def __init__(self, connection: Connection, scope: str, memory: Memory | None, found_in: int | None = None) -> None:
        super().__init__(connection, scope)
        self._memory = memory
        #: Generation of the shard at the start of this transaction; None = not read yet.
        self._found_in = found_in
        self._remembered: Mapping[str, ShardMemory] | None = None
        #: Whether every shard of the pool is cached.
        self._complete = False
        #: By class and key: the objects saved in this transaction, as they were before it.
        self._before: dict[type, dict[str, Any]] = {}
        #: By class: the keys of added objects; by slot: the changed leases (None = ended).
        self._added: dict[type, dict[str, None]] = {}
        self._changed_leases: dict[str, Lease | None] = {}
        #: All leases in force in the scope, if they were read.
        self._held: Sequence[Lease] | None = None
        self._has_removed = self._has_removed_designs = False

    def _shards_remembered(self) -> Mapping[str, ShardMemory]:
        if self._remembered is None:
            if self._memory is None:
                self._remembered = {}
            else:
                found_in = {shard.name: shard.pool_generation for shard in self.shards()}
                if self._found_in is not None:
                    found_in[self._scope] = self._found_in
                self._remembered = self._memory.at(found_in)
                self._complete = len(self._remembered) == len(found_in)
        return self._remembered

    def _own_shard(self) -> ShardMemory | None:
        """Return the cached shard of this transaction; reads no generations if its own is known.  None = not cached."""
        if self._remembered is None and self._memory is not None and self._found_in is not None:
            return self._memory.at({self._scope: self._found_in}).get(self._scope)
        return self._shards_remembered().get(self._scope)

    def _list_from(self, cls: type) -> Sequence[Mapping[str, Any]]:
        """Return cached mappings that together have all values for a list of a class; empty if some are not cached."""
        if cls not in (Host, Slot) or cls in self._added:
            return ()
        if cls is Slot and self._scope:
            own = self._own_shard()
            return () if own is None else [own.values[cls]]
        shards = self._shards_remembered()
        return [shard.values[cls] for shard in shards.values()] if self._complete else ()

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT:
        kind: type = cls  # a type that mappings accept
        if kind in (Host, Slot, Job) and (kind, key) not in self._known:
            self._recall(kind, [key])
        return super()._one(cls, key, lock=lock)

    def _recall(self, cls: type, keys: Collection[str]) -> None:
        """Take values from the cache: from the shard of this transaction, or else from the others."""
        own = self._own_shard()
        self._recall_from([] if own is None else [own], cls, keys)
        if any((cls, key) not in self._known for key in keys):
            self._recall_from(self._shards_remembered().values(), cls, keys)

    def _recall_from(self, shards: Iterable[ShardMemory], cls: type, keys: Collection[str]) -> None:
        for shard in shards:
            values = shard.values[cls]
            self._known.update(
                {(cls, key): values[key] for key in keys if key in values and (cls, key) not in self._known}
            )

    def _whole(self, cls: type[ValueT], query: Select[Any] | Scoped) -> list[ValueT]:
        kind: type = cls  # a type that mappings accept
        parts = self._list_from(kind)
        if not parts:
            return super()._whole(cls, query)
        values = [self._known.get((kind, name), value) for part in parts for name, value in part.items()]
        return values if len(parts) == 1 else sorted(values, key=attrgetter("name"))

    def host(self, name: str, *, heard: bool = False) -> Host:
        if heard:
            self.flush([Host])
            self._known.pop((Host, name), None)
            self._all(Host, statements.by_key(Host), {"key": name})
        return super().host(name)

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        if host is None or not self._list_from(Slot):
            return super().slots(host)
        return [slot for slot in self._whole(Slot, statements.ALL_SLOTS) if slot.host == host]

    def design_functions(self, states: Collection[DesignState]) -> Sequence[str]:
        """Return the functions of designs in some states, cached while no transaction changes the shard or a design."""
        shard, wanted = self._own_shard(), frozenset(states)
        if shard is None or self._memory is None or self.has_changed_designs:
            return super().design_functions(states)
        found = shard.designs.get(wanted)
        if found is None:
            found = super().design_functions(states)
            self._memory.learn_designs(self._scope, shard.generation, wanted, found)
        return found

    def backlogs(self) -> Sequence[Backlog]:
        """Return the backlogs; determined once per generation of the shard, as this takes long with many jobs."""
        shard = self._own_shard()
        if shard is None or self._memory is None or Job in self._before or Job in self._added:
            return super().backlogs()
        if shard.backlogs is not None:
            return shard.backlogs
        found = backlogs_of(job for _, job in shard.jobs_under_way()) if shard.has_all_jobs else super().backlogs()
        self._memory.learn_backlogs(self._scope, shard.generation, found)
        return found

    def occupied(self, slots: Collection[str]) -> set[str]:
        shard = self._own_shard()
        if shard is None or not shard.has_all_jobs or not shard.values[Slot].keys() >= set(slots):
            return super().occupied(slots)
        return {job.slot for job in self._under_way(shard)} & set(slots)

    def active_jobs(
        self, *, slot: str | None = None, host: str | None = None, flow: str | None = None
    ) -> Sequence[Job]:
        """Return active jobs, from the cache if it has all of them; from time to time all are read for the cache."""
        shard = self._own_shard()
        if shard is not None and not shard.has_all_jobs:
            shard = self._with_all_jobs(shard)
        if shard is None:
            return super().active_jobs(slot=slot, host=host, flow=flow)
        found = [
            self._known.setdefault((Job, job.uuid), job)
            for job in self._under_way(shard)
            if slot in (None, job.slot) and host in (None, job.host) and flow in (None, job.flow)
        ]
        return sorted(found, key=attrgetter("slot", "order", "uuid"))

    def _with_all_jobs(self, shard: ShardMemory) -> ShardMemory | None:
        """Read all jobs under way of the shard if that may be useful; return None if they are still not known."""
        if self._memory is None or Job in self._before or Job in self._added:
            return None
        if not self._memory.wants_jobs(self._scope, shard.generation):
            return None
        found = self._all(Job, statements.SOME_ACTIVE, {"most": JOBS_READ + 1})
        self._memory.learn_jobs(self._scope, shard.generation, found)
        jobs = {job.uuid: job for job in found}
        return replace(shard, values={**shard.values, Job: jobs}) if len(found) <= JOBS_READ else None

    def _under_way(self, shard: ShardMemory) -> Iterator[Job]:
        """Yield the jobs under way in their present state; the cache must have all of the shard."""
        now = {uuid: self._known[Job, uuid] for uuid in (*self._before.get(Job, ()), *self._added.get(Job, ()))}
        yield from (job for uuid, job in shard.jobs_under_way() if uuid not in now)
        yield from (job for job in now.values() if job.state in ACTIVE_JOBS)

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        self._recall(Job, uuids)
        return super().jobs(uuids)

    def unchanged(self, jobs: Sequence[Job], found_in: int | None = None) -> Sequence[Job]:
        """Return the unchanged jobs; no query is needed if no transaction has changed the shard since."""
        if found_in is None or self._found_in != found_in:
            return super().unchanged(jobs)
        self._known.update({(Job, job.uuid): job for job in jobs})
        return jobs

    def leases(
        self, *, slots: Collection[str] | None = None, host: str | None = None, holders: Collection[str] | None = None
    ) -> Sequence[Lease]:
        everything = slots is None and host is None and holders is None
        shard = self._own_shard()
        if shard is not None and (everything or (slots is not None and shard.values[Slot].keys() >= set(slots))):
            names = shard.values[Slot] if slots is None else sorted(set(slots))
            held = (self._changed_leases.get(name, shard.values[Lease].get(name)) for name in names)
            return [self._known.setdefault((Lease, lease.uuid), lease) for lease in held if lease is not None]
        found = super().leases(slots=slots, host=host, holders=holders)
        self._held = found if everything else self._held
        return found

    def learned(self) -> ShardMemory | None:
        """Return the shard for the cache, if everything to be cached was read and the shard is not cached already."""
        if self._held is None or not {Host, Slot} <= self._listed.keys() or self._scope in self._shards_remembered():
            return None
        hosts = [self._known[Host, name] for name in self._listed[Host]]
        return ShardMemory(
            generation=self.shard_named(self._scope).pool_generation,
            values={
                Host: {host.name: host for host in hosts if host.shard == self._scope},
                Slot: {name: self._known[Slot, name] for name in self._listed[Slot]},
                Lease: {lease.slot: lease for lease in self._held},
                Job: {},
            },
        )

    @property
    def has_changed_designs(self) -> bool:
        """Whether this transaction has added, changed or removed a design."""
        return self._has_removed_designs or Design in self._before or Design in self._added

    def note_removal_of_designs(self) -> None:
        """Record that rows of designs are removed directly in the database."""
        self._has_removed_designs = True

    def note_removal(self) -> None:
        """Make the store drop the cached shard: rows of hosts, slots or leases are removed directly in the database."""
        self._has_removed = True

    def committed(self) -> Mapping[type, Mapping[str, Any]] | None:
        """Return the changes of this transaction for `Memory.follow`."""
        if self._has_removed or Host in self._added or Slot in self._added:
            return None
        saved = {cls: {key: self._known[cls, key] for key in self._before.get(cls, {})} for cls in (Host, Slot, Job)}
        saved[Job] |= {key: self._known[Job, key] for key in self._added.get(Job, ())}
        saved[Job] = {
            key: job if job.shard == self._scope and _is_remembered(job) else None for key, job in saved[Job].items()
        }
        return saved | {Lease: self._changed_leases}


def _is_remembered(job: Job) -> bool:
    """Return whether a job should be cached, because reports on it will follow."""
    return job.state is not JobState.PENDING and job.state not in ENDED_JOBS
