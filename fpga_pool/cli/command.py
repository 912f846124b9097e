"""What the commands of `fpga-pool` and `fpga-pool-manage` have in common: exit status, and errors in one line."""

from typing import Any

from cliff.command import Command

from fpga_pool.cli.app import WRONG_USAGE
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

OK, FAILED, INTERRUPTED = 0, 1, 130


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
