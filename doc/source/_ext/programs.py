"""Directive ``.. program-help:: PROGRAM``: its options and those of its commands, from the parsers that it runs with.

Run as a script with the name of a program, this prints them as reStructuredText: a process for each program, because
services register options for the whole process.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from unittest import mock

from cliff.sphinxext import _format_parser
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_MANAGE = "fpga-pool-manage"
_TIMEOUT_S = 120.0


class _AskedForHelp(BaseException):
    """Carries the parser whose help was to be printed."""


def parser_of(program: str, *words: str) -> argparse.ArgumentParser:
    """Return the parser of which a program prints the help, if it is run with these words and `--help`."""

    def leave(parser: argparse.ArgumentParser, _file: object = None) -> None:
        raise _AskedForHelp(parser)

    (entry,) = entry_points(group="console_scripts", name=program)
    with (
        mock.patch.object(argparse.ArgumentParser, "print_help", leave),
        mock.patch.object(sys, "argv", [program, *words, "--help"]),
    ):
        try:
            entry.load()()
        except _AskedForHelp as help_:
            parser: argparse.ArgumentParser = help_.args[0]
            for action in parser._actions:
                if action.help and action.help != argparse.SUPPRESS:
                    action.help = parser._get_formatter()._expand_help(action)
            return parser
    raise ValueError(f"{program} {' '.join(words)} --help: prints no help of a parser")


def commands(program: str, parser: argparse.ArgumentParser) -> Iterable[str]:
    """Return the commands of a program."""
    if program == _MANAGE:
        from fpga_pool.cli.admin.main import COMMANDS

        return COMMANDS
    of_parser = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [name for action in of_parser for name in action.choices]


def pages(program: str) -> Iterator[str]:
    """Yield the lines of the options of a program and of each of its commands."""
    top = parser_of(program)
    yield from _format_parser(top)
    for name in commands(program, top):
        title = f"{program} {name}"
        parser = parser_of(program, *name.split())
        yield from ("", title, "-" * len(title), "")
        parser.prog = title
        yield from _format_parser(parser)


class ProgramHelp(SphinxDirective):
    """Renders the options of one program."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return sections, one for each command, below the section where the directive stands."""
        (program,) = self.arguments
        command = [sys.executable, str(Path(__file__)), program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise self.error(f"{program}: {done.stderr}")
        container = nodes.Element()
        lines = StringList(done.stdout.splitlines(), source=program)
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("program-help", ProgramHelp)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print("\n".join(pages(sys.argv[1])))
