"""The live pool treats gangs like the simulator: real rules and agents, simulated guests, and a clock in steps."""

import itertools
import threading
import uuid

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.gangs.gangs import Gangs
from fpga_pool.core.gangs.progress import Shares, shares_of
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.drivers.runners.simulated import SimulatedRunner
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.rules.gang.admission import create_gang
from fpga_pool.model.rules.gang.decisions import commit_gang_moves, decided_moves, gang_view
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.processes import Processes
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.trace import Trace
from fpga_pool.sim.store import MemoryStore
from fpga_pool.store import Store

STEP_S, MIGRATION_S = 2.0, 20.0
HOSTS, PER_HOST = 2, 4


class Agent:
    """The parts of an agent that handle gangs, without its threads and its connection."""

    def __init__(self, name, directory, clock):
        self.name = name
        self.journal = Journal(directory / f"{name}.sqlite")
        runner = SimulatedRunner(directory / name, clock, MIGRATION_S)
        self.processes = Processes(name, range(PER_HOST), runner, self.journal, clock, threading.Condition())
        self.beats = itertools.count(1)

    def heartbeat(self, now_s):
        return Heartbeat(
            host=self.name, agent_id=self.name, boot=1, beat=next(self.beats), at=now_s, egress_bps=1e9,
            ingress_bps=1e9, data_address="", data_port=0, slots=(), jobs=(),
            processors=self.processes.observed_processors(), processes=self.processes.observed(),
            unreported=self.journal.unreported(),
        )  # fmt: skip


class Live:
    def __init__(self, directory, policy, store):
        self.now_s = 0.0
        self.settings = PoolSettings(gang_migration_s=MIGRATION_S)
        self.policy, self.rng = load_policy("gang", policy), np.random.default_rng(0)
        self.store = store
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        self.agents = [Agent(f"h{i}", directory, lambda: self.now_s) for i in range(HOSTS)]
        self.hear()

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    def hear(self):
        for agent in self.agents:
            with self.tx() as tx:
                apply_heartbeat(tx, agent.heartbeat(self.now_s), self.now_s)

    def instant(self):
        """Process all events of this moment: guests end, agents report, the policy decides, agents execute commands."""
        changed = False
        while self.exchange() or self.plan():
            changed = True
        if changed:
            self.hear()

    def exchange(self):
        changed = False
        for agent in self.agents:
            for command in self.store.undelivered("s", 1000):
                if command.host == agent.name:
                    assert agent.processes.execute(command).outcome == "accepted"
                    self.store.delivered("s", "me", 1, {command.id})
            while agent.processes.step():
                pass
            if reports := agent.journal.reports(1000):
                with self.tx() as tx:
                    assert apply_reports(tx, agent.name, agent.name, reports, self.now_s) == []
                agent.journal.taken(reports[-1][0])
                changed = True
        return changed

    def plan(self):
        with self.tx() as tx:
            view = gang_view(tx, self.settings, self.policy, self.now_s)
        moves = decided_moves(view, lambda tiers: self.policy.decide(tiers, None, self.now_s, self.rng)) if view else []
        with self.tx() as tx:
            return bool(moves and commit_gang_moves(tx, view, moves, self.settings))

    def run(self, gangs, trace):
        names = [str(uuid.UUID(int=number)) for number in range(len(trace.run_s))]
        while True:
            for number, name in enumerate(names):
                if trace.submit_s[number] == self.now_s:
                    self.submit(name, number, gangs, trace)
            self.instant()
            with self.tx() as tx:
                done = self.now_s >= trace.submit_s[-1] and not tx.open_gangs()
                if done:
                    assert tx.processes() == []
                    return [tx.gang(name) for name in names]
            self.now_s += STEP_S

    def submit(self, name, number, gangs, trace):
        wanted = GangRequest(
            uuid=name, project_id="p", user_id="u", name="", processes=int(gangs.width[number]),
            runtime_s=float(gangs.estimate_s[number]), cpu_usage=float(gangs.usage[number]),
            work_s=float(trace.run_s[number]),
        )  # fmt: skip
        with self.tx() as tx:
            create_gang(tx, wanted, self.now_s)


class Counted:
    """The outcome of each gang in the simulator."""

    def __init__(self):
        self.finish_s, self.moves = {}, {}

    def stretch(self, *_):
        pass

    def finished(self, gang, start_s, finish_s, migrations, kills, swaps):
        self.finish_s[gang], self.moves[gang] = finish_s, (migrations, kills, swaps)


def workload(seed, count=10):
    """Return gangs on eight processors, submitted at even seconds, and so often that most of them wait."""
    rng = np.random.default_rng(seed)
    width = rng.integers(1, 7, count)
    run_s = rng.integers(40, 400, count).astype(float)
    estimate_s = np.ceil(run_s * rng.uniform(1.0, 2.0, count))
    submit_s = 2.0 * np.cumsum(rng.integers(1, 25, count))
    usage = np.round(rng.uniform(0.4, 1.0, count), 2)
    gangs = Gangs(width=width, estimate_s=estimate_s, usage=usage)
    trace = Trace(
        job=np.arange(count),
        submit_s=submit_s,
        run_s=run_s,
        estimate_s=estimate_s,
        width=width,
        user=np.full(count, -1),
    )
    return gangs, trace


def drawn_shares(gangs):
    """Return the shares that the simulated guests will lose and use, which are drawn for each gang from its name."""
    drawn = [shares_of(str(uuid.UUID(int=i)), int(width), ProgressParams()) for i, width in enumerate(gangs.width)]
    return Shares(np.array([loss for loss, _ in drawn]), np.array([used for _, used in drawn]))


@pytest.fixture
def on_disk(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.migrate()
    store.ensure_shards(["s"], 0.0)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("policy", "kept"), [("easy", "memory"), ("keasy", "memory"), ("measy_plus", "memory"), ("measy_plus", "disk")]
)
def test_the_live_pool_does_what_the_simulator_says(tmp_path, on_disk, policy, kept):
    """Gangs are swapped, moved and killed as often as simulated, and end at most a few steps of the clock later.

    In the background of several processors a gang may end earlier: in the simulator its processes wait for each other.
    """
    gangs, trace = workload(seed=3)
    said = Counted()
    simulate(
        HOSTS * PER_HOST, trace, gangs, drawn_shares(gangs), load_policy("gang", policy),
        migration_s=MIGRATION_S, sink=said,
    )  # fmt: skip
    lived = Live(tmp_path, policy, on_disk if kept == "disk" else MemoryStore()).run(gangs, trace)
    moves = {number: (gang.migrations, gang.kills, gang.swaps) for number, gang in enumerate(lived)}
    late_s = [(gang.ended_at or 0.0) - said.finish_s[number] for number, gang in enumerate(lived)]
    assert moves == said.moves
    assert max(late_s) < 5 * STEP_S
    if policy == "easy":
        assert min(late_s) >= 0.0
    else:
        assert sum(map(sum, moves.values())) > 0
