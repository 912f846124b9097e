"""`fpga-pool pool show` and `pool stats`: what a pool is, and what is counted in it."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.cli.client.base import PoolShowOne, Row, Seconds, Words, add_projects
from fpga_pool.cli.client.pool.overview import count_cards, counts

#: So wide a value leaves the table within 80 columns.
_WIDTH = 52


class Numbers(FormattableColumn[Any]):
    """How many there are of each: a line for people, or an object."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return fill(in_words(self._value), _WIDTH)

    def machine_readable(self) -> dict[str, int]:
        """Leave it an object."""
        return dict(self._value)


def in_words(numbers: Mapping[str, int]) -> str:
    """Return numbers of things in one line, the largest first."""
    several = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {name or 'none'}" for name, number in several if number)


class Show(PoolShowOne):
    """Show what the pool consists of."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        pool, services = self.client.pool_counts(), self.client.services()
        slots: Counter[str] = Counter()
        for slot in pool.slot_list:
            slots[slot.board] += slot.slots
        up = Counter(f"{one.kind}s {'up' if one.up else 'down'}" for one in services)
        shown = {
            "endpoint": self.client.endpoint,
            "release": pool.release,
            "services": Numbers(up),
            "down": Words([f"{one.kind} {one.name}" for one in services if not one.up]),
            "hosts": Numbers({"alive": pool.alive_hosts, "lost": pool.lost_hosts}),
            "cards": Numbers(count_cards(pool, lambda card: f"{card.board} {card.state}")),
            "slots": Numbers(slots),
            "functions": Functions([f"{one.name} {one.version}" for one in self.client.functions()]),
        }
        return tuple(shown), tuple(shown.values())


class Functions(Words):
    """The names and versions of functions, in lines where there are many."""

    def human_readable(self) -> str:
        """Show it in a table."""
        return fill(super().human_readable(), _WIDTH)


class Stats(PoolShowOne):
    """Count slots, work that has not ended, and what was computed during the last day."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        add_projects(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Row]:
        """Ask and show."""
        found = counts(self.client, parsed_args.project_id)
        day = found.usage
        shown = {
            "slots": Numbers(found.slots_by_state),
            "functions": Numbers({name: states.total() for name, states in found.slots_by_function.items()}),
            "leases": Numbers(found.leases),
            **{f"{kind}s": Numbers(found.work.get(kind, {})) for kind in ("job", "task", "gang")},
            "oldest_wait_s": Seconds(found.oldest_wait_s),
            "jobs_of_day": Numbers({one.function: one.jobs for one in day if one.jobs}),
            "slot_s_of_day": Seconds(sum(one.slot_s for one in day)),
            "instance_slot_s_of_day": Seconds(sum(one.instance_slot_s for one in day)),
            "input_bytes_of_day": sum(one.input_bytes for one in day),
            "result_bytes_of_day": sum(one.result_bytes for one in day),
        }
        return tuple(shown), tuple(shown.values())
