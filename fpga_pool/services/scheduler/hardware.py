"""Requests about hardware, processes, instances, events and purges: a part of `services.scheduler.endpoint`."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound
from fpga_pool.model.fields import HostName, ProcessId, ProjectId
from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.purge import Purge, PurgeRequest
from fpga_pool.model.messages.requests import EventPage, Page, Service, SlotDetail
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.model.objects.cards import Card, Instance
from fpga_pool.model.objects.gangs import GangProcessor, Processor, with_processes
from fpga_pool.model.objects.history import HistoryEntry, PoolEvents
from fpga_pool.model.objects.hosts import ApiProcess, api_process_name, superfluous_processes
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.preconditions import Seen
from fpga_pool.model.rest import date
from fpga_pool.model.rules.shared.cards import (
    card_detail,
    cards,
    drain_card,
    instance_detail,
    resume_card,
    retire_card,
    slot_detail,
    slots_of_card,
)
from fpga_pool.model.rules.shared.changes import drain_slot, resume_slot
from fpga_pool.model.rules.shared.events import begin_before, classes_of, events_of, newest_events, of_parts
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.rpc.transport import NO_ANSWER, Context, answers
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.store.purge import delete_slots, purge
from fpga_pool.store.quotas import limits_history
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Longest duration of the purge of one request, because its thread answers no other calls meanwhile.
PURGE_S = 3.0


class HardwareRequests:
    """Answers requests of operators; every change is committed before it is answered."""

    _service: SchedulerService

    # Processes

    @answers
    def services(self, context: Context) -> list[Service]:
        with self._service.store.reading() as tx:
            schedulers, shards, hosts, apis = tx.schedulers(), tx.shards(), tx.hosts(), tx.api_processes()
        living, now_s = self._service.ownership.living(), self._service.clock()
        return [
            *(
                Service(
                    kind="scheduler",
                    name=one.name,
                    up=one.name in living,
                    heard_at=one.heard_at,
                    shards=tuple(shard.name for shard in shards if shard.owner == one.name),
                )
                for one in schedulers
            ),
            *(
                Service(kind="agent", name=host.name, up=host.alive, heard_at=host.heard_at, shards=(host.shard,))
                for host in hosts
            ),
            *(
                Service(kind="api", name=one.name, up=one.is_up(now_s), heard_at=one.heard_at, shards=())
                for one in apis
                if not one.is_forgotten(now_s)
            ),
        ]

    @answers
    def announce(self, context: Context, process: ProcessId, ending: bool) -> None:
        store, now_s = self._service.store, self._service.clock()
        # The time is that of the pool.  The name is signed, but with a key that all processes of the API share and that
        # is valid for any name: it is what the process says, and not verified.
        name = api_process_name(read(HostName, context["name"], "name"), process)
        if ending:
            store.forget(ApiProcess, name)
            return
        with store.single_reads() as tx:
            superfluous = superfluous_processes(tx.api_processes(), name, now_s)
        if superfluous:
            store.forget(ApiProcess, *superfluous)
        store.beat(name, now_s, ApiProcess)

    # Hardware

    @answers
    def slots(self, context: Context, page: Page) -> Sequence[Slot]:
        with self._service.store.single_reads() as tx:
            return tx.page(Slot, page)

    @answers
    def slot(self, context: Context, uuid: str) -> SlotDetail:
        with self._service.store.reading() as tx:
            return slot_detail(tx, tx.slot_by_uuid(uuid))

    @answers
    def drain_slot(self, context: Context, uuid: str, reason: str, seen: Seen = None) -> SlotDetail:
        found = self._change_slot(uuid, lambda tx, name: drain_slot(tx, name, reason, self._service.clock(), seen))
        LOG.info("slot %s: drain requested: %s", found.slot.name, found.slot.reason)
        return found

    @answers
    def resume_slot(self, context: Context, uuid: str, seen: Seen = None) -> SlotDetail:
        found = self._change_slot(uuid, lambda tx, name: resume_slot(tx, name, self._service.clock(), seen))
        LOG.info("slot %s: resumed", found.slot.name)
        return found

    def _change_slot(self, uuid: str, change: Callable[[Transaction, str], Slot]) -> SlotDetail:
        with self._service.store.reading() as reading:
            found = reading.slot_by_uuid(uuid)
        return self._changed(found.shard, lambda tx: slot_detail(tx, change(tx, found.name)))

    def _changed(self, shard: str, change: Callable[[Transaction], T]) -> T:
        """Make a change in a shard and return its result; trigger planning, as there may be new work."""
        done = self._service.writer(shard).run(change)
        self._service.work_arrived()
        return done

    @answers
    def hosts(self, context: Context, page: Page) -> Sequence[Host]:
        with self._service.store.single_reads() as tx:
            return [changed(host, agent_id="") for host in tx.page(Host, page)]

    @answers
    def processors(self, context: Context, page: Page) -> Sequence[GangProcessor]:
        with self._service.store.reading() as tx:
            return with_processes(tx.page(Processor, page), tx.processes())

    @answers
    def counters(self, context: Context, host: str | None = None) -> list[HostLoad]:
        return self._service.store.counters(host)

    @answers
    def cards(self, context: Context, page: Page) -> Sequence[Card]:
        with self._service.store.reading() as tx:
            return cards(tx, page)

    @answers
    def card(self, context: Context, uuid: str) -> Card:
        with self._service.store.reading() as tx:
            return card_detail(tx, uuid)

    @answers
    def drain_card(self, context: Context, uuid: str, reason: str, seen: Seen = None) -> Card:
        card = self._change_card(uuid, lambda tx: drain_card(tx, uuid, reason, self._service.clock(), seen))
        LOG.info("card %s: drain requested: %s", card.name, reason)
        return card

    @answers
    def resume_card(self, context: Context, uuid: str, seen: Seen = None) -> Card:
        card = self._change_card(uuid, lambda tx: resume_card(tx, uuid, self._service.clock(), seen))
        LOG.info("card %s: resumed", card.name)
        return card

    @answers
    def remove_card(self, context: Context, uuid: str, seen: Seen = None) -> Card:
        def remove(tx: Transaction) -> tuple[Card, list[str]]:
            card, obstacles = retire_card(tx, uuid, self._service.clock(), seen)
            if not obstacles:
                delete_slots(cast("SqlTransaction", tx), [slot.name for slot in card.slot_list])
            return card, obstacles

        card, obstacles = self._change_card(uuid, remove)
        if obstacles:
            raise Conflict(f"not removed, but drained: {'; '.join(obstacles)}")
        LOG.info("card %s: removed", card.name)
        return card

    def _change_card(self, uuid: str, change: Callable[[Transaction], T]) -> T:
        with self._service.store.reading() as reading:
            shard = slots_of_card(reading, uuid)[0].shard
        return self._changed(shard, change)

    @answers
    def instance(self, context: Context, project_id: str | None, uuid: str) -> Instance:
        with self._service.store.reading() as tx:
            return instance_detail(tx, uuid, project_id)

    @answers
    def bitstreams(self, context: Context, host: str | None = None) -> list[BitstreamInfo]:
        with self._service.store.reading() as tx:
            alive = {one.name: one.alive for one in ([tx.host(host)] if host is not None else tx.hosts())}
            slots = tx.slots(host)
        boards = self._service.catalogue.boards
        #: By board, the first host with such a card that is not lost; "" = there is none.
        hosts: dict[str, str] = {}
        for slot in slots:
            if slot.board in boards and not hosts.get(slot.board):
                hosts[slot.board] = slot.host if alive[slot.host] else ""
        return [one for board, of_host in sorted(hosts.items()) for one in self._library(board, of_host)]

    def _library(self, board: str, host: str) -> list[BitstreamInfo]:
        """Return the bitstreams for a board in the library of a host; "" = no host is available."""
        reason = "no live host has such a card"
        try:
            if host:
                return [replace(one, host=host) for one in self._service.agents.bitstreams(host, board)]
        except (*NO_ANSWER, FpgaPoolError) as error:
            LOG.warning("the library of host %s cannot be read: %s", host, error)
            reason = f"the agent of {host} did not report the content of its library"
        catalogue = self._service.catalogue
        return [
            BitstreamInfo(function=function.name, version=function.version, board=board, kind=kind, reason=reason)
            for function, kind in catalogue.loadable(catalogue.board(board))
        ]

    # Purges

    @answers
    def purge(self, context: Context, request: PurgeRequest) -> Purge:
        until_s, now_s = time.monotonic() + PURGE_S, self._service.clock()
        if request.ended_before > now_s:
            raise InvalidInput(f"ended_before: expected a time before the present one, {date(now_s)}")

        def is_over() -> bool:
            return time.monotonic() > until_s

        store, before, project_id = self._service.store, request.ended_before, request.project_id
        found = purge(store, before, project_id, dry_run=request.dry_run, is_over=is_over)
        if not request.dry_run:
            said = ", ".join(f"{count} {kind}" for kind, count in found.items() if count)
            LOG.info("purge of %s: %s", project_id or "all projects", said or "nothing")
        return Purge(complete=request.dry_run or not is_over() or not any(found.values()), **found)

    # Events

    @answers
    def events(self, context: Context, noun: str, project_id: str | None, name: str) -> Sequence[HistoryEntry]:
        with self._service.store.reading() as tx:
            if noun == "quota":
                return limits_history(tx.connection, read(ProjectId, name, "project"))
            if noun == "function":
                return self._events_of_function(tx, name, project_id)
            if noun == "slot":
                name = tx.slot_by_uuid(name).name
            return events_of(tx, noun, name, project_id)

    def _events_of_function(self, tx: SqlTransaction, name: str, project_id: str | None) -> Sequence[HistoryEntry]:
        """Return the events of the design of a function, and for each board the last fit of its time model."""
        designs = self._service.designs
        known = designs.everything(tx) if project_id is None else designs.visible(tx, project_id, {name})
        if name not in known.functions:
            raise NotFound(f"no function {name[:64]!r}")
        design = tx.design_of(name)
        return of_parts([*([(f"design {design.uuid}", design.history)] if design else []), *tx.refits(name)])

    @answers
    def pool_events(self, context: Context, page: EventPage) -> PoolEvents:
        created_before = begin_before(page)
        with self._service.store.reading() as tx:
            return newest_events([tx.eventful(cls, page, created_before) for cls in classes_of(page)], page)
