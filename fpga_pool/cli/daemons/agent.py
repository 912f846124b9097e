"""`fpga-pool-agent`: the slots and the data port of one compute node."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from oslo_config import cfg

from fpga_pool.cli.daemons.process import attempt, connected, end_messages, instruments, run, serve_metrics
from fpga_pool.conf.agent import NO_EGRESS, data_tls, nic_limits_bps, peer_tls
from fpga_pool.conf.catalogue import configured_catalogue, present_directory, public_key, public_keys, state_directory
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.drivers.slots.cpu import CpuWorkers
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.rpc.reachable import ReachableServer
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import AGENT_TOPIC, limit_unreadable
from fpga_pool.services.agent.endpoint import AgentEndpoint, LibraryEndpoint
from fpga_pool.services.agent.service import AgentService
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.agent.tiers.service import TierEndpoint
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.configured import (
    agent_gate,
    agent_identity,
    agent_settings,
    egress_driver,
    instances,
    runner,
    slot_driver,
    tiers,
)
from fpga_pool.services.loop import exclusive

#: Interval in seconds at which an agent checks whether calls reach it; there may be many agents.
CALLED_EACH_S = 300.0


@contextmanager
def agent(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Run the agent of this configuration."""
    settings = settings_of_host(conf)
    token_keys = public_keys("[agent] token_public_key", conf.agent.token_public_key)
    library = BitstreamLibrary(present_directory("[agent] bitstream_library", conf.agent.bitstream_library))
    catalogue = configured_catalogue(conf)
    driver = slot_driver(conf, catalogue)
    with ExitStack() as ends:
        ends.enter_context(
            exclusive(
                settings.state_dir / "lock",
                f"another agent runs on {settings.state_dir}; give this one an [agent] state_dir of its own",
            )
        )
        messages = connected(conf)
        identity = agent_identity(settings)
        scheduler = SchedulerAPI(messages, identity)
        clock = SteadyClock()
        metrics = instruments(conf)
        egress = egress_driver(conf)
        service = AgentService(
            settings,
            driver,
            library,
            scheduler,
            token_keys,
            clock,
            data_tls(conf),
            egress,
            CpuWorkers.from_conf(conf, catalogue),
            runner(conf, settings, clock),
            instruments=metrics,
            peer_tls=peer_tls(conf),
        )
        serve_metrics(conf, "agent", metrics, ends)
        tiered = tiers(conf, settings)
        trusted = public_key("[agent] bitstream_public_key", conf.agent.bitstream_public_key)
        shelf = LibraryEndpoint(library, catalogue, trusted)
        endpoints = [AgentEndpoint(service), shelf, *([TierEndpoint(tiered)] if tiered is not None else [])]
        gate = agent_gate(token_keys)
        commands = Commands(
            ReachableServer(messages, AGENT_TOPIC, settings.host, endpoints, gate, service.refusals, CALLED_EACH_S)
        )
        limit_unreadable(service.refusals)
        service.on_speaking = commands.listen
        ends.callback(end_messages, [messages.cleanup])
        guests = instances(conf, service, scheduler, egress)
        ends.callback(attempt, [service.stop])
        ends.callback(end_messages, [commands.stop])
        ends.callback(attempt, [service.drain])
        service.start()
        if tiered is not None:
            ends.callback(attempt, [tiered.stop])
            tiered.start()
        if guests is not None:
            ends.callback(attempt, [guests.stop])
            guests.start()
        yield f"agent {settings.host}"


class Commands:
    """Receives commands while this agent represents its host: of two agents with one name, only one receives them."""

    def __init__(self, commands: Any) -> None:
        self._server = commands
        self._listens = False

    def listen(self, speaks: bool) -> None:
        """Start or stop listening."""
        if not speaks:
            self.stop()
            return
        self._server.start()
        self._listens = True

    def stop(self) -> None:
        """Stop listening, if it has been started."""
        if self._listens:
            self._listens = False
            self._server.stop()
            self._server.wait()


def settings_of_host(conf: cfg.ConfigOpts) -> AgentSettings:
    """Return the settings of this host's agent; InvalidInput names the option that is wrong or missing."""
    group = conf.agent
    if not group.data_address:
        raise InvalidInput("[agent] data_address: set it to the address under which clients reach this host")
    egress_bps, ingress_bps = nic_limits_bps(conf)
    return agent_settings(
        conf,
        host=group.host,
        state_dir=state_directory("[agent] state_dir", group.state_dir),
        egress_bps=egress_bps,
        ingress_bps=ingress_bps,
        node=group.node,
        availability_zone=group.availability_zone,
        gang_processors=tuple(sorted(set(group.gang_processors))),
        egress_driver="" if group.egress_driver == NO_EGRESS else group.egress_driver,
        data_address=group.data_address,
        data_bind_address=group.data_bind_address or "",
        data_port=group.data_port,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-agent`."""
    return run("fpga-pool-agent", agent, argv)


if __name__ == "__main__":
    sys.exit(main())
