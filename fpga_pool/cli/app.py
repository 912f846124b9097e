"""What the applications `fpga-pool` and `fpga-pool-manage` have in common: help, groups of commands, exit status."""

from typing import Any

from cliff.app import App

#: Exit status of wrong usage.
WRONG_USAGE = 2


class CommandApp(App):
    """An application of commands without a shell of its own."""

    def __init__(self, program: str, **options: Any) -> None:
        # `CMD --help` is the help of the command, not that of the application.
        super().__init__(deferred_help=True, **options)
        self.NAME = program

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; the name of a group is no command, and lists those of the group."""
        if self._is_group(argv):
            super().run_subcommand(["help", *argv])
            return WRONG_USAGE
        return super().run_subcommand(argv)

    def _is_group(self, argv: list[str]) -> bool:
        names = [name.split() for name, _ in self.command_manager]
        return argv not in names and any(name[: len(argv)] == argv for name in names)

    def interact(self) -> None:
        """Ask for a command; there is no shell."""
        self.parser.print_usage(self.stderr)
        self.parser.exit(WRONG_USAGE, f"{self.NAME}: no command given; `{self.NAME} help` lists the commands\n")

    def run(self, argv: list[str]) -> int:
        """Run one command; return the exit status."""
        try:
            return super().run(argv)
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else 0
