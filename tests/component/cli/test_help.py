"""Help texts of commands: examples that can be copied, usage lines, and line lengths that fit the terminal."""

import io
import re
import shlex

import pytest

from fpga_pool.cli.admin.main import ManageApp
from fpga_pool.cli.client.main import PoolApp


@pytest.fixture(params=[PoolApp, ManageApp], ids=["fpga-pool", "fpga-pool-manage"])
def app(request):
    return request.param(stdout=io.StringIO(), stderr=io.StringIO())


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def parser_of(app, program, name):
    return app.command_manager.find_command(name.split())[0](app, None, cmd_name=name).get_parser(f"{program} {name}")


def examples_in(text):
    """Return the line below each `Example:`."""
    return re.findall(r"^Example:\n\n  (.*)\n\n", text, re.MULTILINE)


def test_each_command_has_an_example_on_a_line_of_its_own_that_it_understands(app):
    for name, _ in app.command_manager:
        if name in ("help", "complete"):  # these are commands of cliff
            continue
        parser = parser_of(app, app.NAME, name)
        examples = examples_in(parser.format_help())
        assert examples, name
        for example in examples:
            assert example.startswith(f"{app.NAME} {name}")
            parser.parse_args(shlex.split(example.removeprefix(f"{app.NAME} {name}")))


def test_an_example_names_the_program_that_was_called():
    app = PoolApp()
    factory = app.command_manager.find_command(["slot", "drain"])[0]
    shown = factory(app, None, cmd_name="fpga slot drain").get_parser("openstack fpga slot drain").format_help()
    assert examples_in(shown) == ['openstack fpga slot drain node-1/sim0/slot0 --reason "loud fan"']
    assert "fpga-pool" not in shown


def test_files_that_a_batch_file_replaces_are_optional_in_the_usage():
    app = PoolApp()
    usages = {name: parser_of(app, app.NAME, name).format_usage() for name in ("batch create", "task create")}
    assert usages["batch create"].split()[-3:] == ["[FILE", "[FILE", "...]]"]
    assert usages["task create"].split()[-3:] == ["FILE", "[FILE", "...]"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("batch list", "--marker UUID"),
        ("design list", "--marker UUID"),
        ("slot list", "--marker NAME"),
        ("event list", "--marker NUMBER"),
        ("batch create", "batch policy (default: chosen by the operator)"),
        ("batch retry", "batch policy (default: that of the batch)"),
        ("batch retry", "name of the batch (default: that of the batch)"),
    ],
)
def test_the_help_of_an_option_is_that_of_its_command(name, says):
    app = PoolApp()
    assert says in " ".join(parser_of(app, app.NAME, name).format_help().split())


@pytest.mark.parametrize("words", [["help"], ["--help"]])
def test_commands_are_listed_as_wide_as_the_terminal(app, words):
    assert app.run(words) == 0
    shown = app.stdout.getvalue()
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    listed = re.findall(r"^  (\w+(?: \w+)*)  +\w", shown.partition("\nCommands:\n")[2], re.MULTILINE)
    assert listed == sorted(name for name, _ in app.command_manager)
