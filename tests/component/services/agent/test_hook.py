"""The hook as called by libvirt, with an agent behind its socket."""

import subprocess
import sys

import pytest

from fpga_pool.model.extra_specs import tier_extra_specs
from fpga_pool.model.flavor import TIER_SPECS, Tier

from .node import HOOK, SLOTS, xml


class TestHook:
    """The hook as called by libvirt, with an agent behind its socket."""

    @pytest.fixture
    def ask(self, host, tmp_path):
        def run(text, operation="prepare", suboperation="begin", config=""):
            (tmp_path / "hook.conf").write_text(f"[hook]\nsocket = {host.socket}\ntimeout_s = 100\n{config}")
            program = HOOK.read_text().replace("/etc/libvirt/hooks/fpga_pool.conf", str(tmp_path / "hook.conf"))
            (tmp_path / "hook").write_text(program)
            done = subprocess.run(
                [sys.executable, tmp_path / "hook", "name", operation, suboperation, "-"],
                input=text, capture_output=True, text=True, timeout=200, check=False,
            )  # fmt: skip
            return done.returncode, done.stderr

        return run

    def test_it_lets_a_machine_start_whose_slots_are_ready(self, host, ask):
        assert ask(xml()) == (0, "")
        assert host.held() == [SLOTS[0]]

    def test_it_refuses_with_the_agents_reason(self, ask):
        assert ask(xml(count=3)) == (1, "fpga_pool: host h0 cannot give 3 slots to instance vm\n")

    def test_it_refuses_a_wrong_flavor(self, ask):
        code, said = ask(xml(count=1, specs='<n:extraSpec name="fpga_pool:tier">third</n:extraSpec>'))
        assert code == 1
        assert "fpga_pool:tier: 'third' is invalid" in said

    def test_it_tells_the_end(self, host, ask, until):
        ask(xml())
        assert ask(xml(), "release", "end") == (0, "")
        until(lambda: host.held() == [])

    def test_without_an_agent_it_refuses_unless_it_is_told_otherwise(self, host, ask):
        host.instances.stop()
        code, said = ask(xml())
        assert code == 1
        assert "the agent does not answer on" in said
        assert ask(xml(), config="without_agent = start\n") == (0, "")
        assert ask(xml(count=0)) == (0, "")
        assert ask(xml(), "release", "end")[0] == 0
        host.start()

    def test_it_refuses_live_migration_of_accelerated_machines_only(self, ask):
        assert ask(xml(), "migrate", "begin") == (
            1, "fpga_pool: machines with accelerators are not migrated live; migrate this one cold\n"
        )  # fmt: skip
        assert ask(xml(), "migrate", "begin", config="live_migration = allow\n") == (0, "")
        assert ask(xml(count=0), "migrate", "begin") == (0, "")

    def test_it_does_not_ask_about_a_machine_that_wants_a_tier_only(self, host, ask):
        flavor = tier_extra_specs(Tier.AUTO, 1, runtime_s=60.0, cpu_usage_percent=50.0, migrate=True)
        assert flavor.keys() >= set(TIER_SPECS)
        specs = "".join(f'<n:extraSpec name="{name}">{value}</n:extraSpec>' for name, value in flavor.items())
        host.instances.stop()
        for operation in ("prepare", "migrate"):
            assert ask(xml(count=0, specs=specs), operation) == (0, "")
        host.start()

    def test_it_does_not_read_what_it_need_not(self, ask):
        assert ask("no XML at all", "started", "begin") == (0, "")
