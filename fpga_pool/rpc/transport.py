"""Transports, servers and clients with the pool's habits: plain JSON, native threads, bounded waits."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import oslo_messaging as messaging
from oslo_config import cfg

from fpga_pool.model.encoding import from_plain, kinds
from fpga_pool.model.exceptions import FpgaPoolError

#: Exchange and topics; a version of an interface is in its Target.
EXCHANGE = "fpga_pool"
SCHEDULER_TOPIC = "fpga_pool.scheduler"
AGENT_TOPIC = "fpga_pool.agent"

#: Domain errors cross the wire as themselves.
ERROR_MODULES = ["fpga_pool.model.exceptions"]

T = TypeVar("T")

#: Whatever keeps a call from being answered.
MessagingError = messaging.MessagingException

#: The two of them that say nothing about the other side: it may be away, or slow.
NO_ANSWER = (messaging.MessagingTimeout, messaging.MessageDeliveryFailure)

#: What an endpoint implements.
VERSION_1 = messaging.Target(version="1.0")


def answers(method: Callable[..., T]) -> Callable[..., T]:
    """Make a method of an endpoint callable from outside; domain errors are answers, not failures of the server."""
    answering: Callable[..., T] = messaging.expose(messaging.expected_exceptions(FpgaPoolError)(method))
    return answering


def read(wanted: type[T], plain: object) -> T:
    """Return the message of one class that came over the wire; InvalidInput names what does not fit."""
    message: T = from_plain(kinds(wanted), plain)
    return message


def read_all(wanted: type[T], plain: Sequence[object]) -> list[T]:
    """Return a list of such messages."""
    return [read(wanted, item) for item in plain]


def transport(conf: cfg.ConfigOpts, url: str) -> Any:
    """Return the RPC transport of `url`; ``fake://`` stays within the process.

    `conf` must be the process's own `cfg.CONF`: oslo.messaging 18 registers some of the options it reads with no other.
    """
    messaging.set_transport_defaults(EXCHANGE)
    return messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=ERROR_MODULES)


def server(transport: Any, topic: str, name: str, endpoints: Sequence[object]) -> Any:
    """Return a server that is not yet started; `name` addresses it alone, the topic any of its kind."""
    return messaging.get_rpc_server(
        transport,
        messaging.Target(topic=topic, server=name),
        list(endpoints),
        access_policy=messaging.ExplicitRPCAccessPolicy,
    )
