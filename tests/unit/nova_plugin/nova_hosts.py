"""Hosts as the Nova filter sees them, and its data about the pool."""

from dataclasses import dataclass, field

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.flavor import RESOURCE_CLASS, provider_uuid
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers

FREE, POOL = ("", "", False), ("pool", "default", True)


@dataclass(eq=False)
class Host:
    """The attributes of Nova's HostState that the filter uses."""

    host: str
    allocation_candidates: list = field(default_factory=list)
    num_instances: int = 0
    aggregates: list = field(default_factory=list)


def fitting(*slots, function="sha256"):
    """Return the fitting of slots given as (host, card, state, function, lease) and optionally links.

    The slots are small, except on cards named `large`.
    """
    rows = [
        (
            host,
            "default",
            f"{card}/r{number}",
            card,
            "demo",
            kind(card),
            *(links or [""]),
            state,
            loaded,
            *lease,
            False,
            1,
        )
        for number, (host, card, state, loaded, lease, *links) in enumerate(slots)
    ]
    hosts = [(name, "default", "zone", True, 1) for name in sorted({slot[0] for slot in slots})]
    pool = PoolColumns.of({"default": 1}, hosts, rows, (len(hosts), len(rows)))
    return Fitting(Providers.of(pool), load_catalogue(installed_catalogue()), function, 3600.0)


def kind(card):
    return "large" if card == "large" else "small"


def candidate(host, *cards, count=1):
    slots = {provider_uuid(host, card, kind(card)): {"resources": {RESOURCE_CLASS: count}} for card in cards}
    return {"allocations": {f"root of {host}": {"resources": {"VCPU": 1}}, **slots}}


def claim(host):
    """Do what Nova does after Placement has accepted a claim of the first candidate."""
    host.num_instances += 1


def empty(host, card):
    return host, card, "EMPTY", "", FREE
