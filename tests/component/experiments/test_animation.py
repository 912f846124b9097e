"""Animations show at each moment what the schedule contains."""

from xml.etree import ElementTree

import numpy as np
import pytest

from fpga_pool.cli.sim.main import OK, WRONG_USAGE, main
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.experiments.animation import PLAY_S, animated_tasks, animated_tiers
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.scenario.recording import Span

SVG = "{http://www.w3.org/2000/svg}"


def seen(picture, share):
    """Return the titles and the places of the marks that are visible after a share of the playing time."""
    found = []
    for mark in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        animated = mark.find(f"{SVG}animate")
        assert animated.get("dur") == f"{PLAY_S:g}s"
        times = [float(at) for at in animated.get("keyTimes").split(";")]
        values = animated.get("values").split(";")
        assert times[0] == 0.0
        assert times == sorted(times)
        if [value for at, value in zip(times, values, strict=True) if at <= share][-1] == "visible":
            cell = mark.find(f"{SVG}rect")
            found.append((cell.find(f"{SVG}title").text.split(":")[0], cell.get("x"), cell.get("y")))
    return found


@pytest.fixture
def rings():
    """Animate task a on a ring of 4 FPGAs until 4 s, then b on two of them until 8 s; c on a line from 2 s to 8 s."""
    problem = TaskProblem(
        enclosure_fpgas=np.array([4, 2]),
        enclosure_links=np.array([Topology.RING, Topology.LINE]),
        shape_begin=np.arange(4),
        shape_fpgas=np.array([4, 2, 2]),
        shape_seconds=np.array([4.0, 4.0, 6.0]),
        links=np.full(3, Links.LINE),
    )
    schedule = TaskSchedule(
        enclosure=np.array([0, 0, 1]), shape=np.arange(3), begin_s=np.array([0.0, 4.0, 2.0]),
        end_s=np.array([4.0, 8.0, 8.0]), member_begin=np.array([0, 4, 6, 8]),
        members=np.array([0, 1, 2, 3, 3, 0, 0, 1]), bound_paper_s=7.0, bound_tight_s=7.0,
    )  # fmt: skip
    return animated_tasks(problem, schedule, ["a", "<b>", "c"], "three tasks")


@pytest.mark.parametrize(
    ("at_s", "fpgas"),
    [(1.0, {"task a": 4}), (3.0, {"task a": 4, "task c": 2}), (5.0, {"task <b>": 2, "task c": 2})],
)
def test_fpgas_are_taken_while_their_tasks_run(rings, at_s, fpgas):
    taken = seen(rings, at_s / 8.0)
    names = [name for name, _, _ in taken]
    assert {name: names.count(name) for name in names} == fpgas
    assert len({place for _, *place in map(tuple, taken) for place in [tuple(place)]}) == len(taken)


def test_enclosures_are_drawn_with_their_links_and_the_bound(rings):
    drawn = ElementTree.fromstring(rings)
    # The ring has four links, the line has one.
    assert len([path for path in drawn.iter(f"{SVG}path") if path.get("class") == "link"]) == 5
    said = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"three tasks", "ring 0", "line 1", "8 s", "no schedule ends before 7 s"} <= set(said)


def test_a_gang_that_is_swapped_is_seen_on_both_tiers_one_after_the_other():
    spans = [
        Span("p0 background", 0.0, 3.0, "process", "g"),
        Span("p0 foreground", 3.0, 6.0, "process", "g"),
        Span("p0 foreground", 0.0, 3.0, "process", "h"),
        Span("node-1/sim0/slot0", 0.0, 6.0, "run", "aes"),
    ]
    picture = animated_tiers(spans, ["p0", "p1"], 6.0, "two gangs")
    (behind,) = [place for name, *place in seen(picture, 0.25) if name == "gang g"]
    assert [name for name, *_ in seen(picture, 0.25)].count("gang h") == 1
    ((name, *front),) = seen(picture, 0.75)
    assert name == "gang g"
    assert (front[0], float(front[1]) < float(behind[1])) == (behind[0], True)


def test_more_marks_than_a_browser_plays_are_refused():
    spans = [Span("p foreground", at, at + 1.0, "process", str(at)) for at in np.arange(5001.0).tolist()]
    with pytest.raises(InvalidInput, match="an animation shows at most 5000 marks, got 5001"):
        animated_tiers(spans, ["p"], 5001.0, "too many")


def test_scenarios_and_schedules_are_animated_by_command(tmp_path, capsys):
    scenario = "doc/source/user/scenarios/gangs.toml"
    picture = tmp_path / "tiers.svg"
    assert main(["pool", scenario, "--animation", str(picture), "--json"]) == OK
    assert {name.split()[0] for name, *_ in seen(picture.read_text(), 0.5)} == {"gang"}
    assert main(["pool", scenario.replace("gangs", "tasks"), "--animation", str(picture)]) == WRONG_USAGE
    assert "--animation: no gang ran in this scenario" in capsys.readouterr().err
    problem, picture = tmp_path / "problem.json", tmp_path / "tasks.svg"
    assert main(["task-workload", "rtm", "--workloads", "2", "--enclosures", "2", "--out", str(problem)]) == OK
    out = ["--out", str(tmp_path / "schedule.json"), "--policy", "lattice"]
    assert main(["tasks", str(problem), *out, "--animation", str(picture)]) == OK
    assert seen(picture.read_text(), 0.1)
