"""FpgaPoolLearnedWeigher among Nova's own classes: what it weighs, and that no weights can do harm."""

import gc
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import fixtures
import numpy as np
from cloud import Cloud, extra_specs
from handlers import PluginCase

from fpga_pool.conf.learned import write_network
from fpga_pool.core.cluster.learned import FEATURES, PARAMETERS, Network
from fpga_pool.nova_plugin import learned
from fpga_pool.nova_plugin.pool import Breaker

HELD = ("instance", "", False)
BUSY_SHARE = FEATURES.index("busy share of accelerators")


def network(weights):
    """Return one whose features may be between 0 and 1, and whose corrections between -2 and 2."""
    count = len(FEATURES)
    low, high = np.zeros(count, np.float32), np.ones(count, np.float32)
    return Network(weights=weights.astype(np.float32), low=low, high=high, limit=2.0)


def by_busy_share():
    """Return weights whose correction is the busy share of accelerators: the last ones are of the features."""
    weights = np.zeros(PARAMETERS)
    weights[PARAMETERS - len(FEATURES) + BUSY_SHARE] = 1.0
    return weights


class Learned(PluginCase):
    def setUp(self):
        super().setUp()
        self.flags(benefit_weight_multiplier=0.0, scarcity_weight_multiplier=0.0, group="fpga_pool")
        self.flags(learned_mode="active", learned_time_budget=60.0, group="fpga_pool")
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        learned.network_of.cache_clear()
        self.addCleanup(learned.network_of.cache_clear)
        self.shadow = learned.Shadow(lambda: self.now_s)
        self.now_s = 0.0
        self.useFixture(fixtures.MockPatchObject(learned, "SHADOW", self.shadow))

    def use(self, weights):
        write_network(self.directory / "weights.npz", network(weights))
        learned.network_of.cache_clear()
        self.flags(learned_weights=str(self.directory / "weights.npz"), group="fpga_pool")

    def add(self, host, busy, slots=4, board="kintex7"):
        """Give a host slots with the function, some of them held by instances that compute."""
        for number in range(slots):
            state, lease = ("BUSY", HELD) if number < busy else ("READY", ("", "", False))
            function = "aes" if number < busy else "sha256"
            self.pool.put(host, f"card{number}", "r0", state, function, lease, board=board)

    def three_hosts(self):
        for number, busy in ((1, 2), (2, 0), (3, 1)):
            self.add(f"host{number}", busy)

    def test_hosts_weigh_as_the_network_corrects_the_estimated_completion(self):
        # Estimates are equal: each function has a card of its own and is loaded.  Corrections are 0.5, 0 and 0.25.
        self.three_hosts()
        self.use(by_busy_share())
        assert self.weighed(self.hosts(3), self.spec(extra_specs())) == {"host1": 0.0, "host2": 1.0, "host3": 0.5}
        self.flags(learned_weight_multiplier=4.0, group="fpga_pool")
        assert self.weighed(self.hosts(3), self.spec(extra_specs()))["host3"] == 2.0

    def test_a_change_of_a_host_is_in_the_next_request(self):
        self.three_hosts()
        self.use(by_busy_share())
        self.weighed(self.hosts(3), self.spec(extra_specs()))
        self.add("host2", 2)
        assert self.weighed(self.hosts(3), self.spec(extra_specs())) == {"host1": 0.0, "host2": 0.0, "host3": 1.0}

    def test_with_the_weights_of_the_package_hosts_weigh_by_the_estimated_completion(self):
        # They correct nothing.  The same function takes 60 times as long on the fourth host.
        self.three_hosts()
        self.add("host4", 0, board="demo")
        found = self.weighed(self.hosts(4), self.spec(extra_specs()))
        assert found == {"host1": 1.0, "host2": 1.0, "host3": 1.0, "host4": 0.0}

    def test_whatever_the_weights_a_host_beyond_the_shortlist_weighs_least(self):
        self.three_hosts()
        for number in (4, 5):  # the same function takes 60 times as long there
            self.add(f"host{number}", 0, board="demo")
        rng = np.random.default_rng(0)
        for weights in (*rng.normal(0, 3.0, (20, PARAMETERS)), -by_busy_share(), 1e30 * by_busy_share()):
            self.use(weights)
            found = self.weighed(self.hosts(5), self.spec(extra_specs()))
            assert found["host4"] == found["host5"] == 0.0
            assert min(found[f"host{number}"] for number in (1, 2, 3)) > 0.0

    def test_constant_corrections_leave_the_order_of_the_estimates(self):
        # Instances run so briefly that to load a slot counts, less than the shortlist allows.
        self.pool.put("host1", "card0", "r0", "READY", "sha256", board="kintex7")
        self.pool.put("host2", "card0", "r0", board="kintex7")
        weights = np.zeros(PARAMETERS)
        weights[PARAMETERS - len(FEATURES) - 1] = 1.5
        self.use(weights)
        found = self.weighed(self.hosts(2), self.spec(extra_specs(runtime="1")))
        assert found == {"host1": 1.0, "host2": 0.0}

    def test_it_is_neutral_where_the_network_or_a_feature_is_no_number(self):
        self.three_hosts()
        bad = by_busy_share()
        bad[:100] = np.nan
        self.use(bad)
        assert set(self.weighed(self.hosts(3), self.spec(extra_specs())).values()) == {0.0}
        self.use(by_busy_share())
        self.pool.run_times = []
        with mock.patch.object(learned, "_held_s", return_value=[float("nan")] * 9):
            assert set(self.weighed(self.hosts(3), self.spec(extra_specs())).values()) == {0.0}

    def test_it_is_neutral_without_weights_and_says_so_once(self):
        self.three_hosts()
        (self.directory / "bad.npz").write_bytes(b"no weights")
        for name in ("missing.npz", "bad.npz"):
            self.flags(learned_weights=str(self.directory / name), group="fpga_pool")
            with self.assertLogs(learned.LOG.logger, "WARNING") as logged:
                for _ in range(2):
                    assert set(self.weighed(self.hosts(3), self.spec(extra_specs())).values()) == {0.0}
            assert len(logged.output) == 1
            assert name in logged.output[0]

    def test_it_computes_nothing_while_it_is_off_and_for_other_requests(self):
        self.three_hosts()
        with mock.patch.object(learned, "_scores") as computed:
            self.weighed(self.hosts(3), self.spec({}))
            self.flags(learned_mode="off", group="fpga_pool")
            assert set(self.weighed(self.hosts(3), self.spec(extra_specs())).values()) == {0.0}
        computed.assert_not_called()

    def test_beyond_its_time_it_is_neutral_and_then_left_alone_for_a_while(self):
        self.three_hosts()
        self.use(by_busy_share())
        self.flags(learned_time_budget=0.0, breaker_failures=2, group="fpga_pool")
        (weigher,) = [each for each in self.weighers if isinstance(each, learned.FpgaPoolLearnedWeigher)]
        weigher._breaker = Breaker(2, 30.0, lambda: self.now_s)
        with mock.patch.object(learned, "_scores", wraps=learned._scores) as computed:
            for _ in range(4):
                assert set(self.weighed(self.hosts(3), self.spec(extra_specs())).values()) == {0.0}
            assert computed.call_count == 2
            self.now_s = 31.0
            self.flags(learned_time_budget=60.0, group="fpga_pool")
            for _ in range(2):
                assert self.weighed(self.hosts(3), self.spec(extra_specs()))["host2"] == 1.0

    def test_nothing_is_made_before_the_first_request_and_torch_never(self):
        made = learned.FpgaPoolLearnedWeigher()
        assert not vars(made)
        self.three_hosts()
        self.weighed(self.hosts(3), self.spec(extra_specs()))
        assert "torch" not in sys.modules

    def test_in_shadow_it_is_neutral_and_compares_its_choice_with_the_claim(self):
        self.three_hosts()
        self.use(by_busy_share())
        self.flags(learned_mode="shadow", group="fpga_pool")
        for claimed, agreed in (("host1", 0), ("host2", 1), ("host3", 1)):
            hosts, spec = self.hosts(3), self.spec(extra_specs())
            assert set(self.weighed(hosts, spec).values()) == {0.0}
            next(host for host in hosts if host.host == claimed).num_instances += 1
            if claimed == "host3":
                self.passing(hosts, spec)  # as Nova does for the next instance
            del spec
            gc.collect()
            assert self.shadow.agreed == agreed
        assert self.shadow.claims == 3

    def test_in_shadow_the_log_says_at_most_once_a_minute_how_often_they_agree(self):
        self.three_hosts()
        self.use(by_busy_share())
        self.flags(learned_mode="shadow", group="fpga_pool")
        with self.assertLogs(learned.LOG.logger, "INFO") as logged:
            for at_s in (0.0, 30.0, 59.0, 60.0):
                self.now_s = at_s
                hosts, spec = self.hosts(3), self.spec(extra_specs())
                self.weighed(hosts, spec)
                hosts[2].num_instances += 1
                self.passing(hosts, spec)
        assert len(logged.output) == 2
        assert "best host host2" in logged.output[0]
        assert "claimed on host3" in logged.output[0]
        assert "0 of 4 claims" in logged.output[1]


class Claims(Cloud):
    def test_in_shadow_every_claim_of_nova_is_compared(self):
        for number in (1, 2, 3):
            self.add_record(f"host{number}", 2, 2)
        self.flags(learned_mode="shadow", learned_time_budget=60.0, group="fpga_pool")
        with mock.patch.object(learned, "SHADOW", learned.Shadow()) as shadow:
            self.choose(1, extra_specs())
            self.choose(3, extra_specs())
            gc.collect()
        assert shadow.claims == 4
