"""A pool with online jobs in simulated time: live rules in their cycle, a store in memory, and simulated agents."""

import itertools

import numpy as np

from fpga_pool.model.cycle import Cycle
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import CPU, ENDED_JOBS, JobState, SlotState, is_cpu
from fpga_pool.model.rules.batch.admission import cancel_batch, cancel_jobs, create_batch
from fpga_pool.model.rules.online.family import OnlineFamily, OnlineRule
from fpga_pool.model.rules.shared.changes import drain_slot, resume_slot
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat, tick
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.sim.agents import SimulatedAgent
from fpga_pool.sim.benefit.trace import Cancel, Drain, End, Failure, HostLoss, Outage, timeline
from fpga_pool.sim.engine import Delays, Engine
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.store import MemoryStore

AT_ONCE = Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0)
SILENT_S = 1000.0


def job_name(number):
    return f"j{number:06}"


def host_name(number):
    return f"h{number:02}"


class WatchedFamily(OnlineFamily):
    """The family of online jobs, with a record of the moves of each cycle, as in the simulator."""

    def __init__(self, catalogue, settings, rule, pool):
        super().__init__(catalogue, settings, rule)
        self.pool, self.decisions = pool, []

    def commit(self, tx, look, wanted, now_s):
        outcome = super().commit(tx, look, wanted, now_s)
        moves = [
            ("call back", int(job.uuid[1:]), -1)
            if is_cpu(job.slot)
            else ("evict", int(job.uuid[1:]), self.at(job.slot))
            for job in wanted.evictions
        ]
        moves += [
            ("cpu" if is_cpu(place.slot.name) else "load" if place.load_s else "start", int(place.job.uuid[1:]),
             self.at(place.slot.name))
            for place in wanted.placements
        ]  # fmt: skip
        moves += [("ahead", self.pool.functions.index(function), self.at(slot.name)) for slot, function in wanted.loads]
        assert len(moves) == len(outcome.placed) + len(outcome.details)
        self.decisions.append((now_s, tuple(sorted(moves))))
        return outcome

    def at(self, slot):
        return int(slot.rpartition("/w")[2]) if is_cpu(slot) else self.pool.names.index(slot)


class LivePool:
    """A pool that runs a trace through the live rules until every job has ended."""

    def __init__(self, policy, case, settings, faults):
        self.case, self.settings = case, settings
        self.policy = policy
        self.engine, self.store = Engine(), MemoryStore()
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        self.numbers = itertools.count(1)
        self.family = WatchedFamily(case.catalogue, settings, OnlineRule(policy, policy.name.__eq__), self)
        self.functions = tuple(sorted(case.catalogue.functions))
        self.cycle = Cycle(
            self.family, reading=self.tx, transactions=self.tx, dispatch=lambda: None, clock=lambda: self.engine.now_s,
            timer=lambda: 0.0, rng=np.random.default_rng(0),
        )  # fmt: skip
        self.names = case.slot_names
        self.agents = {
            host.name: SimulatedAgent(host, self.engine, case.catalogue, self, AT_ONCE) for host in hosts(case)
        }
        for host in self.agents:
            self.hear(host)
        self.look_due = False
        for number, at_s in enumerate(case.trace.arrival_s.tolist()):
            self.engine.at(at_s, lambda number=number: self.submit(number))
            self.engine.at(at_s + float(case.trace.patience_s[number]), lambda number=number: self.wake_for(number))
        for at_s, fault in timeline(faults):
            self.engine.at(at_s, lambda fault=fault: self.strike(fault))

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    def hear(self, host):
        with self.tx() as tx:
            apply_heartbeat(tx, self.agents[host].heartbeat(), self.engine.now_s)

    # The interface for the agents

    def report(self, host, reports):
        with self.tx() as tx:
            apply_reports(tx, host, "simulated", [(next(self.numbers), one) for one in reports], self.engine.now_s)
        self.look_due = True

    def lost_source(self, assignment):
        return ""

    def is_fetched(self, job):
        return True

    def arrives_at(self, assignment):
        return self.engine.now_s

    def input_age_s(self, assignment):
        return None

    def received_bytes(self, assignment):
        return assignment.input_bytes

    def seconds(self, assignment, board):
        function = self.case.catalogue.functions[assignment.function]
        model = function.cpu_time if board == CPU else function.fpga_time[board]
        return model.seconds(assignment.input_bytes)

    # Time

    def run(self, interval_s):
        def interval():
            self.look_due = True
            self.engine.after(interval_s, interval)

        self.engine.after(interval_s, interval)
        while self.work_left():
            self.instant(self.engine.next_s)
        return self.family.decisions

    def work_left(self):
        with self.tx() as tx:
            jobs = tx.jobs([job_name(number) for number in range(len(self.case.trace.jobs))])
        ended = sum(
            job.ended_at is not None or (job.state is JobState.PENDING and job.attempt >= self.settings.max_attempts)
            for job in jobs
        )
        return ended < len(self.case.trace.jobs)

    def instant(self, now_s):
        """Apply all events of this instant, then run cycles until nothing changes."""
        self.settle(now_s)
        while self.look_due:
            self.look_due = self.cycle.run().outcome.changed
            changed = self.look_due
            self.settle(now_s)
            self.look_due = changed

    def settle(self, now_s):
        """Deliver commands and reports until there are none."""
        self.engine.run(now_s)
        while self.store.outbox:
            for command in list(self.store.outbox):
                agent = self.agents[command.host]
                assert agent.present
                agent.execute("s", self.shard.epoch, [command])
                self.store.delivered("s", "me", self.shard.epoch, {command.id})
            self.engine.run(now_s)

    def wake_for(self, number):
        with self.tx() as tx:
            self.look_due |= tx.job(job_name(number)).state is JobState.PENDING

    def submit(self, number):
        trace, uuid = self.case.trace, job_name(number)
        job = JobRequest(
            uuid=uuid, name="", function=self.functions[trace.function[number]], requester=self.case.cpu_host,
            input_bytes=int(self.case.input_bytes[number]),
        )  # fmt: skip
        request = BatchRequest(
            uuid=f"b{number:06}", project_id=trace.project[number], user_id="u", name="", policy=self.policy.name,
            jobs=(job,),
        )  # fmt: skip
        with self.tx() as tx:
            create_batch(tx, request, self.case.catalogue, self.settings, self.engine.now_s)
        self.look_due = True

    # Faults

    def strike(self, fault):
        self.look_due = True
        match fault:
            case HostLoss(slots=slots):
                host = self.host_of(slots[0])
                self.agents[host].vanish()
                with self.tx() as tx:
                    tick(tx, self.settings, self.engine.now_s, {host: SILENT_S})
            case Outage(slots=slots):
                for slot in slots:
                    self.agents[self.host_of(slot)].fail_slot(self.names[slot])
            case Failure(slot=slot):
                self.look_due = self.agents[self.host_of(slot)].fail_computation(self.names[slot])
            case Cancel(job=job):
                self.look_due = self.cancel(job)
            case Drain(slot=slot):
                with self.tx() as tx:
                    drain_slot(tx, self.names[slot], "test", self.engine.now_s)
            case End(of=HostLoss(slots=slots)):
                self.agents[self.host_of(slots[0])].come_back()
                self.hear(self.host_of(slots[0]))
            case End(of=Outage(slots=slots)):
                for slot in slots:
                    self.agents[self.host_of(slot)].repair_slot(self.names[slot])
            case End(of=Drain(slot=slot)):
                with self.tx() as tx:
                    resume_slot(tx, self.names[slot], self.engine.now_s)

    def cancel(self, number):
        batch, trace = f"b{number:06}", self.case.trace
        if trace.arrival_s[number] > self.engine.now_s:
            return False
        with self.tx() as tx:
            lives = tx.job(job_name(number)).state not in ENDED_JOBS
            if lives:
                cancel_batch(tx, batch, trace.project[number], self.engine.now_s)
                cancel_jobs(tx, batch, self.engine.now_s)
        return lives

    def host_of(self, slot):
        return self.names[slot].split("/")[0]


def hosts(case):
    """Return the hosts of a case: those with cards, and the one with the workers of the CPU pool."""
    slots = {}
    for name, kind in zip(case.slot_names, case.slot_kinds, strict=True):
        host, card, region = name.split("/")
        observed = ObservedSlot(slot=name, card=card, region=region, board="fast", kind=kind, state=SlotState.EMPTY)
        slots.setdefault(host, []).append(observed)
    for number in range(case.cpu_workers):
        name = f"{case.cpu_host}/cpu/w{number:02}"
        worker = ObservedSlot(slot=name, card=CPU, region=f"w{number:02}", board=CPU, kind=CPU, state=SlotState.EMPTY)
        slots.setdefault(case.cpu_host, []).append(worker)
    return [
        SimulatedHost(name=host, egress_bps=1e9, ingress_bps=1e9, slots=tuple(found)) for host, found in slots.items()
    ]
