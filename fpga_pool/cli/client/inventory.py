"""`fpga-pool function`, `host` and `slot`: what the pool consists of."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.cli.client.base import (
    LongLister,
    Moment,
    Number,
    Pages,
    PoolLister,
    PoolShowOne,
    Rate,
    Row,
    Table,
    Words,
    add_projects,
)
from fpga_pool.client import Client
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.counters import HostCounters
from fpga_pool.model.objects.pool import Host, Slot


class ListFunctions(PoolLister):
    """List the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        columns = ("name", "version", "slot_kinds", "slots", "speedup", "io_bps", "preemptible")
        return columns, [
            (
                info.name,
                info.version,
                Words(info.slot_kinds),
                info.slots,
                Number(info.speedup),
                Rate(info.io_bps),
                info.preemptible,
            )
            for info in self.client.functions()
        ]


class Calibrate(PoolLister):
    """Show how well the time models fit the runs that were observed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("function", nargs="?", metavar="FUNCTION", help="show only this one (default: all)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        columns = (
            "function", "board", "runs", "catalogue_a_s", "catalogue_b_s_per_byte", "fitted_a_s", "fitted_b_s_per_byte",
            "mean_relative_error", "worst_relative_error",
        )  # fmt: skip
        return columns, [
            (
                fit.function,
                fit.board,
                fit.runs,
                Number(fit.catalogue_a_s),
                Number(fit.catalogue_b_s_per_byte),
                Number(fit.fitted_a_s),
                Number(fit.fitted_b_s_per_byte),
                Number(fit.mean_relative_error),
                Number(fit.worst_relative_error),
            )
            for fit in self.client.calibration(parsed_args.function)
        ]


class ListHosts(Pages, LongLister):
    """List hosts."""

    SHORT = ("name", "alive", "egress_bps", "ingress_bps", "data_address")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        self.add_pages(parser)
        alive = parser.add_mutually_exclusive_group()
        alive.add_argument("--alive", action="store_true", default=None, help="only those that send heartbeats")
        alive.add_argument("--lost", action="store_false", dest="alive", default=None, help="only the others")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return list_hosts(self.client.hosts(**self.filters(parsed_args), alive=parsed_args.alive))


def list_hosts(hosts: Sequence[Host]) -> Table:
    """Return hosts as a table."""
    columns = (
        "name", "alive", "egress_bps", "ingress_bps", "data_address", "data_port", "data_tls", "refused_streams",
        "refused_commands", "refused_messages", "heard_at",
    )  # fmt: skip
    return columns, [
        (
            host.name,
            host.alive,
            Rate(host.egress_bps),
            Rate(host.ingress_bps),
            host.data_address,
            host.data_port,
            host.data_tls,
            host.refused_streams,
            host.refused_commands,
            host.refused_messages,
            Moment(host.heard_at),
        )
        for host in hosts
    ]


class ShowHost(PoolShowOne):
    """Show a host, and how busy it was when its agent measured it last."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="HOST", help="name of the host")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show; without the counters of a host that is lost, or has not measured yet."""
        hosts = [host for host in self.client.hosts() if host.name == parsed_args.host]
        if not hosts:
            raise NotFound(f"no host {parsed_args.host!r}; `fpga-pool host list` shows all")
        columns, (row,) = list_hosts(hosts)
        load = self.client.counters(parsed_args.host)
        return (*columns, *_COUNTERS), (*row, *(_counters(load[0].counters) if load else [""] * len(_COUNTERS)))


_COUNTERS = (
    "measured_at", "cpus", "busy_cpus", "memory_bytes", "used_bytes", "received_bps", "sent_bps", "cpu_pressure",
    "memory_pressure", "io_pressure", "guest_cpus", "dma_bps",
)  # fmt: skip


def _counters(found: HostCounters) -> Sequence[Any]:
    return (
        Moment(found.at), *(getattr(found, name) for name in _COUNTERS[1:5]),
        *(None if bps is None else Rate(bps) for bps in (found.received_bps, found.sent_bps)),
        found.cpu_pressure, found.memory_pressure, found.io_pressure,
        Words(f"{guest.uuid}={guest.cpus:g}" for guest in found.guests),
        Words(f"{card.card}={card.dma_bps:g}" for card in found.cards),
    )  # fmt: skip


class ListFlows(PoolLister):
    """List the inputs under way, with the rate that is planned now and the one that was measured last."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        add_projects(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        columns = ("name", "function", "requester", "host", "input_bytes", "planned_bps", "measured_bps", "job")
        return columns, [
            (
                flow.name,
                flow.function,
                flow.requester,
                flow.host,
                flow.input_bytes,
                Rate(flow.planned_bps),
                Rate(flow.measured_bps),
                flow.job,
            )
            for flow in self.client.flows(parsed_args.project_id)
        ]


class ListServices(PoolLister):
    """List schedulers and agents, and whether they are up."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return ("kind", "name", "state", "heard_at", "shards"), [
            (one.kind, one.name, "up" if one.up else "down", Moment(one.heard_at), Words(one.shards))
            for one in self.client.services()
        ]


_COLUMNS = (
    "uuid",
    "name",
    "board",
    "kind",
    "state",
    "function",
    "job",
    "reconfigurations",
    "drain_requested",
    "reason",
)


class ListSlots(Pages, LongLister):
    """List slots."""

    SHORT = ("name", "kind", "state", "function")
    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION", "host": "HOST"}

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        self.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        return list_slots(self.client.slots(**self.filters(parsed_args)))


def slot_uuid(client: Client, wanted: str) -> str:
    """Return the uuid of the slot with this name or uuid."""
    for slot in client.slots():
        if wanted in (slot.name, slot.uuid):
            return slot.uuid
    raise NotFound(f"no slot {wanted!r}; `fpga-pool slot list` shows all")


class _OneSlot(PoolShowOne):
    """A command on one slot."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("slot", metavar="SLOT", help="name (host/card/region) or uuid of the slot")
        return parser


class Drain(_OneSlot):
    """Take a slot out of service: its running job ends there, the others move."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--reason", default="", help="reason shown in `slot list --long`")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _COLUMNS, _row(self.client.drain(slot_uuid(self.client, parsed_args.slot), parsed_args.reason))


class Resume(_OneSlot):
    """Give a slot back to the pool."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        return _COLUMNS, _row(self.client.resume(slot_uuid(self.client, parsed_args.slot)))


def list_slots(slots: Sequence[Slot]) -> Table:
    """Return slots as a table."""
    return _COLUMNS, [_row(slot) for slot in slots]


def _row(slot: Slot) -> Row:
    return (
        slot.uuid,
        slot.name,
        slot.board,
        slot.kind,
        str(slot.state),
        slot.function,
        slot.job,
        slot.reconfigurations,
        slot.drain_requested,
        slot.reason,
    )
