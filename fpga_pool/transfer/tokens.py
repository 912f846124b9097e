"""Transfer tokens: signed permissions to transfer one job's bytes to or from one responder.

The scheduler signs with Ed25519, and agents verify with the public key, so a compromised agent cannot create tokens for
other agents.  Tokens that are created together share one signature, of the root of a SHA-256 Merkle tree whose leaves
are the grants.  A token is ``GRANT.PATH.SIGNATURE``, each in base64.  The path contains the hashes that lead from the
grant to the root, and reveals nothing about the other grants.  A port verifies the signature of each root once.

Single use is enforced by the server (`handler.TokenLedger`).  A token is a secret: it never appears in logs or error
messages.
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

#: "copy" is for an agent that fetches a result as the input of another job: the responder keeps the result.
Purpose = Literal["send", "fetch", "copy"]

_NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
#: Prefixes of hashed and signed data, so that a grant cannot pass as a node, nor a signature for another purpose as
#: that of a token.
_LEAF, _NODE, _ROOT = b"\0", b"\1", b"fpga_pool.tokens.1"
_HASH_BYTES = sha256().digest_size
#: Length of a path if 2^32 tokens are created together.
_LONGEST_PATH_BYTES = 32 * _HASH_BYTES
#: Number of verified roots that a port caches. Tokens created together are presented within a short time.
_ROOTS = 1024


class TransferGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The permission that a token grants."""

    job: _NotEmpty
    #: Number of the job's attempt, so that bytes of different attempts are not mixed.
    attempt: _Count
    project_id: _NotEmpty
    #: The responder whose data port may accept the token.
    host: _NotEmpty
    purpose: Purpose
    #: Exact size of the input; more bytes are refused.
    input_bytes: _Count
    #: UUID4; the responder accepts each once.
    token_id: _NotEmpty
    #: Seconds since the epoch (UTC) after which the token opens no stream; open streams continue.
    deadline_s: Annotated[float, msgspec.Meta(ge=0)]
    #: Source address that the client has announced (`source_of`), if its host is to limit the stream to the plan.
    source: str = ""
    #: The client sends through a tap, so that the responder may see another source address.
    tap: bool = False


def source_of(address: str, port: int) -> str:
    """Return the name of one end of a connection, equal on both hosts. Raises ValueError if it has no IP address."""
    ip = ipaddress.ip_address(address.partition("%")[0])  # names of interfaces differ between hosts
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return f"{ip}:{port}"


def sign(grants: Sequence[TransferGrant], private_key: Ed25519PrivateKey) -> list[str]:
    """Create the tokens for `grants`, with one common signature."""
    payloads = [_text(msgspec.json.encode(grant)) for grant in grants]
    if not payloads:
        return []
    level = [_leaf(payload) for payload in payloads]
    paths = [b""] * len(level)
    depth = 0
    while len(level) > 1:
        for place in range(len(paths)):
            beside = place >> depth ^ 1
            if beside < len(level):  # without a sibling, the last node moves up unchanged
                paths[place] += level[beside]
        level = [_node(*level[place : place + 2]) for place in range(0, len(level), 2)]
        depth += 1
    signature = _text(private_key.sign(_ROOT + level[0]))
    return [f"{payload}.{_text(path)}.{signature}" for payload, path in zip(payloads, paths, strict=True)]


class Verifier:
    """Verifies tokens for one host: each must be for this host, signed by a scheduler, and before its deadline."""

    def __init__(self, public_keys: Sequence[Ed25519PublicKey], host: str) -> None:
        self._public_keys = public_keys
        self._host = host
        self._require_signed = lru_cache(_ROOTS)(self._verify)  # refusals are exceptions, which are not cached

    def verify(self, token: str, now_s: float) -> TransferGrant:
        """Return the grant of `token` if it is valid at `now_s` (epoch), else raise TransferRefused.

        The reason is the first that applies of ``missing_token``, ``bad_signature`` (altered, signed by another key,
        or not a token), ``wrong_host`` and ``expired``.
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
        # The cause is dropped, as its text may contain parts of the token.
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
        """Raise InvalidSignature unless a scheduler has signed this root."""
        for key in self._public_keys:
            with contextlib.suppress(InvalidSignature):
                key.verify(signature, _ROOT + root)
                return
        raise InvalidSignature


def _leaf(payload: str) -> bytes:
    return sha256(_LEAF + payload.encode()).digest()


def _node(*hashes: bytes) -> bytes:
    """Return the parent of two nodes, independent of their order; a single node is its own parent."""
    return hashes[0] if len(hashes) == 1 else sha256(_NODE + min(hashes) + max(hashes)).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
