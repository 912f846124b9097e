"""Objects that belong to a host: its enrolment, the Nova servers on it, and the API processes on it.

An agent offers its key, which is accepted because of a one-time code or by an operator's approval.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fpga_pool.model.exceptions import InvalidInput, Unauthenticated
from fpga_pool.model.fields import Limit, Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """Enrolment of a host's agent: `key` is accepted, `offered` waits for an operator's approval."""

    host: str
    #: Public keys as text (`rpc.identity.key_text`); "" = none.
    key: str = ""
    offered: str = ""
    #: Address of its data port, from the first heartbeat after the approval of its key; "" = not known yet.
    data_address: str = ""
    #: Placement provider to which its slots belong, from the same heartbeat (`Heartbeat.node`).
    node: str = ""
    #: SHA-256 of the one-time code with which a key is accepted immediately; "" = none.
    code_sha256: str = ""
    code_expires_at: Moment = 0.0
    changed_at: Moment = 0.0


#: An unused code expires after this time.
CODE_LIFETIME_S = 24 * 3600.0


def enrolment_proof(code: str, host: str, key: str) -> str:
    """Return the proof that the owner of a key knows the code of a host, without revealing the code."""
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
    """Return the enrolment with an accepted key, which replaces any other one and is valid at any address."""
    if key == enrolment.key:
        return replace(enrolment, data_address="", node="")
    return Enrolment(host=enrolment.host, key=key, changed_at=now_s)


def require_known_place(enrolment: Enrolment, address: str, node: str) -> None:
    """Raise InvalidInput if a host reports another data address or Placement provider than at its enrolment.

    The rate control of streams relies on the address.  With another host's provider, the host would affect the
    scheduling of that host's virtual machines.
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


# ---- Nova servers as requesters: the input of a job with requester `server:UUID` is sent by that server

_PREFIX = "server:"


def server_of(requester: str) -> str:
    """Return the uuid of the server if the requester is one; "" if it is a host."""
    return requester.removeprefix(_PREFIX) if requester.startswith(_PREFIX) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A virtual machine on a host, as reported by its agent; during a migration it may be on two hosts."""

    #: HOST/UUID.
    name: str
    uuid: str
    host: str
    project_id: str
    egress_bps: Limit
    #: Whether the agent limits its flows at its tap devices.
    held: bool
    generation: int = 0

    @property
    def requester(self) -> str:
        """Its name as a requester of jobs."""
        return _PREFIX + self.uuid


# ---- Processes of the API: they store nothing, and are known only by their own announcements

#: Interval of their announcements, and times without one after which a process is shown as down, and is forgotten.
ANNOUNCE_S, DOWN_S, FORGOTTEN_S = 20.0, 60.0, 3600.0
#: Maximum number of processes remembered; those with the oldest announcements are forgotten first.
MOST_API_PROCESSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProcess:
    """A process of the API; its `generation` increases while it lives."""

    #: HOST:PID.
    name: str
    heard_at: Moment
    generation: int = 0

    def is_up(self, now_s: float) -> bool:
        """Return whether its last announcement is recent."""
        return now_s - self.heard_at <= DOWN_S

    def is_forgotten(self, now_s: float) -> bool:
        """Return whether its last announcement is so old that it is no longer listed."""
        return now_s - self.heard_at > FORGOTTEN_S


def api_process_name(host: str, process: int) -> str:
    """Return the name of a process of the API, limited to the maximum length of names."""
    return f"{host[:240]}:{process}"


def superfluous_processes(known: Sequence[ApiProcess], name: str, now_s: float) -> list[str]:
    """Return the processes to forget when the process `name` announces itself, to make room for it."""
    others = sorted((one for one in known if one.name != name), key=lambda one: one.heard_at, reverse=True)
    return [one.name for rank, one in enumerate(others, 1) if rank >= MOST_API_PROCESSES or one.is_forgotten(now_s)]
