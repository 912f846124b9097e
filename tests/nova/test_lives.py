"""What becomes of an instance with accelerators: every move leaves it with slots on one host, and none behind."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cloud import Cloud


class Lives(Cloud):
    def setUp(self):
        super().setUp()
        self.computes = {host: self.add_host(host, 1, 1) for host in ("host1", "host2")}
        (self.instance,) = self.boot(self.flavor())
        self.assertIsOn(self._show_server(self.instance)["OS-EXT-SRV-ATTR:host"])

    def assertIsOn(self, host):  # noqa: N802
        assert self._show_server(self.instance)["OS-EXT-SRV-ATTR:host"] == host
        assert self.cards_of(self.instance) == {(host, "card0"): 1}

    def other(self):
        return self.other_than(self._show_server(self.instance)["OS-EXT-SRV-ATTR:host"])

    def other_than(self, here):
        return next(host for host in self.computes if host != here)

    def test_rebuild_keeps_its_slot_and_asks_nothing(self):
        here, asked = self.instance["OS-EXT-SRV-ATTR:host"], self.pool.asked
        self._rebuild_server(self.instance, "155d900f-4e14-4e4c-a73d-069cbf4541e6")
        self.assertIsOn(here)
        assert self.pool.asked == asked

    def test_what_does_not_move_it_keeps_its_slot_and_asks_nothing(self):
        here, asked = self.instance["OS-EXT-SRV-ATTR:host"], self.pool.asked
        for hard in (False, True):
            self._reboot_server(self.instance, hard=hard)
            self.assertIsOn(here)
        for begin, end in (
            (self._suspend_server, self._resume_server),
            (self._stop_server, self._start_server),
            (self._rescue_server, self._unrescue_server),
        ):
            begin(self.instance)
            self.assertIsOn(here)  # for Nova; the pool may use the slot while the machine does not run
            end(self.instance)
            self.assertIsOn(here)
        assert self.pool.asked == asked

    def test_a_reverted_resize_is_back_where_it_was(self):
        here = self.instance["OS-EXT-SRV-ATTR:host"]
        self._resize_server(self.instance, self.flavor("aes"))
        assert self._show_server(self.instance)["OS-EXT-SRV-ATTR:host"] == self.other_than(here)
        self._revert_resize(self.instance)
        self.assertIsOn(here)

    def test_cold_migration_and_resize_choose_a_slot_elsewhere(self):
        there = self.other()
        self._migrate_server(self.instance)
        self._wait_for_state_change(self.instance, "VERIFY_RESIZE")
        self._confirm_resize(self.instance)
        self.assertIsOn(there)
        there = self.other()
        self._resize_server(self.instance, self.flavor("aes"))
        self._confirm_resize(self.instance)
        self.assertIsOn(there)

    def test_live_migration_chooses_a_slot_elsewhere(self):
        there = self.other()
        self._live_migrate(self.instance, "completed")
        self.assertIsOn(there)

    def test_shelved_it_gives_its_slot_back_and_gets_one_again(self):
        self._shelve_server(self.instance)
        assert self.cards_of(self.instance) == {}
        self._unshelve_server(self._show_server(self.instance))
        self.assertIsOn(self._show_server(self.instance)["OS-EXT-SRV-ATTR:host"])

    def test_evacuation_chooses_a_slot_elsewhere(self):
        here, there = self.instance["OS-EXT-SRV-ATTR:host"], self.other()
        self.computes[here].stop()
        services = self.admin_api.get_services(binary="nova-compute", host=here)
        self.admin_api.put_service_force_down(services[0]["id"], True)
        self._evacuate_server(self.instance, expected_host=there)
        assert self.cards_of(self.instance)[there, "card0"] == 1
