"""Nova's side of `test_boots_in_flight.py`, which starts it: schedulers, and hosts in Nova's database and Placement.

Four schedulers and a thread for each boot run in this process, so its CPU time is theirs, and that of Nova's database
(SQLite).  A boot ends with the selection of a host and its claim in Placement, which is released after the round.
"""

import contextlib
import json
import os
import sys
import time
from functools import partialmethod
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "nova"))

import numpy as np
from cloud import Cloud
from nova.scheduler.manager import SchedulerManager
from nova.tests.functional.fixtures import PlacementFixture
from oslo_config import cfg

from fpga_pool.model.flavor import RESOURCE_CLASS
from fpga_pool.nova_plugin import all_filters, all_weighers
from fpga_pool.nova_plugin import pool as plugin_pool
from fpga_pool.nova_plugin.follower import PoolFollower
from support.servers.process import cpu_s
from support.waiting import wait_until

COMPUTES, PREFIX = int(os.environ["COMPUTES"]), os.environ["COMPUTE_PREFIX"]
#: Number of cards of each simulated agent.
CARDS = 2
ROUNDS, BOOTS, SCHEDULERS = int(os.environ.get("ROUNDS", "3")), 20, 4
PROCESSES = json.loads(os.environ["PROCESSES"])
#: Timeout until the agents are known, and the pool has reported their cards to Placement, in seconds.
PUBLISHED_S = 900.0


# Use the Placement of another process instead of the one in Nova's fixture.
PlacementFixture.endpoint = os.environ["PLACEMENT_URL"]
PlacementFixture.__init__ = partialmethod(PlacementFixture.__init__, use_intercept=False)


class Meter:
    """Measures calls of some methods: CPU time of their thread, and elapsed time, both in seconds."""

    def __init__(self, classes, method):
        self.took = []
        defining = {next(base for base in each.__mro__ if method in vars(base)) for each in classes}
        self._patches = [mock.patch.object(each, method, self._metered(getattr(each, method))) for each in defining]

    def _metered(self, original):
        def call(*arguments, **named):
            cpu, began = time.thread_time(), time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self.took.append((time.thread_time() - cpu, time.perf_counter() - began))

        return call

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for patch in self._patches:
                stack.enter_context(patch)
            self._patched = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._patched.close()


class BootsInFlight(Cloud):
    def setUp(self):
        super().setUp()
        for option in ("snapshot_age", "timeout"):
            cfg.CONF.clear_override(option, "fpga_pool")
        self.flags(transport_url=os.environ["POOL_TRANSPORT_URL"], key=os.environ["POOL_KEY"], group="fpga_pool")
        plugin_pool.forget()
        for number in range(COMPUTES):
            self.add_record(f"{PREFIX}-{number:04d}", 0, 0)
        wait_until(lambda: self.published() == COMPUTES * CARDS, lambda: f"{self.published()} cards", PUBLISHED_S)
        self.managers = [self.scheduler_service.manager, *(SchedulerManager() for _ in range(SCHEDULERS - 1))]

    def published(self):
        """Return how many cards with free slots the pool has reported to Placement."""
        asked = f"/allocation_candidates?resources={RESOURCE_CLASS}:1&limit=100000"
        return len(self.placement.get(asked, version="1.36").body.get("allocation_requests", ()))

    def test_boots_in_flight(self):
        for _ in range(ROUNDS):
            took_s = self.round(enabled=True)
            self.round(enabled=False)
            self.told("no boots", time.sleep, took_s)
        assert not self.pool.asked  # the fake pool of other tests is unused

    def round(self, *, enabled):
        self.flags(enabled=enabled, group="fpga_pool")
        with (
            Meter([SchedulerManager], "select_destinations") as boots,
            Meter(all_filters(), "filter_all") as filters,
            Meter(all_weighers(), "weigh_objects") as weighers,
            Meter([PoolFollower], "now") as answers,
        ):
            chosen, took_s, used_s = self.told(
                f"{BOOTS} boots at once, {'with' if enabled else 'without'} the plug-in",
                self.chosen_at_once,
                BOOTS,
                self.managers,
            )
        found = [uuid for each in chosen if each is not None for uuid in each]
        assert [self.slots_of(uuid) for uuid in found] == [1] * len(found)
        each_s = [wall_s for _, wall_s in boots.took]
        ours_s = sum(own_s for own_s, _ in filters.took + weighers.took)
        print(
            f"  {BOOTS - len(found)} without a host; {took_s / BOOTS:.2f} s per boot, each answered in"
            f" {np.median(each_s):.1f} s (at most {max(each_s):.1f}); of the processor per boot nova-scheduler"
            f" {used_s['nova-scheduler'] / BOOTS:.3f} s, in it our classes {1e3 * ours_s / BOOTS:.1f} ms;"
            f" the pool's view answered {in_ms([wall_s for _, wall_s in answers.took])}",
            flush=True,
        )
        self.release(found)
        return took_s

    def slots_of(self, instance):
        given = self._get_allocations_by_server_uuid(instance).values()
        return sum(each["resources"].get(RESOURCE_CLASS, 0) for each in given)

    def told(self, what, work, *arguments):
        """Call `work`, and print the CPU shares of the processes; return its result, elapsed and CPU times."""
        pids = {"nova-scheduler": os.getpid(), **PROCESSES}
        before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.perf_counter()
        found = work(*arguments)
        took_s = time.perf_counter() - began
        used_s = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        shares = ", ".join(f"{name} {used / took_s:.3f}" for name, used in used_s.items())
        print(f"{COMPUTES} computes, {what}: {took_s:.1f} s, of a processor {shares}", flush=True)
        return found, took_s, used_s


def in_ms(seconds):
    if not seconds:
        return "never"
    return f"{len(seconds)} times in {1e3 * np.median(seconds):.0f} ms (at most {1e3 * max(seconds):.0f})"
