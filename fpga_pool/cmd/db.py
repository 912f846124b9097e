"""`fpga-pool-manage db`: the schema of the pool's database."""

import argparse

from fpga_pool.cmd.manage_base import ManageCommand


class Sync(ManageCommand):
    """Bring the schema to this version of fpga_pool; stop the schedulers of an older one first."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Migrate."""
        with self.store() as store:
            store.migrate()
            self.tell(store.schema_version())


class Version(ManageCommand):
    """Show the revision of the schema; nothing before the first `db sync`."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Show it."""
        with self.store() as store:
            self.tell(store.schema_version())


class Check(ManageCommand):
    """Say whether the schema is that of this version; exit status 1 if a scheduler would not start."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Compare."""
        with self.store() as store:
            store.check_schema()
        self.tell("the schema is that of this version of fpga_pool")
