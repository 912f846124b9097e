"""A wrong world is refused with the place of the error and the expected values."""

import numpy as np
import pytest

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster import workload
from fpga_pool.sim.cluster.laws import Bottleneck, Pressure, Saturation
from fpga_pool.sim.cluster.workload import draw

GOOD = """
[nodes.n]
cores = 2
memory_gb = 8
[subtasks.s]
seconds = { cpu = [1, 0.1] }
[subtasks.t]
seconds = { cpu = 1 }
[pipelines.p]
subtasks = ["s", "t"]
[pipelines.q]
subtasks = ["t"]
[[arrivals]]
tasks = 3000
per_minute = 600
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores = 2", "cores = 0", "nodes.n: cores: expected a whole number, 1 or more, found 0"),
        ("cores = 2", "cors = 2", "nodes.n: cors: unknown key"),
        ("memory_gb = 8", "", "nodes.n: memory_gb: missing"),
        ("memory_gb = 8", "memory_gb = 8\naccelerators = 1", "nodes.n: accelerator and accelerators: expected both"),
        ("cpu = 1 }", "gpu = 1 }", "subtasks.t: seconds: no kind of unit of the nodes 'gpu'; available: cpu"),
        ("cpu = 1 }", "cpu = 0 }", "subtasks.t: seconds: expected a table: kind of unit = seconds"),
        ('["s", "t"]', '["s", "u"]', "pipelines.p: subtasks: no subtask 'u'; available: s, t"),
        ('["s", "t"]', '["s", "s"]', "pipelines.p: subtasks: expected a list of different names"),
        (
            '["s", "t"]',
            '["s", "t"]\nedges = [["s", "t"], ["t", "s"]]',
            "pipelines.p: edges: a cycle:",
        ),
        ("tasks = 3000\n", "", "arrivals[0]: expected either tasks and per_minute, or a trace"),
        ("tasks = 3000", 'tasks = 3\npipelines = "r"', "arrivals[0]: pipelines: no pipeline 'r'; available: p, q"),
        ("cores = 2", "cores = 2\nspeed = 1e-300", "nodes.n: speed: expected a number, 1e-06 to 1e+06, found 1e-300"),
        ("cores = 2", "cores = 2\ncount = 9000000000", "nodes.n: count: expected a whole number, 1 to 1000000, found"),
        ("tasks = 3000", "tasks = 3000000000", "arrivals[0]: tasks: expected a whole number, 1 to 1000000, found"),
        ("[nodes.n]", "[estimates]\nerror = 50\n[nodes.n]", "estimates: error: expected a number, 0 to 10, found 50"),
        (
            "[nodes.n]",
            "[interference.accelerator]\nlaw = 'none'\n[nodes.n]",
            "interference.accelerator: law: 'none': no",
        ),
        (
            "[nodes.n]",
            "[interference.cpu]\nlaw = 'pressure'\nweight = -1\n[nodes.n]",
            "interference.cpu: pressure: weight: expected a finite number, 0 or more, found -1",
        ),
        (
            "[[arrivals]]",
            '[[events]]\nat_s = 1\nkind = "leave"\nnodes = "n"\ncount = 2\n[[arrivals]]',
            "events[0]: count: there are 1 nodes 'n'",
        ),
    ],
)
def test_refuses(world, old, new, message):
    assert old in GOOD
    with pytest.raises(InvalidInput) as caught:
        world(GOOD.replace(old, new, 1))
    assert f"world.toml: {message}" in str(caught.value)


@pytest.mark.parametrize("line", ["x,p,1", "1,p", "-1,p,1", "1,p,0", "nan,p,1", "1,r,1"])
def test_refuses_a_line_of_a_trace_by_its_number(world, tmp_path, line):
    (tmp_path / "trace.csv").write_text(f"arrival_s,pipeline,input_mb\n0,p,1\n{line}\n")
    there = world(GOOD.replace("tasks = 3000\nper_minute = 600", 'trace = "trace.csv"'))
    with pytest.raises(InvalidInput, match=r"trace\.csv: line 3"):
        draw(there, 0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "cores = 2",
            "cores = 2\nfails_after_s = 1e-9\nrepair_s = 1e-9",
            "nodes.n: fails_after_s: more than 1,000 failures",
        ),
        (
            "tasks = 3000",
            "tasks = 9\nburst_factor = 2\nburst_s = 1e-300\ncalm_s = 1e-300",
            "arrivals[0]: more than 1,000 bursts",
        ),
        ("tasks = 3000\nper_minute = 600", 'trace = "empty.csv"', "expected a task at least"),
    ],
)
def test_refuses_to_draw_nothing_and_without_end(world, tmp_path, monkeypatch, old, new, message):
    monkeypatch.setattr(workload, "MOST_THINGS", 1000)
    (tmp_path / "empty.csv").write_text("arrival_s,pipeline,input_mb\n")
    there = world(GOOD.replace(old, new, 1))
    with pytest.raises(InvalidInput) as caught:
        draw(there, 0)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_arrivals_have_the_rate_the_bursts_and_the_persistence_of_their_table(world):
    plain = draw(world(GOOD), 1)
    # 3000 Poisson arrivals at 10 per s take 300 s, with a standard deviation of 300 / sqrt(3000) = 5.5 s.
    assert plain.arrival_s[-1] == pytest.approx(300, abs=22)
    # Half of the 2999 pairs of successive arrivals are of the same of 2 pipelines, with a standard deviation of 27.
    same = (plain.pipeline[1:] == plain.pipeline[:-1]).sum()
    assert same == pytest.approx(1500, abs=110)
    assert draw(world(GOOD), 1, load=2).arrival_s == pytest.approx(plain.arrival_s / 2)
    keys = "persistence = 0.8\nburst_factor = 9\nburst_s = 2\ncalm_s = 2\n"
    bursty = draw(world(GOOD + keys), 1)
    # Half of the time at 10 and half at 90 per s: 50 on average, so 60 s in 15 pairs of stretches; deviation some 30 %.
    assert 30 < bursty.arrival_s[-1] < 120
    assert (bursty.pipeline[1:] == bursty.pipeline[:-1]).mean() == pytest.approx(0.9, abs=0.04)

    def dispersion(arrival_s):
        counts = np.bincount(arrival_s.astype(int))[:-1]
        return counts.var() / counts.mean()

    assert dispersion(plain.arrival_s) < 1.5 < 5 < dispersion(bursty.arrival_s)


def test_laws_by_hand():
    demands = np.array([[0.8, 0.0], [0.4, 0.5], [0.0, 0.5]])
    # Total demands: 1.2 and 1.0.
    assert Bottleneck().slowdowns(demands) == pytest.approx([1.2, 1.2, 1.0])
    assert Saturation(exponent=2, companion=0.1).slowdowns(demands) == pytest.approx([1.44 * 1.2] * 3)
    # Products: first and second 0.32, second and third 0.25.
    assert Pressure(weight=2).slowdowns(demands) == pytest.approx([1.64, 2.14, 1.5])


@pytest.mark.parametrize("law", [Bottleneck(), Saturation(), Pressure()])
def test_nobody_is_slowed_down_alone_by_what_fits(law):
    assert law.slowdowns(np.array([[1.0, 0.3]])) == pytest.approx([1])
