"""A listener to the pool's versioned notifications."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from fpga_pool.rpc.transport import EXCHANGE


class Told:
    """Notes what it is told; nobody else listens on its topic."""

    def __init__(self) -> None:
        self.topic = f"fpga-{uuid.uuid4().hex}"
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, context: Any, publisher_id: str, event_type: str, payload: dict[str, Any], metadata: Any) -> None:
        """Note one that oslo.messaging hands over."""
        self.seen.append(("info", event_type, payload))

    def warn(self, context: Any, publisher_id: str, event_type: str, payload: dict[str, Any], metadata: Any) -> None:
        """Note a warning that oslo.messaging hands over."""
        self.seen.append(("warn", event_type, payload))

    def of(self, event_type: str, priority: str = "info") -> list[dict[str, Any]]:
        """Return the payloads of an event."""
        return [payload for *what, payload in list(self.seen) if what == [priority, event_type]]


@contextmanager
def listening(url: str) -> Iterator[Told]:
    """Listen on RabbitMQ for as long as this lasts."""
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
