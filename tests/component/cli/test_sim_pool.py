"""`fpga-pool-sim pool`: the examples of the documentation, and the output of the command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.cli.sim.pool import load
from fpga_pool.cli.sim.pool_report import PoolReport
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.sim.scenario.recording import Span

EXAMPLES = Path(__file__).parents[3] / "doc" / "source" / "user" / "scenarios"


class Told:
    """The report of a scenario, with queries on its history."""

    def __init__(self, report):
        self.report = report

    def __getitem__(self, key):
        return self.report[key]

    def of(self, noun, name, event=None):
        """Return the events of an object in order, or only those of one kind."""
        return [
            one
            for one in self.report["history"]
            if (one["noun"], one["name"]) == (noun, name) and event in (None, one["event"])
        ]

    def times(self, noun, name, event):
        return [one["at_s"] for one in self.of(noun, name, event)]

    def events(self, noun, name):
        return [one["event"] for one in self.of(noun, name)]

    def jobs(self, batch):
        return [job for job in self.report["jobs"] if job["batch_uuid"] == batch]


def run(path, *, until_s=None, seed=None, explain=()):
    simulation = load(path, seed)
    simulation.run(until_s or simulation.scenario.pool.until_s)
    return Told(PoolReport(simulation, explain, 100))


@pytest.fixture(scope="module")
def example():
    """Return a function that runs an example of the documentation, once per example."""
    told = {}

    def example(name):
        if name not in told:
            told[name] = run(EXAMPLES / f"{name}.toml")
        return told[name]

    return example


NAMES = sorted(path.stem for path in EXAMPLES.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_example_comes_to_its_end_and_nothing_is_wrong(example, name):
    told = example(name)
    assert (told["audit"], told["unfinished"]) == ([], [])


# Batches under faults -----------------------------------------------------------------------------------------------


def test_work_of_lost_hosts_and_failed_slots_is_done_elsewhere(example):
    told = example("faults")
    assert {batch["name"]: batch["completed"] for batch in told["batches"]} == {"photos": 15, "late": 4}
    again = [job for job in told.jobs("photos") if job["attempt"] > 1]
    assert again
    lost = [one for one in told["history"] if one["noun"] == "job" and one["event"] in ("Displaced", "JobFailed")]
    # The slot fails at 2 s. The host leaves at 3 s and is lost at the first tick 5 s after its last heartbeat.
    assert {2.0 <= one["at_s"] <= 2.1 or 7.0 < one["at_s"] <= 9.0 or one["at_s"] == 4.0 for one in lost} == {True}
    # The host comes back at 15 s and is noticed at its next heartbeat. No job starts on it meanwhile.
    starts = [
        one["at_s"]
        for one in told["history"]
        if one["event"] == "JobStarted" and one["where"].startswith("node-2/")
    ]  # fmt: skip
    assert not [at_s for at_s in starts if 3.0 < at_s < 15.0]


def test_a_drained_slot_ends_what_it_computes_and_begins_nothing_until_it_is_resumed(example):
    told = example("faults")
    (drained,) = told.times("slot", "node-3/sim0/slot0", "DrainRequested")
    (resumed,) = told.times("slot", "node-3/sim0/slot0", "ResumeRequested")
    assert (drained, resumed) == (4.0, 9.0)
    starts = [
        one["at_s"]
        for one in told["history"]
        if one["event"] == "JobStarted" and one["where"] == "node-3/sim0/slot0"
    ]  # fmt: skip
    assert not [at_s for at_s in starts if drained < at_s < resumed]


def test_where_faults_overlap_the_last_end_counts(tmp_path):
    events = [("fail", "a/sim0", 1, 5), ("fail", "a/sim0", 3, 9), ("leave", "a", 2, 2), ("leave", "a", 3, 2)]
    lines = [f'[[events]]\nkind = "{k}"\ntarget = "{t}"\nat_s = {at}\nfor_s = {span}\n' for k, t, at, span in events]
    (tmp_path / "s.toml").write_text("\n".join(['[hosts.a]\nboard = "demo"', *lines]))
    # The host is back at 5 s. Its slots are still broken then, and work again from 12 s on.
    changes = run(tmp_path / "s.toml").of("slot", "a/sim0/slot0")
    assert [one["at_s"] for one in changes if one["after"] == "EMPTY"] == [12.0]


def test_a_late_client_sends_as_much_later_as_is_said(example):
    told = example("faults")
    # 8 MB at 40 Mbit/s take 1.6 s. The last input is complete 2 s later than planned, and staged 20 ms after that.
    staged = [told.times("job", job["uuid"], "InputStaged")[-1] for job in told.jobs("late")]
    assert max(staged) > 6.0 + 0.25 + 1.6 + 2.0


# Online jobs --------------------------------------------------------------------------------------------------------


def test_only_what_can_be_preempted_is_and_nothing_done_is_lost(example):
    told = example("online")
    evicted = {one["name"] for one in told["history"] if one["event"] == "JobEvicted"}
    assert evicted
    assert all(name.startswith("crypt-") for name in evicted)
    # The first eviction is in favour of the first job of the other project, which comes after 10 s.
    assert min(told.times("job", name, "EvictRequested")[0] for name in evicted) > 10.0
    assert {job["state"] for job in told["jobs"]} == {"COMPLETED"}


def test_a_project_gets_no_more_slots_than_its_share(example):
    told = example("online")
    # The project may have three of four slots until the other comes. Its fourth job waits, or runs on a CPU.
    before = [one for one in told["history"] if one["event"] == "JobStarted" and one["at_s"] < 10.0]
    assert len({one["where"] for one in before if "/sim0/" in one["where"]}) == 3


# Tasks --------------------------------------------------------------------------------------------------------------


def test_a_task_that_loses_a_card_waits_for_it_and_begins_again(example):
    told = example("tasks")
    assert told.times("task", "ring", "TaskPlaced") == [0.0, 23.0]
    assert told.events("task", "ring") == ["Created", "TaskPlaced", "TaskDisplaced", "TaskPlaced", "TaskCompleted"]
    assert told.times("task", "ring", "TaskDisplaced") == [3.0]


def test_tasks_that_still_have_a_line_run_while_the_ring_is_broken(example):
    told = example("tasks")
    first, second = (told.of("task", name)[1:] for name in ("pair-1", "pair-2"))
    # The lines of two slots among sim0, sim1 and sim3 overlap, so the tasks run one after the other.
    assert [one["event"] for one in (*first, *second)] == ["TaskPlaced", "TaskCompleted"] * 2
    assert 3.0 <= first[0]["at_s"] < first[1]["at_s"] <= second[0]["at_s"] < second[1]["at_s"] < 23.0


def test_a_malleable_task_gets_one_of_its_shapes(tmp_path):
    task = """
    [hosts.node]
    board = "demo"

    [[tasks]]
    name = "t"
    function = "aes"
    slots = 8
    shapes = [4, [8, 1.0]]
    input_bytes = 1000
    requester = "node"
    """
    told = run(scenario(tmp_path, task))
    # The host has four slots, each of which computes two of the eight shares.
    slots = [share["slot"] for share in told.jobs("t")]
    assert (told["tasks"][0]["state"], sorted(map(slots.count, set(slots)))) == ("COMPLETED", [2, 2, 2, 2])


# Gangs --------------------------------------------------------------------------------------------------------------


def test_gangs_run_behind_others_and_come_to_the_front_when_these_end(example):
    told = example("gangs")
    assert told.events("gang", "wide") == ["Created", "StartedInFront", "Completed"]
    assert told.events("gang", "behind") == ["Created", "StartedBehind", "Swapped", "Completed"]
    (done,), (swapped,) = told.times("gang", "wide", "Completed"), told.times("gang", "behind", "Swapped")
    # 60 s of work, and up to 4 % more where the processors are shared with the background (gang paper, section 2.1).
    assert 60.0 < done < 62.5 < swapped + 2.0 < done + 3.0


def test_a_gang_is_cancelled_when_it_is_asked_for(example):
    told = example("gangs")
    assert told.events("gang", "short-1")[-2:] == ["GangCancelRequested", "GangCancelled"]
    assert told.times("gang", "short-1", "GangCancelRequested") == [20.0]


# Instances ----------------------------------------------------------------------------------------------------------


def test_instances_take_their_slots_from_the_pools_work_which_goes_on_elsewhere(example):
    told = example("instances")
    evicted = [one for one in told["history"] if one["event"] == "EvictRequested" and one["at_s"] == 5.0]
    # Eight jobs have the eight slots when the first instance comes, which needs two of them.
    assert len(evicted) == 2
    assert {job["state"] for job in told["jobs"]} == {"COMPLETED"}


def test_instances_come_stay_and_leave_or_find_no_host(example):
    found = {one["name"]: one for one in example("instances")["instances"]}
    assert [found[f"vm-{n}"]["ended_s"] for n in (1, 2, 3)] == [17.0, 22.0, 27.0]
    assert {found["flow-1"]["host"], found["flow-2"]["host"]} == {"node-1", "node-2"}
    assert (found["flow-3"]["state"], found["flow-3"]["ended_s"]) == ("ERROR", 30.0)
    assert "node-1: 0 of 1 matching slot available; 1 held by an instance" in found["flow-3"]["why"]


# Everything ---------------------------------------------------------------------------------------------------------


def test_all_kinds_of_work_and_faults_go_together(example):
    told = example("everything")
    assert {batch["state"] for batch in told["batches"]} == {"COMPLETED"}
    assert {task["state"] for task in told["tasks"]} == {"COMPLETED"}
    assert {gang["name"]: gang["state"] for gang in told["gangs"]}["solver-4"] == "CANCELLED"
    # No scheduler owns the pool from 25 s to 28 s: no decision is made, and the reports of agents wait.
    nouns = ("job", "task", "gang", "slot")
    assert not [one for one in told["history"] if one["noun"] in nouns and 25.0 < one["at_s"] < 28.0]


# Requests of batch owners --------------------------------------------------------------------------------------


def test_a_batch_that_is_held_back_waits_for_its_release(tmp_path):
    events = [{"at_s": 1, "kind": "hold", "target": "a"}, {"at_s": 20, "kind": "release", "target": "a"}]
    lines = [f"[[events]]\n{EVENT.format(**event)}" for event in events]
    told = run(scenario(tmp_path, "\n".join([SMALL.replace('"a"', '"a"\narrives_s = 2'), *lines])))
    assert told.events("batch", "a")[:2] == ["Created", "BatchPlanned"]  # the hold event came before the batch
    held = SMALL.replace('"a"', '"a"\nheld = true')
    told = run(scenario(tmp_path, "\n".join([held, lines[1]])))
    assert (told["audit"], told["unfinished"]) == ([], [])
    assert told.times("batch", "a", "BatchReleased") == [20.0]
    assert min(job["started_at"] for job in told.jobs("a")) >= "1970-01-01T00:00:20"
    assert run(scenario(tmp_path, held))["unfinished"] == ["a"]


def test_a_batch_of_a_scenario_waits_for_others_or_is_cancelled_with_them(tmp_path):
    after = ""
    for name, waits_for in (("b", "a"), ("c", "b")):
        after += SMALL[SMALL.index("[[batches]]") :].replace('"a"', f'"{name}"\nafter = "{waits_for}"')
    both = SMALL.replace('"a"', '"a"\ncount = 2', 1)
    told = run(scenario(tmp_path, both + after))
    ended = {name: told.of("batch", name, "JobEnded")[-1]["at_s"] for name in ("a-1", "a-2", "b", "c")}
    (planned,) = told.times("batch", "b", "BatchPlanned")
    assert planned >= max(ended["a-1"], ended["a-2"])
    assert told.times("batch", "c", "BatchPlanned")[0] >= ended["b"]
    held = both.replace("count = 2\ninput", "count = 2\ninput").replace('"a"\n', '"a"\nheld = true\n', 1)
    cancel = f"[[events]]\n{EVENT.format(at_s=5, kind='cancel', target='a-2')}\n"
    told = run(scenario(tmp_path, held + after + cancel), until_s=60.0)
    assert {job["reason"] for name in "bc" for job in told.jobs(name)} == {
        "not computed: batch a-2 was cancelled", "not computed: batch b was cancelled",
    }  # fmt: skip


EVENT = 'at_s = {at_s}\nkind = "{kind}"\ntarget = "{target}"'


# The command --------------------------------------------------------------------------------------------------------


def scenario(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


SMALL = """
[hosts.node]
board = "demo"

[[batches]]
name = "a"

[[batches.jobs]]
function = "aes"
count = 2
input_bytes = 1000
requester = "node"
"""
GROUPS = SMALL + '[[batches.jobs]]\nfunction = "aes"\ninput_bytes = 1000\nrequester = "node"\ngroup = 1\n'


def test_jobs_of_a_scenario_are_in_groups(tmp_path):
    told = run(scenario(tmp_path, GROUPS))
    assert sorted(job["group"] for job in told.jobs("a")) == [0, 0, 1]


def test_prints_the_tables_of_the_command_line(tmp_path, capsys):
    assert main(["pool", str(scenario(tmp_path, SMALL)), "--explain", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line and line[0].islower()]
    assert heads == ["hosts", "slots", "batches", "a", "audit", "no problems found"]
    assert "| name | state     | jobs | completed | failed | cancelled | pending_reason |" in lines
    assert "heard_at" not in "".join(lines[: lines.index("a")])  # columns of a live pool only are left out


def test_prints_one_object_and_nothing_else(tmp_path, capsys):
    assert main(["pool", str(scenario(tmp_path, SMALL)), "--json", "--explain", "a.1", "--until", "0.1"]) == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert told.err == ""
    assert (report["ended_s"], report["unfinished"], report["audit"]) == (0.1, ["a"], [])
    assert report["explain"]["a.1"]["state"] == "STAGED"


def test_says_which_hosts_could_take_an_instance_and_why_not():
    told = run(EXAMPLES / "instances.toml", until_s=31.0, explain=["flow-3"])
    rows = {row["host"]: row for row in told["explain"]["flow-3"]}
    assert rows["node-1"]["passes"] is False
    assert rows["node-1"]["why"] == "0 of 1 matching slot available; 1 held by an instance; 1 requested"


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (SMALL + "\n[[events]]\nat_s = 1\nkind = 'x'\n", [], "s.toml: events[0]: kind: expected fail, drain, leave"),
        (SMALL.replace('"a"', '"a"\nafter = "b"'), [], "s.toml: batches[0] (a): after: no batch 'b' of its project"),
        (
            GROUPS.replace('"a"', '"a"\npolicy = "exact"'),
            [],
            "s.toml: batches[0] (a): jobs: several groups, but policy",
        ),
        (
            GROUPS.replace("group = 1", "group = -1"),
            [],
            "batches[0] (a): jobs[1]: group: expected a whole number, 0 or",
        ),
        (SMALL.replace("count = 2", "count = 20000"), [], "s.toml: batches[0] (a): jobs: 20000 jobs in one batch, at"),
        (
            SMALL.replace("[hosts", "[policy_makespan]\nx = 1\n[hosts"),
            [],
            "policy_makespan: x: no such parameter; available: ",
        ),
        (SMALL.replace("[hosts", "[policy_makespan]\neffort = -1\n[hosts"), [], "s.toml: "),
        (SMALL + "[policy_measy]\nx = 1\n", [], "s.toml: policy_measy: x: no such parameter; available: "),
        (SMALL + "[policy_benefit]\nx = 1\n", [], "s.toml: policy_benefit: x: no such parameter; available: "),
        (SMALL, ["--explain", "b"], "--explain: no batch, job, task, gang or instance 'b' has arrived by"),
        (SMALL, ["--gantt", "x.pdf"], "--gantt x.pdf: expected a name that ends with .svg or .png"),
        (SMALL, ["--until", "-1"], "expected a positive number of seconds, got '-1'"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(tmp_path, capsys, text, arguments, said):
    assert main(["pool", str(scenario(tmp_path, text)), *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_finding_of_the_audit_is_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fpga_pool.cli.sim.pool_report.audit", lambda *_, **__: ["slot x: is wrong"])
    assert main(["pool", str(scenario(tmp_path, SMALL))]) == 1
    assert capsys.readouterr().out.endswith("audit\nslot x: is wrong\n")


def test_gangs_are_expected_to_run_as_the_last_ones_of_their_user_where_the_policy_asks_for_it(tmp_path):
    text = """
[policy_measy_plus]
last_runs = {}
[hosts.node]
gang_processors = 2
[[gangs]]
name = "g"
count = 3
every_s = 20
processes = 1
runtime_s = 100
takes = 0.1
"""
    expected_s = {}
    for last_runs in (0, 2):
        simulation = load(scenario(tmp_path, text.format(last_runs)))
        simulation.run(100.0)
        gangs = {gang.uuid: gang.expected_s for gang in simulation.store.all(Gang)}
        expected_s[last_runs] = [gangs[f"g-{number}"] for number in (1, 2, 3)]
    assert expected_s[0] == [None, None, None]
    assert expected_s[2] == [100.0, 100.0, pytest.approx(10.0, abs=1.0)]


def test_a_policy_that_fails_ends_nothing_and_is_told(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise ValueError("does not apply\nhere")

    monkeypatch.setattr("fpga_pool.model.rules.batch.family.plan_arriving", fail)
    path = scenario(tmp_path, "[pool]\nuntil_s = 61.5\n" + SMALL)
    said = "batch a: policy makespan failed; next try in 60 s (ValueError: does not apply here)"
    assert main(["pool", str(path)]) == 0
    assert f"failures\n{said}; 2 times in total, first at 0.000 s\n" in capsys.readouterr().out
    assert main(["pool", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == [{"message": said, "first_s": 0.0, "times": 2}]
    assert report["unfinished"] == ["a"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = [sys.executable, "-m", "fpga_pool.cli.sim.main", "pool", str(scenario(tmp_path, SMALL)), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_draws_what_slots_did(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra for figures is not installed")
    picture = tmp_path / "pool.svg"
    assert main(["pool", str(scenario(tmp_path, SMALL)), "--json", "--gantt", str(picture)]) == 0
    assert picture.read_text().count("node/sim0/slot") >= 4


def test_notes_how_inputs_were_to_move_and_how_they_did(tmp_path):
    """10 MB at 80 Mbit/s take 1 s. The client is 50 ms late, and the agent takes another 20 ms."""
    hosts = '[hosts.a]\nboard = "demo"\ningress_mbps = 1000\n[hosts.s]\negress_mbps = 80\n'
    batch = '[[batches]]\nname = "b"\n[[batches.jobs]]\nfunction = "aes"\ninput_bytes = 10_000_000\n'
    delays = 'requester = "s"\nlate_s = 0.05\n[delays]\nstaging_s = 0.02\n'
    simulation = load(scenario(tmp_path, hosts + batch + delays))
    simulation.run(60.0)
    plan, transfer, arrival = simulation.recorder.transfers
    assert (plan.what, plan.end_s - plan.begin_s) == ("plan", pytest.approx(1.0))
    assert (transfer.what, transfer.begin_s - plan.begin_s) == ("transfer", pytest.approx(0.05))
    assert (arrival.what, arrival.begin_s - plan.end_s) == ("arrival", pytest.approx(0.07))
    assert transfer.end_s == arrival.begin_s


def test_no_function_has_a_colour_like_that_of_a_fault_an_instance_or_a_load(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra for figures is not installed")
    from fpga_pool.experiments.charts import draw_pool

    spans = [
        Span(row="node/sim0/slot0", name=f"f{number:02}", what="run", begin_s=number, end_s=number + 1.0)
        for number in range(40)
    ]
    draw_pool(spans, [], 40.0, "", tmp_path / "pool.svg")
    drawn = (tmp_path / "pool.svg").read_text()
    assert "#1f77b4" in drawn
    assert not [colour for colour in ("#d62728", "#ffbb78", "#c7c7c7") if colour in drawn]


def test_the_same_scenario_prints_the_same_bytes_whatever_the_order_of_sets():
    printed = [
        subprocess.run(
            [sys.executable, "-m", "fpga_pool.cli.sim.main", "pool", str(EXAMPLES / "everything.toml"), "--json"],
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert printed[0] == printed[1]


def test_another_seed_draws_something_else(example):
    other = run(EXAMPLES / "everything.toml", seed=8)
    assert [job["input_bytes"] for job in other["jobs"]] != [
        job["input_bytes"] for job in example("everything")["jobs"]
    ]
    assert other["audit"] == []
