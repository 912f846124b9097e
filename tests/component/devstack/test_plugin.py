"""The phases of the DevStack plug-in, run in the order of stack.sh."""

import getpass
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from oslo_config import cfg

ROOT = Path(__file__).parents[3]
FUNCTIONS = Path(__file__).parent / "functions.bash"
STACK = ("stack pre-install", "stack install", "stack post-config", "stack extra", "stack test-config")
CONTROLLER = "rabbit,key,g-api,n-api,n-sch,n-cpu"
#: The directory of fpga-pool-manage and of the services.
REAL = Path(sys.prefix) / "bin"


@dataclass
class DevStack:
    """A host on which DevStack runs: its files, and a log of the calls."""

    directory: Path

    def run(self, *phases, services=CONTROLLER, disabled="", driver="libvirt", programs=None, **settings):
        """Run phases of the plug-in, each in a separate shell; return the calls of DevStack's functions.

        Without `programs`, calls of fpga-pool-manage are only recorded and returned. Settings are those of local.conf.
        """
        log = self.directory / "calls"
        log.write_text("")
        variables = {
            "ENABLED_SERVICES": services,
            "DISABLED_SERVICES": disabled,
            "VIRT_DRIVER": driver,
            "NUMBER_FAKE_NOVA_COMPUTE": "2",
            "DEFAULT_IMAGE_NAME": "cirros",
            "HOSTNAME": "stack",
            "HOST_IP": "127.0.0.1",
            "SERVICE_HOST": "192.0.2.7",
            "SERVICE_LISTEN_ADDRESS": "[::]",
            "STACK_USER": getpass.getuser(),
            "ENABLE_DEBUG_LOG_LEVEL": "True",
            "NOVA_FILTERS": "ComputeFilter,SameHostFilter",
            "NOVA_CONF": str(self.nova_conf),
            "NOVA_CPU_CONF": f"{self.directory}/nova-cpu.conf",
            "NOVA_FAKE_CONF": f"{self.directory}/nova-fake.conf",
            "REGION_NAME": "RegionOne",
            "DATA_DIR": str(self.directory / "data"),
            "FPGA_POOL_DIR": str(ROOT),
            "FPGA_POOL_CONF_DIR": str(self.conf_dir),
            "FPGA_POOL_HOOK": str(self.hook),
            "FPGA_POOL_HOOK_CONF": str(self.directory / "hooks" / "fpga_pool.conf"),
            "FPGA_POOL_COMMANDS_DIR": str(self.commands),
            "FPGA_POOL_SYSTEMD_DIR": f"{self.directory}/units",
            **settings,
            "PREFIX": str(programs or self._recorder(log)),
            "LOG": str(log),
        }
        for path in (self.directory / "data", self.commands):
            path.mkdir(exist_ok=True)
        lines = ["set -o errexit", f". {FUNCTIONS}"]
        lines += [f"{name}='{value}'" for name, value in variables.items()]
        lines += [f". {ROOT}/devstack/settings"]
        for phase in phases:
            script = "\n".join([*lines, f". {ROOT}/devstack/plugin.sh {phase}"])
            subprocess.run(["bash", "-c", script], check=True, timeout=120, cwd=self.directory)
        return log.read_text().splitlines()

    def _recorder(self, log):
        program = self.directory / "bin" / "fpga-pool-manage"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "manage $*" >>{log}\n')
        program.chmod(0o755)
        return program.parent

    @property
    def nova_conf(self):
        return self.directory / "nova.conf"

    @property
    def commands(self):
        """Return the directory for commands that is in every user's PATH."""
        return self.directory / "commands"

    @property
    def conf_dir(self):
        return self.directory / "fpga_pool"

    @property
    def hook(self):
        return self.directory / "hooks" / "qemu.d" / "fpga_pool"


def new_host(directory):
    host = DevStack(directory)
    host.nova_conf.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter,SameHostFilter\n")
    return host


@pytest.fixture
def devstack(tmp_path):
    return new_host(tmp_path)


def options(path, section):
    """Return the options of a section, each with the list of its values."""
    namespace = cfg.ConfigParser(str(path), sections := {})
    namespace.parse()
    return sections.get(section, {})


def processes(calls):
    return {words[0]: words for call in calls if call.startswith("run_process") for words in [call[12:].split("|")]}


def known_options():
    """Return the options of all processes of the pool, by group."""
    known = {"DEFAULT": {"debug", "transport_url"}, "database": {"connection"}}
    for entry_point in entry_points(group="oslo.config.opts"):
        if entry_point.name.partition(".")[0] == "fpga_pool":
            for group, opts in entry_point.load()():
                known.setdefault(str(group), set()).update(opt.dest for opt in opts)
    return known


def test_a_controller_is_set_up_by_the_phases_of_stack(devstack):
    calls = devstack.run(*STACK, programs=REAL, FPGA_POOL_FLAVORS="")
    assert calls[0] == f"setup_develop -bindep {ROOT} agent,controller"
    assert "create_service_user fpga_pool admin" in calls
    assert "recreate_database fpga_pool" in calls
    assert (devstack.directory / "data" / "fpga_pool" / "bitstreams" / "demo" / "small" / "sha256.bit").exists()
    assert (devstack.conf_dir / "keys" / "tokens.pem").exists()
    (code,) = options(devstack.conf_dir / "agent-stack.conf", "agent")["enrolment_code"]
    assert len(code) == 24  # 18 random bytes
    config = devstack.conf_dir / "fpga_pool.conf"
    assert config.stat().st_mode & 0o777 == 0o600
    started = processes(calls)
    assert list(started) == ["fpga-pool-scheduler", "fpga-pool-api", "fpga-pool-agent-stack"]
    assert "get_or_create_endpoint fpga RegionOne http://192.0.2.7:9511" in calls
    assert options(config, "api")["host"] == ["::"]
    assert options(config, "placement")["region_name"] == ["RegionOne"]
    assert (devstack.commands / "fpga-pool").resolve() == (REAL / "fpga-pool").resolve()
    assert started["fpga-pool-agent-stack"][1] == (
        f"{REAL}/fpga-pool-agent --config-file {config} --config-file {devstack.conf_dir}/agent-stack.conf"
    )


def test_libvirt_asks_an_agent_that_may_use_what_belongs_to_root(devstack):
    calls = devstack.run(*STACK)
    assert devstack.hook.read_bytes() == (ROOT / "etc" / "fpga_pool" / "libvirt-qemu-hook").read_bytes()
    assert devstack.hook.stat().st_mode & 0o777 == 0o755
    agent = options(devstack.conf_dir / "fpga_pool.conf", "agent")
    assert options(devstack.directory / "hooks" / "fpga_pool.conf", "hook")["socket"] == agent["hook_socket"]
    assert (agent["guest_driver"], agent["node"]) == (["libvirt"], ["stack.example.org"])
    assert calls.index("restart_service libvirtd") < calls.index("manage " + flavor_command(devstack, "sha256"))
    assert processes(calls)["fpga-pool-agent-stack"][2] == "root"
    assert "openstack --os-cloud devstack-admin image set --property hw_qemu_guest_agent=yes cirros" in calls


def test_nova_keeps_its_own_filters_and_weighers_and_ours_comes_first(devstack):
    calls = devstack.run(*STACK)
    scheduler = options(devstack.nova_conf, "filter_scheduler")
    assert scheduler["available_filters"] == [
        "nova.scheduler.filters.all_filters",
        "fpga_pool.nova_plugin.all_filters",
    ]
    assert scheduler["weight_classes"] == ["nova.scheduler.weights.all_weighers,fpga_pool.nova_plugin.all_weighers"]
    assert scheduler["enabled_filters"][-1] == "FpgaPoolSlotFilter,ComputeFilter,SameHostFilter"
    edits = [position for position, call in enumerate(calls) if call.startswith(f"iniset {devstack.nova_conf} ")]
    assert calls.index("async_wait configure_neutron_nova") < edits[0]


def test_stacking_again_names_our_filter_once_and_keeps_the_keys(devstack):
    calls = devstack.run(*STACK)
    assert sum("keys create" in call for call in calls) == 1
    (devstack.conf_dir / "keys").mkdir()
    (devstack.conf_dir / "keys" / "tokens.pem").touch()
    calls = devstack.run(*STACK)
    assert sum("keys create" in call for call in calls) == 0
    enabled = options(devstack.nova_conf, "filter_scheduler")["enabled_filters"][-1]
    assert enabled == "FpgaPoolSlotFilter,ComputeFilter,SameHostFilter"


def test_each_fake_compute_node_has_an_agent_and_a_nova_compute_that_asks_it(devstack):
    calls = devstack.run(*STACK, driver="fake")
    agents = [name for name in processes(calls) if name.startswith("fpga-pool-agent")]
    assert agents == ["fpga-pool-agent-stack1", "fpga-pool-agent-stack2"]
    state = f"{devstack.directory}/data/fpga_pool"
    for number, port in (("1", "9512"), ("2", "9513")):
        host = f"stack{number}"
        assert options(devstack.conf_dir / f"agent-{host}.conf", "agent") == {
            "host": [host],
            "state_dir": [f"{state}/agent-{host}"],
            "data_port": [port],
            "enrolment_code": [""],  # the recorder that replaces fpga-pool-manage prints no code
            "guest_driver": ["simulated"],
            "hook_socket": [f"{state}/agent-{host}.sock"],
            "simulated_guests_dir": [f"{state}/guests-{host}"],
        }
        unit = devstack.directory / "units" / f"devstack@n-cpu-{number}.service.d" / "fpga_pool.conf"
        driver = f"{state}/agent-{host}.sock {state}/guests-{host}"
        conf = f"{devstack.directory}/nova-fake.conf-{number}"
        command = " ".join(unit.read_text().splitlines()[-1].split())
        assert f" support.cloud.fake_compute {driver} " in command
        assert command.endswith(f" --config-file {conf}")
        assert options(conf, "DEFAULT")["compute_driver"] == ["fake.AcceleratedFakeDriver"]
    assert not devstack.hook.exists()


def test_settings_switch_on_links_tiers_gangs_and_egress(devstack):
    calls = devstack.run(
        *STACK,
        FPGA_POOL_CARDS="3",
        FPGA_POOL_LINKS="ring",
        FPGA_POOL_TIER_PCPUS="2-3",
        FPGA_POOL_GANG_PCPUS="0,1",
        FPGA_POOL_GANG_RUNNER="nova",
        FPGA_POOL_EGRESS="tc",
        FPGA_POOL_EGRESS_DEVICES="eth0=192.0.2.0/24",
        FPGA_POOL_FLAVORS="sha256=60 aes",
    )
    config = devstack.conf_dir / "fpga_pool.conf"
    agent = options(config, "agent")
    assert agent["enclosure"] == ["box0 ring sim0,sim1,sim2"]
    assert (agent["gang_processors"], agent["gang_runner"]) == (["0,1"], ["nova"])
    assert agent["egress_driver"] == ["tc"]
    assert options(config, "driver_tc") == {"devices": ["eth0=192.0.2.0/24"]}
    assert options(config, "tiers") == {
        "driver": ["libvirt"],
        "pcpus": ["2-3"],
        "nova_conf": [f"{devstack.directory}/nova-cpu.conf"],
    }
    assert options(config, "nova")["region_name"] == ["RegionOne"]
    assert options(devstack.nova_conf, "compute") == {"cpu_shared_set": ["2-3"]}
    for ratio in ("cpu_allocation_ratio", "initial_cpu_allocation_ratio"):
        assert options(devstack.nova_conf, "DEFAULT")[ratio] == ["2.0"]
    enabled = options(devstack.nova_conf, "filter_scheduler")["enabled_filters"][-1]
    assert enabled == "FpgaPoolSlotFilter,FpgaPoolTierFilter,ComputeFilter,SameHostFilter"
    assert any("flavor create fpga-pool-gang" in call for call in calls)
    assert f"manage {flavor_command(devstack, 'sha256')} --runtime 60" in calls
    assert f"manage {flavor_command(devstack, 'aes')}" in calls


def test_nova_notifies_the_pool_unless_told_not_to(devstack):
    devstack.run(*STACK)
    assert options(devstack.nova_conf, "notifications") == {"notification_format": ["versioned"]}
    config = devstack.conf_dir / "fpga_pool.conf"
    queue = options(devstack.nova_conf, "oslo_messaging_notifications")["transport_url"]
    assert options(config, "nova_notifications")["transport_url"] == queue
    devstack.run(*STACK, FPGA_POOL_NOTIFICATIONS="False")
    assert options(config, "nova_notifications") == {}


@pytest.mark.parametrize(("virt_driver", "egress"), [("libvirt", "tc"), ("fake", "none")])
def test_guests_of_libvirt_are_held_at_their_taps_unless_told_otherwise(devstack, virt_driver, egress):
    devstack.run(*STACK, VIRT_DRIVER=virt_driver)
    config = devstack.conf_dir / "fpga_pool.conf"
    assert options(config, "agent")["egress_driver"] == [egress]
    assert options(config, "driver_tc") == {}
    devstack.run(*STACK, VIRT_DRIVER=virt_driver, FPGA_POOL_EGRESS="none")
    assert options(config, "agent")["egress_driver"] == ["none"]


def test_traffic_control_without_a_device_or_guests_stops_the_installation(devstack):
    with pytest.raises(subprocess.CalledProcessError):
        devstack.run("stack install", FPGA_POOL_EGRESS="tc", VIRT_DRIVER="fake")
    assert "FPGA_POOL_EGRESS_DEVICES" in (devstack.directory / "calls").read_text()


@pytest.mark.parametrize("driver", ["fake", "libvirt"])
def test_all_options_it_sets_exist(devstack, driver):
    devstack.run(*STACK, driver=driver)
    known = known_options()
    for path in devstack.conf_dir.glob("*.conf"):
        cfg.ConfigParser(str(path), sections := {}).parse()
        # Options of service accounts are defined by keystoneauth.
        wrong = {f"[{name}] {option}" for name in sections for option in set(sections[name]) - known.get(name, set())}
        accounts = "[placement]", "[keystone_authtoken]"
        assert {line for line in wrong if not line.startswith(accounts)} == set()


def test_a_compute_node_alone_has_nothing_of_the_controller(devstack):
    calls = devstack.run(*STACK, services="n-cpu", disabled="fpga-pool-scheduler,fpga-pool-api")
    assert list(processes(calls)) == ["fpga-pool-agent-stack"]
    assert not [call for call in calls if call.startswith(("manage", "recreate_database", "rpc_backend"))]
    assert options(devstack.nova_conf, "filter_scheduler") == {"enabled_filters": ["ComputeFilter,SameHostFilter"]}


def flavor_command(devstack, function):
    return (
        f"--config-file {devstack.conf_dir}/fpga_pool.conf flavor create fpga.{function} --os-cloud devstack-admin"
        f" --function {function} --ram 512 --disk 1 --vcpus 1"
    )


def test_a_flavor_is_made_for_each_function(devstack):
    calls = devstack.run(*STACK)
    assert [call for call in calls if "flavor create" in call] == [
        f"manage {flavor_command(devstack, function)}" for function in ("sha256", "aes")
    ]


@pytest.mark.parametrize("driver", ["fake", "libvirt"])
def test_unstack_stops_all_and_clean_leaves_nothing(devstack, driver):
    before = {path for path in devstack.directory.rglob("*") if path.is_file()}
    started = processes(devstack.run(*STACK, driver=driver))
    stopped = devstack.run("unstack", driver=driver)
    assert {f"stop_process {name}" for name in started} <= set(stopped)
    devstack.run("clean", driver=driver)
    left = {path for path in devstack.directory.rglob("*") if path.is_file() or path.is_symlink()} - before
    assert not devstack.hook.parent.exists()
    # DevStack itself removes Nova's files.
    assert {path.name for path in left if not path.name.startswith("nova-fake")} == {"calls", "fpga-pool-manage"}


LOCAL_CONF = ROOT / "doc" / "source" / "admin" / "first-vm" / "local.conf"


def known_settings():
    return re.findall(r"^(FPGA_POOL_[A-Z_]+)=", (ROOT / "devstack" / "settings").read_text(), re.MULTILINE)


def test_the_page_names_the_branch_that_devstack_would_not_guess():
    assert re.findall(r"enable_plugin fpga_pool REPOSITORY ?(\S*)", LOCAL_CONF.read_text()) == ["main"]


def test_jobs_of_zuul_stack_what_the_page_says():
    page = dict(re.findall(r"^((?:VIRT|LIBVIRT|FPGA_POOL)_\w+)=(.+)$", LOCAL_CONF.read_text(), re.MULTILINE))
    jobs = [entry["job"] for entry in yaml.safe_load((ROOT / ".zuul.yaml").read_text()) if "job" in entry]
    settings = [job["vars"]["devstack_localrc"] for job in jobs]
    assert {name: str(value) for name, value in settings[0].items()} == page
    for name in set().union(*settings) - {"VIRT_DRIVER", "LIBVIRT_TYPE", "NUMBER_FAKE_NOVA_COMPUTE"}:
        assert name in known_settings()
    assert f"[testenv:{jobs[0]['vars']['tox_envlist']}]" in (ROOT / "tox.ini").read_text()


def test_the_page_lists_every_setting():
    settings = known_settings()
    page = (ROOT / "doc" / "source" / "admin" / "first-vm.rst").read_text().partition("A second host")[0]
    paths = {"DIR", "CONF_DIR", "CONF", "STATE_DIR", "HOOK", "HOOK_CONF", "SYSTEMD_DIR", "API_URL"}
    assert {name for name in settings if f"``{name}``" not in page} == {f"FPGA_POOL_{name}" for name in paths}
