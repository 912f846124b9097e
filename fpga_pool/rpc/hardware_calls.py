"""Calls of operators on hardware, which are part of `rpc.scheduler_api`."""

from typing import Any, TypeVar

from fpga_pool.model.messages.counters import HostLoad
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.model.objects.cards import Card
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.model.preconditions import Seen

T = TypeVar("T")

#: A list without conditions, whole.
EVERYTHING = Page()


class HardwareCalls:
    """Slots, cards, hosts and their libraries."""

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

    def counters(self, host: str | None = None) -> list[HostLoad]:
        """Return what the hosts that live, or one of them, have measured last."""
        return self._call(list[HostLoad], "counters", host=host)

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
