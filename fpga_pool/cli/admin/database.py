"""`fpga-pool-manage db` and `audit`: the schema of the pool's database, and its consistency."""

import argparse
import time

from cliff.lister import Lister

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.cli.arguments import positive_days
from fpga_pool.cli.client.columns import Table
from fpga_pool.cli.command import FAILED
from fpga_pool.conf.catalogue import configured_catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import Lease
from fpga_pool.model.rules.instance.instances import release_slots
from fpga_pool.placement.client import PlacementClient, open_placement
from fpga_pool.placement.sync import Allocations
from fpga_pool.services.audit import audit, describe_lease, lease_findings, lost_accelerators
from fpga_pool.services.scheduler.planner import Calibrator
from fpga_pool.store.purge import purge
from fpga_pool.store.store import Store

DAY_S = 86_400.0


class Sync(ManageCommand):
    """Upgrade the schema to this version of fpga_pool; stop the schedulers of an older version first.

    Example: fpga-pool-manage db sync
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.store(any_schema=True) as store:
            store.migrate()
            self.print_line(store.schema_version())


class Version(ManageCommand):
    """Show the revision of the schema; nothing before the first `db sync`.

    Example: fpga-pool-manage db version
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.store(any_schema=True) as store:
            self.print_line(store.schema_version())


class Check(ManageCommand):
    """Check whether the schema is that of this version; exit status 1 if a scheduler would not start.

    Example: fpga-pool-manage db check
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.store():
            self.print_line("the schema matches this version of fpga_pool")


class Refit(ManageCommand, Lister):
    """Fit the time models again to the stored runs, and show how functions slow each other down on a card.

    Schedulers do the same continuously. Use this command if none is running, or to see what they have learned.

    Example: fpga-pool-manage refit
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Fit the time models, and return the slowdowns."""
        with self.store() as store:
            calibrator = Calibrator(store, configured_catalogue(self.conf), time.time)
            calibrator.refit()
        costs = calibrator.slowdown.costs() if calibrator.slowdown is not None else {}
        rows = [(function, beside, f"{1 + cost:.2f}") for (function, beside), cost in sorted(costs.items(), key=str)]
        return ("function", "beside", "times as long"), rows


class Purge(ManageCommand, Lister):
    """Remove old records: work that has ended, released leases, silent hosts without slots, and offers of keys.

    Batches with a result that a host still holds are kept. The pool may be running. Runs of the jobs are removed, too:
    time models stay as they were fitted until there are new runs.

    Example: fpga-pool-manage db purge --older-than 30 --dry-run
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--older-than",
            type=positive_days,
            required=True,
            metavar="DAYS",
            help="remove what ended at least so many days ago",
        )
        parser.add_argument("--project", metavar="ID", help="remove only what belongs to this project")
        parser.add_argument("--dry-run", action="store_true", help="count only, remove nothing")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        ended_before = time.time() - parsed_args.older_than * DAY_S
        with self.store() as store:
            found = purge(store, ended_before, parsed_args.project, dry_run=parsed_args.dry_run)
        return ("kind", "found" if parsed_args.dry_run else "removed"), list(found.items())


#: A lease is released if it has no allocation now, nor this many seconds later: Nova writes several one by one.
CERTAIN_AFTER_S = 3.0
#: Output if there are no findings.
NOTHING_WRONG = "no problems found"


class Audit(ManageCommand):
    """Check the database against the rules of the pool and against Placement; exit status 1 if there are findings.

    It may be used at any time, whether the pool is running or not.

    Example: fpga-pool-manage audit --repair
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--idle", action="store_true", help="all work has ended: also report work that is still in progress"
        )
        parser.add_argument(
            "--repair",
            action="store_true",
            help="release the slots of virtual machines that have no allocation in Placement",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        placement = open_placement(self.conf)
        if parsed_args.repair and placement is None:
            raise InvalidInput("--repair: requires Placement, which is not configured ([placement] auth_type)")
        with self.store() as store:
            findings = audit(store, idle=parsed_args.idle)
            findings += lost_accelerators(store, configured_catalogue(self.conf))
            if placement is not None:
                findings += self._audit_leases(store, placement, repair=parsed_args.repair)
        for line in findings or [NOTHING_WRONG]:
            self.print_line(line)
        return FAILED if findings else 0

    def _audit_leases(self, store: Store, placement: PlacementClient, *, repair: bool) -> list[str]:
        """Print the differences from Placement; return those that were not reconciled."""
        known = Allocations(placement)
        found = lease_findings(store, placement, known, None)
        if repair and found.surplus:
            time.sleep(CERTAIN_AFTER_S)
            before = {lease.uuid for lease in found.surplus}
            found = lease_findings(store, placement, known, None)
            for lease in found.surplus:
                if lease.uuid in before and self._release(store, lease):
                    self.print_line(f"released: {describe_lease(lease)}")
            found = lease_findings(store, placement, known, None)
        for remark in found.remarks:
            self.print_line(f"note: {remark}")
        return [describe_lease(lease) for lease in found.surplus]

    def _release(self, store: Store, lease: Lease) -> bool:
        with store.reading() as reading:
            shard = reading.slot(lease.slot).shard
        with store.transaction(shard) as tx:
            return bool(release_slots(tx, [lease], time.time()))
