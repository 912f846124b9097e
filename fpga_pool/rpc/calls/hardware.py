# mypy: disable-error-code="empty-body"
"""Calls of operators, and calls about processes and designs: a part of `rpc.scheduler_api`."""

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

#: Page with all objects of a list, without conditions.
EVERYTHING = Page()


@calls
class HardwareCalls:
    """Calls about slots, cards, hosts and their libraries, designs of tenants, the pool's processes, and purges."""

    def services(self) -> list[Service]:
        """Return the schedulers, the agents and the processes of the API."""

    def announce(self, process: ProcessId, *, ending: bool = False) -> None:
        """Report that this process of the API is alive, or that it ends, on the host in whose name it signs."""

    def purge(self, request: PurgeRequest) -> Purge:
        """Remove objects that ended long ago, for a few seconds; the purge may not be `complete` then."""

    def slots(self, page: Page = EVERYTHING) -> list[Slot]:
        """Return a page of the slots, by name."""

    def slot(self, uuid: str) -> SlotDetail:
        """Return one slot, with its holder."""

    def drain_slot(self, uuid: str, reason: str, seen: Seen = None) -> SlotDetail:
        """Take a slot out of service."""

    def resume_slot(self, uuid: str, seen: Seen = None) -> SlotDetail:
        """Return a slot to service."""

    def hosts(self, page: Page = EVERYTHING) -> list[Host]:
        """Return a page of the hosts, by name."""

    def processors(self, page: Page = EVERYTHING) -> list[GangProcessor]:
        """Return a page of the processors that hosts provide for gangs, by name, with the processes in their tiers."""

    def counters(self, host: str | None = None) -> list[HostLoad]:
        """Return the last measurements of the live hosts, or of one of them."""

    def cards(self, page: Page = EVERYTHING) -> list[Card]:
        """Return a page of the cards, by name."""

    def card(self, uuid: str) -> Card:
        """Return one card, with its slots and their users."""

    def drain_card(self, uuid: str, reason: str, seen: Seen = None) -> Card:
        """Take all slots of a card out of service."""

    def resume_card(self, uuid: str, seen: Seen = None) -> Card:
        """Return all slots of a card to service."""

    def remove_card(self, uuid: str, seen: Seen = None) -> Card:
        """Remove a card; if that is not possible now, only drain it, and raise Conflict with the obstacles."""

    def instance(self, project_id: str | None, uuid: str) -> Instance:
        """Return one instance of this project (None: of any), with the slots that it holds."""

    def bitstreams(self, host: str | None = None) -> list[BitstreamInfo]:
        """Return the bitstreams of the catalogue in a host's library; None = of the first host with each board."""

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
        """Change the state or the visibility of a design."""

    def delete_design(self, project_id: str | None, uuid: str, seen: Seen = None) -> Design:
        """Remove a design of this or (None) any project; raise Conflict while jobs or instances use its function."""
