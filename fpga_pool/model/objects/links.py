"""Links between the slots of a host: between cards in enclosures, and between the slots of a card.

A slot is reached through its card, so a path of slots enters and leaves each card once.  Slots are linked as requested
if their cards are (the FPGAs of the lattice paper), and if the slots on each card form a connected path.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest

#: Topologies by their names in configuration and messages.
TOPOLOGIES: Mapping[str, Topology] = {topology.name.lower(): topology for topology in Topology}
#: Used instead of a topology if the slots of a card are not linked with each other.
NOT_LINKED = "none"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: Used instead of the name of an enclosure if the card is in none.
_NO_NAME = "-"
#: Maximum number of cards of an enclosure, and of slots of a card.
MOST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLinks:
    """Position of a card in its enclosure, and the links between its slots."""

    #: Name, unique on its host; "" = the card is linked to no other.
    enclosure: str = ""
    topology: Topology = Topology.FULL
    #: Number of cards of the enclosure, and the position of this one among them.
    cards: int = 1
    position: int = 0
    #: Topology of the links between the slots of the card; None = not linked.
    slots: Topology | None = Topology.FULL


#: A card that is in no enclosure, and whose slots are all linked with each other.
ALONE = CardLinks()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLinks:
    """Position of a slot on its card, and the links of the card."""

    card: CardLinks = ALONE
    #: Number of slots of the card, and the position of this one among them.
    slots: int = 1
    position: int = 0

    def __str__(self) -> str:
        """Return a text for messages and the database, which `slot_links` reads.

        It is empty for the slots of a card without an enclosure that are all linked with each other.
        """
        card = self.card
        if not card.enclosure and card.slots == Topology.FULL:
            return ""
        between = NOT_LINKED if card.slots is None else card.slots.name.lower()
        enclosure = card.enclosure or _NO_NAME
        words = (enclosure, card.topology.name.lower(), card.cards, card.position, between, self.slots, self.position)
        return " ".join(map(str, words))


#: Links of the slots of a card like ALONE, where the position on the card makes no difference.
USUAL = SlotLinks()


@lru_cache(maxsize=4096)
def slot_links(text: str) -> SlotLinks:
    """Parse the text that `str` returned for links; InvalidInput if it is not valid."""
    if not text:
        return USUAL
    try:
        enclosure, topology, cards, position, between, slots, place = text.split(" ")
        found = SlotLinks(
            card=CardLinks(
                enclosure="" if enclosure == _NO_NAME else enclosure,
                topology=TOPOLOGIES[topology],
                cards=int(cards),
                position=int(position),
                slots=None if between == NOT_LINKED else TOPOLOGIES[between],
            ),
            slots=int(slots),
            position=int(place),
        )
    except (KeyError, ValueError):
        found = None
    if found is None or not (_is_sound(found) and str(found) == text):
        raise InvalidInput(f"links: {text!r} is not a valid description of a slot's links")
    return found


def _is_sound(links: SlotLinks) -> bool:
    card = links.card
    named = not card.enclosure or _NAME.fullmatch(card.enclosure) is not None
    return named and 0 <= card.position < card.cards <= MOST and 0 <= links.position < links.slots <= MOST


def wished_links(request: AcceleratorRequest) -> Links:
    """Return the links that the slots of a virtual machine must have."""
    return Links[request.topology.name] if request.linked else Links.ANY


def read_enclosures(lines: Iterable[str], slots: str, present: Iterable[str]) -> Mapping[str, CardLinks]:
    """Return the links of all cards of a host, by serial, from lines ``NAME TOPOLOGY SERIAL,SERIAL,...``.

    `slots` is the topology of the links between the slots of each card.  InvalidInput describes an error in a line.
    """
    between = None if slots == NOT_LINKED else TOPOLOGIES[slots]
    alone = CardLinks(slots=between)
    links = dict.fromkeys(present, alone)
    names = set()
    for line in lines:
        words = line.split()
        if len(words) != 3 or not _NAME.fullmatch(words[0]) or words[1] not in TOPOLOGIES:
            kinds = ", ".join(TOPOLOGIES)
            raise InvalidInput(
                f"{line!r} is invalid; expected NAME TOPOLOGY SERIAL,SERIAL,... with a TOPOLOGY of {kinds}"
            )
        name, topology, serials = words[0], TOPOLOGIES[words[1]], words[2].split(",")
        if name in names:
            raise InvalidInput(f"enclosure {name} is defined twice")
        names.add(name)
        for position, serial in enumerate(serials):
            if serial not in links:
                raise InvalidInput(f"enclosure {name}: no card {serial!r}; available: {', '.join(links) or 'none'}")
            if links[serial] != alone:
                raise InvalidInput(f"enclosure {name}: card {serial} is in an enclosure already")
            links[serial] = replace(alone, enclosure=name, topology=topology, cards=len(serials), position=position)
    return links
