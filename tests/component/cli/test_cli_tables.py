"""Common properties of all commands: tables that fit a terminal, and human-readable units."""

import argparse
import configparser
import json
from importlib.metadata import EntryPoint

import pytest
from cliff.lister import Lister

from fpga_pool.cli.client.batch import BATCHES
from fpga_pool.cli.client.columns import duration, names
from fpga_pool.cli.client.create import Create, CreateWork
from fpga_pool.cli.client.main import PoolApp
from fpga_pool.client import JobSpec
from fpga_pool.model.messages.work import JobRequest
from support.pages import ROOT

from .conftest import Terminal

WIDTH = 80
UUID = "8d28f69d-8e99-444b-a587-4856c33c0074"
NAME = "nightly-digests-of-all-measurements-of-telescope-7"


def registered():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    lines = parser["options.entry_points"]["fpga_pool.cli"].strip().splitlines()
    return [EntryPoint("", line.partition("=")[2].strip(), "").load() for line in lines]


def results(row):
    return (row, "state", "slot", "compute_s", "result", "path", "error")


def tables():
    """Yield each command with the columns of each of its tables in full."""
    for command in registered():
        if columns := names(getattr(command, "COLUMNS", ())):
            yield command, columns
        if issubclass(command, CreateWork):
            yield command, names(BATCHES)
            yield command, results(command.ROW)
    yield from ((command, results("file")) for command in registered() if command.__base__.__name__ == "_Continue")


TABLES = list(tables())


def content(column):
    """Return a text as long as real values of the column get."""
    if column == "uuid" or column.endswith("_uuid"):
        return UUID
    if column == "at" or column.endswith("_at"):
        return "2026-11-28 08:18:19+00:00"
    return "WAITING_INPUT" if column == "state" else NAME


def drawn(kind, columns, **options):
    """Return the lines of the table that a command prints for one row."""
    command = kind(PoolApp(stdout=Terminal(tty=False)), None, cmd_name="x")
    defaults = {action.dest: action.default for action in command.get_parser("x")._actions}
    command.formatter = command._formatter_plugins["table"].obj
    row = [content(name) for name in columns]
    parsed = argparse.Namespace(**defaults | options)
    command.produce_output(parsed, columns, [row] if isinstance(command, Lister) else row)
    return command.app.stdout.getvalue().splitlines()


@pytest.mark.parametrize(("kind", "columns"), TABLES, ids=[f"{one.__module__}.{one.__name__}" for one, _ in TABLES])
def test_a_table_fits_80_columns_and_keeps_identifiers_whole(kind, columns):
    lines = drawn(kind, columns)
    assert max(map(len, lines)) <= WIDTH
    shown = "\n".join(lines)
    for name in ("uuid", "state"):
        assert f" {name} " not in shown or content(name) in shown
    if hasattr(kind, "SHORT"):
        long = drawn(kind, columns, long=True)
        assert all(f"| {name} " in long[1] for name in columns)
        assert len(long) == 5  # one of them is the row


def test_digests_stay_whole_and_states_are_shown_where_a_result_is_missing():
    def lines(file, *digests, error=None):
        command = Create(PoolApp(stdout=Terminal(tty=False)), None, cmd_name="x")
        command.formatter = command._formatter_plugins["table"].obj
        parsed = argparse.Namespace(**{action.dest: action.default for action in command.get_parser("x")._actions})
        more = () if error is None else (error,)
        rows = [[file, "COMPLETED" if digest else "FAILED", "h/c/s", "1.0", digest, *more] for digest in digests]
        command.produce_output(parsed, (*results("file")[:5], *["error"][: len(more)]), rows)
        return command.app.stdout.getvalue().splitlines()

    digest = "35bce4eae54ec8e6cc2868baa8d157914d6ae2858811b4cc0c078c94460fa26f"
    complete = lines(NAME, digest, digest)
    assert max(map(len, complete)) <= WIDTH
    assert sum(digest in line for line in complete) == 2
    assert "state" not in complete[1]
    assert "FAILED" in "".join(lines("a", digest, ""))
    # The error takes the place of the other columns.
    wrong = "header (rows, columns): expected 8 bytes, the input ends after 3"
    assert lines("a", "", error=wrong)[1:4:2] == ["| file | error" + " " * 60 + "|", f"| a    | {wrong} |"]


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0.0, "0 s"),
        (0.0123456, "0.012 s"),
        (2.3, "2.3 s"),
        (59.99, "59.99 s"),
        (59.9999, "1 min"),
        (72.4, "1 min 12 s"),
        (119.6, "2 min"),
        (7500.0, "2 h 5 min"),
        (7260.0, "2 h 1 min"),
        (273_600.0, "3 d 4 h"),
        (-90.0, "-1 min 30 s"),
    ],
)
def test_durations_are_in_words_for_people(value_s, text):
    assert duration(value_s) == text


@pytest.mark.parametrize("nouns", ["batch", "job", "task", "gang", "pipeline", "design", "card", "slot"])
def test_tables_begin_with_names(commands, nouns):
    kind = commands.find_command([nouns, "list"])[0]
    assert names(kind.COLUMNS)[0] == "name"


def test_what_is_cancelled_is_named(run, client):
    batch = client.create([JobSpec("sha256", b"12345", "node-1")], name="night", held=True)
    shown = run("batch", "cancel", "night")
    assert f"| night | {batch.uuid} | CANCELLED |" in shown.out


def test_a_job_without_a_name_is_called_by_its_place(run, client, tmp_path):
    batch = client.create_batch([JobRequest(uuid=UUID, name="", function="sha256", requester="node-1", input_bytes=5)])
    answer = run("batch", "attach", batch.uuid, "--output-dir", tmp_path)
    assert "the pool does not hold 1 of 1 inputs yet (job 0); attach" in answer.err


def test_a_width_that_is_asked_for_is_that_of_the_table(run, client, tmp_path):
    client.create([JobSpec("sha256", b"12345", "node-1")], name=NAME, held=True)
    assert any(NAME in line for line in run("batch", "list", "--max-width", 100, "-c", "name").out.splitlines())
    narrow = run("batch", "list", "--max-width", 40).out.splitlines()
    assert max(map(len, narrow)) < WIDTH < len(run("batch", "list", "--long").out.splitlines()[0])


def test_what_is_shown_of_an_object_is_wrapped_and_json_has_it_whole(run, client):
    spec = JobSpec("sha256", b"12345", "node-1", name=NAME)
    batch = client.create([spec, spec], held=True)
    text = run("batch", "show", batch.uuid).out
    assert max(map(len, text.splitlines())) <= WIDTH
    assert f"| 0  {NAME} " in text
    assert "|    sha256  PENDING  held by its owner " in text
    assert json.loads(run("batch", "show", batch.uuid, "-f", "json").out)["job_list"][0]["name"] == NAME


def test_amounts_have_units_and_are_numbers_in_json(run):
    rows = run("quota", "show", "-f", "json").json
    limits = {row["resource"]: row["limit"] for row in rows}
    assert limits["design_bytes"] == 268_435_456
    shown = run("quota", "show").out
    assert "| design_bytes    | 268.4 MB " in shown  # 256 x 1024 x 1024
    assert "| input_bytes     | 70.37 TB " in shown  # 64 x 1024 ** 4
    assert "| jobs            | 100000 " in shown


def test_a_value_that_is_missing_is_empty_in_a_table(run):
    assert "None" not in run("slot", "show", "node-1/card-0/r0").out
    assert run("slot", "show", "node-1/card-0/r0", "-f", "json").json["held_by"] is None
