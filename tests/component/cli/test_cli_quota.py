import pytest


def test_quota_is_set_shown_and_unset(run):
    assert run("quota", "set", "project-a", "--jobs", 5, "--task-slots", -1).status == 0
    shown = run("quota", "show", "project-a", "-f", "json").json
    assert [(row["resource"], row["limit"], row["default"]) for row in shown[:1] + shown[2:3]] == [
        ("jobs", 5, False),
        ("task_slots", -1, False),
    ]
    assert "unlimited" in run("quota", "show", "project-a").out
    assert all(row["default"] for row in run("quota", "unset", "project-a", "-f", "json").json)


def test_the_own_quota_is_shown_with_its_use(run, client):
    assert run("quota", "show", "-f", "json").json[0] == {
        "resource": "jobs", "limit": 100_000, "default": True, "used": 0
    }  # fmt: skip


def test_a_change_of_nothing_and_impossible_limits_are_wrong_usage(run, capsys):
    answer = run("quota", "set", "project-a")
    assert (answer.status, "expected at least one of --jobs, --input-bytes" in answer.err) == (2, True)
    answer = run("quota", "set", "project-a", "--jobs", "-2")
    says = "expected a whole number of at least 0, or -1, found "
    assert (answer.status, f"{says}'-2'" in capsys.readouterr().err) == (2, True)
    assert run("quota", "set", "project-a", "--jobs", "many").status == 2
    assert f"{says}'many'" in capsys.readouterr().err


@pytest.fixture
def used(pool):
    first = 20_454  # 1 January 2026
    pool.have_used(["demo", "f" * 32], ["aes", "optical_flow"], days=[first, first + 1])


def test_usage_is_shown_within_80_columns_and_exported_whole(run, used):
    start = ("--start", "2026-01-01T00:00:00Z", "--end", "2026-01-02T00:00:00Z")
    for argv in ((), ("--all-projects",)):
        answer = run("usage", "show", *start, *argv)
        assert (answer.status, max(map(len, answer.out.splitlines())) <= 80) == (0, True)
    assert "f" * 32 in answer.out
    row = run("usage", "show", *start, "-f", "json").json[0]
    assert (row["project_id"], row["jobs"], row["slot_s"], row["input_bytes"]) == ("demo", 2, 1.5, 20)
    assert row["begin_at"] == "2026-01-01T00:00:00.000000+00:00"
    head, *rows = run("usage", "show", "--all-projects", "-f", "csv").out.splitlines()
    columns = (
        "project_id", "function", "begin_at", "end_at", "jobs", "loads", "slot_s", "cpu_s", "vcpu_s", "instance_slot_s",
        "input_bytes", "result_bytes",
    )  # fmt: skip
    assert head == ",".join(f'"{name}"' for name in columns)
    assert len(rows) == 4


def test_usage_is_exported_as_a_data_frame_for_each_whole_period(run, client, used):
    period = ("--start", "2025-12-31T00:30:00Z", "--end", "2026-01-03T23:59:59Z", "--period", 86400)
    answer = run("usage", "export", *period, "--price", "fpga.slot=0.5")
    frames = answer.json["dataframes"]
    assert [(frame["period"]["begin"], frame["period"]["end"]) for frame in frames] == [
        ("20260101T000000Z", "20260102T000000Z"),
        ("20260102T000000Z", "20260103T000000Z"),
    ]
    usage = frames[0]["usage"]
    assert usage["fpga.slot"][0] == {
        "vol": {"unit": "s", "qty": 1.5}, "rating": {"price": 0.75}, "groupby": {"project_id": "demo"},
        "metadata": {"function": "aes"},
    }  # fmt: skip
    speedup = {one.name: one.speedup for one in client.functions()}["aes"]
    assert {metric: points[0]["vol"] for metric, points in usage.items()} == {
        "fpga.slot": {"unit": "s", "qty": 1.5}, "fpga.instance_slot": {"unit": "s", "qty": 60.0},
        "fpga.input": {"unit": "B", "qty": 20}, "fpga.result": {"unit": "B", "qty": 7},
        "fpga.load": {"unit": "loads", "qty": 3}, "fpga.vcpu": {"unit": "s", "qty": pytest.approx(speedup * 1.5)},
    }  # fmt: skip
    assert len(usage["fpga.slot"]) == 2
    daily = run("usage", "export", "--start", "2026-01-01T00:00:00Z", "--end", "2026-01-03T00:00:00Z",
                "--period", 86400, "--all-projects")  # fmt: skip
    assert [len(frame["usage"]["fpga.slot"]) for frame in daily.json["dataframes"]] == [4, 4]


@pytest.mark.parametrize("price", ["fpga.slot", "fpga.gpu=1", "fpga.slot=-1", "fpga.slot=nan"])
def test_impossible_prices_are_wrong_usage(run, price):
    assert run("usage", "export", "--price", price).status == 2
