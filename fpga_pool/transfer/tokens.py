"""Transfer tokens: signed permission to move one job's bytes to or from one responder.

A token is a JWT signed with Ed25519 (RFC 7519, RFC 8037), of one form: its header is compared as a text.  The scheduler
signs, agents verify with the public key alone, so an agent that is taken over cannot make tokens for another one.
Single use is the server's business (`handler.TokenLedger`).  A token is a secret: it is never logged, and no error
message repeats it.
"""

import base64
import contextlib
import ipaddress
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.model.exceptions import TransferRefused

#: "copy" is for the agent that reads a result as the input of another job: the result stays.
Purpose = Literal["send", "fetch", "copy"]

_NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
#: Claims that a JWT has names for.
_CLAIMS = {"host": "aud", "token_id": "jti", "deadline_s": "exp"}
#: {"alg":"EdDSA","typ":"JWT"}
_HEADER = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"


class TransferGrant(msgspec.Struct, frozen=True, kw_only=True, rename=_CLAIMS):
    """What a token permits; a token that says anything else of it is none."""

    job: _NotEmpty
    #: Counts the times the job was placed; bytes of an older attempt are not mixed with those of a newer one.
    attempt: _Count
    project_id: _NotEmpty
    #: The responder whose data port may accept it.
    host: _NotEmpty
    purpose: Purpose
    #: Exactly so many bytes of input; not one more is accepted.
    input_bytes: _Count
    #: UUID4; the responder accepts each once.
    token_id: _NotEmpty
    #: Seconds since the epoch (UTC) after which the token opens no stream; one that is open goes on.
    deadline_s: Annotated[float, msgspec.Meta(ge=0)]
    #: Where the client says that it sends from (`source_of`), if the host there shall hold its stream to the plan.
    source: str = ""
    #: It sends through a tap, where its source may be another than the one that is seen here.
    tap: bool = False


def source_of(address: str, port: int) -> str:
    """Return the name of one end of a connection, the same at both ends; ValueError if it has no IP address."""
    ip = ipaddress.ip_address(address.partition("%")[0])  # interfaces have other names elsewhere
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return f"{ip}:{port}"


def sign(grant: TransferGrant, private_key: Ed25519PrivateKey) -> str:
    """Make the token for `grant`."""
    signed = f"{_HEADER}.{_text(msgspec.json.encode(grant))}"
    return f"{signed}.{_text(private_key.sign(signed.encode()))}"


def verify(token: str, public_keys: Sequence[Ed25519PublicKey], host: str, now_s: float) -> TransferGrant:
    """Return what `token` permits on `host` at `now_s` (epoch); refuse it with the first reason that applies.

    Reasons: ``missing_token``, ``bad_signature`` (altered, signed by another key, or no token at all),
    ``wrong_host``, ``expired``.
    """
    if not token:
        raise TransferRefused("missing_token", "the first frame contains no token; request one from the scheduler")
    grant = _read(token, public_keys)
    if grant.host != host:
        raise TransferRefused("wrong_host", f"the token is for host {grant.host}, this is {host}")
    if now_s > grant.deadline_s:
        raise TransferRefused("expired", f"the token expired {now_s - grant.deadline_s:.0f} s ago; request a new one")
    return grant


def _read(token: str, public_keys: Sequence[Ed25519PublicKey]) -> TransferGrant:
    signed, _, signature = token.rpartition(".")
    header, _, payload = signed.partition(".")
    # The cause is dropped: its text may hold parts of the token.
    with contextlib.suppress(TypeError, ValueError):
        for key in public_keys if header == _HEADER else ():
            with contextlib.suppress(InvalidSignature):
                key.verify(_bytes(signature), signed.encode())
                return msgspec.json.decode(_bytes(payload), type=TransferGrant)
    raise TransferRefused("bad_signature", "the token was not signed by a scheduler of this pool")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
