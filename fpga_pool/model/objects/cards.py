"""A card as operators see it, and an instance: nothing is stored of them but slots, and leases of slots."""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from fpga_pool.model.fields import Detail, Internal, Moment
from fpga_pool.model.objects.pool import SLOT_NAMESPACE, Slot


class CardState(StrEnum):
    """Whether a card takes work: one of its slots does, none does, or its host is lost."""

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
    #: The cards that it is linked to; "" = it is linked to none.
    enclosure: str
    state: CardState
    slots: int
    #: The operator wants no new work on any of them.
    drain_requested: bool
    #: Those that are loaded, by name.
    functions: tuple[str, ...]
    #: By name.
    slot_list: Detail[tuple[Slot, ...]] = ()
    #: Holders and jobs of its slots, for people: they are in the way of its removal.
    user_list: Detail[tuple[str, ...]] = ()
    #: The sum of those of its slots.
    generation: Internal[int] = 0
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the card."""
        return card_uuid(self.name)


def card_name(slot: Slot) -> str:
    """Return the name of the card that a slot is on."""
    return f"{slot.host}/{slot.card}"


def card_uuid(name: str) -> str:
    """Return the uuid of the card of this name."""
    return str(uuid.uuid5(SLOT_NAMESPACE, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSlot:
    """A slot that an instance holds."""

    name: str
    #: What the instance has it hold; "" = whatever it loads.
    function: str
    leased_at: Moment
    #: Why the instance cannot use it; "" = it can, or its function was not loaded yet.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A virtual machine of Nova, of which the pool knows the slots that it holds."""

    uuid: str
    project_id: str
    host: str
    #: By name.
    slot_list: tuple[InstanceSlot, ...]
