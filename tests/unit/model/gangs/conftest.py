"""A pool with gangs in memory: the rules, a clock that tests set, and hosts that obey like agents."""

import itertools
from collections import Counter

import numpy as np
import pytest

from fpga_pool.conf.policies import policy_as
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.messages.gangs import (
    LaunchProcess,
    ObservedProcess,
    ObservedProcessor,
    ProcessExited,
    ProcessFailed,
    ProcessSaved,
    ProcessStarted,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import (
    ENDED_GANGS,
    PLACED_GANGS,
    Gang,
    GangState,
    Process,
    Processor,
    ProcessState,
    processor_name,
)
from fpga_pool.model.rules.gang.admission import cancel_gang, create_gang
from fpga_pool.model.rules.gang.decisions import commit_gang_moves, decided_moves, gang_outlooks, gang_view
from fpga_pool.model.rules.gang.family import GangFamily
from fpga_pool.model.rules.shared.audit import audit_gangs
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat, tick
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.values import changed
from fpga_pool.sim.store import MemoryStore


class FakeHost:
    """A host whose agent obeys commands at once, works only when a test calls it, and fails as a test demands."""

    def __init__(self, name, processors, memories):
        self.name = name
        #: Saved memories, shared by all hosts.
        self.memories = memories
        self.processors = {processor_name(name, number): number for number in range(processors)}
        self.sequences = Counter()
        #: Processes by (gang, index, attempt): processor and launch of each; the running ones; the commands to end.
        self.held, self.running, self.ending = {}, set(), {}
        self.reports, self.numbers = [], itertools.count(1)
        self.beats = itertools.count(1)
        self.away = False
        #: Processors that are no longer offered to gangs.
        self.withdrawn = set()

    def obey(self, command):
        if command.sequence <= self.sequences[command.slot]:
            return
        self.sequences[command.slot] = command.sequence
        action = command.action
        key = action.gang, action.index, action.attempt
        if isinstance(action, LaunchProcess):
            self.held[key] = command.slot, action
        elif key not in self.held:
            self.memories.discard(getattr(action, "saved", ""))
            if isinstance(action, StopProcess):
                self.tell(ProcessStopped, key)
        elif isinstance(action, SetTier):
            slot, launch = self.held[key]
            self.held[key] = slot, changed(launch, tier=action.tier)
        else:
            self.ending[key] = action

    def work(self, now_s):
        """End the processes that are to end, then start those whose place is free."""
        for key, action in list(self.ending.items()):
            if isinstance(action, SaveProcess):
                self.save(key)
            else:
                self.drop(key, ProcessStopped)
        for key, (slot, launch) in self.held.items():
            taken = {(self.held[other][0], self.held[other][1].tier) for other in self.running}
            if key not in self.running and (slot, launch.tier) not in taken:
                if launch.saved:
                    self.memories.remove(launch.saved)  # raises KeyError if there is no such memory
                self.running.add(key)
                self.tell(ProcessStarted, key)

    def save(self, key):
        """Save the memory of a running process; one that does not run yet passes on the memory it was given."""
        launch = self.held[key][1]
        if key in self.running:
            self.forget(key)
            saved = "{0}.{2}.{1}".format(*key)
            self.memories.add(saved)
        else:
            saved = launch.saved
            del self.held[key]
            self.ending.pop(key, None)
        self.tell(ProcessSaved, key, cpu_s=1.0, done_s=launch.done_s + 1.0, saved=saved)

    def exit(self, number):
        if keys := sorted(self.running):
            self.drop(keys[number % len(keys)], ProcessExited)

    def die(self, number, *, told):
        """Let a process die; its agent reports that, or has forgotten the process."""
        if keys := sorted(self.running):
            key = keys[number % len(keys)]
            if told:
                self.drop(key, ProcessFailed, message="its guest no longer exists")
            else:
                self.forget(key)

    def drop(self, key, report, **said):
        self.forget(key)
        self.tell(report, key, cpu_s=1.0, **said)

    def forget(self, key):
        _, launch = self.held.pop(key)
        if key not in self.running:
            self.memories.discard(launch.saved)
        self.running.discard(key)
        self.ending.pop(key, None)

    def tell(self, report, key, **said):
        gang, index, attempt = key
        told = report(gang=gang, index=index, attempt=attempt, at=0.0, **said)
        self.reports.append((next(self.numbers), told))

    def heartbeat(self, now_s):
        observed = [
            ObservedProcess(
                gang=gang,
                index=index,
                attempt=attempt,
                processor=slot,
                tier=launch.tier,
                done_s=launch.done_s,
                ending=(gang, index, attempt) in self.ending,
            )
            for (gang, index, attempt), (slot, launch) in self.held.items()
        ]
        return Heartbeat(
            host=self.name,
            agent_id=self.name,
            boot=1,
            beat=next(self.beats),
            at=now_s,
            egress_bps=1e9,
            ingress_bps=1e9,
            data_address="",
            data_port=0,
            slots=(),
            jobs=(),
            processors=tuple(
                ObservedProcessor(
                    processor=name, number=number, sequence=self.sequences[name], offered=name not in self.withdrawn
                )
                for name, number in self.processors.items()
            ),
            processes=tuple(observed),
            unreported=len(self.reports),
        )


class GangPool:
    def __init__(self, hosts=None, policy="measy_plus", **settings):
        self.settings = PoolSettings(max_attempts=4, host_timeout_s=10.0, **settings)
        self.policy = policy_as("gang", policy)
        self.family = GangFamily(self.settings, self.policy)
        self.rng = np.random.default_rng(0)
        self.store = MemoryStore()
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        self.now_s = 1000.0
        self.gangs = 0
        self.memories = set()
        sizes = hosts or {"h0": 2, "h1": 2}
        self.hosts = {name: FakeHost(name, size, self.memories) for name, size in sizes.items()}
        #: Processes on a host when it was declared lost; they cannot be stopped until it is back.
        self.out_of_reach = set()
        self.lost_a_host = False
        for name in self.hosts:
            self.hear(name)

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    # Tenants

    def create(self, processes=1, runtime_s=100.0, cpu_usage=0.5, **fields):
        self.gangs += 1
        self.now_s += 0.001
        known = {"uuid": f"g{self.gangs}", "project_id": "p", "user_id": "u", "name": ""}
        asked = {"processes": processes, "runtime_s": runtime_s, "cpu_usage": cpu_usage}
        with self.tx() as tx:
            return create_gang(tx, GangRequest(**known | asked | fields), self.now_s, self.policy.last_runs).uuid

    def cancel(self, uuid):
        with self.tx() as tx:
            return cancel_gang(tx, uuid, "p", self.now_s)

    def gang(self, uuid):
        return self.store.get(Gang, uuid)

    def outlook(self, uuid):
        with self.tx() as tx:
            return gang_outlooks(tx, self.settings, self.policy, self.now_s).get(uuid)

    # The scheduler

    def look(self):
        with self.tx() as tx:
            return gang_view(tx, self.settings, self.policy, self.now_s)

    def decide(self, view):
        return decided_moves(view, lambda tiers: self.policy.decide(tiers, None, view.now_s, self.rng))

    def plan(self):
        """Run the steps of planning cycles until no trial is over; return the gangs moved by the last one."""
        with self.tx() as tx:
            look = self.family.snapshot(tx, self.now_s)
        if look is None:
            return []
        decision = self.family.decide(look, None, self.rng)
        if decision.wanted is None:
            return []
        with self.tx() as tx:
            outcome = self.family.commit(tx, look, decision.wanted, self.now_s)
        if decision.again:
            return self.plan()
        moved = zip(decision.wanted, outcome.details, strict=False)
        return [look.view.gangs[move.gang].uuid for move, _ in moved]

    def commit(self, view, moves):
        with self.tx() as tx:
            return [gang.uuid for gang in commit_gang_moves(tx, view, moves, self.settings)]

    def tick(self, *silent):
        with self.tx() as tx:
            repairs = tick(tx, self.settings, self.now_s, dict.fromkeys(silent, 11.0))
        for name in silent:
            self.out_of_reach |= {(name, key) for key in self.hosts[name].held}
            self.lost_a_host = True
        return repairs

    # Messages between scheduler and hosts

    def deliver(self, name, most=1000):
        """Have a host obey its oldest commands."""
        host = self.hosts[name]
        if not host.away:
            commands = [command for command in self.store.undelivered("s", 10_000) if command.host == name][:most]
            for command in commands:
                host.obey(command)
            self.store.delivered("s", "me", self.shard.epoch, {command.id for command in commands})

    def tell(self, name, most=1000):
        """Deliver a host's oldest reports twice; repeats must not count."""
        host = self.hosts[name]
        if not host.away and host.reports:
            told = host.reports[:most]
            for _ in range(2):
                with self.tx() as tx:
                    apply_reports(tx, name, name, told, self.now_s)
            del host.reports[: len(told)]

    def hear(self, name):
        host = self.hosts[name]
        if not host.away:
            with self.tx() as tx:
                return apply_heartbeat(tx, host.heartbeat(self.now_s), self.now_s)
        return []

    def work(self, name):
        self.hosts[name].work(self.now_s)
        held = set(self.hosts[name].held)
        self.out_of_reach = {(host, key) for host, key in self.out_of_reach if host != name or key in held}

    def settle(self):
        """Run everything that can happen without a process exiting."""
        for _ in range(4):
            self.plan()
            for name in self.hosts:
                self.deliver(name)
                self.work(name)
                self.tell(name)
                self.hear(name)
        self.check()

    # Invariants

    def check(self):
        live = [process for process in self.store.all(Process) if process.state is not ProcessState.ENDED]
        places = Counter(process.held_place for process in live)
        assert max(places.values(), default=0) <= 1, "two processes have one place"
        for gang in self.store.all(Gang):
            mine = [process for process in live if (process.gang_uuid, process.attempt) == (gang.uuid, gang.attempt)]
            if gang.state in PLACED_GANGS and not gang.cancel_requested:
                assert sorted(process.index for process in mine) == list(range(gang.processes))
                tier = Tier.BACKGROUND if gang.state is GangState.BACKGROUND else Tier.FOREGROUND
                assert {process.tier for process in mine} == {tier}
                assert not {process.state for process in mine} & {ProcessState.STOPPING, ProcessState.STOPPED}
            elif gang.state in ENDED_GANGS or gang.state is GangState.QUEUED:
                assert {process.state for process in mine} <= {ProcessState.STOPPING, ProcessState.STOPPED}
            assert gang.foreground_s >= 0 <= gang.background_s
        assert self.audit() == []
        self.check_hosts()

    def audit(self):
        kept = {kind: self.store.all(kind) for kind in (Processor, Gang, Process)}
        gangs = [gang for gang in kept[Gang] if gang.state not in ENDED_GANGS]
        live = [process for process in kept[Process] if process.state is not ProcessState.ENDED]
        return list(audit_gangs(kept[Processor], gangs, live))

    def check_hosts(self):
        """Check that no process runs twice, except out of reach, and no two share a place, except in an exchange."""
        running = [(name, key) for name, host in self.hosts.items() for key in host.running]
        reached = Counter(key[:2] for name, key in running if (name, key) not in self.out_of_reach)
        assert max(reached.values(), default=0) <= 1, f"doubled: {reached}"
        exchanging = {
            command.slot for command in self.store.undelivered("s", 10_000) if isinstance(command.action, SetTier)
        }
        for host in self.hosts.values():
            placed = [host.held[key] for key in host.running]
            taken = Counter((slot, launch.tier) for slot, launch in placed if slot not in exchanging)
            assert max(taken.values(), default=0) <= 1, f"two in one place of {host.name}: {taken}"

    def open(self):
        return [gang for gang in self.store.all(Gang) if gang.state not in ENDED_GANGS]

    def end(self):
        """Let every gang end, and check that nothing is left anywhere."""
        for host in self.hosts.values():
            host.away = False
        for _ in range(60):
            if not self.open() and not any(host.held for host in self.hosts.values()):
                break
            self.now_s += 1.0
            self.settle()
            for host in self.hosts.values():
                while host.running:
                    host.exit(0)
            self.tick()
        states = {gang.uuid: (gang.state, gang.reason) for gang in self.store.all(Gang)}
        assert all(state in ENDED_GANGS for state, _ in states.values()), states
        assert not any(host.held for host in self.hosts.values())
        assert all(process.state is ProcessState.ENDED for process in self.store.all(Process))
        for name in self.hosts:
            self.deliver(name)
        if not self.lost_a_host:  # memories on their way to a lost host remain; hosts remove old ones
            assert not self.memories


@pytest.fixture(scope="session")
def new_gang_pool():
    """Return the class of the pools; by default they have two hosts with two processors each."""
    return GangPool
