"""A listener to the pool's versioned notifications."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from fpga_pool.rpc.transport import EXCHANGE


class Told:
    """Records notifications; its topic is not used by any other listener."""

    def __init__(self) -> None:
        self.topic = f"fpga-{uuid.uuid4().hex}"
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, context: Any, publisher_id: str, event_type: str, payload: dict[str, Any], metadata: Any) -> None:
        """Record a notification; called by oslo.messaging."""
        self.seen.append(("info", event_type, payload))

    def warn(self, context: Any, publisher_id: str, event_type: str, payload: dict[str, Any], metadata: Any) -> None:
        """Record a warning; called by oslo.messaging."""
        self.seen.append(("warn", event_type, payload))

    def of(self, event_type: str, priority: str = "info") -> list[dict[str, Any]]:
        """Return the payloads of the notifications of one event type and priority."""
        return [payload for *what, payload in list(self.seen) if what == [priority, event_type]]


@contextmanager
def listening(url: str) -> Iterator[Told]:
    """Listen to notifications on RabbitMQ within the context."""
    told = Told()
    transport = messaging.get_notification_transport(cfg.CONF, url)
    target = messaging.Target(exchange=EXCHANGE, topic=told.topic)
    listener = messaging.get_notification_listener(transport, [target], [told], "threading")
    listener.start()
    try:
        yield told
    finally:
        listener.stop()
        listener.wait()
        transport.cleanup()
