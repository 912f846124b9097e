"""Notifications: Nova's, as far as the pool listens, and its own, sent from a bounded queue in a thread of their own.

What is committed is told once at most: a notification is lost with a process that is killed, and where a broker is away
for so long that the queue is full.  Histories of objects have it all the same.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import opts
from stevedore.named import NamedExtensionManager

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.lifecycle.notifications import Notification
from fpga_pool.rpc.urls import url_named

LOG = logging.getLogger(__name__)

GROUP = "oslo_messaging_notifications"
#: Notifications that may wait, a few kilobytes each.
MOST_WAITING = 10_000
#: How long an end waits for what is not sent yet.
STOP_S = 5.0
#: Outcomes, as they are counted.
SENT, FAILED, DROPPED = "sent", "failed", "dropped"


class _Failures(logging.Handler):
    """Notes what a driver only logs: that it could not send what a thread had it send."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__(logging.ERROR)
        self._thread = thread
        self.seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or record.thread == self._thread.ident


class Publisher:
    """Sends notifications; threads share it, and none waits for a broker.  `start` and `stop` are called once each.

    `count` is told the outcome of each: SENT, FAILED or DROPPED.
    """

    def __init__(self, notifier: messaging.Notifier, count: Callable[[str], object]) -> None:
        self._notifier = notifier
        self._count = count
        self._waiting: deque[Notification] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._shown = Allowance(at_once=1, per_s=0.1)
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._failures = _Failures(self._thread)

    def start(self) -> None:
        """Begin to send."""
        logging.getLogger("oslo_messaging.notify").addHandler(self._failures)
        self._thread.start()

    def publish(self, notifications: Iterable[Notification]) -> None:
        """Have notifications sent in their order; those for which there is no room are dropped."""
        with self._changed:
            for one in notifications:
                if len(self._waiting) >= MOST_WAITING or self._stopping:
                    self._drop(one)
                else:
                    self._waiting.append(one)
            self._changed.notify()

    def stop(self) -> None:
        """End when everything is sent, or after a moment; what is not sent then is dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(STOP_S)
        with self._changed:
            while self._waiting:
                self._drop(self._waiting.popleft())
        if not self._thread.is_alive():
            logging.getLogger("oslo_messaging.notify").removeHandler(self._failures)
            self._notifier.transport.cleanup()

    def _drop(self, one: Notification) -> None:
        self._count(DROPPED)
        if self._shown.take(time.monotonic()):
            LOG.warning("notification %s is dropped, and others may be: the broker does not take them", one.event_type)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                one = self._waiting.popleft()
            self._failures.seen = False
            getattr(self._notifier, one.priority)({}, one.event_type, one.payload)
            self._count(FAILED if self._failures.seen else SENT)


def publisher(conf: cfg.ConfigOpts, name: str, count: Callable[[str], object]) -> Publisher | None:
    """Return what sends the notifications of a scheduler as configured, not yet started; None where they are off.

    InvalidInput names a driver that does not exist: the library would only log it.
    """
    conf.register_opts(dict(opts.list_opts())[GROUP], GROUP)
    drivers = set(conf[GROUP].driver)
    known = set(NamedExtensionManager("oslo.messaging.notify.drivers", ()).entry_points_names())
    if unknown := sorted(drivers - known):
        raise InvalidInput(f"[{GROUP}] driver: expected some of {', '.join(sorted(known))}, found {unknown[0]!r}")
    if drivers <= {"noop"}:
        return None
    with url_named(f"[{GROUP}] transport_url"):
        transport = messaging.get_notification_transport(conf)
    return Publisher(messaging.Notifier(transport, f"fpga-pool-scheduler:{name}"), count)


# ---- Nova's versioned notifications, as far as the pool listens: virtual machines that have left a host

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
    with url_named("[nova_notifications] transport_url"):
        transport = messaging.get_notification_transport(conf, url=options.transport_url)
    target = messaging.Target(exchange=options.exchange, topic=options.topic)
    return messaging.get_notification_listener(transport, [target], [_Departed(heard)], "threading", pool=options.pool)
