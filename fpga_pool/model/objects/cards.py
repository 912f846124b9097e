"""Cards and instances as operators see them: views that are derived from the stored slots and their leases."""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from fpga_pool.model.fields import Detail, Internal, Moment
from fpga_pool.model.objects.pool import SLOT_NAMESPACE, Slot


class CardState(StrEnum):
    """Whether a card takes work: at least one of its slots does, no slot does, or its host is lost."""

    IN_SERVICE = "in_service"
    OUT_OF_SERVICE = "out_of_service"
    UNREACHABLE = "unreachable"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next((one for one in cls if one.value == str(value).lower()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One FPGA, or the CPU workers of a host, with its slots."""

    #: host/card
    name: str
    host: str
    board: str
    #: The enclosure of linked cards to which it belongs; "" = it is linked to no other card.
    enclosure: str
    state: CardState
    slots: int
    #: Whether the operator wants no new work on any of its slots.
    drain_requested: bool
    #: Loaded functions, by name.
    functions: tuple[str, ...]
    #: Ordered by name.
    slot_list: Detail[tuple[Slot, ...]] = ()
    #: Human-readable holders and jobs of its slots, which prevent its removal.
    user_list: Detail[tuple[str, ...]] = ()
    #: Sum of the generations of its slots.
    generation: Internal[int] = 0
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the card."""
        return card_uuid(self.name)


def card_name(slot: Slot) -> str:
    """Return the name of the card of a slot."""
    return f"{slot.host}/{slot.card}"


def card_uuid(name: str) -> str:
    """Return the uuid of the card with this name."""
    return str(uuid.uuid5(SLOT_NAMESPACE, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSlot:
    """A slot that an instance holds."""

    name: str
    #: Function that the instance requests for it; "" = the instance loads it itself.
    function: str
    leased_at: Moment
    #: Why the instance cannot use it; "" = it can, or its function was not loaded yet.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A virtual machine of Nova with the slots that it holds."""

    uuid: str
    project_id: str
    host: str
    #: Ordered by name.
    slot_list: tuple[InstanceSlot, ...]
