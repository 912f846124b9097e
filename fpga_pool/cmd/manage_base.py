"""What the commands of `fpga-pool-manage` share."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

from cliff.command import Command
from oslo_config import cfg

from fpga_pool.cmd.base import WRONG_USAGE, status_of
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.store.options import open_store
from fpga_pool.store.store import Store


class ManageCommand(Command):
    """A command on the pool's own files and database.  What is refused is one line; the rest is for --debug."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration of the pool; InvalidInput or cfg.Error says what is wrong with it."""
        return cast("cfg.ConfigOpts", cast("Any", self.app).conf)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the pool's database."""
        with closing(open_store(self.conf)) as store:
            yield store

    def tell(self, line: str) -> None:
        """Say something to a person."""
        print(line, file=self.app.stdout)

    def run(self, parsed_args: Any) -> int:
        """Run the command; return its exit status."""
        try:
            return super().run(parsed_args) or 0
        except (FpgaPoolError, cfg.Error) as error:
            if self.app.options.debug:
                raise
            print(f"fpga-pool-manage: {str(error).splitlines()[0]}", file=self.app.stderr)
            return WRONG_USAGE if isinstance(error, cfg.Error) else status_of(error)
