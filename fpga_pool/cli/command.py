"""What `fpga-pool`, `fpga-pool-manage` and their commands have in common: groups of commands, errors, exit status."""

import argparse
import io
from typing import Any

from cliff.app import App
from cliff.command import Command

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Interrupted(FpgaPoolError):
    """Ctrl-C; the message says what continues without the command."""


def status_of(error: BaseException) -> int:
    """Return the exit status for what ended a command."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return INTERRUPTED
    return WRONG_USAGE if isinstance(error, InvalidInput) else FAILED


class CheckedCommand(Command):
    """A command whose errors are one line and an exit status; the traceback of an error is for --debug."""

    #: Exit status where the command itself went through.
    status = OK

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Describe what the command takes."""

    def run(self, parsed_args: Any) -> int:
        """Run the command; return its exit status."""
        try:
            return super().run(parsed_args) or self.status
        except BrokenPipeError:
            # cliff ends the command as the shell would.
            raise
        except KeyboardInterrupt:
            self.complain("interrupted")
            return INTERRUPTED
        except (FpgaPoolError, OSError) as error:
            if self.app.options.debug:
                raise
            self.complain(one_line(error))
            return status_of(error)

    def complain(self, line: str) -> None:
        """Print what went wrong."""
        print(f"{self.app.NAME}: {line}", file=self.app.stderr)


def one_line(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else getattr(error, "code", type(error).__name__)


class CommandApp(App):
    """An application of commands without a shell of its own."""

    def __init__(self, program: str, **options: Any) -> None:
        # `CMD --help` is the help of the command, not that of the application.
        super().__init__(deferred_help=True, **options)
        self.NAME = program

    def configure_logging(self) -> None:
        """Log, to a file too if there is to be one."""
        try:
            super().configure_logging()
        except OSError as error:
            where = f"--log-file {self.options.log_file}: cannot be written: {error.strerror}"
            self.parser.exit(WRONG_USAGE, f"{self.NAME}: {where}\n")

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
        if self.stderr is None:  # closed by the caller; what is printed to None would go to standard output
            self.stderr = io.StringIO()
        if self.stdout is None:
            print(f"{self.NAME}: standard output is closed, so nothing was done", file=self.stderr)
            return FAILED
        try:
            return super().run(argv)
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else 0
