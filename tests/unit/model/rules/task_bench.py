"""Tasks on the pool of `conftest`: requests of tenants, steps of the scheduler, and hosts with cards in a ring."""

from dataclasses import replace

import numpy as np

from fpga_pool.core.lattice.listing import allotted_shapes
from fpga_pool.core.lattice.paper import Lattice
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.work import ShareRequest, TaskRequest
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.objects.pool import Job, LeaseKind, SlotState
from fpga_pool.model.objects.tasks import Task, TaskShape
from fpga_pool.model.rules.task.admission import cancel_task, create_task
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.model.rules.task.family import TaskFamily

RNG = np.random.default_rng(0)


def solve(problem):
    return Lattice().place(problem, allotted_shapes(problem), None)


def placed(outcome):
    return [task.uuid for task in outcome.placed]


class Breakable(Lattice):
    """The lattice policy, which fails while `broken` is set."""

    broken = False

    def place(self, problem, shape, state):
        if self.broken:
            raise ZeroDivisionError
        return super().place(problem, shape, state)


class Tasks:
    """Requests and planning cycles of tasks."""

    def __init__(self, pool, patience_s=30.0):
        self.pool, self.patience_s = pool, patience_s
        self.count = 0
        self.policy = Breakable()
        self._family = TaskFamily(pool.catalogue, replace(pool.settings, task_patience_s=patience_s), self.policy)
        self._cycle = Cycle(
            self._family, reading=pool.tx, transactions=pool.tx, dispatch=lambda: None, clock=lambda: pool.now_s,
            timer=lambda: 0.0, rng=RNG,
        )  # fmt: skip

    def ring_up(self, host="r", cards=4, slots=1, cables=Cables.RING, between=Cables.FULL):
        """Bring up a host whose cards are in one enclosure."""
        return self.pool.heard(self.pool.heartbeat(host, slots=self.observed(host, cards, slots, cables, between)))

    def observed(self, host, cards, slots, cables, between):
        def links(card, slot):
            of_card = CardLinks(enclosure="box", topology=cables, cards=cards, position=card, slots=between)
            return str(SlotLinks(card=of_card, slots=slots, position=slot))

        return tuple(
            ObservedSlot(
                slot=f"{host}/c{card}/s{slot}", card=f"c{card}", region=f"s{slot}", board="fast", kind="small",
                state=SlotState.EMPTY, links=links(card, slot),
            )
            for card in range(cards)
            for slot in range(slots)
        )  # fmt: skip

    def create(self, count, topology="any", function="aes", requester="r", input_bytes=1000, shapes=()):
        """Create a task of `count` shares, with shapes of (slots, seconds or None); return its uuid."""
        self.count += 1
        uuid = f"t{self.count}"
        shares = tuple(
            ShareRequest(uuid=f"{uuid}.{i}", name="", requester=requester, input_bytes=input_bytes)
            for i in range(count)
        )
        request = TaskRequest(
            uuid=uuid, project_id="p", user_id="u", name="", function=function, topology=Topology(topology),
            shares=shares, shapes=tuple(TaskShape(*shape) for shape in shapes),
        )  # fmt: skip
        with self.pool.tx() as tx:
            create_task(tx, request, self.pool.catalogue, self.pool.settings, self.pool.now_s)
        return uuid

    def look(self):
        with self.pool.tx() as tx:
            return self._family.snapshot(tx, self.pool.now_s)

    def decide(self, look):
        return self._family.decide(look, None, RNG).wanted or ()

    def commit(self, look, choices):
        with self.pool.tx() as tx:
            return placed(self._family.commit(tx, look, choices, self.pool.now_s))

    def place(self):
        """Run one planning cycle; return the tasks that got their slots."""
        return placed(self._cycle.run().outcome)

    def cancel(self, uuid):
        with self.pool.tx() as tx:
            return cancel_task(tx, uuid, "p", self.pool.now_s)

    def get(self, uuid):
        return self.pool.store.get(Task, uuid)

    def detail(self, uuid):
        with self.pool.tx() as tx:
            return task_detail(tx, uuid, self.pool.catalogue, self.pool.now_s)

    def shares(self, uuid):
        return sorted((job for job in self.pool.store.all(Job) if job.batch_uuid == uuid), key=lambda job: job.index)

    def slots(self, uuid):
        """Return the slots of a task in the order of its shares; empty if it holds none."""
        held = self.held().get(uuid, set())
        return [share.slot for share in self.shares(uuid) if share.slot in held]

    def held(self):
        with self.pool.tx() as tx:
            held = {}
            for lease in tx.leases():
                if lease.kind is LeaseKind.TASK:
                    held.setdefault(lease.holder, set()).add(lease.slot)
            return held
