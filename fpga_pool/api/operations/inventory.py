"""Operations on hardware, and on the services of the pool."""

from operator import attrgetter
from typing import Any

from fpga_pool.api.context import scheduler
from fpga_pool.api.operation import (
    LINKS,
    Call,
    Operation,
    chosen_project,
    events_of,
    list_of,
    named,
    paged,
)
from fpga_pool.api.personas import CATALOGUE, INSPECTOR, OPERATOR, READER
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.queries import (
    CardQuery,
    CountersQuery,
    HostQuery,
    ProcessorQuery,
    ProjectQuery,
    ServiceQuery,
    SlotQuery,
)
from fpga_pool.model.messages.requests import (
    Page,
    PoolCounts,
    Service,
    SlotChange,
    SlotDetail,
)
from fpga_pool.model.objects.cards import Card, CardState, Instance
from fpga_pool.model.objects.gangs import GangProcessor
from fpga_pool.model.objects.pool import Host, Slot, SlotState


def _change_slot(call: Call) -> SlotDetail:
    if call.body.drain:
        return scheduler().drain_slot(call.uuid, call.body.reason, call.seen)
    return scheduler().resume_slot(call.uuid, call.seen)


def _change_card(call: Call) -> Card:
    if call.body.drain:
        return scheduler().drain_card(call.uuid, call.body.reason, call.seen)
    return scheduler().resume_card(call.uuid, call.seen)


def _show_host(call: Call) -> Host:
    found = scheduler().hosts(Page(where={"name": (call.uuid,)}))
    if not found:
        raise NotFound(f"no host {call.uuid[:64]!r}")
    return found[0]


def _counters(call: Call) -> dict[str, Any]:
    return paged("counters", scheduler().counters(call.query.host), call.query, attrgetter("host"))


def _services(call: Call) -> dict[str, Any]:
    return paged("services", scheduler().services(), call.query, lambda one: f"{one.kind}/{one.name}")


INVENTORY_OPERATIONS = (
    list_of("slots", Slot, SlotState, SlotQuery, INSPECTOR, "List the slots, by name."),
    Operation(method="GET", path="/v1/slots/<uuid>", name="show_slot", persona=INSPECTOR,
              summary="Show a slot, with its history and what holds it.",
              handle=lambda call: scheduler().slot(call.uuid), answer={"slot": SlotDetail}, noun="slot"),
    events_of("slot", "/v1/slots/<uuid>", INSPECTOR, of_project=False),
    Operation(method="PATCH", path="/v1/slots/<uuid>", name="change_slot", persona=OPERATOR,
              handle=_change_slot, body=SlotChange,
              summary="Drain a slot, or return it to service; a drain is complete when the state is DRAINED.",
              answer={"slot": SlotDetail}, noun="slot"),
    list_of("cards", Card, CardState, CardQuery, INSPECTOR, "List the cards, by name."),
    Operation(method="GET", path="/v1/cards/<uuid>", name="show_card", persona=INSPECTOR, noun="card",
              handle=lambda call: scheduler().card(call.uuid), answer={"card": Card},
              summary="Show a card, with its slots and what uses them."),
    events_of("card", "/v1/cards/<uuid>", INSPECTOR, of_project=False),
    Operation(method="PATCH", path="/v1/cards/<uuid>", name="change_card", persona=OPERATOR, noun="card",
              handle=_change_card, body=SlotChange, answer={"card": Card},
              summary="Drain all slots of a card, or return them to service, in one transaction."),
    Operation(method="DELETE", path="/v1/cards/<uuid>", name="remove_card", persona=OPERATOR, noun="card",
              handle=lambda call: scheduler().remove_card(call.uuid, call.seen), answer={"card": Card},
              summary="Remove a card that is no longer used; a card in use is only drained."),
    list_of("hosts", Host, None, HostQuery, CATALOGUE, "List the hosts, by name."),
    Operation(method="GET", path="/v1/hosts/<name>", name="show_host", persona=CATALOGUE,
              summary="Show a host, with its history.", handle=_show_host, answer={"host": Host}, noun="host"),
    events_of("host", "/v1/hosts/<name>", CATALOGUE, of_project=False),
    list_of("processors", GangProcessor, None, ProcessorQuery, INSPECTOR,
            "List the pCPUs that hosts reserve for gangs, by name, with the processes in their tiers."),
    Operation(method="GET", path="/v1/counters", name="list_counters", persona=INSPECTOR, query=CountersQuery,
              handle=_counters, answer={"counters": [HostLoad], **LINKS},
              summary="List the latest load measurements of the live hosts, by name."),
    Operation(method="GET", path="/v1/processors/<uuid>", name="show_processor", persona=INSPECTOR, noun="processor",
              handle=lambda call: named(call, "processor", scheduler().processors()),
              answer={"processor": GangProcessor},
              summary="Show a pCPU that a host reserves for gangs, with the processes in its tiers."),
    Operation(method="GET", path="/v1/instances/<uuid>", name="show_instance", persona=READER, noun="instance",
              handle=lambda call: scheduler().instance(chosen_project(call.query.project_id), call.uuid),
              query=ProjectQuery, answer={"instance": Instance},
              summary="Show an instance of Nova, with the slots that it holds."),
    events_of("instance", "/v1/instances/<uuid>", READER),
    Operation(method="GET", path="/v1/services", name="list_services", persona=INSPECTOR,
              query=ServiceQuery, handle=_services, answer={"services": [Service], **LINKS},
              summary="List the schedulers, agents and processes of the API, and whether they are up."),
    Operation(method="GET", path="/v1/services/<uuid>", name="show_service", persona=INSPECTOR, noun="service",
              handle=lambda call: named(call, "service", scheduler().services()), answer={"service": Service},
              summary="Show a scheduler, an agent or a process of the API, and whether it is up."),
    Operation(method="GET", path="/v1/pool", name="show_pool", persona=INSPECTOR, answer={"pool": PoolCounts},
              handle=lambda _: scheduler().pool_counts(),
              summary="Count the hosts, cards and slots of the pool, by state."),
)  # fmt: skip
