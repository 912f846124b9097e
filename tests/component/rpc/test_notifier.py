"""Notifications through oslo.messaging: they arrive, and a silent or absent broker delays nothing."""

import contextlib
import socket
import uuid
from collections import Counter

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.lifecycle.notifications import Notification
from fpga_pool.rpc import notifier
from fpga_pool.rpc.notifier import DROPPED, FAILED, GROUP, SENT, publisher
from support.waiting import wait_until


@pytest.fixture
def counts():
    return Counter()


@pytest.fixture
def configured(counts):
    """Return a function that configures and starts a publisher, which is stopped at the end of the test."""
    names = set()
    with contextlib.ExitStack() as ends:

        def start(**options):
            publisher(cfg.CONF, "s", lambda _: None)  # registers the options
            for name, value in options.items():
                cfg.CONF.set_override(name, value, GROUP)
                names.add(name)
            made = publisher(cfg.CONF, "s", lambda outcome: counts.update([outcome]))
            if made is not None:
                made.start()
                ends.callback(made.stop)
            return made

        yield start
    for name in names:
        cfg.CONF.clear_override(name, GROUP)


def some(number, priority="info"):
    return [
        Notification(event_type=f"slot.{index}", priority=priority, payload={"n": index}) for index in range(number)
    ]


class Endpoint:
    def __init__(self):
        self.heard = []

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.heard.append(("info", publisher_id, event_type, payload))

    def warn(self, context, publisher_id, event_type, payload, metadata):
        self.heard.append(("warn", publisher_id, event_type, payload))


@pytest.mark.parametrize("drivers", [[], ["noop"]])
def test_nothing_is_sent_unless_a_driver_is_configured(configured, drivers):
    assert configured(driver=drivers) is None


def test_a_driver_that_does_not_exist_is_refused(configured):
    with pytest.raises(InvalidInput, match=r"driver: expected some of .*messagingv2.*, found 'mesagingv2'"):
        configured(driver=["mesagingv2"])


def test_they_arrive_in_their_order_with_their_priority(configured, counts):
    topic = uuid.uuid4().hex
    made = configured(driver=["messagingv2"], transport_url="fake://", topics=[topic])
    heard = Endpoint()
    target = messaging.Target(topic=topic)
    transport = messaging.get_notification_transport(cfg.CONF, "fake://")
    listening = messaging.get_notification_listener(transport, [target], [heard], "threading")
    listening.start()
    made.publish([*some(2), *some(1, "warn")])
    wait_until(lambda: len(heard.heard) == 3, "three notifications")
    listening.stop()
    listening.wait()
    name = "fpga-pool-scheduler:s"
    # Each priority has a separate queue.
    assert [one for one in heard.heard if one[0] == "info"] == [
        ("info", name, f"slot.{index}", {"n": index}) for index in range(2)
    ]
    assert ("warn", name, "slot.0", {"n": 0}) in heard.heard
    made.stop()
    assert counts == {SENT: 3}


@pytest.fixture
def silent():
    """Yield the address of a server that accepts connections and stays silent, and a function that closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"rabbit://guest:guest@127.0.0.1:{listening.getsockname()[1]}/", listening.close


def test_a_silent_broker_delays_nobody_and_what_there_is_no_room_for_is_counted(
    configured, counts, silent, monkeypatch, caplog
):
    monkeypatch.setattr(notifier, "STOP_S", 0.2)
    monkeypatch.setattr(notifier, "MOST_WAITING", 5)
    url, end = silent
    made = configured(driver=["messagingv2"], transport_url=url, retry=0)
    made.publish(some(5 + 3))
    assert counts[DROPPED] == 3
    said = "notification slot.5 was dropped because the broker does not accept notifications; more may be dropped"
    assert said in caplog.text
    made.stop()  # does not wait for the broker: waiting notifications are dropped, except for the one being sent
    made.publish(some(1))
    assert counts[DROPPED] >= 3 + 4 + 1
    end()
    wait_until(lambda: counts.total() == 8 + 1, "an outcome of each")
    assert counts.keys() <= {DROPPED, FAILED}


def test_what_cannot_be_sent_is_counted_as_failed(configured, counts):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    made = configured(driver=["messagingv2"], transport_url=f"rabbit://guest:guest@127.0.0.1:{port}/", retry=0)
    made.publish(some(2))
    wait_until(lambda: counts[FAILED] == 2, "two that failed")
    assert counts == {FAILED: 2}
