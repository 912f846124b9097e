"""Simulated slots: results equal those of the accelerators, and run times follow the catalogue.

A job computes its result with the software model of its function and takes as long as the time model predicts, longer
while the card's DMA is oversubscribed.  If the software is slower than the time model, the real time is reported.  A
stop during the computation of the software model takes effect when that ends; all other waits are interrupted at once.
"""

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from oslo_config import cfg

from fpga_pool.drivers.slots.base import (
    CardInventory,
    RunResult,
    SlotAddress,
    SlotDriver,
    SlotStatus,
    configured_links,
    require_size,
)
from fpga_pool.drivers.slots.bitstream import Bitstream, verify, verify_content
from fpga_pool.drivers.slots.card import MEMORY_BYTES, Card
from fpga_pool.drivers.slots.faults import Faults
from fpga_pool.drivers.slots.functions import FunctionModel, function_model
from fpga_pool.model.catalogue import Board, Catalogue, Function
from fpga_pool.model.exceptions import BitstreamRefused, InvalidInput, NotFound, UnknownFunction
from fpga_pool.model.objects.links import ALONE, CardLinks


class SimulatedSlots(SlotDriver):
    """`cards` cards of one board of the catalogue, with serials sim0, sim1, ... and regions slot0, slot1, ..."""

    def __init__(
        self,
        catalogue: Catalogue,
        board: str,
        cards: int,
        trusted_key: Ed25519PublicKey,
        faults: Faults | None = None,
        models: Callable[[str], FunctionModel] = function_model,
        links: Mapping[str, CardLinks] | None = None,
        *,
        virtual_functions: bool = False,
        neighbour_cost: float = 0.0,
    ) -> None:
        """Create the cards.  `links` are by serial; other cards have none.  For `neighbour_cost` see `SharedDma`.

        With `virtual_functions` each slot has a PCI address like that of an SR-IOV virtual function, without a device.
        """
        if cards < 0:
            raise InvalidInput(f"cards must be >= 0, found {cards}")
        self._catalogue = catalogue
        self._board = catalogue.board(board)
        self._trusted_key = trusted_key
        self._models = models
        linked = links or {}
        self._cards = {
            serial: Card(serial, i, self._board, faults or Faults(), linked.get(serial, ALONE), neighbour_cost)
            for i, serial in enumerate(simulated_serials(cards))
        }
        self._functions: dict[SlotAddress, str] = {
            SlotAddress(card.serial, slot.region): f"ffff:{bus:02x}:{number // 8:02x}.{number % 8}"
            for bus, card in enumerate(self.inventory() if virtual_functions else ())
            for number, slot in enumerate(card.slots)
        }
        #: Functions of designs by name, each with the digest of its bitstream and the function that it simulates.
        self._admitted: dict[str, tuple[Function, str, str]] = {}
        #: Total work, in seconds, of the last job of each slot.
        self._work_s: dict[SlotAddress, float] = {}

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, catalogue: Catalogue, trusted_key: Ed25519PublicKey) -> Self:
        # The faults differ from host to host, but are the same at every start of a host.
        group = conf.driver_simulated
        faults = Faults(
            load_fails=group.load_fails,
            job_hangs=group.job_hangs,
            card_disappears=group.card_disappears,
            card_returns_after_s=group.card_returns_after_s,
            seed=1000 * group.fault_seed + zlib.crc32(conf.agent.host.encode()) % 1000,
        )
        links = configured_links(conf, simulated_serials(group.cards))
        board = configured_board(conf, catalogue)
        return cls(
            catalogue, board.name, group.cards, trusted_key, faults, links=links,
            virtual_functions=group.virtual_functions, neighbour_cost=group.neighbour_cost,
        )  # fmt: skip

    def inventory(self) -> Sequence[CardInventory]:
        return [card.inventory() for card in self._cards.values()]

    def state(self, slot: SlotAddress) -> SlotStatus:
        return self._card(slot).status(slot.region)

    def virtual_function(self, slot: SlotAddress) -> str:
        self._card(slot)
        return self._functions.get(slot, "")

    def load(self, slot: SlotAddress, bitstream: Bitstream) -> None:
        # A load takes the bitstream's size divided by the rate of the configuration port.
        card = self._card(slot)
        name, place = bitstream.manifest.function, (self._board.name, card.kind(slot.region))
        if name in self._admitted:
            function, sha256, _ = self._admitted[name]
            verify_content(bitstream, *place, function)
            if bitstream.manifest.sha256 != sha256:
                raise BitstreamRefused(f"bitstream of {name}: its digest is not the one that was admitted")
        else:
            try:
                function = self._catalogue.function(name)
            except UnknownFunction as error:
                raise BitstreamRefused(f"bitstream: {error}") from None
            verify(bitstream, self._trusted_key, *place, function)
        load_s = len(bitstream.payload) * 8 / self._board.configuration_bps
        card.configure(slot.region, function.name, load_s)

    def admit(self, function: Function, sha256: str, simulates: str) -> None:
        try:
            self._models(self._catalogue.function(simulates).name)
        except UnknownFunction as error:
            raise BitstreamRefused(f"bitstream of {function.name}: simulates: {error}") from None
        self._admitted[function.name] = function, sha256, simulates

    def run(
        self,
        slot: SlotAddress,
        function: str,
        input_bytes: int,
        source: Path,
        sink: Path,
        project_id: str,
        done: float = 0.0,
    ) -> RunResult:
        card, admitted = self._card(slot), self._admitted.get(function)
        entry = admitted[0] if admitted else self._catalogue.function(function)
        model = self._models(admitted[2] if admitted else function)
        time_model = entry.fpga_time.get(self._board.name)
        if time_model is None:
            raise InvalidInput(f"function {function} has no time model for board {self._board.name}")
        require_size(source, input_bytes)
        with source.open("rb") as file:
            remnant = file.read(MEMORY_BYTES)
        began_s = time.monotonic()
        whole_s = time_model.seconds(input_bytes)
        activity = card.begin_run(
            slot.region,
            function,
            project_id,
            remnant,
            demand_bps=entry.io_bps_on(self._board.name),
            work_s=(1.0 - done) * whole_s,
        )
        self._work_s[slot] = whole_s
        try:
            model(source, sink)
            card.wait_run(slot.region, activity)
        except BaseException:
            sink.unlink(missing_ok=True)
            raise
        finally:
            card.end_run(slot.region, activity)
        return RunResult(time.monotonic() - began_s)

    def stop(self, slot: SlotAddress) -> None:
        self._card(slot).stop(slot.region)

    def progress(self, slot: SlotAddress) -> float:
        whole_s = self._work_s.get(slot, 0.0)
        return 1.0 - min(self._card(slot).left_s(slot.region) / whole_s, 1.0) if whole_s > 0 else 0.0

    def scrub(self, slot: SlotAddress) -> None:
        self._card(slot).scrub(slot.region)

    # Only in the simulation -----------------------------------------------------------------------------------

    def memory(self, slot: SlotAddress) -> bytes:
        """Return the content of the slot's memory."""
        return self._card(slot).memory(slot.region)

    def fail_next_load(self, slot: SlotAddress) -> None:
        """Make the slot's next load fail."""
        self._card(slot).luck(slot.region).fail_next_load = True

    def hang_next_run(self, slot: SlotAddress) -> None:
        """Make the slot's next job hang."""
        self._card(slot).luck(slot.region).hang_next_run = True

    def remove_card(self, serial: str) -> None:
        """Make the card disappear until `restore_card` is called."""
        self._cards[serial].remove()

    def restore_card(self, serial: str) -> None:
        """Bring the card back."""
        self._cards[serial].restore()

    def _card(self, slot: SlotAddress) -> Card:
        card = self._cards.get(slot.card)
        if card is None or slot.region not in card.regions:
            raise NotFound(f"no slot {slot} on this host")
        return card


def configured_board(conf: cfg.ConfigOpts, catalogue: Catalogue) -> Board:
    """Return the board of all simulated cards. Raises InvalidInput, which lists the known boards, if it is unknown."""
    try:
        return catalogue.board(conf.driver_simulated.board)
    except NotFound as error:
        raise InvalidInput(f"[driver_simulated] board: {error}") from None


def simulated_serials(cards: int) -> list[str]:
    """Return the serials of the given number of cards."""
    return [f"sim{i}" for i in range(cards)]
