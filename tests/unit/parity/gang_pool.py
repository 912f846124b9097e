"""A pool with gangs in simulated time: live rules, a store in memory, and hosts with the agent's state machine."""

import contextlib
import itertools
import math
import uuid

import numpy as np

from fpga_pool.model.agent.gang_process import Phase
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import Gang, processor_name
from fpga_pool.model.rules.gang.admission import cancel_gang, create_gang
from fpga_pool.model.rules.gang.family import GangFamily
from fpga_pool.model.rules.shared.audit import audit_gangs
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat, tick
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.gangs.host import GangHost, Guests, GuestTimes
from fpga_pool.sim.gangs.trace import Cancellation, Failure, Outage
from fpga_pool.sim.store import MemoryStore

SILENT_S = 1000.0


def name_of(number):
    return str(uuid.UUID(int=number))


class WatchedFamily(GangFamily):
    """The family of gangs, with a record of the committed decisions and their times."""

    def __init__(self, settings, policy, numbers):
        super().__init__(settings, policy)
        self.numbers, self.moves = numbers, []

    def commit(self, tx, look, wanted, now_s):
        outcome = super().commit(tx, look, wanted, now_s)
        moved = outcome.details if wanted else ()
        for move, _ in zip(wanted, moved, strict=False):
            where = tuple(self.numbers[look.view.processors[index].name] for index in move.processors)
            self.moves.append((uuid.UUID(look.view.gangs[move.gang].uuid).int, move.how.value, where, now_s))
        return outcome


class LivePool:
    """A pool that runs a trace through the live rules, cycle by cycle, until every gang has ended."""

    def __init__(self, policy, hosts, per_host, gangs, trace, shares, faults, migration_s):
        self.policy, self.gangs, self.trace = policy, gangs, trace
        self.settings = PoolSettings(gang_migration_s=migration_s, max_attempts=1000)
        self.store = MemoryStore()
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        drawn = {name_of(number): pair for number, pair in enumerate(zip(shares.loss, shares.used, strict=True))}
        self.guests = Guests(GuestTimes(resume_s=migration_s), shares=lambda gang, _: drawn[gang])
        self.hosts = [GangHost(f"h{number}", range(per_host), self.guests) for number in range(hosts)]
        self.number = {
            processor_name(host.name, at): index * per_host + at
            for index, host in enumerate(self.hosts)
            for at in range(per_host)
        }
        self.per_host = per_host
        self.away = set()
        self.beats = itertools.count(1)
        self.now_s = 0.0
        self.family = WatchedFamily(self.settings, policy, self.number)
        self.cycle = Cycle(
            self.family, reading=self.tx, transactions=self.tx, dispatch=lambda: None, clock=lambda: self.now_s,
            timer=lambda: 0.0, rng=np.random.default_rng(0),
        )  # fmt: skip
        self.faults = faults
        self.hear()

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    def run(self):
        times = {float(time) for time in self.trace.submit_s}
        for fault in self.faults:
            times |= {fault.begin_s, fault.end_s} if isinstance(fault, Outage) else {fault.at_s}
        times = sorted(times)
        while times or self.open():
            self.now_s = min([self.guests.next_s(), *times[:1], *self.trials()])
            assert self.now_s < math.inf, "gangs are never served"
            self.instant()
            while times and times[0] <= self.now_s:
                del times[0]
        return self.family.moves

    def open(self):
        with self.tx() as tx:
            return tx.open_gangs()

    def trials(self):
        return [gang.trial_ends_at for gang in self.open() if gang.trial_ends_at is not None]

    def instant(self):
        """Apply all events of this instant, then run the policy until it makes no more decisions."""
        self.guests.pass_to(self.now_s)
        self.exchange()
        for fault in self.faults:
            self.strike(fault)
        self.exchange()
        for number in np.flatnonzero(self.trace.submit_s == self.now_s).tolist():
            self.submit(number)
        result = self.cycle.run()
        while result.again or result.outcome.changed:
            self.exchange()
            result = self.cycle.run()
        self.hear()
        with self.tx() as tx:
            assert list(audit_gangs(tx.processors(), tx.open_gangs(), tx.processes())) == []

    def exchange(self):
        """Deliver commands and reports until there are none."""
        while True:
            for command in self.store.undelivered("s", 100_000):
                host = next(host for host in self.hosts if host.name == command.host)
                if host not in self.away:
                    assert host.execute(command).outcome == "accepted"
                    self.store.delivered("s", "me", 1, {command.id})
            told = False
            for host in set(self.hosts) - self.away:
                host.work()
                if host.reports:
                    told = True
                    with self.tx() as tx:
                        apply_reports(tx, host.name, host.name, host.reports, self.now_s)
                    host.taken(host.reports[-1][0])
            if not told:
                return

    def hear(self):
        for host in self.hosts:
            if host not in self.away:
                self.hear_host(host)

    def hear_host(self, host):
        beat = Heartbeat(
            host=host.name, agent_id=host.name, boot=1, beat=next(self.beats), at=self.now_s, egress_bps=1e9,
            ingress_bps=1e9, data_address="", data_port=0, slots=(), jobs=(), processors=host.observed_processors(),
            processes=host.observed(), unreported=len(host.reports),
        )  # fmt: skip
        with self.tx() as tx:
            apply_heartbeat(tx, beat, self.now_s)

    # Events

    def submit(self, number):
        user = self.trace.user[number]
        request = GangRequest(
            uuid=name_of(number), project_id="p", user_id="" if user < 0 else str(user), name="",
            processes=int(self.gangs.width[number]), runtime_s=float(self.gangs.estimate_s[number]),
            cpu_usage=float(self.gangs.usage[number]), work_s=float(self.trace.run_s[number]),
        )  # fmt: skip
        with self.tx() as tx:
            create_gang(tx, request, self.now_s, self.policy.last_runs)

    def strike(self, fault):
        match fault:
            case Outage(begin_s=begin_s, end_s=end_s, processors=processors):
                host = self.hosts[processors[0] // self.per_host]
                if begin_s == self.now_s:
                    self.away.add(host)
                    self.guests.power_off(host.name)
                    with self.tx() as tx:
                        tick(tx, self.settings, self.now_s, {host.name: SILENT_S})
                elif end_s == self.now_s:
                    self.away.discard(host)
                    host.restart()
                    self.exchange()
                    self.hear_host(host)
            case Failure(at_s=self.now_s, gang=number):
                self.fail(name_of(number))
            case Cancellation(at_s=self.now_s, gang=number):
                with self.tx() as tx:
                    if self.store.get(Gang, name_of(number)) is not None:
                        with contextlib.suppress(InvalidTransition):  # it has ended
                            cancel_gang(tx, name_of(number), "p", self.now_s)
            case _:
                pass

    def fail(self, gang):
        keys = [
            key
            for host in self.hosts
            for key, guest in self.guests.observe(host.name).items()
            if key.gang == gang and guest.phase is Phase.RUNNING
        ]
        if keys:
            self.guests.fail(max(keys), "its guest crashed")
