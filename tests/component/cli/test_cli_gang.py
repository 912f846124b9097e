import argparse

import pytest

from fpga_pool.cli.client.gang import duration_s
from fpga_pool.model.objects.gangs import Process, Tier, process_uuid


def test_a_gang_is_created_listed_shown_and_cancelled(run):
    words = ["--processes", 2, "--runtime", "1h", "--cpu-usage", 0.6, "--name", "weather", "-f", "json"]
    made = run("gang", "create", *words).json
    assert (made["state"], made["processes"], made["runtime_s"], made["cpu_usage"]) == ("QUEUED", 2, 3600.0, 0.6)
    assert [row["uuid"] for row in run("gang", "list", "-f", "json").json] == [made["uuid"]]
    shown = run("gang", "show", made["uuid"], "-f", "json").json
    assert shown["pending_reason"] == "it would delay a gang ahead of it in the queue"
    assert shown["expected_at"]
    assert shown["process_list"] == []
    assert "weather" in run("gang", "show", made["uuid"]).out
    assert run("gang", "cancel", made["uuid"], "-f", "json").json[0]["state"] == "CANCELLED"
    assert run("gang", "cancel", made["uuid"]).status == 1


def test_a_dry_run_of_a_gang_shows_its_processors_and_stores_nothing(run):
    words = ["--processes", 2, "--runtime", "1h", "--cpu-usage", 0.6]
    plan = run("gang", "create", "--dry-run", "--name", "n", *words, "-f", "json").json
    assert (plan["tier"], plan["trial"], plan["ahead"], plan["lower_bound_s"]) == ("foreground", False, 0, 3600.0)
    assert [one["processor"] for one in plan["process_list"]] == ["node-1/pcpu/0", "node-2/pcpu/0"]
    planned = run("plan", "create", "gang", *words)
    assert "0  node-1/pcpu/0  foreground" in planned.out
    assert max(map(len, planned.out.splitlines())) <= 80
    assert run("gang", "list", "-f", "json").json == []
    assert run("gang", "create", "--dry-run", "--processes", 9, "--runtime", "1h").status == 2
    run("gang", "create", *words[:4])
    waits = run("plan", "create", "gang", *words, "-f", "json").json
    assert (waits["ahead"], waits["process_list"]) == (1, [])
    assert waits["pending_reason"] == "too few processors are idle"


def test_a_gang_says_what_its_machines_run(run):
    words = ["--processes", 1, "--runtime", "1h", "--image", "solver", "--command", "run 3 times", "-f", "json"]
    made = run("gang", "create", *words).json
    assert (made["image"], made["command"]) == ("solver", "run 3 times")
    assert run("gang", "create", *words[:4], "--image", "no such").status == 2


def test_processors_are_listed_with_what_their_tiers_carry(run, pool):
    gang = run("gang", "create", "--processes", 1, "--runtime", "1h", "-f", "json").json["uuid"]
    pool.tx.add(
        Process(
            uuid=process_uuid(gang, 1, 0), gang_uuid=gang, index=0, attempt=1,
            processor="node-2/pcpu/0", host="node-2", tier=Tier.BACKGROUND,
        )
    )  # fmt: skip
    free, taken = run("processor", "list", "-f", "json").json
    assert free == {
        "name": "node-1/pcpu/0", "host": "node-1", "number": 0, "offered": True, "foreground": "", "background": "",
    }  # fmt: skip
    assert (taken["name"], taken["foreground"], taken["background"]) == ("node-2/pcpu/0", "", f"{gang}/0")
    assert run("processor", "list", "--host", "node-1", "-f", "json").json == [free]
    table = run("processor", "list").out
    assert f"{gang}/0" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_gang_that_is_not_there_fails_in_one_line(run):
    answer = run("gang", "show", "00000000-0000-0000-0000-000000000000")
    assert (answer.status, answer.err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--processes", "0", "--runtime", "1h"],
        ["--processes", "1", "--runtime", "soon"],
        ["--processes", "1", "--runtime", "1h", "--cpu-usage", "2"],
        ["--processes", "1"],
    ],
)
def test_wrong_usage(run, words):
    assert run("gang", "create", *words).status == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("30s", 30), ("5m", 300), ("1h", 3600), ("1h30m", 5400)]
)
def test_durations(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "1d", "m", "1m1h", "nan"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a duration above 0"):
        duration_s(text)
