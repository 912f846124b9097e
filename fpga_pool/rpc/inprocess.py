"""oslo.messaging within one process, for the embedded pool: ``inprocess://``.

oslo.messaging's own ``fake://`` polls for messages every 50 ms, which delays each call by as much and keeps an idle
pool busy.  This driver differs only in its listeners, which wait until a message arrives.
"""

import threading
import time
from typing import Any

import oslo_messaging as messaging
from oslo_messaging._drivers import base, impl_fake


class _Exchange(impl_fake.FakeExchange):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._arrivals: dict[str, threading.Condition] = {}

    def arrival(self, topic: str) -> threading.Condition:
        """Return the condition that is notified of messages of a topic; its lock guards all queues."""
        with self._queues_lock:
            return self._arrivals.setdefault(topic, threading.Condition(self._queues_lock))

    def deliver_message(self, topic: str, *args: Any, **kwargs: Any) -> None:
        arrival = self.arrival(topic)
        with arrival:
            super().deliver_message(topic, *args, **kwargs)
            arrival.notify_all()


class _Exchanges(impl_fake.FakeExchangeManager):
    _exchanges: dict[str, _Exchange] = {}  # noqa: RUF012 - shared by all transports of the process, as in the base
    _listeners = 0

    @classmethod
    def count_listeners(cls, change: int) -> None:
        """Change the number of listeners, after one has started (1) or stopped (-1)."""
        with cls._exchanges_lock:
            _Exchanges._listeners += change

    @classmethod
    def cleanup(cls) -> None:
        """Drop unread messages, unless listeners of other transports still use the exchanges."""
        with cls._exchanges_lock:
            if not cls._listeners:
                cls._exchanges.clear()

    def get_exchange(self, name: str | None) -> _Exchange:
        with self._exchanges_lock:
            name = name or self._default_exchange
            return self._exchanges.setdefault(name, _Exchange(name))


class _Listener(impl_fake.FakeListener):
    """Reads the queues of one topic: that of its server and the shared one."""

    def __init__(self, exchanges: _Exchanges, targets: list[messaging.Target]) -> None:
        exchanges.count_listeners(1)  # from here on its exchange is kept
        super().__init__(exchanges, targets)
        self._exchange = exchanges.get_exchange(targets[0].exchange)
        self._arrival = self._exchange.arrival(targets[0].topic)

    @base.batch_poll_helper
    def poll(self, timeout: float | None = None) -> impl_fake.FakeIncomingMessage | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._arrival:
            while not self._stopped.is_set():
                for target in self._targets:
                    context, message, replies, requeue = self._exchange.poll(target, None)
                    if message is not None:
                        return impl_fake.FakeIncomingMessage(context, message, replies, requeue)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._arrival.wait(left)
        return None

    def stop(self) -> None:
        with self._arrival:
            if not self._stopped.is_set():
                self._exchange_manager.count_listeners(-1)
            super().stop()
            self._arrival.notify_all()


class InProcessDriver(impl_fake.FakeDriver):
    """Calls between the threads of one process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exchange_manager: _Exchanges = _Exchanges(self._default_exchange)

    def listen(self, target: messaging.Target, batch_size: int, batch_timeout: float | None) -> base.Listener:
        exchange = target.exchange or self._default_exchange
        queues = [
            messaging.Target(topic=target.topic, server=target.server, exchange=exchange),
            messaging.Target(topic=target.topic, exchange=exchange),
        ]
        return base.PollStyleListenerAdapter(_Listener(self._exchange_manager, queues), batch_size, batch_timeout)
