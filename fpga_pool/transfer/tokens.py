"""Transfer tokens: signed permission to move one job's bytes to or from one responder.

The scheduler signs with Ed25519, agents verify with the public key alone, so an agent that is taken over cannot make
tokens for another one.  Tokens that are made together have one signature: of the root of a tree of SHA-256 whose leaves
are the grants.  A token is ``GRANT.PATH.SIGNATURE``, each in base64; the path has the hashes that lead from the grant
to the root, and tells nothing of the other grants.  A port verifies the signature of a root once.

Single use is the server's business (`handler.TokenLedger`).  A token is a secret: it is never logged, and no error
message repeats it.
"""

import base64
import contextlib
import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.model.exceptions import TransferRefused

#: "copy" is for the agent that reads a result as the input of another job: the result stays.
Purpose = Literal["send", "fetch", "copy"]

_NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
#: What is hashed or signed begins with these, so that no grant is a node, and no signature for another purpose is a
#: token's.
_LEAF, _NODE, _ROOT = b"\0", b"\1", b"fpga_pool.tokens.1"
_HASH_BYTES = sha256().digest_size
#: Of 2^32 tokens made together.
_LONGEST_PATH_BYTES = 32 * _HASH_BYTES
#: Roots that a port remembers: tokens made together are presented within a short time.
_ROOTS = 1024


class TransferGrant(msgspec.Struct, frozen=True, kw_only=True):
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


def sign(grants: Sequence[TransferGrant], private_key: Ed25519PrivateKey) -> list[str]:
    """Make the tokens for `grants`, with one signature."""
    payloads = [_text(msgspec.json.encode(grant)) for grant in grants]
    if not payloads:
        return []
    level = [_leaf(payload) for payload in payloads]
    paths = [b""] * len(level)
    depth = 0
    while len(level) > 1:
        for place in range(len(paths)):
            beside = place >> depth ^ 1
            if beside < len(level):  # the last of an odd number goes up as it is
                paths[place] += level[beside]
        level = [_node(*level[place : place + 2]) for place in range(0, len(level), 2)]
        depth += 1
    signature = _text(private_key.sign(_ROOT + level[0]))
    return [f"{payload}.{_text(path)}.{signature}" for payload, path in zip(payloads, paths, strict=True)]


class Verifier:
    """What one host accepts: tokens for it that a scheduler has signed, before their deadlines."""

    def __init__(self, public_keys: Sequence[Ed25519PublicKey], host: str) -> None:
        self._public_keys = public_keys
        self._host = host
        self._require_signed = lru_cache(_ROOTS)(self._verify)  # what it refuses by an error is not remembered

    def verify(self, token: str, now_s: float) -> TransferGrant:
        """Return what `token` permits at `now_s` (epoch); refuse it with the first reason that applies.

        Reasons: ``missing_token``, ``bad_signature`` (altered, signed by another key, or no token at all),
        ``wrong_host``, ``expired``.
        """
        if not token:
            raise TransferRefused("missing_token", "the first frame contains no token; request one from the scheduler")
        grant = self._read(token)
        if grant.host != self._host:
            raise TransferRefused("wrong_host", f"the token is for host {grant.host}, this is {self._host}")
        if now_s > grant.deadline_s:
            late_s = now_s - grant.deadline_s
            raise TransferRefused("expired", f"the token expired {late_s:.0f} s ago; request a new one")
        return grant

    def _read(self, token: str) -> TransferGrant:
        payload, _, rest = token.partition(".")
        path_text, _, signature = rest.partition(".")
        # The cause is dropped: its text may hold parts of the token.
        with contextlib.suppress(TypeError, ValueError, InvalidSignature):
            path = _bytes(path_text)
            if len(path) <= _LONGEST_PATH_BYTES:
                root = _leaf(payload)
                for begin in range(0, len(path), _HASH_BYTES):
                    root = _node(root, path[begin : begin + _HASH_BYTES])
                self._require_signed(root, _bytes(signature))
                return msgspec.json.decode(_bytes(payload), type=TransferGrant)
        raise TransferRefused("bad_signature", "the token was not signed by a scheduler of this pool")

    def _verify(self, root: bytes, signature: bytes) -> None:
        """Do nothing if a scheduler has signed this root; InvalidSignature otherwise."""
        for key in self._public_keys:
            with contextlib.suppress(InvalidSignature):
                key.verify(signature, _ROOT + root)
                return
        raise InvalidSignature


def _leaf(payload: str) -> bytes:
    return sha256(_LEAF + payload.encode()).digest()


def _node(*hashes: bytes) -> bytes:
    """Return the node above two others, whatever their order; one alone takes its place."""
    return hashes[0] if len(hashes) == 1 else sha256(_NODE + min(hashes) + max(hashes)).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
