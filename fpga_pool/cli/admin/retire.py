"""`fpga-pool-manage card|slot|host remove`: remove hardware from the pool once it is no longer used."""

import argparse
import contextlib
import time
from abc import abstractmethod
from collections.abc import Sequence

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.objects.cards import card_name
from fpga_pool.model.objects.pool import Slot
from fpga_pool.model.rules.shared.cards import obstacles, retire_slots
from fpga_pool.model.transaction import Transaction
from fpga_pool.placement.client import open_placement
from fpga_pool.placement.sync import Sync
from fpga_pool.services.scheduler.enrolment import revoke
from fpga_pool.store.purge import remove_host, remove_slots
from fpga_pool.store.store import Store

#: Interval in seconds between two checks whether the slots can be removed.
POLL_S = 1.0


class Remove(ManageCommand):
    """Base of the commands: drain, wait until nothing uses the slots and the agent no longer reports them, remove."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help=self.what)
        parser.add_argument(
            "--timeout",
            type=positive_seconds,
            default=60.0,
            metavar="S",
            help="how long to wait until nothing uses the slots; after that, the users are listed, and the slots stay "
            "drained (default: %(default)s)",
        )

    #: Kind of the object and form of its name, for the help.
    what: str

    @abstractmethod
    def slots(self, tx: Transaction, name: str) -> Sequence[Slot]:
        """Return the slots of the object with this name."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Drain, wait and remove; a command that was interrupted can be repeated."""
        name = parsed_args.name
        with self.store() as store:
            shard, slots = self._found(store, name)
            with store.transaction(shard) as tx:
                retire_slots(tx, slots, time.time())
            names = [slot.name for slot in slots]
            self._wait(store, names, parsed_args.timeout)
            remove_slots(store, shard, names)
            self.finish(store, shard, name)
        self.print_line(f"removed: {', '.join(names) or name}")
        return 0

    def _found(self, store: Store, name: str) -> tuple[str, Sequence[Slot]]:
        """Return the shard and the slots of the object with this name; NotFound if it has no slots."""
        with store.reading() as tx:
            slots = self.slots(tx, name)
            if not slots:
                raise NotFound(f"{name}: no such {self.what}")
            return slots[0].shard, slots

    def _wait(self, store: Store, names: Sequence[str], timeout_s: float) -> None:
        give_up_at_s = time.monotonic() + timeout_s
        while True:
            with store.reading() as tx:
                found = obstacles(tx, names)
            if not found:
                return
            if time.monotonic() >= give_up_at_s:
                raise Conflict(f"not removed, but drained: {'; '.join(found)}")
            time.sleep(POLL_S)

    def finish(self, store: Store, shard: str, name: str) -> None:
        """Remove other records; nothing by default: schedulers remove the providers of cards of hosts that stay."""


class RemoveSlot(Remove):
    """Remove one slot that its card no longer has.

    Example: fpga-pool-manage slot remove node-1/card-0/r0
    """

    what = "slot, HOST/CARD/REGION"

    def slots(self, tx: Transaction, name: str) -> Sequence[Slot]:
        """Return the slot."""
        return [slot for slot in tx.slots() if slot.name == name]


class RemoveCard(Remove):
    """Remove a card: its slots, and their providers in Placement.

    Example: fpga-pool-manage card remove node-1/card-0
    """

    what = "card, HOST/CARD"

    def slots(self, tx: Transaction, name: str) -> Sequence[Slot]:
        """Return the slots of the card."""
        return [slot for slot in tx.slots() if card_name(slot) == name]


class RemoveHost(Remove):
    """Remove a host: its cards, its processors and its providers in Placement.

    Example: fpga-pool-manage host remove node-1 --timeout 600
    """

    what = "host"

    def slots(self, tx: Transaction, name: str) -> Sequence[Slot]:
        """Return the slots of the host."""
        return tx.slots(name)

    def _found(self, store: Store, name: str) -> tuple[str, Sequence[Slot]]:
        with store.reading() as tx:
            return tx.host(name).shard, tx.slots(name)

    def finish(self, store: Store, shard: str, name: str) -> None:
        """Remove the host's key, the providers of its cards, which no scheduler knows afterwards, and the host.

        The host itself is removed last, so that the command can be repeated until then.  Conflict if its agent runs.
        """
        with store.reading() as tx:
            if tx.host(name).alive:
                raise Conflict(f"host {name}: its agent is running; stop it, and repeat the command")
        with contextlib.suppress(NotFound):
            revoke(store, name)
        placement = open_placement(self.conf)
        for complaint in [] if placement is None else Sync(placement).run([], [name]):
            self.print_line(f"note: {complaint}")
        remove_host(store, shard, name)
