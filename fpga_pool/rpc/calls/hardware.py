# mypy: disable-error-code="empty-body"
"""Calls of operators, and on processes and designs, which are part of `rpc.scheduler_api`."""

from fpga_pool.model.fields import ProcessId
from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.purge import Purge, PurgeRequest
from fpga_pool.model.messages.requests import Page, Service, SlotDetail
from fpga_pool.model.messages.work import DesignChange, DesignContent, DesignRequest
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design
from fpga_pool.model.objects.cards import Card, Instance
from fpga_pool.model.objects.gangs import GangProcessor
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.preconditions import Seen
from fpga_pool.rpc.transport import calls

#: A list without conditions, whole.
EVERYTHING = Page()


@calls
class HardwareCalls:
    """Slots, cards, hosts and their libraries, what tenants add to these, the pool's processes, and what is past."""

    def services(self) -> list[Service]:
        """Return the schedulers, the agents and the processes of the API."""

    def announce(self, process: ProcessId, *, ending: bool = False) -> None:
        """Say that this process of the API lives, or that it ends, on the host in whose name it signs."""

    def purge(self, request: PurgeRequest) -> Purge:
        """Remove what ended long ago, for a few seconds; it may not be `complete` then."""

    def slots(self, page: Page = EVERYTHING) -> list[Slot]:
        """Return a page of the slots, by name."""

    def slot(self, uuid: str) -> SlotDetail:
        """Return one slot, with what holds it."""

    def drain_slot(self, uuid: str, reason: str, seen: Seen = None) -> SlotDetail:
        """Take a slot out of service."""

    def resume_slot(self, uuid: str, seen: Seen = None) -> SlotDetail:
        """Give a slot back to the pool."""

    def hosts(self, page: Page = EVERYTHING) -> list[Host]:
        """Return a page of the hosts, by name."""

    def processors(self, page: Page = EVERYTHING) -> list[GangProcessor]:
        """Return a page of the processors that hosts give to gangs, by name, with what their tiers carry."""

    def counters(self, host: str | None = None) -> list[HostLoad]:
        """Return what the hosts that live, or one of them, have measured last."""

    def cards(self, page: Page = EVERYTHING) -> list[Card]:
        """Return a page of the cards, by name."""

    def card(self, uuid: str) -> Card:
        """Return one card, with its slots and what uses them."""

    def drain_card(self, uuid: str, reason: str, seen: Seen = None) -> Card:
        """Take all slots of a card out of service."""

    def resume_card(self, uuid: str, seen: Seen = None) -> Card:
        """Give all slots of a card back to the pool."""

    def remove_card(self, uuid: str, seen: Seen = None) -> Card:
        """Remove a card; Conflict says what is in the way, and then it is drained only."""

    def instance(self, project_id: str | None, uuid: str) -> Instance:
        """Return one instance of this project (None: of any), with the slots that it holds."""

    def bitstreams(self, host: str | None = None) -> list[BitstreamInfo]:
        """Return the bitstreams of the catalogue as a host has them; None = for each board, the first with it."""

    # Designs of tenants

    def create_design(self, request: DesignRequest) -> Design:
        """Store a design that waits for a decision."""

    def designs(self, page: Page) -> list[Design]:
        """Return a page of the designs."""

    def design(self, project_id: str | None, uuid: str) -> Design:
        """Return one design, of this project (None: of any) or public."""

    def design_content(self, uuid: str) -> DesignContent:
        """Return the bitstream of a design."""

    def change_design(self, uuid: str, change: DesignChange, seen: Seen = None) -> Design:
        """Decide on a design."""

    def delete_design(self, project_id: str | None, uuid: str, seen: Seen = None) -> Design:
        """Remove a design of this or (None) any project; Conflict while jobs or instances have its function."""
