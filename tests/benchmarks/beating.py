"""A process that simulates many agents of a scheduler, each of which periodically sends heartbeats of two idle cards.

Every 10 s, a heartbeat also has counters.  If CHANGING is not 0, one slot of each agent changes its function every
CHANGING heartbeats, at different times for different agents.  If SPARING is not 0, agents send life signs instead, and
leave out what is not due yet, as real ones do if they have no news.

    python beating.py TRANSPORT_URL DATABASE_URL PREFIX AGENTS INTERVAL WARM_UP SECONDS [CHANGING [SPARING]]

Prints "ready" when the pool knows every agent, and starts when it reads a line; if SECONDS are 0, it runs until it
reads another.  At the end it prints, as JSON, the scheduler's response time for each heartbeat of the last SECONDS, in
seconds, and the number of heartbeats without a response.
"""

import contextlib
import json
import math
import sys
import threading
import time
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace
from oslo_config import cfg

import fpga_pool.rpc  # noqa: F401  # chooses native threads before oslo.messaging is used
from fpga_pool.drivers.host_meter import INTERVAL_S
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.messages.agents import Heartbeat, ObservedSlot
from fpga_pool.model.messages.counters import CardCounters, GuestCounters, HostCounters
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.rpc.identity import Identity, Role, key_text
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, transport
from fpga_pool.services.agent.heartbeats import Heartbeats
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.scheduler.enrolment import approve
from fpga_pool.store import Store

CARDS, REGIONS = ("0000:3b:00.0", "0000:af:00.0"), range(4)
#: Limits how many agents join concurrently.
JOINING = threading.Semaphore(8)


def machine(host):
    """Return the agent's own state machine, which provides the content of heartbeats."""
    slots = [
        ObservedSlot(
            slot=f"{host}/{card}/r{region}",
            card=card,
            region=f"r{region}",
            board="kintex7",
            kind="small",
            state=SlotState.EMPTY,
        )
        for card in CARDS
        for region in REGIONS
    ]
    return Agent(host, slots)


def counters():
    """Return the counters of a host with four guests."""
    guests = tuple(GuestCounters(uuid=str(uuid.uuid4()), cpus=1.25) for _ in range(4))
    return HostCounters(
        at=time.time(), cpus=64.0, busy_cpus=12.34, memory_bytes=1 << 38, used_bytes=1 << 37, received_bps=1.23e9,
        sent_bps=4.56e8, cpu_pressure=0.0123, memory_pressure=0.0, io_pressure=0.0456, guests=guests,
        cards=tuple(CardCounters(card=card, dma_bps=7.89e9) for card in CARDS),
    )  # fmt: skip


class Meter:
    """Returns the same load again and again, as often as a real meter does."""

    def __init__(self):
        self._next_s = time.monotonic()

    def measure(self, _):
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + INTERVAL_S
        return counters()


class Beating(threading.Thread):
    """One agent, whose heartbeats are offset by its phase within the interval."""

    def __init__(self, messages, key, host, number, phase_s, interval_s, changing, sparing, begin, until):
        super().__init__(daemon=True)
        self._agent, self._phase_s = machine(host), phase_s
        self._interval_s, self._begin, self._until = interval_s, begin, until
        self._number, self._changing, self._sparing = number, changing, sparing
        self._beat = 0
        scheduler = SchedulerAPI(messages, Identity(Role.AGENT, host, key))
        self._heartbeats = Heartbeats(scheduler, self._observe, Meter(), SteadyClock(), interval_s)
        self.known = threading.Event()
        self.times_s, self.unanswered = [], 0

    def _observe(self):
        self._beat += 1
        host, slots = self._agent.host, self._agent.observed_slots()
        if self._changing and (self._beat + self._number) // self._changing % 2:
            slots = (replace(slots[0], state=SlotState.READY, function="aes"), *slots[1:])
        return Heartbeat(
            host=host, agent_id=host, boot=1, beat=self._beat, at=time.time(), egress_bps=1e10, ingress_bps=1e10,
            data_address="192.0.2.1", data_port=7000, slots=slots, jobs=(),
        )  # fmt: skip

    def run(self):
        with JOINING:
            while not self.known.is_set():
                try:
                    self._heartbeats.send()
                except MessagingError:
                    continue
                self.known.set()
        self._begin.wait()
        next_s = time.monotonic() + self._phase_s
        while time.monotonic() < self._until[0]:
            time.sleep(max(next_s - time.monotonic(), 0.0))
            next_s = max(next_s + self._interval_s, time.monotonic())
            asked_s = time.monotonic()
            try:
                if not self._sparing:
                    self._heartbeats.send()
                elif not self._heartbeats.send_if_due():
                    continue
            except MessagingError:
                self.unanswered += 1
            else:
                self.times_s.append((asked_s, time.monotonic() - asked_s))


def enroll(database_url, hosts, key):
    """Let the pool accept one key for all agents."""
    with contextlib.closing(Store(database_url)) as store:
        for host in hosts:
            approve(store, host, key, time.time())


def main(url, database_url, prefix, agents, interval_s, warm_s, seconds, changing=0, sparing=0):
    messages = transport(cfg.CONF, url)
    key = Ed25519PrivateKey.generate()
    enroll(database_url, [f"{prefix}-{number:04d}" for number in range(agents)], key_text(key.public_key()))
    begin, until = threading.Event(), [0.0]
    all_of_them = [
        Beating(
            *(messages, key, f"{prefix}-{number:04d}", number, interval_s * number / agents),
            *(interval_s, changing, sparing, begin, until),
        )
        for number in range(agents)
    ]
    for agent in all_of_them:
        agent.start()
    for agent in all_of_them:
        agent.known.wait()
    print("ready", flush=True)
    sys.stdin.readline()
    measured_from_s = time.monotonic() + warm_s
    until[0] = measured_from_s + (seconds or math.inf)
    begin.set()
    if not seconds:
        sys.stdin.readline()
        until[0] = time.monotonic()
    for agent in all_of_them:
        agent.join()
    asked = [one for agent in all_of_them for one in agent.times_s]
    times_s = [took_s for asked_s, took_s in asked if measured_from_s <= asked_s < until[0]]
    print(json.dumps({"times_s": times_s, "unanswered": sum(agent.unanswered for agent in all_of_them)}), flush=True)


if __name__ == "__main__":
    url, database_url, prefix, agents, *times = sys.argv[1:]
    main(url, database_url, prefix, int(agents), *map(float, times))
