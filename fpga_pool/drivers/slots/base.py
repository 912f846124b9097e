"""Interface of slot drivers. One contract test suite runs over all drivers of the group `fpga_pool.slot_drivers`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from oslo_config import cfg

from fpga_pool.drivers.slots.bitstream import Bitstream
from fpga_pool.model.catalogue import Catalogue, Function
from fpga_pool.model.exceptions import BitstreamRefused, InvalidInput, SlotFault
from fpga_pool.model.objects.links import ALONE, CardLinks, read_enclosures
from fpga_pool.model.objects.pool import SlotState


class RunStopped(SlotFault):
    """The job was ended by `stop`; the slot itself has not failed."""


@dataclass(frozen=True, slots=True, order=True)
class SlotAddress:
    """The address of a slot on its host, stable across reboots."""

    #: Serial of the card.
    card: str
    region: str

    def __str__(self) -> str:
        return f"{self.card}/{self.region}"


@dataclass(frozen=True, slots=True)
class SlotInventory:
    """One DPR region of a card."""

    region: str
    kind: str


@dataclass(frozen=True, slots=True)
class CardInventory:
    """One card of this host."""

    serial: str
    #: Name of its type in the catalogue.
    board: str
    slots: tuple[SlotInventory, ...]
    #: False while the card does not respond. Its slots are then FAULTED, and EMPTY once it is back.
    present: bool
    #: Its links to other cards, and the links between its slots.
    links: CardLinks = ALONE


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """The current state of a slot.  Drivers never report DRAINED, which is set by the operator."""

    state: SlotState
    #: Function loaded, "" = none.
    function: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a completed job."""

    #: Measured time from the start of the computation to its end.
    seconds: float


class SlotDriver(ABC):
    """The slots of one host.  All methods may be called from several threads at once.

    A refused call leaves the slot unchanged: NotFound for an address that is not in the inventory, Conflict for a slot
    that is not in the required state.  SlotFault is raised if the slot failed.
    """

    @classmethod
    @abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, catalogue: Catalogue, trusted_key: Ed25519PublicKey) -> Self:
        """Return the driver of this host as configured; bitstreams must be signed under `trusted_key`.

        Raises InvalidInput, which names the invalid option.
        """

    @abstractmethod
    def inventory(self) -> Sequence[CardInventory]:
        """Return all cards, including absent ones, always in the same order."""

    @abstractmethod
    def state(self, slot: SlotAddress) -> SlotStatus:
        """Return the current state of a slot.  Never blocks, and never fails for a slot of the inventory."""

    @abstractmethod
    def load(self, slot: SlotAddress, bitstream: Bitstream) -> None:
        """Load a function and block until the slot is READY.

        The bitstream is verified first; after BitstreamRefused the slot is unchanged.  Raises Conflict if the slot is
        LOADING or BUSY.  Loading a FAULTED slot repairs it.  After SlotFault it is FAULTED.  Slot memory is kept.
        """

    def admit(self, function: Function, sha256: str, simulates: str) -> None:
        """Allow the function of a design to be loaded from the bitstream with this digest, which the caller trusts.

        A simulated slot runs the catalogue function `simulates` in its place.
        """
        raise BitstreamRefused(f"bitstream of {function.name}: this driver loads functions of the catalogue only")

    @abstractmethod
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
        """Compute `sink` from `source` and block until the job ends.  `done` is the share of the work already done.

        Raises Conflict if the slot is not READY with this function, or if its memory still holds another project's
        data; InvalidInput if the function cannot process the input or it is not `input_bytes` long, and OSError if
        `source` or `sink` cannot be used (the slot stays READY in both cases); RunStopped after `stop` (the slot is
        READY again); SlotFault if the slot failed, or hung until it was stopped (it is FAULTED).  No `sink` is left
        behind after any exception.
        """

    @abstractmethod
    def stop(self, slot: SlotAddress) -> None:
        """Stop the slot's job, if there is one, without waiting for it.  Its `run` call reports the outcome."""

    def virtual_function(self, slot: SlotAddress) -> str:
        """Return the fixed PCI address (dddd:bb:ss.f) through which a guest drives the slot directly; "" = none.

        Without an address the host drives the slot, and guests get a channel to it.  With one, the host cannot guard
        the slot's memory: `load` and `scrub` must reset the function, so that a guest that still has it loses access.
        """
        return ""

    def progress(self, slot: SlotAddress) -> float:
        """Return the share of its work that the slot's job has completed; 0 if unknown.  Never blocks."""
        return 0.0

    @abstractmethod
    def scrub(self, slot: SlotAddress) -> None:
        """Clear the slot's memory for use by another project.  Raises Conflict if the slot is LOADING or BUSY."""


def require_size(source: Path, input_bytes: int) -> None:
    """Check that an input has the announced length. Raises InvalidInput, which names both lengths, if not."""
    found_bytes = source.stat().st_size
    if found_bytes != input_bytes:
        raise InvalidInput(f"input: expected {input_bytes} bytes as announced, found {found_bytes}")


def configured_links(conf: cfg.ConfigOpts, serials: Sequence[str]) -> Mapping[str, CardLinks]:
    """Return the links of this host's cards by serial, from the configuration, as cards cannot detect their cables.

    Raises InvalidInput if [agent] enclosure is invalid.
    """
    try:
        return read_enclosures(conf.agent.enclosure, conf.agent.slot_links, serials)
    except InvalidInput as error:
        raise InvalidInput(f"[agent] enclosure: {error}") from None
