"""Which servers in the background are worth a migration, and their destinations."""

import numpy as np
import pytest

from fpga_pool.core.gangs.paper import Easy, Keasy, Measy
from fpga_pool.core.gangs.plus import MeasyPlus
from fpga_pool.core.gangs.servers import WaitingServer, migrations, remaining_s, share_lost

HOUR_S = 3600.0


def server(name, vcpus=1, since_s=0.0, lost=1.0, left_s=HOUR_S, cost_s=20.0):
    return WaitingServer(name=name, vcpus=vcpus, since_s=since_s, lost=lost, remaining_s=left_s, migration_s=cost_s)


def moved(servers, free, policy=None):
    found = migrations(servers, free, policy or MeasyPlus(), HOUR_S, np.random.default_rng(0))
    return [(one.name, host) for one, host in found]


@pytest.mark.parametrize(
    ("in_use", "in_front", "lost"),
    [
        ([0.96], [0.60], 0.60),  # the background would use more
        ([0.95], [0.60], 0.0),  # it gets all that it needs
        ([1.0], [0.14], 0.14),  # processes of the host use much as well
        ([1.0], [0.0], 0.0),
        ([1.0, 0.97], [0.5, 0.8], 0.8),  # the slowest vCPU counts
    ],
)
def test_from_96_percent_on_a_foreground_holds_its_background_back(in_use, in_front, lost):
    assert share_lost(in_use, in_front) == lost


def test_what_remains_is_declared_or_as_much_as_has_passed():
    assert remaining_s(1000.0, 400.0, None) == 600.0
    assert remaining_s(1000.0, 400.0, 700.0) == 100.0
    assert remaining_s(1000.0, 400.0, 500.0) == 0.0  # late: it may end at any moment


def test_a_server_moves_only_where_it_gains_more_than_the_migration_takes():
    # 10 % of an hour are 360 s.
    assert moved([server("a", lost=0.1, cost_s=359.0)], {"h": 1}) == [("a", "h")]
    assert moved([server("a", lost=0.1, cost_s=360.0)], {"h": 1}) == []


def test_servers_get_the_free_places_in_order_of_arrival_and_a_wide_one_needs_a_host_with_all_its_room():
    servers = [server("late", since_s=2.0), server("early", since_s=1.0), server("wide", vcpus=2)]
    # The emptiest host is first.  Then one pCPU is left on each host, too few for two vCPUs.
    assert moved(servers, {"g": 1, "h": 2}, Measy()) == [("early", "h"), ("late", "h")]
    assert moved(servers, {"g": 1, "h": 4}, Measy()) == [("early", "h"), ("late", "h"), ("wide", "h")]


def test_the_policy_of_gangs_decides_and_one_that_does_not_migrate_moves_nobody():
    for policy in (Easy(), Keasy()):
        assert moved([server("a")], {"h": 1}, policy) == []
    # measy_plus: the short one has its turn sooner, the long one only after four times its 100 h.
    servers = [server("long", left_s=100 * HOUR_S), server("short", since_s=1.0)]
    assert moved(servers, {"h": 1}) == [("short", "h")]
    assert moved(servers, {"h": 1}, Measy()) == [("long", "h")]
