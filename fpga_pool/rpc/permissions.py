"""Permissions of the pool's processes in RabbitMQ, for the queues and exchanges that oslo.messaging creates for them.

They keep a process from reading messages for another one.  They do not authenticate senders: a process that answers
calls may write to any queue of known name, through the default exchange (`rpc.identity` authenticates senders).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.transport import AGENT_TOPIC, EXCHANGE, SCHEDULER_TOPIC

_EXCHANGE, _SCHEDULER, _AGENT = (re.escape(name) for name in (EXCHANGE, SCHEDULER_TOPIC, AGENT_TOPIC))
#: Queues of answers, created by callers; their names are random numbers of 128 bits.
_ANSWERS = "reply_[0-9a-f]{32}"
#: Exchange to which answers are published.
_DEFAULT_EXCHANGE = r"amq\.default"
_NOTHING = "^$"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Patterns of names, as `rabbitmqctl set_permissions` and `set_topic_permissions` take them."""

    configure: str
    write: str
    read: str
    #: Patterns of routing keys on the exchange of the pool.
    topic_write: str
    topic_read: str


def permissions(role: Role, host: str = "", topics: Sequence[str] = ()) -> Permissions:
    """Return the permissions of a process of a role; those of an agent are limited to its `host`.

    A scheduler can send notifications of these topics, whose queues it declares and binds, but not read them.
    """
    if role is Role.SCHEDULER:
        notifications = [rf"{re.escape(topic)}\.[a-z]+" for topic in topics]
        schedulers, servers = rf"{_SCHEDULER}(\..+)?", rf"({_SCHEDULER}|{_AGENT})(\..+)?"
        return _of_server(
            rf"{_SCHEDULER}(\..+|_fanout.*)?",
            notifications=notifications,
            topic_write=_any(servers, *notifications),
            topic_read=_any(schedulers, *notifications),
        )
    if role is Role.AGENT:
        name = re.escape(host)
        own = rf"{_AGENT}(\.{name}|_fanout.*)?"
        # It calls itself to check that calls reach it.
        called = _any(rf"{_SCHEDULER}(\..+)?", rf"{_AGENT}\.{name}")
        return _of_server(own, topic_write=called, topic_read=_any(rf"{_AGENT}(\.{name})?"))
    return Permissions(
        configure=_any(_EXCHANGE, _ANSWERS),
        write=_any(_EXCHANGE),
        read=_any(_ANSWERS),
        topic_write=_any(rf"{_SCHEDULER}(\..+)?"),
        topic_read=_NOTHING,
    )


def _of_server(own: str, *, topic_write: str, topic_read: str, notifications: Sequence[str] = ()) -> Permissions:
    return Permissions(
        configure=_any(_EXCHANGE, own, *notifications, _ANSWERS),
        write=_any(_EXCHANGE, own, *notifications, _DEFAULT_EXCHANGE),
        read=_any(_EXCHANGE, own, _ANSWERS),
        topic_write=topic_write,
        topic_read=topic_read,
    )


def _any(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$"
