"""Common base of `fpga-pool` and `fpga-pool-manage`: command groups, error messages and exit statuses."""

import argparse
import io
import re
import shutil
import textwrap
from typing import Any, cast

from autopage.argparse import HelpFormatter, help_pager
from cliff.app import App
from cliff.command import Command
from cliff.help import HelpCommand, HelpExit

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Interrupted(FpgaPoolError):
    """The command was interrupted with Ctrl-C; the message says what continues without it."""


def status_of(error: BaseException) -> int:
    """Return the exit status for the exception that ended a command."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return INTERRUPTED
    return WRONG_USAGE if isinstance(error, InvalidInput) else FAILED


class _HelpFormatter(HelpFormatter):
    """A help formatter that keeps the paragraphs of a description, and does not wrap indented ones."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        return "\n\n".join(part if part.startswith(" ") else fill(part, width, indent) for part in parts)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """Return the values of an argument for the usage, in brackets if optional: argparse shows "+" as required."""
        text = super()._format_args(action, default_metavar)
        optional = action.nargs == "+" and not action.option_strings and not action.required
        return f"[{text}]" if optional else text


class CheckedCommand(Command):
    """A command that reports an error in one line and by its exit status; --debug shows the traceback."""

    #: Exit status if the command raises no error.
    status = OK

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.formatter_class = _HelpFormatter
        parser.description = re.sub(
            "^Example: (.*)",
            lambda found: f"Example:\n\n  {self._as_called(found[1], prog_name)}",
            parser.description or "",
            flags=re.MULTILINE,
        )
        self.add_arguments(parser)
        return parser

    def _as_called(self, example: str, prog_name: str) -> str:
        """Return an example with the program that was called: `openstack fpga` has the commands of `fpga-pool`, too."""
        name = (self.cmd_name or "").removeprefix("fpga ")
        return prog_name + example.partition(name)[2] if name else example

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command to the parser."""

    def run(self, parsed_args: Any) -> int:
        """Run the command; return its exit status."""
        try:
            return super().run(parsed_args) or self.status
        except BrokenPipeError:
            # cliff handles it: it exits as the shell expects.
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
        """Print an error message."""
        print(f"{self.app.NAME}: {line}", file=self.app.stderr)


def one_line(error: Exception) -> str:
    """Return the message of an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else getattr(error, "code", type(error).__name__)


class _Help(HelpCommand):
    """Show the options and commands, or the help of a command."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.cmd:
            return super().take_action(parsed_args)
        cast("CommandApp", self.app).print_commands()
        return OK


class CommandApp(App):
    """A command-line application without an interactive shell."""

    def __init__(self, program: str, **options: Any) -> None:
        # `CMD --help` is the help of the command, not that of the application.
        super().__init__(deferred_help=True, **options)
        self.command_manager.add_command("help", _Help)
        self.NAME = program

    def configure_logging(self) -> None:
        """Set up logging, also to a file if --log-file is given."""
        try:
            super().configure_logging()
        except OSError as error:
            where = f"--log-file {self.options.log_file}: cannot be written: {error.strerror}"
            self.parser.exit(WRONG_USAGE, f"{self.NAME}: {where}\n")

    def print_help_if_requested(self) -> None:
        """Show the options and commands and exit, if help was requested."""
        if self.options.deferred_help:
            self.print_commands()
            raise HelpExit

    def print_commands(self) -> None:
        """Print the options and commands, wrapped to the width of the terminal, which cliff does not do."""
        commands = sorted((name, entry.load()) for name, entry in self.command_manager)
        width, indent = shutil.get_terminal_size().columns, max(len(name) for name, _ in commands) + 4
        with help_pager(self.stdout) as out:
            self.parser.print_help(out)
            print("\nCommands:", file=out)
            for name, command in commands:
                summary = command(self, None, cmd_name=name).get_description().split("\n")[0].rstrip(".")
                first = f"  {name}".ljust(indent)
                print(textwrap.fill(summary, width, initial_indent=first, subsequent_indent=" " * indent), file=out)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; if only the name of a group is given, list the commands of the group."""
        if self._is_group(argv):
            super().run_subcommand(["help", *argv])
            return WRONG_USAGE
        return super().run_subcommand(argv)

    def _is_group(self, argv: list[str]) -> bool:
        names = [name.split() for name, _ in self.command_manager]
        return argv not in names and any(name[: len(argv)] == argv for name in names)

    def interact(self) -> None:
        """Exit with an error that asks for a command, instead of starting an interactive shell."""
        self.parser.print_usage(self.stderr)
        self.parser.exit(WRONG_USAGE, f"{self.NAME}: no command given; `{self.NAME} help` lists the commands\n")

    def run(self, argv: list[str]) -> int:
        """Run one command; return the exit status."""
        if self.stderr is None:  # closed by the caller; print(file=None) would write to standard output
            self.stderr = io.StringIO()
        if self.stdout is None:
            print(f"{self.NAME}: standard output is closed, so nothing was done", file=self.stderr)
            return FAILED
        try:
            return super().run(argv)
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else 0
