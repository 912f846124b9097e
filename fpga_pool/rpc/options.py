"""The options of oslo.messaging, with defaults that fit a pool.

Queues stay classic and are not durable: nothing that must survive is in a message.  What a broker forgets when it is
restarted is repeated from the database or from an agent's journal, and what is late is refused; a quorum queue would
sync every heartbeat to disk to keep it.  In a cluster of brokers, `rabbit_quorum_queue = true` keeps the queues
answering when one of its nodes ends.
"""

import contextlib
from typing import Any

from oslo_config import cfg
from oslo_messaging import opts
from oslo_messaging._drivers import amqpdriver

GROUP = "oslo_messaging_rabbit"

DEFAULTS: dict[str, Any] = {
    # A peer that is cut off without a word is noticed within this time, not within a minute.
    "heartbeat_timeout_threshold": 10,
    # The longest pause between two attempts to reach a broker that is away.
    "rabbit_interval_max": 5,
}

#: A thread that listens wakes this soon after each message, then after twice the time and so on, whether there is
#: something to read or not: for messages that other threads have put back, of which calls have none.  The library's
#: 1 ms are ten wake-ups for a message; there is no option for it.
LOOK_AGAIN_S = 0.25


def set_defaults(conf: cfg.ConfigOpts) -> None:
    """Set the pool's defaults for what the driver of a transport reads, within a process of the pool."""
    amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = LOOK_AGAIN_S
    for name, value in DEFAULTS.items():
        with contextlib.suppress(cfg.NoSuchOptError, cfg.NoSuchGroupError):
            conf.set_default(name, value, GROUP)


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return all of oslo.messaging's options, for the sample configuration."""
    groups: list[tuple[str | None, list[cfg.Opt]]] = opts.list_opts()
    for group, options in groups:
        for option in options:
            if group == GROUP and option.name in DEFAULTS:
                option.default = DEFAULTS[option.name]
    return [(group, list(options)) for group, options in groups]
