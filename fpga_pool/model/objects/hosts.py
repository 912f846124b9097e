"""What belongs to a host: its enrolment, and the servers of Nova and the processes of the API that run on it.

An agent offers its key, and is believed by a one-time code or by an operator's approval.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fpga_pool.model.exceptions import InvalidInput, Unauthenticated
from fpga_pool.model.fields import Limit, Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """What is known of a host's agent; `key` is believed, `offered` waits for an operator."""

    host: str
    #: Public keys as text (`rpc.identity.key_text`); "" = none.
    key: str = ""
    offered: str = ""
    #: Where clients reach its data port, as its first heartbeat after an approval has said; "" = not yet.
    data_address: str = ""
    #: Below which provider of Placement its slots are, as the same heartbeat has said (`Heartbeat.node`).
    node: str = ""
    #: SHA-256 of the one-time code by which a key is accepted at once; "" = none.
    code_sha256: str = ""
    code_expires_at: Moment = 0.0
    changed_at: Moment = 0.0


#: An unused code expires after this time.
CODE_LIFETIME_S = 24 * 3600.0


def enrolment_proof(code: str, host: str, key: str) -> str:
    """Return the proof that the owner of a key knows the code of a host; the code itself does not cross the wire."""
    return _proof(_digest(code), host, key)


def invited(enrolment: Enrolment, code: str, now_s: float) -> Enrolment:
    """Return the enrolment with a one-time code; the present key stays valid until the code is used."""
    return replace(enrolment, code_sha256=_digest(code), code_expires_at=now_s + CODE_LIFETIME_S, changed_at=now_s)


def offered(enrolment: Enrolment, key: str, proof: str, now_s: float) -> Enrolment:
    """Return the enrolment after an agent has offered a key; Unauthenticated if its code is not the host's."""
    if key == enrolment.key:
        return enrolment
    if not proof:
        return enrolment if key == enrolment.offered else replace(enrolment, offered=key, changed_at=now_s)
    expected = _proof(enrolment.code_sha256, enrolment.host, key)
    current = enrolment.code_sha256 != "" and now_s <= enrolment.code_expires_at
    if not (current and hmac.compare_digest(proof, expected)):
        raise Unauthenticated(
            f"host {enrolment.host}: the enrolment code is wrong, used or expired; an operator can create another one "
            "(fpga-pool-manage host enroll), or approve the key (fpga-pool-manage host approve)"
        )
    return approved(enrolment, key, now_s)


def approved(enrolment: Enrolment, key: str, now_s: float) -> Enrolment:
    """Return the enrolment with a key that is believed from now on, in place of any other one, at any address."""
    if key == enrolment.key:
        return replace(enrolment, data_address="", node="")
    return Enrolment(host=enrolment.host, key=key, changed_at=now_s)


def require_known_place(enrolment: Enrolment, address: str, node: str) -> None:
    """Raise InvalidInput where a host says that its data port or its provider in Placement is another than it was.

    Streams are held by the one, and machines of another host would be scheduled by the other.
    """
    if enrolment.data_address == "":
        return
    for name, known, found in (("data_address", enrolment.data_address, address), ("node", enrolment.node, node)):
        if found != known:
            raise InvalidInput(
                f"{name}: expected {known!r}, as host {enrolment.host} had it first, found {found!r}; if it has "
                f"changed, approve its key again (fpga-pool-manage host approve {enrolment.host} {enrolment.key})"
            )


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _proof(code_sha256: str, host: str, key: str) -> str:
    return hmac.new(code_sha256.encode(), f"{host}\n{key}".encode(), hashlib.sha256).hexdigest()


# ---- Servers of Nova as requesters: a job that names `server:UUID` is sent by that virtual machine, through its taps

_PREFIX = "server:"


def server_of(requester: str) -> str:
    """Return the uuid of the server that a requester is; "" = it is a host."""
    return requester.removeprefix(_PREFIX) if requester.startswith(_PREFIX) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A virtual machine that runs on a host, as its agent reports it; while it moves it may be on two."""

    #: HOST/UUID.
    name: str
    uuid: str
    host: str
    project_id: str
    egress_bps: Limit
    #: The agent holds its flows at its taps.
    held: bool
    generation: int = 0

    @property
    def requester(self) -> str:
        """How jobs name it."""
        return _PREFIX + self.uuid


# ---- Processes of the API: they keep nothing, and are known only by what they say themselves

#: How often one says that it lives, and after which silence it is shown as down, and not any more.
ANNOUNCE_S, DOWN_S, FORGOTTEN_S = 20.0, 60.0, 3600.0
#: So many are remembered, those that were heard last.
MOST_API_PROCESSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProcess:
    """A process of the API; its `generation` grows as long as it lives."""

    #: HOST:PID.
    name: str
    heard_at: Moment
    generation: int = 0

    def is_up(self, now_s: float) -> bool:
        """Return whether it was heard a short time ago."""
        return now_s - self.heard_at <= DOWN_S

    def is_forgotten(self, now_s: float) -> bool:
        """Return whether it ended so long ago that nobody wants to know."""
        return now_s - self.heard_at > FORGOTTEN_S


def api_process_name(host: str, process: int) -> str:
    """Return what a process of the API is called; it is no longer than names may be."""
    return f"{host[:240]}:{process}"


def superfluous_processes(known: Sequence[ApiProcess], name: str, now_s: float) -> list[str]:
    """Return which processes to forget when one says that it lives, so that there is room for it."""
    others = sorted((one for one in known if one.name != name), key=lambda one: one.heard_at, reverse=True)
    return [one.name for rank, one in enumerate(others, 1) if rank >= MOST_API_PROCESSES or one.is_forgotten(now_s)]
