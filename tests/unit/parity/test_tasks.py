"""The simulator of tasks and the live rules make the same decisions: which task, when, in which shape and where.

    pytest --traces 200 tests/unit/parity/test_tasks.py

Known differences:

- The first load of an empty FPGA takes no time in the task format, but it does on a card.  So traces have FPGAs that
  fail and return (empty) or functions that take time to load, not both.
- A host without slots in service does not exist for the live rules, while the simulator still counts its FPGAs if a
  policy allots shapes by their number.  So one FPGA of each enclosure never fails.
"""

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.lattice.listing import misfit
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.policy import Searching
from fpga_pool.sim.lattice import simulator
from fpga_pool.sim.lattice.simulator import Outage
from support.seeds import names

from .task_pool import RecordedRun, differences

#: Hundreds of traces take minutes.
pytestmark = pytest.mark.timeout(1800)

FUNCTIONS = ("f0", "f1", "f2")
LOAD_S = 0.5
#: `exact` is a reference for a handful of tasks, not a policy for a pool.
POLICIES = sorted(set(policy_names("task")) - {"exact"})


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    return make_catalogue(dict.fromkeys(FUNCTIONS, (1.0, "small")), slots=["small", "large"], load_s=LOAD_S)


def trace(rng):
    """Return a random problem, with outages of its FPGAs or with functions that take time to load."""
    while True:
        problem, loads = random_problem(rng)
        if misfit(problem) is None:
            return problem, () if loads else random_outages(problem, rng), loads


def random_problem(rng):
    enclosures, tasks = int(rng.integers(1, 4)), int(rng.integers(5, 30))
    sizes = rng.integers(2, 9, enclosures)
    widths = [rng.choice(np.arange(1, sizes.max() + 1), int(rng.integers(1, min(4, sizes.max() + 1))), replace=False)
              for _ in range(tasks)]  # fmt: skip
    mean_s = rng.gamma(1.0, 10.0, tasks)
    loads = bool(rng.integers(2))
    problem = TaskProblem(
        enclosure_fpgas=sizes,
        enclosure_links=rng.choice(list(Topology), enclosures),
        shape_begin=np.cumsum([0] + [len(of_task) for of_task in widths]),
        shape_fpgas=np.concatenate(widths),
        shape_seconds=np.concatenate(
            [one_s / of_task ** rng.uniform(0, 1.2) + 0.01 for one_s, of_task in zip(mean_s, widths, strict=True)]
        ),
        links=rng.choice(list(Links), tasks),
        # Some tasks arrive together.
        arrival_s=np.sort(rng.uniform(0, 60.0, max(tasks // 2, 1))[rng.integers(0, max(tasks // 2, 1), tasks)]),
        function=rng.integers(0, len(FUNCTIONS), tasks),
        loaded=rng.integers(0, len(FUNCTIONS), sizes.sum()) if loads else np.full(sizes.sum(), -1),
        load_s=LOAD_S if loads else 0.0,
    )
    return problem, loads


def random_outages(problem, rng):
    """Return outages that do not overlap on an FPGA and never affect the last FPGA of an enclosure."""
    found = []
    for enclosure, size in enumerate(problem.enclosure_fpgas.tolist()):
        for fpga in range(size - 1):
            from_s = 0.0
            for _ in range(rng.poisson(2.0)):
                from_s += float(rng.exponential(30.0))
                until_s = from_s + float(rng.exponential(20.0)) + 0.1
                found.append(Outage(enclosure=enclosure, fpga=fpga, from_s=from_s, until_s=until_s))
                from_s = until_s + 0.1
    return tuple(found)


def loaded_policy(name):
    policy = load_policy("task", name)
    return policy.searching(5, None, None) if isinstance(policy, Searching) else policy


@pytest.mark.parametrize("name", names(POLICIES, {"lattice_plus", "mfit"}))
def test_the_simulator_decides_as_the_live_rules_do(name, catalogue, monkeypatch, traces):
    monkeypatch.setattr(simulator, "_Run", RecordedRun)
    policy = loaded_policy(name)
    begun = lost = malleable = 0
    for seed in range(traces):
        rng = np.random.default_rng([seed, 17])
        problem, outages, loads = trace(rng)
        patience_s = float(rng.choice([np.inf, 60.0, 15.0, 3.0]))
        found, count = differences(
            problem, policy, catalogue, FUNCTIONS, outages=outages, patience_s=patience_s, seed=seed,
            simulate=simulator.simulate, no_loads=not loads,
        )  # fmt: skip
        assert found == [], f"trace {seed}"
        begun += count
        lost += count - problem.tasks
        malleable += not problem.rigid
    print(f"{name}: {traces} traces, {begun} decisions alike, {lost} runs lost to faults")
    # The traces contain faults and malleable tasks.
    assert lost > 0
    assert malleable > traces // 2
