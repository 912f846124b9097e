"""`fpga-pool slot`: the slots of the pool."""

import argparse
from collections.abc import Sequence

from fpga_pool.cmd.base import PoolLister, PoolShowOne, Row, Table
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects import Slot

_COLUMNS = (
    "uuid",
    "name",
    "board",
    "kind",
    "state",
    "function",
    "job",
    "reconfigurations",
    "drain_requested",
    "reason",
)


class List(PoolLister):
    """List all slots."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return listing(self.client.slots())


class _OneSlot(PoolShowOne):
    """A command on one slot."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("slot", metavar="SLOT", help="name (host/card/region) or uuid of the slot")
        return parser

    def uuid_of(self, wanted: str) -> str:
        """Return the uuid of the slot with this name or uuid."""
        for slot in self.client.slots():
            if wanted in (slot.name, slot.uuid):
                return slot.uuid
        raise NotFound(f"no slot {wanted!r}; `fpga-pool slot list` names them")


class Drain(_OneSlot):
    """Take a slot out of service: its running job ends there, the others move."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", default="", help="why, for those who wonder")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _COLUMNS, _row(self.client.drain(self.uuid_of(parsed_args.slot), parsed_args.reason))


class Resume(_OneSlot):
    """Give a slot back to the pool."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _COLUMNS, _row(self.client.resume(self.uuid_of(parsed_args.slot)))


def listing(slots: Sequence[Slot]) -> Table:
    """Return slots as a table."""
    return _COLUMNS, [_row(slot) for slot in slots]


def _row(slot: Slot) -> Row:
    return (
        slot.uuid,
        slot.name,
        slot.board,
        slot.kind,
        str(slot.state),
        slot.function,
        slot.job,
        slot.reconfigurations,
        slot.drain_requested,
        slot.reason,
    )
