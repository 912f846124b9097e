"""Frames between a guest and its host on a channel: one JSON object per line.

Each message begins with a line end, which terminates an unfinished line: the program on either side may be killed and
replaced while the channel stays.  A reader skips invalid lines, and each message names the request that it is about.

From the guest::

    {"id": ..., "op": "describe"}
    {"id": ..., "op": "run", "function": "sha256" or "", "bytes": 5}
    {"id": ..., "op": "data", "data": base64}      any number of times
    {"id": ..., "op": "end", "sha256": ...}        of all the data

From the host: ``{"id", "op": "about", "function", "slot", "max_input_bytes"}``; or ``data`` and ``end`` with the
result; or ``{"id", "op": "error", "code", "message"}``.
"""

import base64
import binascii
import json
from typing import Any, Dict, Optional

#: Prefix of the names of accelerator ports, followed by their number.
PORT_PREFIX = "org.fpga_pool."

#: Maximum number of data bytes in one message, and maximum length of a line.
CHUNK_BYTES = 48 * 1024
LINE_BYTES = 128 * 1024

Message = Dict[str, Any]


def encode(message: Message) -> bytes:
    """Return the encoded message; `data` may be bytes."""
    if "data" in message:
        message = dict(message, data=base64.b64encode(message["data"]).decode())
    return b"\n" + json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> Optional[Message]:
    """Return the message of a line, with its `data` as bytes; None if it is invalid."""
    try:
        message = json.loads(line.decode("ascii"))
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("id", "op")):
            return None
        if "data" in message:
            message["data"] = base64.b64decode(message["data"], validate=True)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None
    return message


class Lines:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""
        #: The current line is too long, and is skipped up to its end.
        self._skipping = False

    def feed(self, data: bytes) -> "list[Message]":
        """Add received bytes; return the messages that they complete."""
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._skipping:
            del lines[0]
            self._skipping = False
        if self._skipping or len(rest) > LINE_BYTES:
            rest, self._skipping = b"", True
        self._rest = rest
        return [message for line in lines for message in [decode(line)] if line and message is not None]
