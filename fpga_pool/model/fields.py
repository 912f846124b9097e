"""Types of fields, with their bounds and their representation in the REST API.

A description completes "expected ..." in an error message, and is part of the OpenAPI document.
"""

import ipaddress
import re
from enum import Enum, auto
from typing import Annotated, TypeVar

from msgspec import Meta

T = TypeVar("T")

_LARGEST = 1.7976931348623157e308


class Rest(Enum):
    """How the REST API represents a field, if its type alone does not determine that."""

    #: Not shown; in a request: not taken from the body.
    INTERNAL = auto()
    #: Shown with a single object, but not in lists.
    DETAIL = auto()
    #: The fields of its value are shown instead of it.
    FLAT = auto()
    #: Shown as ISO 8601 in UTC.
    MOMENT = auto()
    #: Shown as null if there is no limit.
    LIMIT = auto()
    #: In a request: chosen by the client, or by the API if it is missing.
    CHOSEN = auto()


Internal = Annotated[T, Rest.INTERNAL]
Detail = Annotated[T, Rest.DETAIL]
Flat = Annotated[T, Rest.FLAT]

#: A number other than NaN.  Infinity is allowed, but preserved only in JSON read by Python (RPC, outbox, journals).
Number = Annotated[float, Meta(ge=-_LARGEST)]
#: A point in time, in UTC seconds since the epoch.
Moment = Annotated[float, Meta(ge=-_LARGEST), Rest.MOMENT]
#: A limit of a rate in bits per second; infinite = no limit.
Limit = Annotated[float, Meta(ge=-_LARGEST), Rest.LIMIT]

# Types of requests and messages: they bound what a peer can send, so that other code may rely on the bounds

_UUID = "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
Uuid = Annotated[str, Meta(pattern=rf"^{_UUID}\Z", description="a uuid")]
#: Includes uuids.  Ids are used in file names, so they must not contain path separators or dots.
_ID = "[0-9A-Za-z][0-9A-Za-z-]{0,63}"
Id = Annotated[str, Meta(pattern=rf"^{_ID}\Z", description="letters, digits and hyphens")]
OptionalId = Annotated[str, Meta(pattern=rf"^({_ID})?\Z", description="letters, digits and hyphens, or nothing")]
#: Chosen by the client that sends a request, so that a repeated request is recognised.
ChosenUuid = Annotated[Uuid, Rest.CHOSEN]
#: Name of a host to enroll.
HostName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z", description="1 to 255 letters, digits, dots, dashes or _"),
]
#: A Keystone project, or the project in the headers of a request if the API works without authentication.
ProjectId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z",
        description="1 to 64 letters, digits, dots, dashes, underscores or @",
    ),
]
#: Characters that databases and terminals refuse or misinterpret: control characters, line separators, marks of the
#: writing direction, halves of surrogate pairs.
_NOT_PLAIN = r"\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_PLAIN_TEXT = rf"^[^{_NOT_PLAIN}]*\Z"
Text = Annotated[
    str, Meta(max_length=255, pattern=_PLAIN_TEXT, description="at most 255 characters, no control characters")
]
#: Longest run time that may be requested, in seconds: no reservation is possible for work without an end.
LONGEST_S = 3.2e7
Seconds = Annotated[
    float, Meta(gt=0, le=LONGEST_S, description=f"a number of seconds above 0, {LONGEST_S:.0f} at most")
]
ByteCount = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a number of bytes")]
ProcessId = Annotated[int, Meta(ge=1, le=2**31 - 1, description="the id of a process")]
#: Size of a result; bounded because the sizes are summed.
ResultBytes = Annotated[int, Meta(ge=0, le=2**42, description="a number of bytes, 4 TiB at most")]
#: A counter; the bound leaves room for incrementing it.
Count = Annotated[int, Meta(ge=0, le=2**62, description="a number of at least 0")]
Port = Annotated[int, Meta(ge=1, le=65535, description="a port")]
Priority = Annotated[int, Meta(ge=-100, le=100, description="a priority from -100 to 100")]
#: A fairness group of a batch (makespan paper, section 3.5): lower ones compute first.
Group = Annotated[int, Meta(ge=0, le=2**31 - 1, description="a whole number from 0 on")]
Share = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")]
#: A duration of at most about 30 years.
Duration = Annotated[float, Meta(ge=0, le=1e9, description="seconds from 0 to 1e9")]
#: The last second of the year 9999, UTC seconds since the epoch.
LATEST = 253402300799
#: A point in time that a peer reports.
ReportedMoment = Annotated[float, Meta(ge=0, le=LATEST, description="UTC seconds since the epoch")]
#: A rate in bits per second; infinite = without limit.  It is not 0, because nothing could be planned with that.
Rate = Annotated[float, Meta(ge=1, description="bits per second, at least 1")]
#: A measured rate, which is finite.
MeasuredRate = Annotated[float, Meta(ge=0, le=_LARGEST, description="bits per second")]
_LONGEST_REASON = 4096
#: A human-readable reason for a failure, in one line; `short_reason` converts any text to one.
Reason = Annotated[
    str,
    Meta(
        max_length=_LONGEST_REASON,
        pattern=_PLAIN_TEXT,
        description=f"at most {_LONGEST_REASON} characters, no control characters",
    ),
]
#: Id of a request to the API, in the format of oslo.middleware; "" = no request.
RequestId = Annotated[str, Meta(pattern=r"^(req-[0-9A-Za-z-]{1,60})?\Z", description="the id of a request, or nothing")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", description="a SHA-256 digest")]


def short_reason(reason: str) -> str:
    """Convert any text to a `Reason`, by replacing control characters and truncating it."""
    reason = re.sub(f"[{_NOT_PLAIN}]", " ", reason)
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 3] + "..."


def require_address(name: str, value: str) -> None:
    """Raise ValueError if a value is not an IP address; for `__post_init__`, as no pattern can check that."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{name}: expected an IP address, found {value[:45]!r}") from None


def text(longest: int) -> Meta:
    """Return the metadata of a text of at most `longest` characters."""
    description = f"at most {longest} characters, no control characters"
    return Meta(max_length=longest, pattern=_PLAIN_TEXT, description=description)
