"""Each role works without the libraries of the other roles, and reports how to install missing ones."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from fpga_pool.cli import roles

#: Makes imports of the modules in BLOCKED fail as if they were not installed.
BLOCK = """
import json, os, sys

class Blocked:
    names = set(os.environ["BLOCKED"].split())

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""

#: Libraries of services that no client requires.
OF_SERVICES = [
    "alembic", "cheroot", "cryptography", "flask", "jwt", "keystonemiddleware", "numba", "numpy", "oslo_config",
    "oslo_db", "oslo_log", "oslo_messaging", "oslo_middleware", "oslo_policy", "oslo_privsep", "oslo_service",
    "oslo_upgradecheck", "prometheus_client", "pyroute2", "scipy", "sqlalchemy", "tenacity",
]  # fmt: skip


def run_without(blocked, program, *arguments):
    """Run a program in a process in which these libraries are missing; return its JSON output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCK + program, *arguments],
        env=os.environ | {"BLOCKED": " ".join(blocked)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_client_gets_by_without_the_libraries_of_services():
    program = """
from importlib.metadata import entry_points
import fpga_pool.client, fpga_pool.client.cloud
from fpga_pool.cli.client.main import PoolApp

helped = {}
for entry in entry_points(group="fpga_pool.cli"):
    helped[entry.name] = PoolApp().run([*entry.name.split("_"), "--help"])
for entry in entry_points(group="openstack.fpga.v1"):
    entry.load()
entry_points(group="openstack.cli.extension", name="fpga")["fpga"].load()
print()
print(json.dumps(helped))
"""
    helped = run_without([*OF_SERVICES, "openstack"], program)
    assert helped == {entry.name: 0 for entry in entry_points(group="fpga_pool.cli")}


def test_a_login_to_a_cloud_names_the_extra_that_it_lacks():
    program = """
from fpga_pool.client.cloud import cloud_login
from fpga_pool.model.exceptions import InvalidInput

try:
    cloud_login("mycloud")
except InvalidInput as error:
    print(json.dumps(str(error)))
"""
    assert run_without(["openstack"], program) == (
        "the login to a cloud: No module named 'openstack': pip install 'fpga_pool[openstack]'"
    )


def test_filters_and_weighers_get_by_without_scipy_numba_and_the_database():
    program = """
from fpga_pool.nova_plugin import all_filters, all_weighers, extra_specs

print(json.dumps([found.__name__ for found in (*all_filters(), *all_weighers())]))
"""
    blocked = [
        "alembic",
        "flask",
        "highspy",
        "jwt",
        "keystonemiddleware",
        "numba",
        "pulp",
        "scipy",
        "tenacity",
        "torch",
    ]
    groups = ("fpga_pool.filters", "fpga_pool.weighers")
    assert sorted(run_without(blocked, program)) == sorted(
        entry.name for group in groups for entry in entry_points(group=group)
    )


def test_an_agent_gets_by_without_the_libraries_of_controllers():
    # Numpy is there, for some software models, but would take memory of every compute node.
    blocked = ["alembic", "flask", "keystonemiddleware", "numba", "numpy", "oslo_db", "scipy", "sqlalchemy"]
    program = """
from importlib.metadata import entry_points
import fpga_pool.cli.daemons.agent
from fpga_pool.drivers.slots.functions import function_model
from fpga_pool.services.configured import GUEST_DRIVERS, RUNNERS, SLOT_DRIVERS, TIER_DRIVERS

function_model("aes"), function_model("sha256")
groups = GUEST_DRIVERS, RUNNERS, SLOT_DRIVERS, TIER_DRIVERS
print(json.dumps({group: [entry.load().__name__ for entry in entry_points(group=group)] for group in groups}))
"""
    assert all(run_without(blocked, program).values())


def test_a_scheduler_loads_solvers_and_compiled_loops_when_it_needs_them():
    program = """
import fpga_pool.cli.daemons.scheduler
from fpga_pool.conf.opts import list_opts
from fpga_pool.core.fitting import fit

list_opts()  # as at its start: the options of every policy
fit([1, 2], [3.0, 4.0])  # as while jobs run
print(json.dumps([name for name in ("scipy.optimize", "scipy.sparse") if name in sys.modules]))
"""
    assert run_without(["highspy", "numba", "pulp"], program) == []


def test_commands_of_other_roles_name_the_extra_that_they_lack():
    program = """
from importlib.metadata import entry_points

sys.argv[1:] = ["plan"]  # the simulator imports what its command needs
commands = [
    entry for entry in entry_points(group="console_scripts")
    if entry.module == "fpga_pool.cli.roles" and entry.attr != "client"
]
print(json.dumps({entry.name: entry.load()() for entry in commands}))
"""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + program],
        env=os.environ | {"BLOCKED": "oslo_config"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert set(json.loads(done.stdout).values()) == {roles.WRONG_USAGE}
    assert sorted(done.stderr.splitlines()) == [
        f"fpga-pool-{command}: oslo_config is not installed: pip install 'fpga_pool[{extra}]'"
        for command, extra in (
            ("agent", "agent"),
            ("api", "controller"),
            ("learn", "sim"),
            ("manage", "controller"),
            ("scheduler", "controller"),
            ("sim", "sim"),
            ("standalone", "standalone"),
            ("status", "controller"),
        )
    ]


def test_a_missing_module_of_the_package_itself_is_no_matter_of_extras(tmp_path, monkeypatch):
    (tmp_path / "broken_role.py").write_text("import fpga_pool.no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"fpga_pool\.no_such_module"):
        roles._run("fpga-pool-broken", "broken_role", "agent")


def test_a_software_model_that_lacks_scipy_names_the_extra():
    program = """
from fpga_pool.drivers.slots.functions import function_model
from fpga_pool.model.exceptions import UnknownFunction

try:
    function_model("stereo")
except UnknownFunction as error:
    print(json.dumps(str(error)))
"""
    assert "pip install 'fpga_pool[sim]'" in run_without(["scipy"], program)


def test_filters_that_lack_a_library_name_the_extra():
    program = """
from fpga_pool.nova_plugin import all_filters

try:
    all_filters()
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert run_without(["msgspec"], program).endswith("No module named 'msgspec': pip install 'fpga_pool[nova]'")


@pytest.mark.parametrize(
    "entry", entry_points(group="console_scripts", module="fpga_pool.cli.roles"), ids=lambda e: e.name
)
def test_help_begins_with_what_the_program_is_for(entry):
    command = [sys.executable, "-c", f"from fpga_pool.cli import roles; roles.{entry.attr}()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    usage, description, _ = done.stdout.split("\n\n", 2)
    assert usage.startswith("usage: ")
    assert re.fullmatch(r"[A-Z][^.]+\.", description, re.DOTALL), description


def test_ctrl_c_while_a_program_is_imported_ends_it_in_one_line():
    program = """
import sys


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "cliff":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupting())
from fpga_pool.cli.roles import client

sys.exit(client())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fpga-pool: interrupted\n")
