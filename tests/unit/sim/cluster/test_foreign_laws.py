"""Interference laws of other packages are found by entry point, and an error in one is reported in one line."""

import sys
import textwrap

import pytest

from fpga_pool.conf.policies import policy_with
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.simulator import simulate
from fpga_pool.sim.cluster.workload import draw

WORLD = """
[nodes.n]
cores = 1
memory_gb = 8
accelerator = "x"
accelerators = 1
[subtasks.s]
seconds = { x = 10 }
demands = { a = 0.5 }
[pipelines.p]
subtasks = ["s"]
[[arrivals]]
tasks = 2
per_minute = 6000
spacing = "even"
input_mb = 0.125
[interference.accelerator]
law = "foreign"
"""
LAW = """
class Law:
    def __init__(self, *, factor=3.0):
        self.factor = factor
    def slowdowns(self, demands):
        return {returned}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a module with a law, as pip would."""

    def install(source, name="foreign_law"):
        (tmp_path / "foreign_law.py").write_text(textwrap.dedent(source))
        described = tmp_path / "foreign_law-1.dist-info"
        described.mkdir()
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-law\nVersion: 1\n")
        (described / "entry_points.txt").write_text(f"[fpga_pool.interference_laws]\nforeign = {name}:Law\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "foreign_law", raising=False)

    return install


def run(there):
    return simulate(there, draw(there, 0), policy_with("cluster", "ect", {}), 0)


@pytest.mark.parametrize("returned", ["[self.factor] * len(demands)", "demands.sum(axis=1) * 0 + self.factor"])
def test_law_of_another_package_slows_subtasks_down(install, world, returned):
    install(LAW.format(returned=returned))
    # This law slows down even a lone subtask: each takes 10 s times the factor.
    assert run(world(WORLD)).end_s.max() == pytest.approx(30, abs=0.1)
    assert run(world(WORLD + "factor = 1.5\n")).end_s.max() == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("1 / 0", "interference law Law: ZeroDivisionError: division by zero"),
        ("2.0", "interference law Law: expected 1 finite slowdowns, 1 or more, found array(2.)"),
        ("['a'] * len(demands)", "interference law Law: ValueError: could not convert string to float"),
        (
            "[float('nan')] * len(demands)",
            "interference law Law: expected 1 finite slowdowns, 1 or more, found array([nan",
        ),
        ("[1.0 + i for i in range(len(demands))]", "expected equal slowdowns for equal demands, found array([1., 2.])"),
    ],
)
def test_law_that_returns_nonsense_is_named(install, world, returned, message):
    install(LAW.format(returned=returned))
    there = world(WORLD)
    with pytest.raises(ValueError, match="interference law") as caught:
        run(there)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("class Other: pass", "foreign_law", "cannot be made: AttributeError"),
        ("import nothing_of_that_name", "foreign_law", "cannot be made: ModuleNotFoundError"),
        (
            "class Law:\n    def __init__(self): raise RuntimeError('no licence')",
            "foreign_law",
            "RuntimeError: no licence",
        ),
        ("class Law: pass", "foreign_law", "Law has no method slowdowns(demands)"),
    ],
)
def test_law_that_cannot_be_made_is_named(install, world, source, name, message):
    install(source, name)
    with pytest.raises(InvalidInput) as caught:
        world(WORLD)
    assert "interference.accelerator: foreign: " in str(caught.value)
    assert message in str(caught.value)
