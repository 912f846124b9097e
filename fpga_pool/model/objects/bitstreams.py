"""Bitstreams of the catalogue in the libraries of hosts, of which the pool stores nothing, and designs of tenants."""

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
    """The bitstream of a function for one kind of slots of a board, and whether a host can load it."""

    function: str
    #: Version of the function in the catalogue.
    version: str
    board: str
    #: Kind of slots.
    kind: str
    #: Host whose library was inspected; "" = no host's library could be.
    host: str = ""
    #: Size and digest of the payload; None and "" = the bitstream does not exist.
    size_bytes: int | None = None
    sha256: str = ""
    #: Public key of its signature; "" = not signed with the key that the host trusts.
    signer: str = ""
    #: Whether it is signed, unaltered, and for this function, version, board and kind.
    verified: bool = False
    #: Human-readable reason why it is not verified.
    reason: str = ""
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("name", "uuid")

    @property
    def name(self) -> str:
        """Its path in a library: board/kind/function."""
        return f"{self.board}/{self.kind}/{self.function}"

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the bitstream."""
        return str(uuid.uuid5(SLOT_NAMESPACE, f"bitstream {self.name}"))


# ---- Designs of tenants

#: A bitstream is sent over the message bus in one message, in base64; brokers accept 16 MiB by default.
MOST_DESIGN_BYTES = 8 << 20


class DesignState(StrEnum):
    """State of a design."""

    #: Waits for the decision of an operator.
    SUBMITTED = "SUBMITTED"
    #: Jobs may use its function.
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    #: It was approved before, but must no longer be loaded.
    REVOKED = "REVOKED"


class DesignManifest(Message, frozen=True, kw_only=True):
    """Description of a design's function by its tenant; the function fits one kind of slots of one board."""

    #: Restricted because traits of Placement are case-insensitive and allow no other characters.
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
    #: DMA rate in bits per second when it runs alone.
    io_bps: Annotated[float, Meta(ge=0, le=1e15, description="bits per second from 0 to 1e15")]
    #: Computation time on the board: a_s + b_s_per_byte x bytes of input.
    a_s: Duration = 0.0
    b_s_per_byte: Annotated[float, Meta(gt=0, le=1e9, description="seconds per byte above 0")]
    #: Speedup over one standard vCPU, for large inputs.
    speedup: Annotated[float, Meta(gt=0, le=1e9, description="a number above 0")] = 1.0
    #: Function of the catalogue that slots without hardware compute instead.
    simulates: Annotated[str, text(64)]

    def signed(self, sha256: str) -> bytes:
        """Return the bytes that a signer signs: the manifest and the digest of the bitstream as canonical JSON."""
        fields = {name: getattr(self, name) for name in DesignManifest.__struct_fields__}
        return json.dumps(to_builtins(fields) | {"sha256": sha256}, sort_keys=True, separators=(",", ":")).encode()


def function_of(name: str, design_uuid: str) -> str:
    """Return the function name of a design for jobs; its dot distinguishes it from functions of the catalogue."""
    return f"{name}.{design_uuid[:8]}"


def is_design(function: str) -> bool:
    """Return whether a function belongs to a design."""
    return "." in function


class KnownDesign(Message, frozen=True, kw_only=True):
    """An approved design, as needed by services that choose hosts for instances."""

    function: str
    #: The only project whose instances may use it; "" = all projects.
    project_id: str
    manifest: DesignManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A function that a tenant has submitted, with its bitstream."""

    uuid: str
    project_id: str
    user_id: str
    #: Name of its function for jobs (`function_of`), unique among designs.
    function: str
    manifest: Flat[DesignManifest]
    size_bytes: int
    sha256: str
    created_at: Moment
    #: Public key of a trusted signer that has signed it; "" = none.
    signer: str = ""
    state: DesignState = DesignState.SUBMITTED
    #: Whether jobs of all projects may use it.
    public: bool = False
    #: Human-readable reason for the last decision.
    reason: str = ""
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def name(self) -> str:
        """Its name, unique in its project."""
        return self.manifest.name
