"""Notifications: those of Nova that the pool receives, and its own, which a thread sends from a bounded queue.

Each committed change is notified at most once: notifications are lost if the process is killed, or if a broker is
unavailable for so long that the queue is full.  The histories of objects contain the changes in any case.
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
#: Maximum number of notifications that may wait, a few kilobytes each.
MOST_WAITING = 10_000
#: How long `stop` waits for notifications that are not sent yet.
STOP_S = 5.0
#: Outcomes that are counted.
SENT, FAILED, DROPPED = "sent", "failed", "dropped"


class _Failures(logging.Handler):
    """Detects that a driver could not send a notification for a thread, which the driver only logs."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__(logging.ERROR)
        self._thread = thread
        self.seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or record.thread == self._thread.ident


class Publisher:
    """Sends notifications; thread-safe, and callers never wait for a broker.  `start` and `stop` are called once each.

    `count` is called with the outcome of each: SENT, FAILED or DROPPED.
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
        """Start to send notifications."""
        logging.getLogger("oslo_messaging.notify").addHandler(self._failures)
        self._thread.start()

    def publish(self, notifications: Iterable[Notification]) -> None:
        """Queue notifications, which are sent in order; those for which there is no room are dropped."""
        with self._changed:
            for one in notifications:
                if len(self._waiting) >= MOST_WAITING or self._stopping:
                    self._drop(one)
                else:
                    self._waiting.append(one)
            self._changed.notify()

    def stop(self) -> None:
        """Stop when everything is sent, or after STOP_S; the remaining notifications are dropped."""
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
            LOG.warning(
                "notification %s was dropped because the broker does not accept notifications; more may be dropped",
                one.event_type,
            )

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
    """Return the configured publisher of a scheduler, not yet started; None if notifications are disabled.

    Raises InvalidInput for a driver that does not exist, because the library would only log it.
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


# ---- Nova's versioned notifications that the pool receives: virtual machines that have left a host

#: After these events a machine no longer runs on its former host, and Nova has released its allocations there.
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

    `heard` is called with its uuid, in a thread of the listener; a notification may arrive twice, or not at all.
    """
    options = conf.nova_notifications
    with url_named("[nova_notifications] transport_url"):
        transport = messaging.get_notification_transport(conf, url=options.transport_url)
    target = messaging.Target(exchange=options.exchange, topic=options.topic)
    return messaging.get_notification_listener(transport, [target], [_Departed(heard)], "threading", pool=options.pool)
