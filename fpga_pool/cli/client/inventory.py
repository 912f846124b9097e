"""`fpga-pool function`, `host`, `card`, `slot`, `flow` and `service`: the parts of the pool."""

import argparse
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fpga_pool.cli.arguments import positive_seconds
from fpga_pool.cli.client.base import (
    LongLister,
    OneObject,
    OneOrSeveral,
    OneWork,
    Pages,
    PoolShowOne,
    add_projects,
    uuid_of,
)
from fpga_pool.cli.client.columns import Columns, One, Shown, as_lines, as_number, as_words, join, names, row, single
from fpga_pool.cli.command import Interrupted
from fpga_pool.client import Client
from fpga_pool.model.exceptions import Conflict, Forbidden, InvalidInput, NotFound
from fpga_pool.model.messages.requests import SlotDetail
from fpga_pool.model.objects.cards import Card, Instance
from fpga_pool.model.rest import date

#: Interval in seconds between attempts to remove a card that is in use.
POLL_S = 1.0
#: What `--since` refers to in lists of hosts, cards and slots.
CHANGED = "with an event"


def _numbers(*names: str) -> Columns:
    """Return columns of numbers, shown with four significant digits."""
    return tuple((name, lambda found, name=name: as_number(getattr(found, name))) for name in names)


_FUNCTION = ("name", "version", "slot_kinds", "slots", *_numbers("speedup"), "io_bps", "preemptible")


class ListFunctions(Pages, LongLister):
    """List the functions of the catalogue.

    Example: fpga-pool function list -c name -c speedup
    """

    SHORT = ("name", "version", "slot_kinds", "slots", "speedup", "preemptible")
    ASK, COLUMNS = Client.functions, _FUNCTION


class ShowFunction(OneObject):
    """Show a function of the catalogue.

    Example: fpga-pool function show sha256
    """

    NOUN, ASK, COLUMNS = "function", Client.function, _FUNCTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("function", metavar="FUNCTION", help="name of the function")


class Calibrate(Pages, LongLister):
    """Show how well the time models fit the observed runs.

    Example: fpga-pool function calibrate sha256 --long
    """

    SHORT = ("function", "board", "runs", "mean_relative_error", "worst_relative_error")
    ASK, SORT, MARKER = Client.calibration, "function", "FUNCTION/BOARD"
    COLUMNS = (
        *("function", "board", "runs"),
        *_numbers("catalogue_a_s", "catalogue_b_s_per_byte", "fitted_a_s", "fitted_b_s_per_byte"),
        *_numbers("mean_relative_error", "worst_relative_error"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("function", nargs="?", metavar="FUNCTION", help="show only this one (default: all)")

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"function": parsed_args.function}


HOSTS = (
    *("name", "alive", "egress_bps", "ingress_bps", "data_address", "data_port", "data_tls"),
    *("refused_streams", "refused_commands", "refused_messages", "heard_at"),
)


class ListHosts(Pages, LongLister):
    """List hosts.

    Example: fpga-pool host list --lost --long
    """

    SHORT = ("name", "alive", "egress_bps", "ingress_bps", "data_address")
    SINCE = CHANGED
    ASK, COLUMNS = Client.hosts, HOSTS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        alive = parser.add_mutually_exclusive_group()
        alive.add_argument("--alive", action="store_true", default=None, help="only those that send heartbeats")
        alive.add_argument("--lost", action="store_false", dest="alive", default=None, help="only the others")

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"alive": parsed_args.alive}


COUNTERS: Columns = (
    ("measured_at", lambda counters: counters.at),
    *("cpus", "busy_cpus", "memory_bytes", "used_bytes", "received_bps", "sent_bps"),
    *("cpu_pressure", "memory_pressure", "io_pressure"),
    ("guest_cpus", lambda counters: as_words(f"{guest.uuid}={guest.cpus:g}" for guest in counters.guests)),
    ("dma_bps", lambda counters: as_words(f"{card.card}={card.dma_bps:g}" for card in counters.cards)),
)


class ShowHost(PoolShowOne):
    """Show a host and, for operators, its load when its agent measured it last.

    Example: fpga-pool host show node-1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("host", metavar="HOST", help="name of the host")

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        """Return the host; counters are empty if there are none, as for a lost host, or the caller may not see them."""
        try:
            found = self.client.host(parsed_args.host)
        except NotFound as error:
            raise NotFound(f"{error}; `fpga-pool host list` shows all") from None
        try:
            load = self.client.counters(parsed_args.host)
        except Forbidden:
            load = []
        counters = row(load[0].counters, COUNTERS) if load else [""] * len(COUNTERS)
        return (*names(HOSTS), *names(COUNTERS)), (*row(found, HOSTS), *counters)


class ListFlows(Pages, LongLister):
    """List the inputs that are being transferred, with the rates planned now and the rates measured last.

    Example: fpga-pool flow list --all-projects
    """

    SHORT = ("name", "function", "host", "planned_bps", "measured_bps")
    ASK, SORT, MARKER = Client.flows, "requester", "REQUESTER/HOST/JOB"
    COLUMNS = ("name", "function", "requester", "host", "input_bytes", "planned_bps", "measured_bps", "job")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_projects(parser)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"project_id": parsed_args.project_id}


class ListServices(Pages):
    """List schedulers, agents and processes of the API, and whether they are up.

    Example: fpga-pool service list -f json
    """

    ASK, SORT, MARKER = Client.services, "kind", "KIND/NAME"
    COLUMNS = ("kind", "name", ("state", lambda one: "up" if one.up else "down"), "heard_at", "shards")


class ShowService(OneObject):
    """Show a scheduler, an agent or a process of the API.

    Example: fpga-pool service show ctl-1
    """

    NOUN, NAMED, ASK = "service", "name (if unique) or ", Client.service
    COLUMNS = (*ListServices.COLUMNS, "uuid")

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        (wanted,) = arguments
        found = [one for one in self.client.services() if one.name == wanted]
        if len(found) > 1:
            several = ", ".join(f"{one.kind} {one.uuid}" for one in found)
            raise InvalidInput(f"several services are called {wanted!r}: expected a uuid: {several}")
        return super().ask(found[0].uuid if found else wanted)


class ShowInstance(OneWork):
    """Show an instance of Nova, and the slots that it holds.

    Example: fpga-pool instance show UUID
    """

    NOUN, ASK, COLUMNS = "instance", Client.instance, ("uuid", "project_id", "host")

    def details(self, found: Instance) -> One:
        plain = [
            {"name": one.name, "function": one.function, "leased_at": date(one.leased_at), "reason": one.reason}
            for one in found.slot_list
        ]
        lines = (join(one.name, one.function, one.reason) for one in found.slot_list)
        return single(found, self.COLUMNS, slot_list=as_lines(plain, lines))


# ---- Slots

SLOTS = (
    *("name", "uuid", "board", "kind", "state", "function", "job"),
    *("reconfigurations", "drain_requested", "reason"),
)


class ListSlots(Pages, LongLister):
    """List slots.

    Example: fpga-pool slot list --host node-1 --state READY --long
    """

    SHORT = ("name", "kind", "state", "function")
    FILTERS: Mapping[str, str] = {"state": "STATE", "function": "FUNCTION", "host": "HOST"}
    SINCE = CHANGED
    ASK, COLUMNS = Client.slots, SLOTS


class _OneSlot(OneObject):
    """A command on one slot."""

    NOUN, NAMED, COLUMNS = "slot", "name (host/card/region) or ", SLOTS

    def ask(self, *arguments: Any, **filters: Any) -> Any:
        name, *others = arguments
        return super().ask(uuid_of("slot", self.client.slots(), name), *others)


class ShowSlot(_OneSlot):
    """Show a slot and its holder: an instance, a task, or a job of the pool.

    Example: fpga-pool slot show node-1/sim0/slot0
    """

    ASK = Client.slot

    def details(self, found: SlotDetail) -> One:
        lease = {name: getattr(found, name) for name in ("held_by", "holder", "holder_project_id", "leased_at")}
        return single(found.slot, SLOTS, **lease)


class _ChangeSlots(_OneSlot, OneOrSeveral):
    TABLE = ListSlots.SHORT


class Drain(_ChangeSlots):
    """Take slots out of service: running jobs finish there, other jobs move to other slots.

    Example: fpga-pool slot drain node-1/sim0/slot0 --reason "loud fan"
    """

    ASK = Client.drain

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", help="reason shown in `slot list --long`")

    def change(self, name: str, parsed_args: argparse.Namespace) -> Any:
        return self.ask(name, parsed_args.reason)


class Resume(_ChangeSlots):
    """Put slots back into service.

    Example: fpga-pool slot resume node-1/sim0/slot0
    """

    ASK = Client.resume


# ---- Cards: an operation on a card applies to each of its slots

_CARDS = ("name", "uuid", "host", "board", "enclosure", "state", "slots", "drain_requested", "functions")


class ListCards(Pages, LongLister):
    """List cards: their boards, whether they take work, and which functions are loaded.

    Example: fpga-pool card list --host node-1 --state in_service -f json
    """

    SHORT = ("name", "board", "state", "slots", "functions")
    FILTERS: Mapping[str, str] = {"state": "STATE", "board": "BOARD", "host": "HOST"}
    SINCE = CHANGED
    ASK, COLUMNS = Client.cards, _CARDS


class _OneCard(OneObject):
    """A command on one card."""

    NOUN, NAMED = "card", "name (host/card) or "

    def ask(self, *arguments: Any, **filters: Any) -> Card:
        name, *others = arguments
        card: Card = super().ask(uuid_of("card", self.client.cards(), name), *others)
        return card

    def details(self, found: Card) -> One:
        users = as_lines(list(found.user_list), found.user_list)
        return single(found, _CARDS, slot_list=_slots(found.slot_list), user_list=users)


class ShowCard(_OneCard):
    """Show a card, its slots, and the holders and users of these.

    Example: fpga-pool card show node-1/sim0
    """

    ASK = Client.card


class _ChangeCards(_OneCard, OneOrSeveral):
    TABLE = ListCards.SHORT


class DrainCard(_ChangeCards):
    """Take all slots of cards out of service: running jobs finish there, other jobs move to other slots.

    The remaining users of a card are shown; for several cards, use -f json or -c user_list.

    Example: fpga-pool card drain node-1/sim0 --reason "moves to rack 4"
    """

    ASK = Client.drain_card

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", help="reason shown in `card show` and `slot list --long`")

    def change(self, name: str, parsed_args: argparse.Namespace) -> Any:
        return self.ask(name, parsed_args.reason)


class ResumeCard(_ChangeCards):
    """Put all slots of cards back into service.

    Example: fpga-pool card resume node-1/sim0
    """

    ASK = Client.resume_card


class RemoveCard(_ChangeCards):
    """Remove cards: drain each, wait until it is unused and its agent no longer reports it, and remove its slots.

    Example: fpga-pool card remove node-1/sim0 --timeout 600
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--timeout",
            type=positive_seconds,
            default=60.0,
            metavar="S",
            help="how long to wait for each; after that, what is in the way is listed, and the card stays drained "
            "(default: %(default)s)",
        )

    def change(self, name: str, parsed_args: argparse.Namespace) -> Any:
        """Request the removal until it succeeds or times out; a command that was interrupted can be repeated."""
        uuid = uuid_of("card", self.client.cards(), name)
        try:
            return self._removed(uuid, parsed_args.timeout)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: card {name} stays drained until `card resume`") from None

    def _removed(self, uuid: str, timeout_s: float) -> Card:
        give_up_at_s = time.monotonic() + timeout_s
        while True:
            try:
                return self.client.remove_card(uuid)
            except Conflict:
                if time.monotonic() >= give_up_at_s:
                    raise
            time.sleep(POLL_S)


def _slots(slots: Iterable[Any]) -> Shown:
    names = ("name", "state", "function", "job", "reason")
    plain = [{name: str(getattr(slot, name)) for name in names} for slot in slots]
    return as_lines(plain, ("  ".join(filter(None, slot.values())) for slot in plain))
