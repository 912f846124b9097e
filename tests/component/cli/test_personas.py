"""Every command as every persona, with what its own project has and with what another has."""

import io
import json
import logging
import uuid

import pytest
import requests

from fpga_pool.api.http.server import ApiServer
from fpga_pool.api.stack import make_application
from fpga_pool.cli.client.main import PoolApp
from fpga_pool.model.objects.quotas import QuotaLimits
from support.permissions import ALLOWED, BODIES, SYSTEM
from support.personas import OTHER_PROJECT, PERSONAS, PROJECT, keystone_configuration, known_tokens

# openstacksdk passes its own class an argument that this class warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")

SLOT, CARD = "node-2/card-0/r0", "node-2/card-0"
NO_FUNCTION = "is not in the catalogue"
WORK = {"batch": "batches", "gang": "gangs", "pipeline": "pipelines", "task": "tasks", "design": "designs"}
#: Each command: its arguments, the operations that it requests, and what it tells whoever may request them and gets
#: nothing done ("" = it is done).  "<noun>" is what a project has of that kind; DIR is a directory.
COMMANDS = {
    "batch attach": ("<batch> --output-dir DIR", ["show_batch", "list_batch_jobs"], "the pool does not hold 1 of 1"),
    "batch cancel": ("<batch>", ["cancel_batch"], ""),
    "batch create": ("--function sha256 --requester node-1 --hold DIR/a.bin", ["create_batch"], ""),
    "batch fetch": ("<batch> DIR", ["show_batch", "list_batch_jobs"], "held by its owner"),
    "batch hold": ("<batch>", ["change_batch"], ""),
    "batch list": ("", ["list_batches"], ""),
    "batch release": ("<batch>", ["change_batch"], ""),
    "batch retry": ("<batch> DIR/a.bin", ["show_batch", "list_batch_jobs"], "expected"),
    "batch set": ("<batch> --priority -1", ["change_batch"], ""),
    "batch show": ("<batch>", ["show_batch", "list_batch_jobs"], ""),
    "batch watch": ("<batch> --timeout 0.1", ["show_batch", "list_batch_jobs"], "did not end within"),
    "bitstream list": ("", ["list_bitstreams"], ""),
    "bitstream show": ("kintex7/small/sha256", ["list_bitstreams"], ""),
    "card drain": (CARD, ["list_cards", "change_card"], ""),
    "card list": ("", ["list_cards"], ""),
    "card remove": (f"{CARD} --timeout 0.1", ["list_cards", "remove_card"], "the agent of node-2 reports"),
    "card resume": (CARD, ["list_cards", "change_card"], ""),
    "card show": (CARD, ["list_cards", "show_card"], ""),
    "design approve": ("<design>", ["change_design"], ""),
    "design create": ("DIR/NEW.toml DIR/a.bin", ["create_design"], ""),
    "design delete": ("<design>", ["delete_design"], ""),
    "design list": ("", ["list_designs"], ""),
    "design reject": ("<design>", ["change_design"], ""),
    "design revoke": ("<design>", ["change_design"], "not possible in state SUBMITTED"),
    "design save": ("<design> DIR/NEW", ["show_design_bitstream"], ""),
    "design set": ("<design> --private", ["change_design"], "not possible in state SUBMITTED"),
    "design show": ("<design>", ["show_design"], ""),
    "event list": ("batch <batch>", ["list_batch_events"], ""),
    "flow list": ("", ["list_flows"], ""),
    "function calibrate": ("", ["calibration"], ""),
    "function list": ("", ["list_functions"], ""),
    "function show": ("sha256", ["show_function"], ""),
    "gang cancel": ("<gang>", ["cancel_gang"], ""),
    "gang create": ("--processes 1 --runtime 60", ["create_gang"], ""),
    "gang list": ("", ["list_gangs"], ""),
    "gang show": ("<gang>", ["show_gang"], ""),
    "host list": ("", ["list_hosts"], ""),
    "host show": ("node-1", ["list_hosts"], ""),
    "job list": ("", ["list_jobs"], ""),
    "job show": ("<job>", ["show_job"], ""),
    "pipeline cancel": ("<pipeline>", ["cancel_pipeline"], ""),
    "pipeline create": ("DIR/pipeline.toml", ["create_pipeline"], NO_FUNCTION),
    "pipeline list": ("", ["list_pipelines"], ""),
    "pipeline show": ("<pipeline>", ["show_pipeline", "list_batch_jobs"], ""),
    "pipeline watch": ("<pipeline> --timeout 0.1", ["show_pipeline", "show_batch"], "did not end within"),
    "plan create": ("--function sha256 --requester node-1 DIR/a.bin", ["plan_batch"], ""),
    "plan create gang": ("--processes 1 --runtime 60", ["plan_gang"], ""),
    "plan create pipeline": ("DIR/pipeline.toml", ["plan_pipeline"], NO_FUNCTION),
    "plan create task": ("--function none --requester node-1 DIR/a.bin", ["plan_task"], NO_FUNCTION),
    "pool show": ("", ["show_pool", "list_services", "list_functions"], ""),
    "pool stats": ("", ["count_work", "show_usage"], ""),
    "pool top": ("", ["list_batches", "list_gangs", "count_work", "show_usage"], ""),
    "processor list": ("", ["list_processors"], ""),
    "quota set": (f"{PROJECT} --jobs 500", ["set_quota"], ""),
    "quota show": (OTHER_PROJECT, ["show_project_quota"], ""),
    "quota unset": (OTHER_PROJECT, ["unset_quota"], ""),
    "service list": ("", ["list_services"], ""),
    "slot drain": (SLOT, ["list_slots", "change_slot"], ""),
    "slot list": ("", ["list_slots"], ""),
    "slot resume": (SLOT, ["list_slots", "change_slot"], ""),
    "slot show": (SLOT, ["list_slots", "show_slot"], ""),
    "task cancel": ("<task>", ["cancel_task"], ""),
    "task create": ("--function none --requester node-1 DIR/a.bin", ["create_task"], NO_FUNCTION),
    "task list": ("", ["list_tasks"], ""),
    "task show": ("<task>", ["show_task"], ""),
    "usage export": ("", ["show_usage"], ""),
    "usage show": ("", ["show_usage"], ""),
}
#: Commands of operators on the designs of any project.
OF_ANY_PROJECT = {"design approve", "design reject", "design revoke", "design save", "design set"}
MANIFEST = {key: value for key, value in BODIES["create_design"].items() if key != "bitstream"}


@pytest.fixture(scope="module")
def url(tmp_path_factory, new_pool):
    """The API of a pool that asks for tokens."""
    pool = new_pool(tmp_path_factory.mktemp("pool"), 100)
    for project in (PROJECT, OTHER_PROJECT):  # this test asks as fast as it can
        pool.set_quota(project, QuotaLimits(requests_per_s=10**6))
    with known_tokens():
        conf = keystone_configuration(tmp_path_factory.mktemp("api"))
        server = ApiServer(make_application(conf, pool, keystone=True), port=0, authenticates=True)
        yield server.start()
        server.stop()
    pool.close()


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"12345")
    (tmp_path / "pipeline.toml").write_text(
        'requester = "node-1"\n[[subtasks]]\nname = "one"\nfunction = "none"\ninput = "a.bin"\n'
    )
    return tmp_path


@pytest.fixture
def run(commands, url, directory, monkeypatch):
    """Run a command of `fpga-pool` with the token of a persona; returns the status and what it printed."""
    clouds = {
        who: {"auth_type": "admin_token", "auth": {"endpoint": url, "token": who}} for who in (*PERSONAS, "other")
    }
    (directory / "clouds.yaml").write_text(json.dumps({"clouds": clouds}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(directory / "clouds.yaml"))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def command(who, *argv):
        out, err = io.StringIO(), io.StringIO()
        app = PoolApp(commands, stdout=out, stderr=err)
        status = app.run(["--os-cloud", who, *map(str, argv)])
        root.handlers[:] = handlers
        return status, out.getvalue(), err.getvalue()

    yield command
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def words(url, directory):
    """Return the words of a command, with what its arguments name made anew by `owner`."""

    def ask(method, path, owner, body=None):
        return requests.request(method, f"{url}{path}", json=body, headers={"X-Auth-Token": owner}, timeout=30).json()

    def made(noun, owner):
        if noun == "job":
            return ask("GET", f"/v1/batches/{made('batch', owner)}/jobs", owner)["jobs"][0]["uuid"]
        more = {"held": True} if noun == "batch" else {"name": new_name()} if noun == "design" else {}
        return ask("POST", f"/v1/{WORK[noun]}", owner, BODIES[f"create_{noun}"] | more)[noun]["uuid"]

    def filled(command, owner):
        text = COMMANDS[command][0].replace("DIR", str(directory))
        if "NEW" in text:
            name = new_name()
            fields = MANIFEST | {"name": name}
            (directory / f"{name}.toml").write_text("\n".join(f"{key} = {json.dumps(fields[key])}" for key in fields))
            text = text.replace("NEW", name if "toml" in text else f"{name}.bin")
        noun = noun_of(command)
        return [*command.split(), *(text.replace(f"<{noun}>", made(noun, owner)) if noun else text).split()]

    return filled


def new_name():
    return f"new_{uuid.uuid4().hex}"


def noun_of(command):
    """Return of what kind the object is that the arguments of a command name; "" = it is not of a project."""
    return COMMANDS[command][0].partition("<")[2].partition(">")[0]


def test_the_table_of_this_test_names_every_command(commands):
    assert set(COMMANDS) == {name for name, _ in commands}


@pytest.mark.parametrize("persona", PERSONAS)
def test_each_persona_may_do_what_the_policy_says_and_learns_nothing_of_another_project(run, words, persona):
    wrong = {}
    for command, (_, operations, complaint) in COMMANDS.items():
        noun = noun_of(command)
        for owner in ("manager", "other") if noun else ("manager",):
            if not all(persona in ALLOWED[operation] for operation in operations):
                expected = True, "is not allowed with your roles"
            elif owner == "other" and command not in OF_ANY_PROJECT and persona not in SYSTEM:
                expected = True, f"no {noun} "
            else:
                expected = complaint != "", complaint
            status, out, err = run(persona, *words(command, owner))
            if (status > 0, expected[1] in out + err) != (expected[0], True):
                wrong[command, owner] = (status, out[-200:], err[-200:], expected)
    assert wrong == {}


@pytest.mark.parametrize("persona", PERSONAS)
def test_only_admins_may_name_another_project(commands, run, words, persona):
    wrong = {}
    for command, (_, operations, complaint) in COMMANDS.items():
        parser = commands.find_command(command.split())[0](None, None).get_parser("")
        # Of one object, the project of events is not asked for.
        if "--project-id" not in parser.format_help() or command == "event list":
            continue
        may = persona in {"admin", *SYSTEM} and all(persona in ALLOWED[operation] for operation in operations)
        expected = (complaint != "", complaint) if may else (True, "is not allowed with your roles")
        status, out, err = run(persona, *words(command, "other"), "--project-id", OTHER_PROJECT)
        if (status > 0, expected[1] in out + err) != (expected[0], True):
            wrong[command] = (status, out[-200:], err[-200:], expected)
    assert wrong == {}
