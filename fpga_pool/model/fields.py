"""Types of fields, each with its bounds and with how the REST API shows it.

A description completes "expected ..." in an error, and stands in the OpenAPI document.
"""

import ipaddress
from enum import Enum, auto
from typing import Annotated, TypeVar

from msgspec import Meta

T = TypeVar("T")

_LARGEST = 1.7976931348623157e308


class Rest(Enum):
    """How the REST API shows a field, where its type alone does not say so."""

    #: Not at all; of a request: not taken from the body.
    INTERNAL = auto()
    #: Where one object is shown, and not in lists.
    DETAIL = auto()
    #: Its own fields are shown in its place.
    FLAT = auto()
    #: ISO 8601 in UTC.
    MOMENT = auto()
    #: null where there is no limit.
    LIMIT = auto()
    #: Of a request: given by the client, or else by the API.
    CHOSEN = auto()


Internal = Annotated[T, Rest.INTERNAL]
Detail = Annotated[T, Rest.DETAIL]
Flat = Annotated[T, Rest.FLAT]

#: A number that is not NaN; infinity is one, and survives only where JSON is read by Python (RPC, outbox, journals).
Number = Annotated[float, Meta(ge=-_LARGEST)]
#: A point in time, in UTC seconds since the epoch.
Moment = Annotated[float, Meta(ge=-_LARGEST), Rest.MOMENT]
#: A rate in bits per second that may be without limit: infinite.
Limit = Annotated[float, Meta(ge=-_LARGEST), Rest.LIMIT]

# Of requests and messages: what a peer sends is bounded by its type, and the code behind may rely on it

_UUID = "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
Uuid = Annotated[str, Meta(pattern=rf"^{_UUID}\Z", description="a uuid")]
#: Uuids are among them; names of files are made of them, so that there is nothing in them that leads elsewhere.
_ID = "[0-9A-Za-z][0-9A-Za-z-]{0,63}"
Id = Annotated[str, Meta(pattern=rf"^{_ID}\Z", description="letters, digits and hyphens")]
OptionalId = Annotated[str, Meta(pattern=rf"^({_ID})?\Z", description="letters, digits and hyphens, or nothing")]
#: Chosen by the client that sends a request, so that its repeat is recognised.
ChosenUuid = Annotated[Uuid, Rest.CHOSEN]
#: A host that is to be enrolled.
HostName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z", description="1 to 255 letters, digits, dots, dashes or _"),
]
#: A project of Keystone, or of the headers of a request where nobody authenticates.
ProjectId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z",
        description="1 to 64 letters, digits, dots, dashes, underscores or @",
    ),
]
#: Text that databases and terminals take: no control characters, no halves of surrogate pairs.
_PLAIN_TEXT = r"^[^\u0000-\u001f\u007f\ud800-\udfff]*\Z"
Text = Annotated[
    str, Meta(max_length=255, pattern=_PLAIN_TEXT, description="at most 255 characters, no control characters")
]
Seconds = Annotated[float, Meta(gt=0, le=_LARGEST, description="a number of seconds above 0")]
ByteCount = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a number of bytes")]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a number of at least 0")]
Port = Annotated[int, Meta(ge=1, le=65535, description="a port")]
Priority = Annotated[int, Meta(ge=-100, le=100, description="a priority from -100 to 100")]
Share = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")]
#: How long something took: at most some 30 years.
Duration = Annotated[float, Meta(ge=0, le=1e9, description="seconds from 0 to 1e9")]
#: A point in time that a peer reports, UTC seconds since the epoch, until the year 9999.
ReportedMoment = Annotated[float, Meta(ge=0, le=253402300799, description="UTC seconds since the epoch")]
#: A rate in bits per second; infinite = without limit.
Rate = Annotated[float, Meta(ge=0, description="bits per second")]
#: One that was measured, and so is finite.
MeasuredRate = Annotated[float, Meta(ge=0, le=_LARGEST, description="bits per second")]
#: Why something failed, in words for people; longer texts are cut by their sender (`short_reason`).
_LONGEST_REASON = 4096
Reason = Annotated[str, Meta(max_length=_LONGEST_REASON, description=f"at most {_LONGEST_REASON} characters")]
#: Id of a request to the API, as oslo.middleware makes them; "" = of no request.
RequestId = Annotated[str, Meta(pattern=r"^(req-[0-9A-Za-z-]{1,60})?\Z", description="the id of a request, or nothing")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", description="a SHA-256 digest")]


def short_reason(reason: str) -> str:
    """Return a `Reason` of a text of any length."""
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 3] + "..."


def require_address(name: str, value: str) -> None:
    """Raise ValueError unless a value is an IP address; for `__post_init__`, as no pattern describes one."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{name}: expected an IP address, found {value[:45]!r}") from None


def text(longest: int) -> Meta:
    """Return the bounds of a text of at most `longest` characters."""
    description = f"at most {longest} characters, no control characters"
    return Meta(max_length=longest, pattern=_PLAIN_TEXT, description=description)
