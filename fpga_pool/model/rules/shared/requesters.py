"""Requesters: hosts, and the servers of Nova that hosts report."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.objects.pool import Host
from fpga_pool.model.objects.servers import Server, server_of
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


class _Sent(Protocol):
    @property
    def requester(self) -> str: ...


def note_servers(tx: Transaction, heartbeat: Heartbeat) -> None:
    """Store what a host says of its servers; those that it does not name have left it."""
    if heartbeat.servers is None:
        return
    gone = {server.uuid: server for server in tx.servers(host=heartbeat.host)}
    for observed in heartbeat.servers:
        known = gone.pop(observed.uuid, None)
        facts = {name: getattr(observed, name) for name in ("uuid", "project_id", "egress_bps", "held")}
        if known is None:
            tx.add(Server(name=f"{heartbeat.host}/{observed.uuid}", host=heartbeat.host, **facts))
        elif changed(known, **facts) != known:
            tx.save(changed(known, **facts))
    tx.remove_servers([server.name for server in gone.values()])


def servers_among(tx: Transaction, jobs: Iterable[_Sent]) -> Mapping[str, Server]:
    """Return the servers that run among the requesters of jobs, as jobs name them."""
    wanted = {uuid for job in jobs if (uuid := server_of(job.requester))}
    found = tx.servers(uuids=wanted) if wanted else ()
    # Of one that moves between hosts, where it is held.
    return {server.requester: server for server in sorted(found, key=attrgetter("held"))}


def known_requesters(tx: Transaction, hosts: Sequence[Host], jobs: Iterable[_Sent], project_id: str) -> set[str]:
    """Return what jobs of a project may name as their requesters: all hosts, and servers of the project."""
    servers = servers_among(tx, jobs).items()
    return {host.name for host in hosts} | {name for name, server in servers if server.project_id == project_id}


def sending_host(tx: Transaction, job: _Sent) -> str:
    """Return the host by which the input of a job leaves; "" = its server runs nowhere."""
    if not server_of(job.requester):
        return job.requester
    return next((server.host for server in servers_among(tx, [job]).values()), "")


def can_hold(tx: Transaction, job: _Sent) -> bool:
    """Return whether the flow of a job's requester can be held to its plan where it leaves."""
    if not server_of(job.requester):
        return bool(tx.host(job.requester).egress_driver)
    return any(server.held for server in servers_among(tx, [job]).values())
