"""`fpga-pool-scheduler`: makes plans, commits them, and sends commands to the agents."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from oslo_config import cfg

from fpga_pool.cli.daemons.process import (
    add_to_reports,
    attempt,
    connected,
    end_messages,
    instruments,
    run,
    serve_metrics,
)
from fpga_pool.conf.catalogue import configured_catalogue, private_key, public_keys, state_directory
from fpga_pool.conf.policies import load_policy
from fpga_pool.conf.scheduler import KEYSTONE, quota_limits
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.metrics.table import NOTIFICATIONS
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.lifecycle.notifications import Notification
from fpga_pool.model.objects.quotas import ProjectLimits
from fpga_pool.model.rules.instance.instances import check_functions_in_use
from fpga_pool.placement.client import PlacementClient, open_placement
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.casts import CastReader
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.notifier import departures, publisher
from fpga_pool.rpc.reachable import ReachableServer
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.tracing import is_profiled
from fpga_pool.rpc.transport import LIFE_SIGNS_TOPIC, SCHEDULER_TOPIC, limit_unreadable
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.configured import scheduler_settings
from fpga_pool.services.loop import exclusive
from fpga_pool.services.scheduler.cloud.tier_migrations import MigrationLimits
from fpga_pool.services.scheduler.endpoint import LifeSignEndpoint, SchedulerEndpoint
from fpga_pool.services.scheduler.planner import online_rule
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.store.options import open_store

if TYPE_CHECKING:  # openstacksdk takes a second to load
    from fpga_pool.drivers.nova_api import TenantServers

#: Interval in seconds at which a scheduler checks whether calls reach it.
CALLED_EACH_S = 60.0


@contextmanager
def scheduler(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Run the scheduler of this configuration."""
    name = conf.scheduler.name
    state_dir = state_directory("[scheduler] state_dir", conf.scheduler.state_dir)
    catalogue = configured_catalogue(conf)
    token_key = private_key("[scheduler] token_key", conf.scheduler.token_key)
    role_keys = {
        Role.API: public_keys("[scheduler] api_public_key", conf.scheduler.api_public_key),
        Role.NOVA: public_keys("[scheduler] nova_public_key", conf.scheduler.nova_public_key),
    }
    identity = Identity(Role.SCHEDULER, name, token_key)
    online = online_rule(conf)
    if not online.is_online(conf.scheduler.default_policy):
        load_policy("batch", conf.scheduler.default_policy, conf)
    with ExitStack() as ends:
        ends.enter_context(
            exclusive(
                state_dir / f"{name}.lock",
                f"another scheduler {name} runs on {state_dir}; give this one a [scheduler] name of its own",
            )
        )
        store = open_store(conf)
        ends.callback(store.close)
        store.check_schema()
        if is_profiled(conf, statements=True):
            store.trace_statements()
        with store.reading() as tx:
            check_functions_in_use(tx.leases(), catalogue)
        messages = connected(conf)
        metrics, placement = instruments(conf), open_placement(conf)
        service = SchedulerService(
            scheduler_settings(conf, name),
            store,
            catalogue,
            lambda policy: load_policy("batch", policy, conf),
            AgentAPI(messages, identity),
            SchedulerAPI(messages, identity),
            token_key,
            role_keys,
            SteadyClock(),
            online,
            load_policy("gang", conf.scheduler.gang_policy, conf),
            load_policy("task", conf.scheduler.task_policy, conf),
            placement,
            metrics,
            _publishing(conf, name, metrics, ends),
            _unified_limits(conf),
            _tier_migrations(conf, placement),
        )
        serve_metrics(conf, "scheduler", metrics, ends)
        add_to_reports("Seconds Since Each Shard Was Renewed", service.ownership.lease_ages)
        add_to_reports("Refused Calls", service.refusals.counts)
        endpoints = [SchedulerEndpoint(service)]
        gate = Gate(service.keys, SCHEDULER_METHODS)
        listening = ReachableServer(messages, SCHEDULER_TOPIC, name, endpoints, gate, service.refusals, CALLED_EACH_S)
        life_signs = CastReader(messages, LIFE_SIGNS_TOPIC, [LifeSignEndpoint(service)], gate, service.refusals)
        service.heartbeat_intake.life_signs = life_signs
        limit_unreadable(service.refusals)
        ends.callback(end_messages, [life_signs.close, listening.stop, listening.wait, messages.cleanup])
        # Its shards are released first, so that others take them over while the last messages are answered.
        ends.callback(attempt, [service.stop])
        service.ownership.follow_pool_time()  # its answers set the clocks of the agents
        listening.start()
        service.start()
        service.wait_prepared()
        _listen_to_nova(conf, service, ends)
        yield f"scheduler {name}"


def _unified_limits(conf: cfg.ConfigOpts) -> Callable[[str], ProjectLimits] | None:
    if conf.scheduler.limits_from != KEYSTONE:
        return None
    # It needs openstacksdk, which takes long to import.
    from fpga_pool.services.scheduler.cloud.unified_limits import open_unified_limits

    return open_unified_limits(conf, quota_limits(conf)).of


def _tier_migrations(
    conf: cfg.ConfigOpts, placement: PlacementClient | None
) -> "tuple[TenantServers, MigrationLimits] | None":
    """Return the client and the limits for live migrations, if configured; InvalidInput if [placement] is missing."""
    group = conf.scheduler
    if not group.tier_migrations:
        return None
    if placement is None:
        raise InvalidInput("[scheduler] tier_migrations: requires [placement]")
    from fpga_pool.drivers.nova_api import TenantServers, log_in

    limits = MigrationLimits(
        at_once=group.tier_migrations,
        pause_s=group.tier_migration_pause_s,
        fixed_s=group.gang_migration_s,
        bps=group.tier_migration_mbps * 1e6,
    )
    return TenantServers(log_in(conf)), limits


def _publishing(
    conf: cfg.ConfigOpts, name: str, metrics: Instruments, ends: ExitStack
) -> Callable[[Sequence[Notification]], None] | None:
    """Start the publisher of notifications, if configured, until `ends` is closed; return its `publish`."""
    sending = publisher(conf, name, partial(metrics.count, NOTIFICATIONS))
    if sending is None:
        return None
    sending.start()
    ends.callback(end_messages, [sending.stop])
    return sending.publish


def _listen_to_nova(conf: cfg.ConfigOpts, service: SchedulerService, ends: ExitStack) -> None:
    """Listen for virtual machines that leave their hosts, if Nova is configured to send notifications."""
    if not conf.nova_notifications.transport_url:
        return
    if service.departures is None:
        raise InvalidInput("[nova_notifications] transport_url: requires [placement]")
    listening = departures(conf, service.departures.note)
    ends.callback(end_messages, [listening.stop, listening.wait, listening.transport.cleanup])
    # In a thread, because starting waits for Nova's broker as long as that is unavailable, and the pool must not.
    threading.Thread(target=listening.start, name="nova-notifications", daemon=True).start()


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-scheduler`."""
    return run("fpga-pool-scheduler", scheduler, argv, plans=True)


if __name__ == "__main__":
    sys.exit(main())
