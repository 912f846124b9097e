"""Nova's notifications over a real transport, and leases in a real database. Tests set the allocations of Placement."""

from functools import partial
from uuid import uuid4

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from fpga_pool.conf.services import NOTIFICATIONS_GROUP, NOTIFICATIONS_OPTS
from fpga_pool.model.flavor import AcceleratorRequest, provider_uuid
from fpga_pool.rpc.notifier import departures


@pytest.fixture
def pool(with_placement):
    return with_placement


@pytest.fixture
def nova(pool, servers):
    """Yield Nova's notifier, to which the scheduler of the pool listens, on a separate exchange for the test."""
    exchange = uuid4().hex
    cfg.CONF.set_override("control_exchange", exchange)
    cfg.CONF.register_group(NOTIFICATIONS_GROUP)
    cfg.CONF.register_opts(NOTIFICATIONS_OPTS, NOTIFICATIONS_GROUP)
    cfg.CONF.set_override("transport_url", "fake://", "nova_notifications")
    cfg.CONF.set_override("exchange", exchange, "nova_notifications")
    listening = departures(cfg.CONF, pool.service.departures.note)
    listening.start()
    topics = [cfg.CONF.nova_notifications.topic]
    notifier = messaging.Notifier(listening.transport, "nova-compute:c1", driver="messagingv2", topics=topics)
    yield partial(notifier.info, {})
    servers.submit(lambda: (listening.stop(), listening.wait()))
    cfg.CONF.clear_override("control_exchange")
    cfg.CONF.clear_override("transport_url", "nova_notifications")
    cfg.CONF.clear_override("exchange", "nova_notifications")


@pytest.fixture
def claimed(pool, placement, until):
    """Return a function that lets an instance hold slots that Placement has allocated. The agent knows no guests."""
    agent = pool.host()

    def claim(instance, count):
        placement.known[instance] = {provider_uuid(agent.name, "c", "small"): count}
        wanted = AcceleratorRequest(function="sha256", count=count)
        pool.api.claim_slots(agent.name, agent.name, instance, "p", wanted)
        return lambda: len(pool.api.instance_leases(agent.name).get(instance, []))

    return claim


def about(instance):
    return {"nova_object.name": "InstanceActionPayload", "nova_object.data": {"uuid": instance}}


def test_a_deleted_instance_gives_its_slots_back_although_its_agent_says_nothing(nova, claimed, placement, until):
    gone, stays = claimed("gone", 1), claimed("stays", 1)
    del placement.known["gone"], placement.known["stays"]
    nova("instance.delete.end", about("gone"))
    until(lambda: gone() == 0)
    assert stays() == 1  # no notification has said that it left


def test_what_placement_still_gives_is_kept(nova, claimed, placement, until):
    keeps, gone = claimed("keeps", 1), claimed("gone", 1)
    del placement.known["gone"]
    nova("instance.resize_confirm.end", about("keeps"))
    nova("instance.delete.end", about("gone"))
    until(lambda: gone() == 0)
    assert keeps() == 1


def test_of_two_slots_the_one_that_is_not_allocated_any_more_goes(nova, claimed, placement, until):
    held = claimed("vm", 2)
    placement.known["vm"] = dict.fromkeys(placement.known["vm"], 1)
    nova("instance.resize_confirm.end", about("vm"))
    until(lambda: held() == 1)


def test_while_placement_is_away_nothing_is_given_back_and_then_it_is(nova, pool, claimed, placement, until):
    held = claimed("vm", 1)
    del placement.known["vm"]
    placement.away = True
    nova("instance.delete.end", about("vm"))
    until(lambda: pool.service.departures._noted == {"vm"})
    assert held() == 1
    placement.away = False
    pool.service.departures.loop.wake()
    until(lambda: held() == 0)


@pytest.mark.parametrize("event", ["instance.power_off.end", "instance.delete.start", "compute.delete.end"])
def test_other_events_change_nothing(nova, claimed, placement, until, event):
    stays, gone = claimed("stays", 1), claimed("gone", 1)
    placement.known.clear()
    nova(event, about("stays"))
    nova("instance.delete.end", about("gone"))
    until(lambda: gone() == 0)
    assert stays() == 1


@pytest.mark.parametrize("payload", [{"instance_id": "gone"}, {"nova_object.data": {}}, None, "gone"])
def test_a_notification_of_another_format_is_passed_over(nova, claimed, placement, until, payload):
    gone = claimed("gone", 1)
    placement.known.clear()
    nova("instance.delete.end", payload)
    nova("instance.delete.end", about("gone"))
    until(lambda: gone() == 0)
