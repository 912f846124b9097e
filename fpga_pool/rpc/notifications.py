"""Nova's versioned notifications, as far as the pool listens: virtual machines that have left a host."""

import logging
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

LOG = logging.getLogger(__name__)

#: After these a machine does not run any more where it ran, and Nova has given up what it was allocated there.
DEPARTURES = (
    "delete",
    "live_migration_post",
    "live_migration_rollback",
    "resize_confirm",
    "resize_revert",
    "shelve_offload",
)


class _Departed:
    """The endpoint; its methods are named after the priorities of notifications."""

    filter_rule = messaging.NotificationFilter(event_type=rf"^instance\.({'|'.join(DEPARTURES)})\.end$")

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard

    def info(self, context: object, publisher_id: str, event_type: str, payload: Any, metadata: object) -> None:
        try:
            instance = payload["nova_object.data"]["uuid"]
        except (KeyError, TypeError):
            LOG.warning("%s of %s has no instance: is it a versioned notification?", event_type, publisher_id)
            return
        LOG.debug("%s: instance %s", event_type, instance)
        self._heard(str(instance))


def departures(conf: cfg.ConfigOpts, heard: Callable[[str], None]) -> Any:
    """Return a listener, not yet started, that reports each instance that has left a host.

    `heard` gets the instance's uuid, in a thread of the listener; a notification may come twice, or not at all.
    """
    options = conf.nova_notifications
    transport = messaging.get_notification_transport(conf, url=options.transport_url)
    target = messaging.Target(exchange=options.exchange, topic=options.topic)
    return messaging.get_notification_listener(transport, [target], [_Departed(heard)], "threading", pool=options.pool)
