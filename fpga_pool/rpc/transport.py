"""Transports, servers and clients with the pool's habits: plain JSON, native threads, bounded waits."""

from collections.abc import Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

#: Exchange and topics; a version of an interface is in its Target.
EXCHANGE = "fpga_pool"
SCHEDULER_TOPIC = "fpga_pool.scheduler"
AGENT_TOPIC = "fpga_pool.agent"

#: Domain errors cross the wire as themselves.
ERROR_MODULES = ["fpga_pool.model.exceptions"]


def transport(conf: cfg.ConfigOpts, url: str) -> Any:
    """Return the RPC transport of `url`; ``fake://`` stays within the process."""
    messaging.set_transport_defaults(EXCHANGE)
    return messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=ERROR_MODULES)


def server(transport: Any, topic: str, name: str, endpoints: Sequence[object]) -> Any:
    """Return a server that is not yet started; `name` addresses it alone, the topic any of its kind."""
    return messaging.get_rpc_server(
        transport,
        messaging.Target(topic=topic, server=name),
        list(endpoints),
        executor="threading",
        access_policy=messaging.ExplicitRPCAccessPolicy,
    )
