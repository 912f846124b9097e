"""`fpga-pool pool`, `work` and `event`: an overview of the whole pool in counts, removal of old work, and events."""

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from fpga_pool.cli.arguments import moment
from fpga_pool.cli.client.base import TIMES, LongLister, Pages, PoolLister, PoolShowOne, add_projects, uuid_of
from fpga_pool.cli.client.columns import One, Shown, Table, as_seconds, as_words, names, row, shown, table
from fpga_pool.client import Client
from fpga_pool.model.exceptions import Forbidden, InvalidInput, NotFound
from fpga_pool.model.messages.requests import BatchDetail, CardCount, GangDetail, PoolCounts
from fpga_pool.model.messages.usage import Usage
from fpga_pool.model.objects.gangs import ENDED_GANGS, Gang, GangState
from fpga_pool.model.objects.history import EVENTFUL
from fpga_pool.model.objects.pool import Batch, BatchState, JobState, Slot
from fpga_pool.model.values import counted

T = TypeVar("T")

#: Maximum numbers of batches and gangs that are shown, oldest first, and of slots, by name.
BATCHES, GANGS, SLOTS = 5, 4, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of the pool; a value is None if the roles of the caller do not allow to see it."""

    pool: PoolCounts | None
    #: Amount of work that has not ended, by kind ("job", "task", "gang") and state.
    work: Mapping[str, Mapping[str, int]]
    #: For how long the oldest pending job has been waiting, in seconds.
    oldest_wait_s: float
    #: Usage of the last day, by function.
    usage: Sequence[Usage]

    @property
    def slots_by_state(self) -> Counter[str]:
        """Return the number of slots in each state."""
        return _added((one.state, one.slots) for one in self.pool.slot_list) if self.pool else Counter()

    @property
    def slots_by_function(self) -> dict[str, Counter[str]]:
        """Return the number of slots in each state, by the function that is loaded; "" = none."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.pool.slot_list if self.pool else ():
            found[one.function][one.state] += one.slots
        return found

    @property
    def leases(self) -> dict[str, int]:
        """Return the number of slots that each kind of holder has."""
        return {one.kind: one.slots for one in self.pool.lease_list} if self.pool else {}


def count_cards(pool: PoolCounts, called: Callable[[CardCount], str]) -> Counter[str]:
    """Return the number of cards by label; `called` returns the label for cards of one board and state."""
    return _added((called(one), one.cards) for one in pool.card_list)


def counts(client: Client, project_id: str | None = None) -> Counts:
    """Request all counts from the pool, in three requests regardless of its size."""
    work = client.work_counts(project_id=project_id)
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for one in work:
        by_kind[one.kind][one.state] += one.count
    waiting = [one.oldest_at for one in work if (one.kind, one.state) == ("job", JobState.PENDING)]
    return Counts(
        pool=_seen(client.pool_counts),
        work=by_kind,
        oldest_wait_s=max(time.time() - min(waiting), 0.0) if waiting else 0.0,
        usage=client.usage(project_id=project_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A snapshot of a pool."""

    at: float
    counts: Counts
    #: The first slots by name; None as in `Counts`.
    slots: Sequence[Slot] | None
    #: The oldest ones that have not ended, each with its detail if the caller may see it; one more than are shown if
    #: there are more.
    batches: Sequence[tuple[Batch, BatchDetail | None]]
    gangs: Sequence[tuple[Gang, GangDetail | None]]


def overview(client: Client, project_id: str | None = None) -> Overview:
    """Return a snapshot of a pool, with a number of requests that does not depend on its size."""
    oldest: Any = {"sort": "created_at:asc", "project_id": project_id}
    batches = client.batches(BATCHES + 1, state=[BatchState.PENDING, BatchState.RUNNING], **oldest)
    gangs = client.gangs(GANGS + 1, state=sorted(set(GangState) - ENDED_GANGS), **oldest)
    return Overview(
        at=time.time(),
        counts=counts(client, project_id),
        slots=_seen(lambda: client.slots(SLOTS)),
        batches=[(one, _seen(partial(client.batch_detail, one.uuid))) for one in batches],
        gangs=[(one, _seen(partial(client.gang, one.uuid))) for one in gangs],
    )


def _added(numbers: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, number in numbers:
        found[name] += number
    return found


def _seen(ask: Callable[[], T]) -> T | None:
    """Return the answer of `ask`; None if the caller may not see it, or it is of another project or gone."""
    try:
        return ask()
    except (Forbidden, NotFound):
        return None


# ---- Commands


def in_words(numbers: Mapping[str, int]) -> str:
    """Return numbers with their names as one line of text, the largest first."""
    several = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {name or 'none'}" for name, number in several if number)


def _numbers(numbers: Mapping[str, int]) -> Shown:
    """Return numbers by name as the value of a column."""
    return Shown(dict(numbers), in_words(numbers))


def _one(values: Mapping[str, Any]) -> One:
    return tuple(values), tuple(shown(name, value) for name, value in values.items())


class Show(PoolShowOne):
    """Show the services, hosts, cards, slots and functions of the pool.

    Example: fpga-pool pool show -f json
    """

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        pool = self.client.pool_counts()
        services = self.client.services()
        states = Counter((one.kind, "up" if one.up else "down") for one in services)
        slots: Counter[str] = Counter()
        for slot in pool.slot_list:
            slots[slot.board] += slot.slots
        functions = [f"{one.name} {one.version}" for one in self.client.functions()]
        return _one(
            {
                "endpoint": self.client.endpoint,
                "release": pool.release,
                "services": Shown(
                    {f"{kind}s {state}": number for (kind, state), number in states.items()},
                    ", ".join(f"{counted(number, kind)} {state}" for (kind, state), number in states.most_common()),
                ),
                "down": as_words([f"{one.kind} {one.name}" for one in services if not one.up]),
                "hosts": _numbers({"alive": pool.alive_hosts, "lost": pool.lost_hosts}),
                "cards": _numbers(count_cards(pool, lambda card: f"{card.board} {card.state}")),
                "slots": _numbers(slots),
                "functions": as_words(functions),
            }
        )


class Stats(PoolShowOne):
    """Show the numbers of slots and of work that has not ended, and the usage of the last day.

    Example: fpga-pool pool stats --all-projects -f json
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_projects(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        found = counts(self.client, parsed_args.project_id)
        day = found.usage
        return _one(
            {
                "slots": _numbers(found.slots_by_state),
                "functions": _numbers({name: states.total() for name, states in found.slots_by_function.items()}),
                "leases": _numbers(found.leases),
                **{f"{kind}s": _numbers(found.work.get(kind, {})) for kind in ("job", "task", "gang")},
                "oldest_wait_s": found.oldest_wait_s,
                "jobs_of_day": _numbers({one.function: one.jobs for one in day if one.jobs}),
                "slot_s_of_day": as_seconds(sum(one.slot_s for one in day)),
                "instance_slot_s_of_day": as_seconds(sum(one.instance_slot_s for one in day)),
                "input_bytes_of_day": sum(one.input_bytes for one in day),
                "result_bytes_of_day": sum(one.result_bytes for one in day),
            }
        )


class PurgeWork(PoolLister):
    """Remove old records: work that has ended, released leases, silent hosts without slots, and offers of keys.

    Batches with a result that a host still holds are kept, and the usage of projects is kept. For operators.

    Example: fpga-pool work purge --before 30d --dry-run
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--before", type=moment, required=True, metavar="TIME", help=f"remove what ended before that time: {TIMES}"
        )
        parser.add_argument("--project-id", metavar="ID", help="only what belongs to this project (default: to any)")
        parser.add_argument("--dry-run", action="store_true", help="count only, remove nothing")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        purged: Counter[str] = Counter()
        complete = False
        while not complete:
            found = asdict(self.client.purge(parsed_args.before, parsed_args.project_id, dry_run=parsed_args.dry_run))
            complete = found.pop("complete")
            purged.update(found)
        return ("kind", "found" if parsed_args.dry_run else "removed"), list(purged.items())


_OF_EVENTS = ("number", "at", "event", "before", "after", "reason", "request_id", "global_request_id")


class ListEvents(Pages, LongLister):
    """List the events of an object, or of all objects of the project, newest first, with the requests that caused them.

    Without an ID, the newest 100 events (see --limit) of all objects are listed, or of all objects of a KIND: batch,
    design, gang, host, job, pipeline, slot or task. Events of the other kinds can be listed for one object only.

    Example: fpga-pool event list batch UUID

    Example: fpga-pool event list slot --host node-1 --since 1h --all-projects
    """

    SHORT: Sequence[str] = ("at", "event", "after", "reason")
    FILTERS: Mapping[str, str] = {"event": "EVENT", "name": "NAME", "host": "HOST"}
    SORT, ORDER, MARKER = "at", "desc", "NUMBER"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        kinds = f"kind of the object, or objects: {', '.join(EVENTFUL)}"
        parser.add_argument("kind", nargs="?", choices=EVENTFUL, metavar="KIND", help=kinds)
        parser.add_argument("id", nargs="?", metavar="ID", help="its name or uuid; of a quota its project")
        parser.add_argument("--since", type=moment, metavar="TIME", help=f"only then or later: {TIMES}")
        parser.add_argument("--until", type=moment, metavar="TIME", help="only before that time")
        add_projects(parser)

    def filters(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        return super().filters(parsed_args) | {"since": parsed_args.since, "until": parsed_args.until}

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        filters = self.filters(parsed_args)
        if parsed_args.id is None:
            return self._all(parsed_args, filters)
        if filters.pop("name") or filters.pop("host") or parsed_args.project_id:
            raise InvalidInput("--name, --host and projects are for the events of all objects, not of one")
        if parsed_args.kind in ("card", "slot"):
            found = self.client.slots() if parsed_args.kind == "slot" else self.client.cards()
            name = uuid_of(parsed_args.kind, found, parsed_args.id)
        else:
            name = self.uuid_of_work(parsed_args.kind, parsed_args.id)
        events = self.client.events(EVENTFUL[parsed_args.kind], name, **filters)
        return table(events, _OF_EVENTS)

    def _all(self, parsed_args: argparse.Namespace, filters: dict[str, Any]) -> Table:
        if filters.pop("sort") != "at:desc":
            raise InvalidInput("--sort: events of all objects are newest first; to sort otherwise, name one object")
        if filters.pop("marker"):
            raise InvalidInput("--marker: is for events of one object; of all objects --until lists older ones")
        self.SHORT = ("at", "kind", "name", "event", "after")
        events = self.client.pool_events(
            filters.pop("limit") or 100,
            kind=[parsed_args.kind] if parsed_args.kind else [],
            project_id=parsed_args.project_id,
            **filters,
        )
        objects = ("kind", "name", "uuid", "project_id", "host")
        return names([*objects, *_OF_EVENTS]), [(*row(one, objects), *row(one.entry, _OF_EVENTS)) for one in events]
