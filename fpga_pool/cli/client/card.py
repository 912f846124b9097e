"""`fpga-pool card`: what is done on a card is done on each of its slots."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.cli.client.base import LongLister, Pages, PoolShowOne, Row, Table, Words
from fpga_pool.client import Client
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.objects.cards import Card

#: How often it is tried to remove a card that is in use.
LOOK_S = 1.0

_COLUMNS = ("uuid", "name", "host", "board", "enclosure", "state", "slots", "drain_requested", "functions")


class List(Pages, LongLister):
    """List cards: their boards, whether they take work, and which functions are loaded.

    Example: fpga-pool card list --host node-1 --state in_service -f json
    """

    SHORT = ("name", "board", "state", "slots", "functions")
    FILTERS: Mapping[str, str] = {"state": "STATE", "board": "BOARD", "host": "HOST"}

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        self.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return _COLUMNS, [_row(card) for card in self.client.cards(**self.filters(parsed_args))]


class _OneCard(PoolShowOne):
    """A command on one card."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("card", metavar="CARD", help="name (host/card) or uuid of the card")
        return parser


class Show(_OneCard):
    """Show a card, its slots, and what holds or uses them.

    Example: fpga-pool card show node-1/sim0
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _details(self.client.card(_uuid(self.client, parsed_args.card)))


class Drain(_OneCard):
    """Take all slots of a card out of service: running jobs end there, the others move.

    What still uses it is shown.  Example: fpga-pool card drain node-1/sim0 --reason "moves to rack 4"
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", default="", help="reason shown in `card show` and `slot list --long`")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _details(self.client.drain_card(_uuid(self.client, parsed_args.card), parsed_args.reason))


class Resume(_OneCard):
    """Give all slots of a card back to the pool.

    Example: fpga-pool card resume node-1/sim0
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _details(self.client.resume_card(_uuid(self.client, parsed_args.card)))


class Remove(_OneCard):
    """Remove a card: drain it, wait until nobody uses it and its agent does not report it, and forget its slots.

    Example: fpga-pool card remove node-1/sim0 --timeout 600
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--timeout",
            type=positive_seconds,
            default=60.0,
            metavar="S",
            help="how long to wait; after that, what is in the way is listed, and the card stays drained "
            "(default: %(default)s)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask until it is removed; a command that was interrupted can be repeated."""
        uuid, give_up_at_s = _uuid(self.client, parsed_args.card), time.monotonic() + parsed_args.timeout
        while True:
            try:
                return _details(self.client.remove_card(uuid))
            except Conflict:
                if time.monotonic() >= give_up_at_s:
                    raise
            time.sleep(LOOK_S)


class _Slots(FormattableColumn[Any]):
    """The slots of a card: a line for each, or a list of objects."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "\n".join("  ".join(filter(None, slot.values())) for slot in self.machine_readable())

    def machine_readable(self) -> list[dict[str, str]]:
        """Leave it a list."""
        names = ("name", "state", "function", "job", "reason")
        return [{name: str(getattr(slot, name)) for name in names} for slot in self._value]


class _Lines(Words):
    """A list of sentences."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return "\n".join(self._value)


def _uuid(client: Client, wanted: str) -> str:
    """Return the uuid of the card with this name or uuid."""
    for card in client.cards():
        if wanted in (card.name, card.uuid):
            return card.uuid
    raise NotFound(f"no card {wanted!r}; `fpga-pool card list` shows all")


def _details(card: Card) -> tuple[Sequence[str], Row]:
    return (*_COLUMNS, "slot_list", "user_list"), (*_row(card), _Slots(card.slot_list), _Lines(card.user_list))


def _row(card: Card) -> Row:
    return (
        card.uuid,
        card.name,
        card.host,
        card.board,
        card.enclosure,
        str(card.state),
        card.slots,
        card.drain_requested,
        Words(card.functions),
    )
