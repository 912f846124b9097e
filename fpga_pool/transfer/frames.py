r"""Frames of the data plane: the messages of both sides and their order.  Pure code: no socket, no clock.

A frame is a header of five bytes, then a body::

    +------+----------------+------------------------+
    | kind | length, 32 bit | body: `length` bytes   |
    +------+----------------+------------------------+

Kind ``J`` is a control frame: a JSON object ``{"version": 1, "type": ..., fields}`` of at most 64 KiB.  Kind ``D`` is
data: up to 512 KiB of input or result.  Data is framed too, so that a sender can send keepalives while its rate is 0, a
server can refuse in the middle, and excess bytes are detected before they are read.

Sending an input (token with purpose ``send``)::

    client                                    server
    Hello(token)                    ->
                                    <-        Accept(offset_bytes, shaped)   the part already received
    data from offset_bytes on       ->
    KeepAlive                       ->        while the schedule holds the stream
    Trailer(sha256 of all bytes)    ->
                                    <-        Staged(received_bytes)  complete, checked and on disk
                                    <-        KeepAlive               while the job waits and computes
                                    <-        Result(size_bytes, sha256), data
    ResultReceived                  ->

Fetching a result later (``fetch``): ``Hello`` is followed by the server's ``KeepAlive`` and ``Result``.  Instead of any
frame the server may send ``Refuse(reason, message)``, and instead of ``Result`` it may send ``Failed(code, message)``;
both end the connection.  The server may send ``KeepAlive`` whenever the client waits for it.

Small jobs share a connection, a *lane*: inputs of at most 64 KiB, any number of them in progress at once, each
identified by a number that the client assigns.  A lane begins with ``Order`` or ``Fetch`` instead of ``Hello``::

    client                                    server
    Order(number, token, ..), data  ->                                  the whole input in one data frame
    Fetch(number, token)            ->                                  request for a result
                                    <-        Result(.., number), data  as jobs end, in any order
                                    <-        Failed(.., number)        this job ended without a result
                                    <-        Refuse(.., number)        this order is refused; the lane continues
                                    <-        Held(number)              the result is too large for a lane
    ResultReceived(number)          ->

Either side may send ``KeepAlive`` at any time. A ``Refuse`` without a number ends the lane.

The client's source address is not part of the exchange: the client reports it to the scheduler, which signs it with the
token, and the server compares it with the address that it observes.
"""

import json
import re
import struct
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, get_args

from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES

VERSION = 1
MAX_CONTROL_BYTES = 64 * 1024
MAX_DATA_BYTES = 512 * 1024
#: Largest input, and largest result, that travels on a lane.
SMALL_BYTES = SMALL_INPUT_BYTES
#: Largest accepted integer, and largest size of a file.
MAX_SIZE_BYTES = 2**63 - 1

_HEADER = struct.Struct(">cI")
HEADER_BYTES = _HEADER.size
_CONTROL, _DATA = b"J", b"D"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BadFrame(Exception):
    """Bytes that are not a valid frame of this protocol; the message states the place, but no content."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of every connection that is not a lane."""

    type: ClassVar[str] = "hello"
    token: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """One small job. Its input follows in one data frame, unless it is empty (0 bytes)."""

    type: ClassVar[str] = "order"
    number: int
    token: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Request for the result of one job, on a lane."""

    type: ClassVar[str] = "fetch"
    number: int
    token: str


@dataclass(frozen=True, slots=True)
class Accept:
    """The server expects the input from this offset on."""

    type: ClassVar[str] = "accept"
    offset_bytes: int
    #: The connection comes from the source in the token, and the source's host is asked to limit it to the plan.
    shaped: bool = False


@dataclass(frozen=True, slots=True)
class Trailer:
    """The client has sent the whole input; the digest covers all of it, not only the part sent on this connection."""

    type: ClassVar[str] = "trailer"
    sha256: str


@dataclass(frozen=True, slots=True)
class Staged:
    """The server has the input, complete, checked and on disk: the client no longer needs to keep it."""

    type: ClassVar[str] = "staged"
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """`size_bytes` bytes of result follow in data frames."""

    type: ClassVar[str] = "result"
    size_bytes: int
    sha256: str
    #: Number of the order on a lane; 0 on a connection for one job.
    number: int = 0


@dataclass(frozen=True, slots=True)
class ResultReceived:
    """The client has received and checked the result: the server no longer needs to keep it."""

    type: ClassVar[str] = "result_received"
    number: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """The job is complete, but its result is too large for a lane and must be fetched on a separate connection."""

    type: ClassVar[str] = "held"
    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended without a result."""

    type: ClassVar[str] = "failed"
    code: str
    message: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server refuses to continue; the reason is a stable identifier."""

    type: ClassVar[str] = "refuse"
    reason: str
    message: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Sign of life of a peer that has nothing else to send."""

    type: ClassVar[str] = "keep_alive"


Frame = Hello | Order | Fetch | Accept | Trailer | Staged | Result | ResultReceived | Held | Failed | Refuse | KeepAlive

_TYPES: dict[str, type[Frame]] = {cls.type: cls for cls in get_args(Frame)}
_FIELDS = {cls: {field.name: field for field in fields(cls)} for cls in get_args(Frame)}


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a frame: whether it is data or a control frame, and the length of its body."""

    is_data: bool
    length: int


def encode(frame: Frame) -> bytes:
    """Return an encoded control frame, including its header."""
    content = {name: getattr(frame, name) for name in _FIELDS[type(frame)]}
    body = json.dumps({"version": VERSION, "type": frame.type, **content}).encode()
    if len(body) > MAX_CONTROL_BYTES:
        raise BadFrame(f"{frame.type}: {len(body)} bytes, at most {MAX_CONTROL_BYTES} fit")
    return _HEADER.pack(_CONTROL, len(body)) + body


def encode_data_header(length: int) -> bytes:
    """Return the header of a data frame; the caller sends the data after it, without a copy."""
    if not 0 < length <= MAX_DATA_BYTES:
        raise BadFrame(f"data: {length} bytes, expected 1..{MAX_DATA_BYTES}")
    return _HEADER.pack(_DATA, length)


def decode_header(header: bytes | memoryview) -> Header:
    """Parse the five bytes before each body. Raises BadFrame if they are invalid."""
    kind, length = _HEADER.unpack(header)
    if kind not in (_CONTROL, _DATA):
        raise BadFrame("header: unknown kind of frame")
    limit = MAX_CONTROL_BYTES if kind == _CONTROL else MAX_DATA_BYTES
    if not 0 < length <= limit:
        raise BadFrame(f"header: a body of {length} bytes, expected 1..{limit}")
    return Header(kind == _DATA, length)


def decode(body: bytes) -> Frame:
    """Parse the body of a control frame. Raises BadFrame for anything unexpected, including unknown fields."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise BadFrame("control frame: not JSON") from None
    if not isinstance(document, dict):
        raise BadFrame("control frame: not a JSON object")
    version = document.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise BadFrame(f"control frame: unsupported version; expected {VERSION}")
    name = document.pop("type", None)
    if not isinstance(name, str) or name not in _TYPES:
        raise BadFrame("control frame: unknown type")
    return _build(_TYPES[name], document)


def _build(cls: type[Frame], document: dict[str, Any]) -> Frame:
    known = _FIELDS[cls]
    if not document.keys() <= known.keys():
        raise BadFrame(f"{cls.type}: unknown field")
    for name, field in known.items():
        if name in document:
            _check_value(f"{cls.type}: {name}", name, field.type, document[name])
        elif field.default is MISSING:
            raise BadFrame(f"{cls.type}: {name} is missing")
    return cls(**document)


def _check_value(place: str, name: str, expected: Any, value: Any) -> None:
    if type(value) is not expected:
        raise BadFrame(f"{place}: expected {expected.__name__}")
    if expected is int and not 0 <= value <= MAX_SIZE_BYTES:
        raise BadFrame(f"{place}: out of range")
    if name == "sha256" and not _SHA256.fullmatch(value):
        raise BadFrame(f"{place}: expected 64 hexadecimal digits")
