"""`openstack fpga`: the plug-in in the shell of osc_lib, loaded as by python-openstackclient."""

import io
import json
import logging
import warnings
from functools import cached_property
from importlib.metadata import entry_points

import pytest

with warnings.catch_warnings():
    # osc_lib imports a module that it has deprecated itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    from osc_lib import clientmanager
    from osc_lib.shell import OpenStackShell

(PLUGIN,) = entry_points(group="openstack.cli.extension", name="fpga")

# openstacksdk passes its own class an argument that this class warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")


class Manager(clientmanager.ClientManager):
    """The clients of the command."""

    @cached_property
    def fpga(self):
        return PLUGIN.load().make_client(self)


class Shell(OpenStackShell):
    """The `openstack` command with only the plug-in of this package."""

    def build_option_parser(self, *arguments, **options):
        return PLUGIN.load().build_option_parser(super().build_option_parser(*arguments, **options))

    def _load_commands(self):
        plugin = PLUGIN.load()
        version = getattr(self.options, plugin.API_VERSION_OPTION)
        assert version in plugin.API_VERSIONS
        self.command_manager.add_command_group(f"openstack.{plugin.API_NAME}.v{version}")

    def initialize_app(self, argv):
        super().initialize_app(argv)
        self.client_manager = Manager(cli_options=self.cloud, api_version=self.api_version)


@pytest.fixture
def openstack(clouds_yaml):
    root = logging.getLogger()
    handlers = root.handlers[:]

    def run(*argv):
        out, err = io.StringIO(), io.StringIO()
        shell = Shell(stdout=out, stderr=err)
        shell.NAME = "openstack"
        status = shell.run(["--os-cloud", "test", *argv])
        return status, out.getvalue(), err.getvalue()

    yield run
    root.handlers[:] = handlers


def test_slots_are_listed_drained_and_resumed_with_a_token(cloud, openstack):
    status, out, err = openstack("fpga", "slot", "list", "-f", "json")
    assert (status, err) == (0, "")
    name, other = (slot["name"] for slot in json.loads(out))
    assert (name, other) == ("node-1/card-0/r0", "node-2/card-0/r0")
    assert json.loads(openstack("fpga", "slot", "drain", name, "-f", "json")[1])["state"] == "DRAINED"
    assert json.loads(openstack("fpga", "slot", "resume", name, "-f", "json")[1])["state"] == "EMPTY"


def test_a_batch_is_planned_without_being_created(cloud, openstack, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    words = ("fpga", "batch", "create", "--function", "sha256", "--requester", "node-1", "--dry-run", "-f", "json")
    status, out, err = openstack(*words, str(tmp_path / "a.bin"))
    assert (status, err) == (0, "")
    assert json.loads(out)["job_list"][0]["slot"] == "node-1/card-0/r0"
    assert json.loads(openstack("fpga", "batch", "list", "-f", "json")[1]) == []


def test_an_error_is_one_line_with_the_name_of_the_command(cloud, openstack):
    status, out, err = openstack("fpga", "slot", "drain", "node-9")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("openstack: no slot 'node-9'; ")


def test_a_cloud_without_a_pool_is_named_as_the_cause(openstack):
    status, _, err = openstack("fpga", "host", "list")
    assert (status, err) == (2, "openstack: the catalogue of the cloud has no service of type fpga\n")


def test_there_are_the_commands_of_fpga_pool():
    ours, openstacks = (
        {one.name: one.value for one in entry_points(group=group)} for group in ("fpga_pool.cli", "openstack.fpga.v1")
    )
    assert openstacks == {f"fpga_{name}": value for name, value in ours.items()}


def test_the_pool_is_shown_as_in_a_terminal(cloud, openstack):
    status, out, err = openstack("fpga", "pool", "top")
    assert (status, err) == (0, "")
    assert ["jobs", "none"] in [line.split() for line in out.splitlines()]
