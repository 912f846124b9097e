"""Calls on hardware and designs, which are part of `rpc.scheduler_api`."""

from typing import Any, TypeVar

from fpga_pool.model.messages.requests import Page
from fpga_pool.model.messages.work import DesignChange, DesignContent, DesignRequest
from fpga_pool.model.objects.bitstreams import BitstreamInfo, Design
from fpga_pool.model.objects.cards import Card
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.preconditions import Seen

T = TypeVar("T")

#: A list without conditions, whole.
EVERYTHING = Page()
#: A bitstream is stored, or sent, within this.
UPLOAD_S = 60.0


class HardwareCalls:
    """Slots, cards, hosts and their libraries, and what tenants add to these."""

    def _call(self, answer_type: type[T], method: str, timeout_s: float | None = None, **arguments: Any) -> T:
        """Ask a scheduler; return its answer, of the type `answer_type`."""
        raise NotImplementedError

    def slots(self, page: Page = EVERYTHING) -> list[Slot]:
        """Return a page of the slots, by name."""
        return self._call(list[Slot], "slots", page=page)

    def slot(self, uuid: str) -> Slot:
        """Return one slot."""
        return self._call(Slot, "slot", uuid=uuid)

    def drain_slot(self, uuid: str, reason: str, seen: Seen = None) -> Slot:
        """Take a slot out of service."""
        return self._call(Slot, "drain_slot", uuid=uuid, reason=reason, seen=seen)

    def resume_slot(self, uuid: str, seen: Seen = None) -> Slot:
        """Give a slot back to the pool."""
        return self._call(Slot, "resume_slot", uuid=uuid, seen=seen)

    def hosts(self, page: Page = EVERYTHING) -> list[Host]:
        """Return a page of the hosts, by name."""
        return self._call(list[Host], "hosts", page=page)

    def cards(self, page: Page = EVERYTHING) -> list[Card]:
        """Return a page of the cards, by name."""
        return self._call(list[Card], "cards", page=page)

    def card(self, uuid: str) -> Card:
        """Return one card, with its slots and what uses them."""
        return self._call(Card, "card", uuid=uuid)

    def drain_card(self, uuid: str, reason: str, seen: Seen = None) -> Card:
        """Take all slots of a card out of service."""
        return self._call(Card, "drain_card", uuid=uuid, reason=reason, seen=seen)

    def resume_card(self, uuid: str, seen: Seen = None) -> Card:
        """Give all slots of a card back to the pool."""
        return self._call(Card, "resume_card", uuid=uuid, seen=seen)

    def remove_card(self, uuid: str, seen: Seen = None) -> Card:
        """Remove a card; Conflict says what is in the way, and then it is drained only."""
        return self._call(Card, "remove_card", uuid=uuid, seen=seen)

    def bitstreams(self, host: str | None = None) -> list[BitstreamInfo]:
        """Return the bitstreams of the catalogue as a host has them; None = for each board, the first with it."""
        return self._call(list[BitstreamInfo], "bitstreams", host=host)

    # Designs of tenants

    def create_design(self, request: DesignRequest) -> Design:
        """Store a design that waits for a decision."""
        return self._call(Design, "create_design", UPLOAD_S, request=request)

    def designs(self, page: Page) -> list[Design]:
        """Return a page of the designs."""
        return self._call(list[Design], "designs", page=page)

    def design(self, project_id: str, uuid: str) -> Design:
        """Return one design, of this project or public."""
        return self._call(Design, "design", project_id=project_id, uuid=uuid)

    def design_content(self, uuid: str) -> DesignContent:
        """Return the bitstream of a design."""
        return self._call(DesignContent, "design_content", uuid=uuid)

    def change_design(self, uuid: str, change: DesignChange, seen: Seen = None) -> Design:
        """Decide on a design."""
        return self._call(Design, "change_design", uuid=uuid, change=change, seen=seen)

    def delete_design(self, project_id: str, uuid: str, seen: Seen = None) -> Design:
        """Remove a design; Conflict while jobs of its function have not ended."""
        return self._call(Design, "delete_design", project_id=project_id, uuid=uuid, seen=seen)
