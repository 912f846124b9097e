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
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.model.exceptions import InvalidInput, TransferRefused

#: "copy" is for the agent that reads a result as the input of another job: the result stays.
Purpose = Literal["send", "fetch", "copy"]

#: {"alg":"EdDSA","typ":"JWT"}
_HEADER = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferGrant:
    """What a token permits."""

    job: str
    #: Counts the times the job was placed; bytes of an older attempt are not mixed with those of a newer one.
    attempt: int
    project_id: str
    #: The responder whose data port may accept it.
    host: str
    purpose: Purpose
    #: Exactly so many bytes of input; not one more is accepted.
    input_bytes: int
    #: UUID4; the responder accepts each once.
    token_id: str
    #: Seconds since the epoch (UTC) after which the token opens no stream; one that is open goes on.
    deadline_s: float
    #: Where the client says that it sends from (`source_of`), if the host there shall hold its stream to the plan.
    source: str = ""
    #: It sends through a tap, where its source may be another than the one that is seen here.
    tap: bool = False

    def __post_init__(self) -> None:
        for name in ("job", "project_id", "host", "token_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidInput(f"{name}: expected a non-empty string")
        for name in ("attempt", "input_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InvalidInput(f"{name}: expected an integer of at least 0")
        if self.purpose not in get_args(Purpose):
            raise InvalidInput(f"purpose: expected one of {', '.join(get_args(Purpose))}")
        if not isinstance(self.source, str):
            raise InvalidInput("source: expected a string")
        if type(self.tap) is not bool:
            raise InvalidInput("tap: expected true or false")
        if type(self.deadline_s) not in (int, float) or not self.deadline_s >= 0:
            raise InvalidInput("deadline_s: expected seconds since the epoch")


def source_of(address: str, port: int) -> str:
    """Return the name of one end of a connection, the same at both ends; ValueError if it has no IP address."""
    ip = ipaddress.ip_address(address.partition("%")[0])  # interfaces have other names elsewhere
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return f"{ip}:{port}"


def sign(grant: TransferGrant, private_key: Ed25519PrivateKey) -> str:
    """Make the token for `grant`."""
    claims = {
        "jti": grant.token_id,
        "aud": grant.host,
        "exp": grant.deadline_s,
        "job": grant.job,
        "attempt": grant.attempt,
        "project_id": grant.project_id,
        "purpose": grant.purpose,
        "input_bytes": grant.input_bytes,
        "source": grant.source,
        "tap": grant.tap,
    }
    signed = f"{_HEADER}.{_text(msgspec.json.encode(claims))}"
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
    try:
        claims = _claims(token, public_keys)
        return TransferGrant(
            job=claims["job"],
            attempt=claims["attempt"],
            project_id=claims["project_id"],
            host=claims["aud"],
            purpose=claims["purpose"],
            input_bytes=claims["input_bytes"],
            token_id=claims["jti"],
            deadline_s=claims["exp"],
            source=claims["source"],
            tap=claims["tap"],
        )
    # The cause is dropped: its text may hold parts of the token.
    except (InvalidSignature, InvalidInput, KeyError, TypeError, ValueError):
        raise TransferRefused("bad_signature", "the token was not signed by a scheduler of this pool") from None


def _claims(token: str, public_keys: Sequence[Ed25519PublicKey]) -> Any:
    signed, _, signature = token.rpartition(".")
    header, _, payload = signed.partition(".")
    if header == _HEADER:
        for key in public_keys:
            with contextlib.suppress(InvalidSignature):
                key.verify(_bytes(signature), signed.encode())
                return msgspec.json.decode(_bytes(payload))
    raise InvalidSignature


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
