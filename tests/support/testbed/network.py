"""A switch and hosts on one machine: network namespaces, joined by veth pairs whose rates real tc limits.

::

    host namespace        "nic" -- [ingress: redirect to ifb, HTB: egress limit]   switch namespace
                                -- [HTB: ingress limit]                            bridge "switch"
                          "control" ---------------------------------------------- bridge of the machine, with address

A host's NIC is limited on the switch's side of its cable, so that its own queueing discipline is free for programs that
shape flows there.  Everything else that the hosts must reach (messages, database) is on the control network.  Names
contain the number of the network.  A number is locked while its network exists; objects with a number that is not
locked were left by a crash, and are removed.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.services.loop import exclusive
from support.servers.process import dies_with_us
from support.testbed.cases import Nic

_PREFIX = "fpt"
_NAME = re.compile(rf"{_PREFIX}(\d+)(-.*)?")
_NUMBERS = 64
#: Directory of the lock files, beside the names of the namespaces.
_LOCKS = Path("/run")
#: Networks for benchmarks of network devices (RFC 2544), which are not routed.
_DATA, _CONTROL = "198.18", "198.19"
#: On a busy machine HTB wakes up late; with a smaller burst it could not catch up, and would miss the rate.
_BURST_BYTES = 1 << 20
_QUANTUM_BYTES = 20_000
_ETH_P_ALL = 0x0003
#: The only class, in which everything is queued.
_CLASS = 0x10001


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A host of the network, in which processes can be started."""

    host: str
    #: Name of its network namespace.
    namespace: str
    #: Its addresses on the two networks.
    data_address: str
    control_address: str

    #: Name of its interface to the switch.
    nic = "nic"

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs `words` on this host until the thread that starts it ends."""
        return dies_with_us(["ip", "netns", "exec", self.namespace, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """All hosts, by name, and this machine's address on their control network."""

    hosts: dict[str, Endpoint]
    control_address: str


def missing() -> str | None:
    """Return what this machine or user lacks to build a network; None if nothing is known to be missing."""
    if os.geteuid() != 0:
        return "network namespaces and tc need root"
    absent = [program for program in ("ip", "setpriv") if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)}: not found; install iproute2 and util-linux"
    return None


@contextlib.contextmanager
def switched_network(nics: Sequence[Nic]) -> Iterator[Network]:
    """Build the network, and remove it at the end; raise ServiceUnavailable with what the machine lacks."""
    if problem := missing():
        raise ServiceUnavailable(problem)
    _remove_left_over()
    with _claimed_number() as number:
        _remove(number)
        try:
            yield _built(number, nics)
        finally:
            _remove(number)


def _built(number: int, nics: Sequence[Nic]) -> Network:
    try:
        return _Builder(number).build(nics)
    except NetlinkError as error:
        raise ServiceUnavailable(f"the kernel refuses what a network needs: {error}") from error


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Let new sockets of this thread belong to a namespace; existing sockets stay where they are."""
    with Path("/proc/thread-self/ns/net").open() as outside:
        netns.setns(namespace)
        try:
            yield
        finally:
            netns.setns(outside.fileno())


class _Builder:
    """Creates the parts of one network."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._name = f"{_PREFIX}{number}"
        self._switch = f"{self._name}-switch"

    def build(self, nics: Sequence[Nic]) -> Network:
        netns.create(self._switch)
        with IPRoute() as machine, _iproute(self._switch) as switch:
            address = self._address(_CONTROL, 1)
            control = _add_bridge(machine, self._name)
            machine.addr("add", index=control, address=address, prefixlen=24)
            bridge = _add_bridge(switch, "switch")
            hosts = {
                nic.host: self._add_host(machine, control, switch, bridge, nic, place)
                for place, nic in enumerate(nics, start=1)
            }
        return Network(hosts=hosts, control_address=address)

    def _add_host(self, machine: IPRoute, control: int, switch: IPRoute, bridge: int, nic: Nic, place: int) -> Endpoint:
        endpoint = Endpoint(
            host=nic.host,
            namespace=f"{self._name}-{nic.host}",
            data_address=self._address(_DATA, place),
            control_address=self._address(_CONTROL, place + 1),
        )
        netns.create(endpoint.namespace)
        _without_ipv6(endpoint.namespace)
        port = _add_cable(switch, bridge, f"port{place}", endpoint.namespace, Endpoint.nic)
        _limit(switch, port, nic.ingress_bps)
        _redirect_to(switch, port, _add_limited_ifb(switch, f"from{place}", nic.egress_bps))
        _add_cable(machine, control, f"{self._name}-{place}", endpoint.namespace, "control")
        with _iproute(endpoint.namespace) as host:
            _set_up(host, "lo", None)
            _set_up(host, Endpoint.nic, endpoint.data_address)
            _set_up(host, "control", endpoint.control_address)
        return endpoint

    def _address(self, net: str, place: int) -> str:
        return f"{net}.{self._number}.{place}"


@contextlib.contextmanager
def _iproute(namespace: str) -> Iterator[IPRoute]:
    """Yield a netlink socket that configures a namespace from outside it."""
    with inside(namespace):
        ip = IPRoute()
    with ip:
        yield ip


# Links --------------------------------------------------------------------------------------------------------------


def _index(ip: IPRoute, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _add_bridge(ip: IPRoute, name: str) -> int:
    ip.link("add", ifname=name, kind="bridge")
    index = _index(ip, name)
    ip.link("set", index=index, state="up")
    return index


def _add_cable(ip: IPRoute, bridge: int, port: str, namespace: str, name: str) -> int:
    """Join a namespace to a bridge; return the bridge's port."""
    ip.link("add", ifname=port, kind="veth", peer={"ifname": name, "net_ns_fd": namespace})
    index = _index(ip, port)
    ip.link("set", index=index, master=bridge, state="up")
    return index


def _set_up(ip: IPRoute, name: str, address: str | None) -> None:
    index = _index(ip, name)
    if address is not None:
        ip.addr("add", index=index, address=address, prefixlen=24)
    ip.link("set", index=index, state="up")


def _without_ipv6(namespace: str) -> None:
    """Disable IPv6, to keep the packets of neighbor discovery out of the measurements."""
    switch = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    with inside(namespace):
        if switch.exists():
            switch.write_text("1")


# Limits -------------------------------------------------------------------------------------------------------------


def _limit(ip: IPRoute, index: int, rate_bps: float) -> None:
    """Limit the rate of the traffic that leaves an interface."""
    rate = f"{round(rate_bps / 1000)}kbit"
    ip.tc("add", "htb", index, 0x10000, default=_CLASS & 0xFFFF)
    ip.tc(
        "add-class", "htb", index, _CLASS, parent=0x10000,
        rate=rate, ceil=rate, burst=_BURST_BYTES, cburst=_BURST_BYTES, quantum=_QUANTUM_BYTES,
    )  # fmt: skip


def _add_limited_ifb(ip: IPRoute, name: str, rate_bps: float) -> int:
    ip.link("add", ifname=name, kind="ifb")
    index = _index(ip, name)
    ip.link("set", index=index, state="up", txqlen=1000)
    _limit(ip, index, rate_bps)
    return index


def _redirect_to(ip: IPRoute, port: int, ifb: int) -> None:
    """Redirect all traffic that arrives at a port through `ifb`."""
    ip.tc("add", "ingress", port, 0xFFFF0000)
    ip.tc(
        "add-filter", "u32", port, parent=0xFFFF0000, prio=1, protocol=_ETH_P_ALL, target=_CLASS, keys=["0x0/0x0+0"],
        action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb},
    )  # fmt: skip


# Numbers, and networks left by crashes ------------------------------------------------------------------------------


@contextlib.contextmanager
def _claimed_number() -> Iterator[int]:
    for number in range(_NUMBERS):
        try:
            lock = _locked(number)
        except ServiceUnavailable:
            continue
        with lock:
            yield number
        return
    raise ServiceUnavailable(f"{_NUMBERS} networks are in use on this machine; end one first")


def _locked(number: int) -> TextIO:
    """Lock a number while the file is open; raise ServiceUnavailable if another process uses it."""
    return exclusive(_LOCKS / f"{_PREFIX}{number}.lock", f"network {number} is in use")


def _remove_left_over() -> None:
    for number in {int(match[1]) for name in netns.listnetns() if (match := _NAME.fullmatch(name))}:
        with contextlib.suppress(ServiceUnavailable), _locked(number):
            _remove(number)


def _remove(number: int) -> None:
    """Remove everything with a number; cables disappear with their namespaces, once these have no processes."""
    for name in netns.listnetns():
        match = _NAME.fullmatch(name)
        if match and int(match[1]) == number:
            netns.remove(name)
    with IPRoute() as machine:
        for link in machine.get_links():
            match = _NAME.fullmatch(link.get("ifname") or "")
            if match and int(match[1]) == number:
                with contextlib.suppress(NetlinkError):
                    machine.link("del", index=link["index"])
