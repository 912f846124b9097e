"""Every command on a page is run by a test or says why not, and all commands and their options exist."""

import argparse
import functools
import re
import shlex
import warnings
from unittest import mock

import pytest

from fpga_pool.cli.admin.main import ManageApp
from fpga_pool.cli.client.main import PoolApp
from fpga_pool.cli.learn import _parser as learn_parser
from fpga_pool.cli.sim.main import _parser as sim_parser
from fpga_pool.guest.tool import _parser as guest_parser
from support.pages import PAGES_TEST, ROOT, SOURCE, Row, agrees, blocks, commands, pages, row_of, table

ROWS, PAGES = table(), pages()
SHOWN = [(page, one) for page, shown in PAGES.items() for one in shown]
IDS = [f"{page}:{one.line}:{one.text[:40]}" for page, one in SHOWN]
#: Commands named in prose: a program, its command words and arguments.
NAMED = re.compile(r"``(fpga-pool(?:-manage|-sim)? [a-z][^`]*)``")


def simple_commands(text):
    """Yield the simple commands of a line of shell as words, without leading variables, `sudo`, `time` and `exec`."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    for token in [*lexer, ";"]:
        if set(token) <= set("();<>|&"):
            yield words
            words = []
        elif words or not re.match(r"\w+=|sudo$|time$|exec$", token):
            words.append(token)


def parse(words):
    """Parse one of our commands as its program would, without running it; a mistake in it raises SystemExit."""
    program, words = words[0].rpartition("/")[2], words[1:]
    if program == "openstack":
        while words[0].startswith("--"):  # a global option and its value
            words = words[2:]
        _parse_cliff(_openstack(), words)
    elif program in APPS:
        app = APPS[program]()
        _, words = app.parser.parse_known_args(words)
        _parse_cliff(app, words)
    elif program in PARSERS:
        PARSERS[program](words).parse_args(words)


def _parse_cliff(app, words):
    factory, name, rest = app.command_manager.find_command(words)
    parser = factory(app, None, cmd_name=name).get_parser(name)
    parser.parse_args(rest)


@functools.cache
def _openstack():
    """Return openstackclient with the commands of the default API versions, and of the groups that pages use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from modules that osc_lib imports
        from openstackclient.shell import OpenStackShell

        app = OpenStackShell()
    for group in ("common", "compute.v2", "fpga.v1", "identity.v3", "image.v2", "network.v2", "placement.v1"):
        app.command_manager.add_command_group(f"openstack.{group}")
    app.client_manager = mock.Mock(_api_version={"compute": "2", "placement": "1.37"})
    return app


APPS = {"fpga-pool": PoolApp, "fpga-pool-manage": ManageApp}
PARSERS = {
    "fpga-pool-sim": sim_parser,
    "fpga-pool-learn": lambda _: learn_parser(),
    "fpga-pool-guest": lambda _: guest_parser(),
}


def test_every_command_has_a_row_that_names_a_test_or_a_reason():
    assert [name for name, (page, one) in zip(IDS, SHOWN, strict=True) if row_of(page, one, ROWS) is None] == []
    assert [row for row in ROWS if bool(row.test) == bool(row.reason)] == []
    assert [row for row in ROWS if row.test and not (ROOT / "tests" / row.test).exists()] == []


def test_every_row_has_a_command():
    used = {row_of(page, one, ROWS) for page, one in SHOWN}
    assert [row for row in ROWS if row not in used] == []


def not_run(name, page, rows):
    """Yield the line of each Python block that is neither run as shown on its page nor used by name in such a test."""
    tests = {one.text: row.test for one in commands(page) if (row := row_of(name, one, rows))}
    files = [path for test in tests.values() if (path := ROOT / "tests" / test).is_file()]
    for block in blocks(page):
        shown = tests.get(f"python {block.caption}") == PAGES_TEST
        named = block.caption and any(f'"{block.caption}"' in path.read_text() for path in files)
        if block.language == "python" and not shown and not named:
            yield block.line


@pytest.mark.parametrize("page", sorted(SOURCE.rglob("*.rst")), ids=lambda page: page.stem)
def test_every_python_block_is_run(page):
    name = page.relative_to(SOURCE).with_suffix("").as_posix()
    assert list(not_run(name, page, ROWS)) == []


def test_a_python_block_that_nothing_runs_is_found(tmp_path):
    page, rows = tmp_path / "page.rst", [Row("page", "python", PAGES_TEST, "")]
    for caption, command, expected in (
        ("   :caption: one.py\n", "python one.py", []),
        ("   :caption: one.py\n", "python two.py", [1]),
        ("   :caption: one.py\n", "echo python one.py", [1]),  # no row for this command
        ("", "python one.py", [1]),
    ):
        page.write_text(f".. code-block:: python\n{caption}\n   1\n\n.. code-block:: console\n\n   $ {command}\n")
        assert list(not_run("page", page, rows)) == expected


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=IDS)
def test_a_command_and_its_options_are_those_of_its_program(page, command):
    for words in simple_commands(command.text):
        if words:
            parse(words)
            paths = [word for word in words if re.match(r"(tests|tools|doc/source|etc)/[\w/.-]+$", word)]
            assert [path for path in paths if not (ROOT / path).exists()] == [] or "prediction.csv" in command.text


@pytest.mark.parametrize("page", sorted(SOURCE.rglob("*.rst")), ids=lambda page: page.stem)
def test_commands_named_in_prose_exist_with_their_options(page):
    for text in NAMED.findall(page.read_text().replace("\n", " ")):
        program, *words = text.split()
        if program == "fpga-pool-sim":
            assert words[0] in SIM_COMMANDS, text
            continue
        app = APPS[program]()
        known = {name for name, _ in app.command_manager}
        name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), None)
        if name is None:  # the name of a command group
            assert len(words) == 1, text
            assert words[0] in {name.split()[0] for name in known}, text
        elif name != "help":
            parser = app.command_manager.find_command(name.split())[0](app, None, cmd_name=name).get_parser(name)
            assert {word for word in words if word.startswith("--")} <= parser._option_string_actions.keys(), text


SIM_COMMANDS = next(
    action.choices for action in sim_parser([])._actions if isinstance(action, argparse._SubParsersAction)
)


def test_a_wrong_option_and_a_wrong_command_are_found():
    for text in ("fpga-pool batch create --no-such a.bin", "fpga-pool-sim pool --no-such", "fpga-pool-guest walk"):
        with pytest.raises(SystemExit):
            parse(text.split())
    with pytest.raises(ValueError, match="Unknown command"):
        parse(["fpga-pool", "batch", "start"])


def test_output_is_compared_by_what_does_not_vary():
    shown = "| a.bin | COMPLETED | node-1/sim0/slot0 | 0.700 | 3 |\n..."
    assert agrees(shown, "| a.bin | RESULT_HELD | node-3/sim0/slot2  | 1.25 | 3 |\nmore\nlines\n")
    assert not agrees(shown, "| a.bin | COMPLETED | node-1/sim0/slot0 | 0.700 | 4 |\nmore")
    assert not agrees(shown, "| b.bin | COMPLETED | node-1/sim0/slot0 | 0.700 | 3 |\nmore")


def test_commands_are_read_with_their_lines_and_output(tmp_path):
    page = tmp_path / "page.rst"
    page.write_text(
        "A page\n\n.. code-block:: console\n\n   $ one \\\n       --two\n   out\n   # three 'a\n   b'\n\n"
        "Text\n\n.. code-block:: shell\n\n   four\n"
    )
    assert [(one.text, one.output) for one in commands(page)] == [
        ("one \\\n    --two", "out"),
        ("three 'a\nb'", ""),
        ("four", ""),
    ]
