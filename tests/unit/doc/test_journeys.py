"""The pages of journeys are correct: each function exists, is called by one above it, and runs in this order."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = {page.stem: page for page in sorted((ROOT / "doc/source/contributor/journeys").glob("*.rst"))}
PAGES.pop("index")
STEP = re.compile(r"#\. ``([\w.]+):([\w.]+)``: \S")

#: One batch, one gang and one instance on one host, which disappears for a while and is declared lost.
SCENARIO = """
format_version = 1

[scheduler]
host_timeout_s = 5

[hosts.node]
board = "demo"
gang_processors = 2
egress_mbps = 100
ingress_mbps = 100

[hosts.client]
egress_mbps = 100

[[batches]]
name = "photos"

[[batches.jobs]]
function = "sha256"
count = 2
input_bytes = 1_000_000
requester = "client"

[[gangs]]
name = "solver"
processes = 2
runtime_s = 60

[[instances]]
name = "vm"
arrives_s = 2
function = "sha256"
stays_s = 600

[[events]]
at_s = 20
kind = "leave"
target = "node"
for_s = 30
"""


def lists(page):
    """Return the lists of steps of a page, each step as (module, qualified name)."""
    found = [[]]
    for line in PAGES[page].read_text().splitlines():
        if line.startswith("#."):
            step = STEP.match(line)
            assert step is not None, f"{page}: {line!r} is not '#. ``module:name``: what it does'"
            found[-1].append(step.groups())
        elif found[-1]:
            found.append([])
    return [steps for steps in found if steps]


@functools.cache
def tree(module):
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text() if file.exists() else "")


def definition(module, name):
    """Return the syntax tree of a function or class; None if it does not exist."""
    node = tree(module)
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((one for one in node.body if isinstance(one, kinds) and one.name == part), None)
        if node is None:
            return None
    return node


def names_in(node):
    """Return every name and attribute in a definition."""
    inner = list(ast.walk(node))
    return {one.id for one in inner if isinstance(one, ast.Name)} | {
        one.attr for one in inner if isinstance(one, ast.Attribute)
    }


def mentions(module, name):
    """Return the names that a step may call: its own, and for a method those of `__init__`, which gets handlers."""
    maker = definition(module, f"{name.rpartition('.')[0]}.__init__") if "." in name else None
    return names_in(definition(module, name)) | (names_in(maker) if maker is not None else set())


@pytest.mark.parametrize("page", PAGES)
def test_every_function_of_a_journey_exists(page):
    steps = [step for steps in lists(page) for step in steps]
    assert len(steps) > 10
    assert [f"{module}:{name}" for module, name in steps if definition(module, name) is None] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_function_of_a_journey_is_called_by_one_above_it(page):
    broken = []
    for steps in lists(page):
        mentioned = mentions(*steps[0])
        seen = {steps[0]}
        for module, name in steps[1:]:
            if (module, name) not in seen and name.rpartition(".")[2] not in mentioned:
                broken.append(f"{module}:{name}")
            mentioned |= mentions(module, name)
            seen.add((module, name))
    assert broken == []


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Return the calls in a simulated run in their order, each as (module, qualified name)."""
    from fpga_pool.cli.sim.pool import load

    scenario = tmp_path_factory.mktemp("journeys") / "scenario.toml"
    scenario.write_text(SCENARIO)
    wanted = {step for page in PAGES for steps in lists(page) for step in steps}
    called = []

    def note(frame, event, _argument):
        if event == "call":
            step = frame.f_globals.get("__name__"), frame.f_code.co_qualname
            if step in wanted:
                called.append(step)

    run = load(scenario, 0)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run.run(60.0)
    finally:
        sys.setprofile(before)
    return called


@pytest.mark.parametrize("page", PAGES)
def test_the_rules_of_a_journey_run_in_the_order_of_its_page(page, calls):
    """Only the pure steps are checked, which the simulator shares with the live pool."""
    steps = [step for steps in lists(page) for step in steps]
    followed = [step for step in steps if step[0].startswith(("fpga_pool.core.", "fpga_pool.model."))]
    followed = [step for step in followed if step[0] not in NOT_SIMULATED]
    left = iter(calls)
    missed = next((step for step in followed if step not in left), None)
    assert missed is None, f"{page}: {missed} was not called after the steps above it"


#: Pure modules that the simulator does not use: it boots instances without Nova's extra specs.
NOT_SIMULATED = {"fpga_pool.model.flavor"}
