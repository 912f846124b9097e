"""A host whose agent runs processes as servers of the compute service in memory."""

from fpga_pool.drivers.runners.nova import NovaRunner, Times
from fpga_pool.drivers.runners.nova_servers import Servers
from fpga_pool.drivers.runners.process_guests import ProcessGuests
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.flavor import Tier

from .compute_api import Tiers

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
KEY = Key("a", 0, 1)
SPEC = ProcessSpec(key=KEY, processes=2, cpu_usage=0.5, work_s=60.0, command="solve")
OTHER = ProcessSpec(key=Key("b", 0, 1), processes=1, cpu_usage=0.5, work_s=60.0)
TIMES = Times(poll_s=10.0, build_s=600.0, keep_saved_s=86400.0)


class Host:
    """One host and its agent's runner."""

    def __init__(self, api, name, clock):
        self.api, self.name, self.clock = api, name, clock
        self.tiers = Tiers(api.hypervisors[name])
        self.runner = self.restarted()

    def restarted(self):
        guests = ProcessGuests(self.api.hypervisors[self.name], self.tiers)
        servers = Servers(self.api, self.name, "gang", ["net"])
        now = self.clock.__getitem__
        self.runner = NovaRunner(servers, guests, "counts", TIMES, lambda: now(0), lambda: now(0))
        self.runner._pause = lambda length_s: self.later(length_s)
        return self.runner

    def later(self, length_s):
        self.clock[0] += length_s

    def observe(self):
        """Observe after the polling interval, so that Nova is asked again."""
        self.later(10.0)
        return self.runner.observe()

    def launched(self, spec=SPEC, processor=1, tier=FRONT):
        """Launch a process, wait until it runs in its place, and return its server."""
        self.later(10.0)
        self.runner.launch(spec, processor, tier)
        self.api.build()
        for _ in range(3):
            found = self.observe()
            assert found[spec.key].phase is Phase.RUNNING
            if found[spec.key].tier is None:
                self.runner.set_tier(spec.key, tier)
        assert self.observe()[spec.key].phase is Phase.RUNNING
        return self.server()

    def launched_beside(self, spec, processor):
        """Launch another process in the foreground of another processor."""
        self.later(10.0)
        self.runner.launch(spec, processor, FRONT)
        self.api.build()
        self.observe()
        self.observe()
        self.runner.set_tier(spec.key, FRONT)

    def server(self):
        [server] = self.api.servers.values()
        return server

    def domain(self):
        [domain] = self.api.hypervisors[self.name].domains.values()
        return domain
