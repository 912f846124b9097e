"""Types of fields, each with its bounds and with how the REST API shows it.

A description completes "expected ..." in an error, and stands in the OpenAPI document.
"""

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

# Of requests

#: Chosen by the client that sends a request, so that its repeat is recognised.
ChosenUuid = Annotated[
    str,
    Meta(pattern="^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\\Z", description="a uuid"),
    Rest.CHOSEN,
]
Uuid = Annotated[str, Meta(pattern="^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\\Z", description="a uuid")]
#: Text that databases and terminals take: no control characters, no halves of surrogate pairs.
_PLAIN_TEXT = r"^[^\u0000-\u001f\u007f\ud800-\udfff]*\Z"
Text = Annotated[
    str, Meta(max_length=255, pattern=_PLAIN_TEXT, description="at most 255 characters, no control characters")
]
Seconds = Annotated[float, Meta(gt=0, le=_LARGEST, description="a number of seconds above 0")]
ByteCount = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a number of bytes")]


def text(longest: int) -> Meta:
    """Return the bounds of a text of at most `longest` characters."""
    description = f"at most {longest} characters, no control characters"
    return Meta(max_length=longest, pattern=_PLAIN_TEXT, description=description)
