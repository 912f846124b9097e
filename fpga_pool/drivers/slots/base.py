"""Interface of slot drivers; one contract suite runs over all drivers of the group `fpga_pool.slot_drivers`."""

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
    """The job was ended by `stop`; the slot itself is sound."""


@dataclass(frozen=True, slots=True, order=True)
class SlotAddress:
    """A slot within its host; stable across reboots."""

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
    #: False while the card does not answer; its slots are FAULTED meanwhile, and EMPTY when it is back.
    present: bool
    #: How it is linked to other cards, and its slots to each other.
    links: CardLinks = ALONE


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """What a slot does now.  DRAINED is the operator's business: no driver reports it."""

    state: SlotState
    #: Function loaded, "" = none.
    function: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A job that computed to its end."""

    #: From the start of the computation to its end, as it really was.
    seconds: float


class SlotDriver(ABC):
    """The slots of one host.  All methods may be called from several threads at once.

    Refusals leave the slot as it was: NotFound for an address that is not in the inventory, Conflict for a slot that
    is not in the state the call needs.  SlotFault says that the slot failed.
    """

    @classmethod
    @abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, catalogue: Catalogue, trusted_key: Ed25519PublicKey) -> Self:
        """Return the driver of this host as configured; bitstreams must be signed under `trusted_key`.

        InvalidInput names the option that is wrong.
        """

    @abstractmethod
    def inventory(self) -> Sequence[CardInventory]:
        """Return all cards, absent ones too, always in the same order."""

    @abstractmethod
    def state(self, slot: SlotAddress) -> SlotStatus:
        """Return what the slot does now; never blocks, never fails for a slot of the inventory."""

    @abstractmethod
    def load(self, slot: SlotAddress, bitstream: Bitstream) -> None:
        """Load a function: blocks until the slot is READY.

        The bitstream is verified first: BitstreamRefused leaves the slot as it was.  Conflict if the slot is LOADING
        or BUSY; loading a FAULTED slot repairs it.  SlotFault leaves it FAULTED.  Slot memory is not touched.
        """

    def admit(self, function: Function, sha256: str, simulates: str) -> None:
        """Let the function of a design be loaded from the bitstream of this digest, for which the caller vouches.

        A slot without hardware computes what the function `simulates` of the catalogue computes.
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
        """Compute `sink` from `source`: blocks until the job ends.  A share of the work may be `done` already.

        Conflict if the slot is not READY with this function, or if its memory still holds another project's data.
        InvalidInput if the function cannot take the input, or it has not `input_bytes`; the slot stays READY.
        OSError if `source` or `sink` cannot be used; the slot stays READY.  RunStopped after `stop`; the slot is READY
        again.  SlotFault if the slot failed, or hung until it was stopped: it is FAULTED.  Whatever is raised, no
        `sink` is left.
        """

    @abstractmethod
    def stop(self, slot: SlotAddress) -> None:
        """Stop the slot's job, if there is one; its `run` returns the outcome.  Does not wait for that."""

    def virtual_function(self, slot: SlotAddress) -> str:
        """Return the PCI address (dddd:bb:ss.f) through which a guest drives the slot itself; always the same.

        "" = the host drives it, and guests get a channel to it.  Then the slot's memory is not the host's to guard:
        `load` and `scrub` have to reset the function, so that no guest that has it still has anything to do with it.
        """
        return ""

    def progress(self, slot: SlotAddress) -> float:
        """Return the share of its work that the slot's job has done; 0 if that is unknown.  Never blocks."""
        return 0.0

    @abstractmethod
    def scrub(self, slot: SlotAddress) -> None:
        """Clear the slot's memory, so that another project may use it.  Conflict if the slot is LOADING or BUSY."""


def require_size(source: Path, input_bytes: int) -> None:
    """Check that an input is as long as announced; InvalidInput names both lengths."""
    found_bytes = source.stat().st_size
    if found_bytes != input_bytes:
        raise InvalidInput(f"input: expected {input_bytes} bytes as announced, found {found_bytes}")


def configured_links(conf: cfg.ConfigOpts, serials: Sequence[str]) -> Mapping[str, CardLinks]:
    """Return how the cards of this host are linked, by serial: no card knows its cables.

    InvalidInput names what is wrong in [agent] enclosure.
    """
    try:
        return read_enclosures(conf.agent.enclosure, conf.agent.slot_links, serials)
    except InvalidInput as error:
        raise InvalidInput(f"[agent] enclosure: {error}") from None
