"""`fpga-pool event`: what happened to an object of the pool."""

import argparse

from fpga_pool.cli.client.base import LongLister, Moment, Pages, Table
from fpga_pool.cli.client.inventory import slot_uuid
from fpga_pool.model.objects.history import EVENTFUL


class List(Pages, LongLister):
    """List what happened to an object, newest first, with the request that caused it."""

    SHORT = ("at", "event", "after", "reason", "request_id")
    SORT, ORDER = "at", "desc"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("kind", choices=EVENTFUL, metavar="KIND", help=f"kind of the object: {', '.join(EVENTFUL)}")
        parser.add_argument("id", metavar="ID", help="uuid of the object; name of a host; name or uuid of a slot")
        self.add_pages(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        name = slot_uuid(self.client, parsed_args.id) if parsed_args.kind == "slot" else parsed_args.id
        events = self.client.events(EVENTFUL[parsed_args.kind], name, **self.filters(parsed_args))
        columns = ("number", "at", "event", "before", "after", "reason", "request_id")
        return columns, [
            (event.number, Moment(event.at), event.event, event.before, event.after, event.reason, event.request_id)
            for event in events
        ]
