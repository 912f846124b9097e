"""Tasks of the simulator on the rules of the live pool, with a store in memory and agents that obey at once."""

import itertools
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fpga_pool.core.lattice.starting import planned
from fpga_pool.core.lattice.topology import Links
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.agents import Heartbeat, JobFinished, ObservedSlot, SlotChanged
from fpga_pool.model.messages.work import ShareRequest, TaskRequest
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.objects.pool import ENDED_JOBS, SlotState
from fpga_pool.model.objects.tasks import TaskShape
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.admission import create_task
from fpga_pool.model.rules.task.decisions import commit_choices, task_view
from fpga_pool.model.rules.task.family import choose
from fpga_pool.sim.lattice.simulator import _Run
from fpga_pool.sim.store import MemoryStore

#: No task is given up, however often it begins.
SETTINGS = PoolSettings(max_attempts=10**6)


class RecordedRun(_Run):
    """The simulator with a log of its events: (event, time, task, FPGA or the tasks begun)."""

    log: ClassVar[list] = []

    def arrive(self, task):
        self.log.append(("arrive", self.engine.now_s, task))
        super().arrive(task)

    def fail(self, fpga):
        self.log.append(("fail", self.engine.now_s, fpga))
        super().fail(fpga)

    def come_back(self, fpga):
        self.log.append(("come_back", self.engine.now_s, fpga))
        super().come_back(fpga)

    def end(self, task, run):
        if self._runs[task] == run:
            self.log.append(("end", self.engine.now_s, task))
        super().end(task, run)

    def _plan(self):
        self._now_begun = set()
        super()._plan()
        self.log.append(("plan", self.engine.now_s, self._now_begun))

    def _begin(self, begun):
        self._now_begun.add((begun.task, int(begun.shape), frozenset(begun.fpgas.tolist())))
        super()._begin(begun)


class TaskPool:
    """A pool whose hosts are the enclosures of a problem and whose slots are its FPGAs, by number."""

    def __init__(self, problem, catalogue, functions, *, first_load_takes_no_time):
        self.problem, self.catalogue, self.functions = problem, catalogue, functions
        self.now_s = 0.0
        self._no_loads = first_load_takes_no_time
        self._store = MemoryStore()
        self._epoch = self._store.acquire_shard("s", "me", 0.0).epoch
        self._numbers = itertools.count(1)
        self.names = []
        for enclosure, (size, links) in enumerate(
            zip(problem.enclosure_fpgas.tolist(), problem.enclosure_links.tolist(), strict=True)
        ):
            self._bring_up(f"h{enclosure:03}", size, Cables(links))
        self._number = {name: number for number, name in enumerate(self.names)}
        for number, function in enumerate(problem.loaded.tolist()):
            if function >= 0:
                self._say(number, SlotState.READY, functions[function])

    def _tx(self):
        return self._store.transaction("s", "me", self._epoch)

    def _bring_up(self, host, size, cables):
        def observed(position):
            box = CardLinks(enclosure="box", topology=cables, cards=size, position=position)
            name = f"{host}/c{position:03}/s"
            self.names.append(name)
            return ObservedSlot(
                slot=name, card=f"c{position:03}", region="s", board="fast", kind="small", state=SlotState.EMPTY,
                links=str(SlotLinks(card=box)),
            )  # fmt: skip

        beat = Heartbeat(
            host=host, agent_id=host, boot=1, beat=1, at=0.0, egress_bps=1e9, ingress_bps=1e9, data_address="::1",
            data_port=9, slots=tuple(map(observed, range(size))), jobs=(),
        )  # fmt: skip
        with self._tx() as tx:
            apply_heartbeat(tx, beat, 0.0)

    def _say(self, fpga, state, function=""):
        changed = SlotChanged(slot=self.names[fpga], at=self.now_s, state=state, function=function)
        self._report(self.names[fpga].split("/")[0], changed)

    def _report(self, host, report):
        with self._tx() as tx:
            assert apply_reports(tx, host, host, [(next(self._numbers), report)], self.now_s) == []

    @staticmethod
    def uuid(task):
        """Return the uuid of a task; tasks that arrive together wait in the order of their uuids."""
        return f"t{task:06}"

    def _shapes(self, task):
        problem = self.problem
        chosen = slice(problem.shape_begin[task], problem.shape_begin[task + 1])
        return list(zip(problem.shape_fpgas[chosen].tolist(), problem.shape_seconds[chosen].tolist(), strict=True))

    # Events

    def arrive(self, task):
        shapes, uuid = self._shapes(task), self.uuid(task)
        shares = tuple(
            ShareRequest(uuid=f"{uuid}.{number}", name="", requester="h000", input_bytes=1)
            for number in range(max(count for count, _ in shapes))
        )
        request = TaskRequest(
            uuid=uuid, project_id="p", user_id="u", name="", function=self.functions[self.problem.function[task]],
            topology=Topology[Links(self.problem.links[task]).name], shares=shares,
            shapes=tuple(TaskShape(*shape) for shape in shapes),
        )  # fmt: skip
        with self._tx() as tx:
            create_task(tx, request, self.catalogue, SETTINGS, self.now_s)

    def fail(self, fpga):
        self._say(fpga, SlotState.FAULTED)

    def come_back(self, fpga):
        self._say(fpga, SlotState.EMPTY)

    def end(self, task):
        with self._tx() as tx:
            shares = [share for share in tx.batch_jobs(self.uuid(task)) if share.state not in ENDED_JOBS]
        for share in shares:
            done = JobFinished(
                job=share.uuid, attempt=share.attempt, at=self.now_s, compute_s=1.0, result_bytes=1,
                result_sha256="ab", staged_at=self.now_s, started_at=self.now_s,
            )  # fmt: skip
            self._report(share.host, done)

    def plan(self, policy, patience_s, rng):
        """Run one planning cycle; return the tasks that begin, each with its shape and its FPGAs."""
        with self._tx() as tx:
            view = task_view(tx, self.catalogue, self.now_s)
        if view is None:
            return set()
        if self._no_loads:
            view = replace(view, load_s=dict.fromkeys(view.load_s, 0.0))
        choices = choose(view, patience_s, lambda problem: planned(policy, problem, None, rng))
        with self._tx() as tx:
            placed = commit_choices(tx, view, choices, SETTINGS, self.now_s)
        assert len(placed) == len(choices)
        return {self._begun(choice) for choice in choices}

    def _begun(self, choice):
        fpgas = [self._number[name] for name in choice.slots]
        for fpga in fpgas:
            self._say(fpga, SlotState.READY, choice.task.function)
        task = int(choice.task.uuid[1:])
        counts = [count for count, _ in self._shapes(task)]
        return task, int(self.problem.shape_begin[task]) + counts.index(len(fpgas)), frozenset(fpgas)


def differences(problem, policy, catalogue, functions, *, outages, patience_s, seed, simulate, no_loads):
    """Return the first differing decisions as (time, only simulator, only live rules), and how many tasks began."""
    RecordedRun.log = log = []
    simulate(problem, policy, outages=outages, patience_s=patience_s, seed=seed)
    pool = TaskPool(problem, catalogue, functions, first_load_takes_no_time=no_loads)
    rng = np.random.default_rng(seed)
    found, begun = [], 0
    for event, now_s, what in log:
        pool.now_s = now_s
        if event != "plan":
            getattr(pool, event)(what)
            continue
        lived = pool.plan(policy, patience_s, rng)
        begun += len(what)
        if lived != what:
            found.append((now_s, what - lived, lived - what))
            break  # from here on the histories differ
    return found, begun
