"""Proof of the sender of a call: every call is signed by the key of its sender, and is valid once.

The context of a call carries role and name of the sender, a random id of the sending client with the number of the
call, the run of the server that it is for, and an Ed25519 signature over all of that, the topic, the method and the
arguments.  One signature covers a whole message, however many commands or reports are in it.

No clock is used, because clocks of hosts may be wrong by hours.  A *run* is a random id that a server creates when it
starts and gives to every caller (`greet`). So a call is valid for one run of one server, and the server remembers the
numbers of the calls that it has admitted.
"""

import base64
import itertools
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import InvalidInput, NotEnrolled, OtherRun, Unauthenticated
from fpga_pool.model.fields import Count, Id, OptionalId, Text

# ---- Roles: a method that is not listed here is refused


class Role(StrEnum):
    """Role of the caller of a method; an agent represents one host, a scheduler the shards that it owns."""

    SCHEDULER = "scheduler"
    AGENT = "agent"
    API = "api"
    NOVA = "nova"


_SCHEDULER, _AGENT, _API = frozenset({Role.SCHEDULER}), frozenset({Role.AGENT}), frozenset({Role.API})

#: Permitted roles by method of the scheduler.  Methods for agents have an argument `host`, or a `heartbeat` with one,
#: which must be the caller's host.
SCHEDULER_METHODS: Mapping[str, frozenset[Role]] = {
    **dict.fromkeys(["wake"], _SCHEDULER),
    "together": _API,
    "describe": frozenset({Role.SCHEDULER, Role.API}),
    **dict.fromkeys(["claim", "heartbeat", "alive", "report", "enroll", "source_tickets", "load_design"], _AGENT),
    **dict.fromkeys(["claim_slots", "release_slots", "instance_leases"], _AGENT),
    **dict.fromkeys(
        [
            *("create_batch", "plan_batch", "batches", "batch_detail", "batch_jobs", "jobs", "job", "cancel_batch"),
            *("change_batch", "tickets", "confirm_results", "events", "pool_events"),
        ],
        _API,
    ),
    **dict.fromkeys(["create_gang", "plan_gang", "gangs", "gang", "cancel_gang"], _API),
    **dict.fromkeys(["create_pipeline", "plan_pipeline", "pipelines", "pipeline", "cancel_pipeline"], _API),
    **dict.fromkeys(["create_task", "plan_task", "tasks", "task", "cancel_task"], _API),
    **dict.fromkeys(["quota", "set_quota", "unset_quota", "usage"], _API),
    **dict.fromkeys(["slots", "slot", "drain_slot", "resume_slot", "hosts", "processors"], _API),
    **dict.fromkeys(["cards", "card", "drain_card", "resume_card", "remove_card", "instance"], _API),
    **dict.fromkeys(["bitstreams", "flows", "counters", "purge"], _API),
    **dict.fromkeys(["create_design", "designs", "design", "design_content", "change_design", "delete_design"], _API),
    **dict.fromkeys(["functions", "benefits", "calibration", "health", "services", "announce"], _API),
    **dict.fromkeys(["pool_counts", "work_counts"], _API),
    "snapshot": frozenset({Role.API, Role.NOVA}),
    "observations": frozenset({Role.NOVA}),
}

#: Permitted roles by method of an agent.
AGENT_METHODS: Mapping[str, frozenset[Role]] = dict.fromkeys(
    ["execute", "bitstreams", "tiers", "set_tiers"], _SCHEDULER
)

#: Methods without further effects if a call is repeated to another process, so that calls need not name a server's run.
REPEATABLE = frozenset({"alive", "describe", "enroll", "health", "observations", "snapshot", "wake"})

#: Method that an agent calls while its key is not known; the call is signed by the key that it offers.
INTRODUCING = "enroll"

# ---- Signatures

#: Start of the signed bytes, so that no signature for another purpose is valid for a call.
_PURPOSE = "fpga_pool.rpc.1"
#: Calls of one client may overtake each other by this many numbers.
_WINDOW = 1024
#: Maximum number of active clients of each sender; beyond it, the client that was silent the longest is ended, and its
#: calls are no longer admitted.
_CLIENTS = 1024
#: Maximum number of such ended clients that are remembered for each sender.
_ENDED_CLIENTS = 100_000


def key_text(key: Ed25519PublicKey) -> str:
    """Return a public key as operators compare it: 43 characters."""
    return base64.urlsafe_b64encode(key.public_bytes_raw()).decode().rstrip("=")


def key_of_text(text: str) -> Ed25519PublicKey:
    """Return the public key that was written by `key_text`; raise InvalidInput if the text is not a key."""
    try:
        return Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(f"{text}="))
    except (ValueError, TypeError):
        raise InvalidInput("key: expected the 43 characters of a public key, as the agent's log shows it") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """A sender: its role, its name (for an agent, its host), and its private key."""

    role: Role
    name: str
    key: Ed25519PrivateKey = field(repr=False)

    @property
    def public_text(self) -> str:
        """The public key as text."""
        return key_text(self.key.public_key())


class Signer:
    """Signs the calls of one client; threads may share it, and also processes that are forked later."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._numbering = _new_numbering()

    def number(self) -> tuple[str, int]:
        """Return the id of this client and the number of its next call; a forked process is a separate client."""
        numbering = self._numbering
        if numbering[0] != os.getpid():
            numbering = self._numbering = _new_numbering()
        return numbering[1], next(numbering[2])

    def context(self, topic: str, run: str, method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the context that a call is sent with; `run` is that of the server, "" for any."""
        client, number = self.number()
        envelope = _Envelope(role=self.identity.role, name=self.identity.name, client=client, number=number, run=run)
        signature = self.identity.key.sign(_signed(topic, envelope, method, arguments))
        return {**msgspec.to_builtins(envelope), "signature": base64.b64encode(signature).decode()}


def _new_numbering() -> tuple[int, str, Iterator[int]]:
    """Return the process, the id and the numbers of a new client."""
    return os.getpid(), secrets.token_hex(8), itertools.count(1)


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    name: Text
    client: Id
    number: Count
    run: OptionalId


class _SignedEnvelope(_Envelope, frozen=True, kw_only=True):
    signature: Text


def _signed(topic: str, envelope: _Envelope, method: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the bytes to sign; they do not depend on the order of keys in the arguments."""
    head = (_PURPOSE, topic, envelope.role, envelope.name, envelope.client, envelope.number, envelope.run, method)
    return msgspec.msgpack.encode((head, arguments), order="deterministic")


#: Returns the public keys of the sender with a role and a name; none if the sender is not known.
Keys = Callable[[Role, str], Sequence[Ed25519PublicKey]]


@dataclass(slots=True)
class _Client:
    """The numbers of the admitted calls of one client."""

    highest: int = 0
    #: Bit n is set if `highest` - n was admitted.
    window: int = 0

    def admit(self, number: int) -> bool:
        """Record the number of a call; return whether it is new."""
        ahead = number - self.highest
        if ahead > 0:
            self.window = ((self.window << ahead) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 0) | 1
            self.highest = number
            return True
        bit = 1 << -ahead if -ahead < _WINDOW else 0
        new = bit != 0 and not self.window & bit
        self.window |= bit
        return new


@dataclass(slots=True)
class _Clients:
    """The clients of one sender."""

    known: OrderedDict[str, _Client] = field(default_factory=OrderedDict)
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def admit(self, client: str, number: int) -> bool:
        """Record a call; return whether it is new."""
        if client in self.ended:
            return False
        new = self.known.setdefault(client, _Client()).admit(number)
        self.known.move_to_end(client)
        if len(self.known) > _CLIENTS:
            self.ended[self.known.popitem(last=False)[0]] = None
        if len(self.ended) > _ENDED_CLIENTS:
            self.ended.popitem(last=False)
        return new


class Gate:
    """Admits calls that are signed by a sender who may make them; thread-safe."""

    def __init__(self, keys: Keys, methods: Mapping[str, frozenset[Role]]) -> None:
        self._keys = keys
        self._methods = methods
        self.run = secrets.token_hex(8)
        self._clients: dict[tuple[Role, str], _Clients] = {}
        self._lock = threading.Lock()

    def admit(self, topic: str, context: Mapping[str, Any], method: str, arguments: Mapping[str, Any]) -> None:
        """Admit a call, once.

        Raises
        ------
        Unauthenticated
            Unless it is signed by a known sender that may call the method, and is received for the first time.
        NotEnrolled
            If the sender is an agent whose key is not the one of its host.
        OtherRun
            If it is for another run of this server.

        """
        envelope = _read(context)
        self.require_role(envelope.role, method)
        if envelope.role is Role.AGENT:
            _require_own_host(envelope.name, method, arguments)
        self._verify(topic, envelope, method, arguments)
        if envelope.run != self.run and not (envelope.run == "" and method in REPEATABLE):
            raise OtherRun(
                f"the call of {method} is for another run of this server; ask for the present one and repeat"
            )
        if method != INTRODUCING:  # calls of unknown senders must not occupy memory
            self._require_new(envelope)

    def require_role(self, role: str, method: str) -> None:
        """Raise Unauthenticated unless a role may call a method."""
        if role not in self._methods.get(method, frozenset()):
            raise Unauthenticated(f"role {role} may not call {method}")

    def _verify(self, topic: str, envelope: _SignedEnvelope, method: str, arguments: Mapping[str, Any]) -> None:
        if method == INTRODUCING:
            keys: Sequence[Ed25519PublicKey] = [key_of_text(str(arguments.get("key")))]
        else:
            keys = self._keys(envelope.role, envelope.name)
        try:
            signature = base64.b64decode(envelope.signature, validate=True)
            signed = _signed(topic, envelope, method, arguments)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthenticated(f"the call of {method} cannot be verified") from None
        if any(is_by(key, signature, signed) for key in keys):
            return
        complaint = f"the call of {method} is not signed by the key of {envelope.role} {envelope.name}"
        if envelope.role is Role.AGENT:
            raise NotEnrolled(f"host {envelope.name}: {complaint}; its key must be approved first")
        raise Unauthenticated(complaint)

    def _require_new(self, envelope: _SignedEnvelope) -> None:
        with self._lock:
            clients = self._clients.setdefault((envelope.role, envelope.name), _Clients())
            if not clients.admit(envelope.client, envelope.number):
                raise Unauthenticated(f"call {envelope.number} of this client was received before")


def _read(context: Mapping[str, Any]) -> _SignedEnvelope:
    try:
        envelope: _SignedEnvelope = read(_SignedEnvelope, dict(context))
    except InvalidInput:
        raise Unauthenticated("the call is not signed") from None
    return envelope


def is_by(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    """Return whether a signature over these bytes was made with the private half of a key."""
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _require_own_host(name: str, method: str, arguments: Mapping[str, Any]) -> None:
    """Raise Unauthenticated if an agent calls a method in the name of another host."""
    heartbeat = arguments.get("heartbeat")
    about = heartbeat.get("host") if isinstance(heartbeat, Mapping) else arguments.get("host")
    if about != name:
        raise Unauthenticated(f"the agent of host {name} may not call {method} for host {about!r:.100}")
