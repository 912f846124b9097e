"""A bitstream of the catalogue as the library of a host has it: nothing is stored of it."""

import uuid
from dataclasses import dataclass
from typing import ClassVar

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
