"""Bitstreams of the catalogue as the library of a host has them, of which nothing is stored, and designs of tenants."""

import json
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, to_builtins

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Count, Detail, Duration, Flat, Internal, Moment, text
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import SLOT_NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class BitstreamInfo:
    """What loads a function into slots of a kind of a board, and whether a host can load it."""

    function: str
    #: That of the catalogue.
    version: str
    board: str
    #: Kind of slots.
    kind: str
    #: Whose library was looked at; "" = that of no host could be.
    host: str = ""
    #: Of the payload; None and "" = it is not there.
    size_bytes: int | None = None
    sha256: str = ""
    #: Public key that its signature is of; "" = it is not of the key that the host trusts.
    signer: str = ""
    #: It is signed, unaltered, and for this function, version, board and kind.
    verified: bool = False
    #: Why it is not, for people.
    reason: str = ""
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("name", "uuid")

    @property
    def name(self) -> str:
        """Where it is in a library: board/kind/function."""
        return f"{self.board}/{self.kind}/{self.function}"

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the bitstream."""
        return str(uuid.uuid5(SLOT_NAMESPACE, f"bitstream {self.name}"))


# ---- Designs of tenants

#: A bitstream crosses the message bus in one message, whose broker takes 16 MiB by default, in base64.
MOST_DESIGN_BYTES = 8 << 20


class DesignState(StrEnum):
    """Where a design is in its life."""

    #: An operator has to decide.
    SUBMITTED = "SUBMITTED"
    #: Jobs may name its function.
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    #: It was approved, and must not be loaded any more.
    REVOKED = "REVOKED"


class DesignManifest(Message, frozen=True, kw_only=True):
    """The function of a design, as its tenant describes it; it fits one kind of slots of one board."""

    #: Traits of Placement know neither the case of letters nor other signs.
    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9][a-z0-9_]{0,39}\Z",
            description="1 to 40 lower-case letters, digits and underscores, no underscore first",
        ),
    ]
    version: Annotated[str, text(32)] = "1"
    board: Annotated[str, text(64)]
    kind: Annotated[str, text(64)]
    luts: Count = 0
    ffs: Count = 0
    brams: Count = 0
    urams: Count = 0
    dsps: Count = 0
    #: Bits per second that it moves over the card's DMA when it runs alone.
    io_bps: Annotated[float, Meta(ge=0, le=1e15, description="bits per second from 0 to 1e15")]
    #: Its time on the board: a_s + b_s_per_byte x bytes of input.
    a_s: Duration = 0.0
    b_s_per_byte: Annotated[float, Meta(gt=0, le=1e9, description="seconds per byte above 0")]
    #: Over one standard vCPU, for large inputs.
    speedup: Annotated[float, Meta(gt=0, le=1e9, description="a number above 0")] = 1.0
    #: The function of the catalogue that slots without hardware compute in its place.
    simulates: Annotated[str, text(64)]

    def signed(self, sha256: str) -> bytes:
        """Return what a signer of the design signs: its manifest and the digest of its bitstream, as canonical JSON."""
        fields = {name: getattr(self, name) for name in DesignManifest.__struct_fields__}
        return json.dumps(to_builtins(fields) | {"sha256": sha256}, sort_keys=True, separators=(",", ":")).encode()


def function_of(name: str, design_uuid: str) -> str:
    """Return what jobs call the function of a design; no function of a catalogue has a dot in its name."""
    return f"{name}.{design_uuid[:8]}"


def is_design(function: str) -> bool:
    """Return whether a function is that of a design."""
    return "." in function


class KnownDesign(Message, frozen=True, kw_only=True):
    """An approved design as those know it who choose hosts for instances."""

    function: str
    #: The only one whose instances may have it; "" = those of all projects may.
    project_id: str
    manifest: DesignManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A function that a tenant has submitted, with its bitstream."""

    uuid: str
    project_id: str
    user_id: str
    #: What jobs call it (`function_of`); another design never has the same one.
    function: str
    manifest: Flat[DesignManifest]
    size_bytes: int
    sha256: str
    created_at: Moment
    #: Public key of a trusted signer that has signed it; "" = none has.
    signer: str = ""
    state: DesignState = DesignState.SUBMITTED
    #: Jobs of all projects may name it.
    public: bool = False
    #: Why it was decided so, for people.
    reason: str = ""
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def name(self) -> str:
        """Its name, unique in its project."""
        return self.manifest.name
