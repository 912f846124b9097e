"""Every command as every persona, on objects of its own project and of another."""

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
from support.permissions import ALLOWED, BODIES, COMMANDS, COMMANDS_OF_ANY_PROJECT, SYSTEM, noun_of
from support.personas import OTHER_PROJECT, PERSONAS, PROJECT, SOME_UNLESS_LONG, keystone_configuration, known_tokens

# openstacksdk passes its own class an argument that this class warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")

WORK = {"batch": "batches", "gang": "gangs", "pipeline": "pipelines", "task": "tasks", "design": "designs"}
MANIFEST = {key: value for key, value in BODIES["create_design"].items() if key != "bitstream"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory, new_pool):
    pool = new_pool(tmp_path_factory.mktemp("pool"), 100)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def instances(pool):
    """Return an instance of each project, by the token that creates the other objects of that project."""
    return {"manager": pool.instance_on("node-1", PROJECT), "other": pool.instance_on("node-2", OTHER_PROJECT)}


@pytest.fixture(scope="module")
def url(tmp_path_factory, pool):
    """Serve the API of a pool that requires tokens; return the URL."""
    for project in (PROJECT, OTHER_PROJECT):  # the test must not be limited by its rate of requests
        pool.set_quota(project, QuotaLimits(requests_per_s=10**6))
    with known_tokens():
        conf = keystone_configuration(tmp_path_factory.mktemp("api"))
        server = ApiServer(make_application(conf, pool, keystone=True), port=0, authenticates=True)
        yield server.start()
        server.stop()


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"12345")
    (tmp_path / "pipeline.toml").write_text(
        'requester = "node-1"\n[[subtasks]]\nname = "one"\nfunction = "none"\ninput = "a.bin"\n'
    )
    return tmp_path


@pytest.fixture
def run(commands, url, directory, monkeypatch):
    """Return a function that runs `fpga-pool` with the token of a persona and returns status, output and errors."""
    clouds = {
        who: {"auth_type": "admin_token", "auth": {"endpoint": url, "token": who}} for who in (*PERSONAS, "other")
    }
    (directory / "clouds.yaml").write_text(json.dumps({"clouds": clouds}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(directory / "clouds.yaml"))
    root = logging.getLogger()
    handlers = root.handlers[:]

    def command(who, *argv):
        out, err = io.StringIO(), io.StringIO()
        app = PoolApp(commands, stdout=out, stderr=err)
        status = app.run(["--os-cloud", who, *map(str, argv)])
        root.handlers[:] = handlers
        return status, out.getvalue(), err.getvalue()

    yield command
    root.handlers[:] = handlers


@pytest.fixture
def words(url, directory, instances):
    """Return a function that completes a command. The objects that it names are created by `owner` for each call."""

    def ask(method, path, owner, body=None):
        return requests.request(method, f"{url}{path}", json=body, headers={"X-Auth-Token": owner}, timeout=30).json()

    def made(noun, owner):
        if noun == "job":
            return ask("GET", f"/v1/batches/{made('batch', owner)}/jobs", owner)["jobs"][0]["uuid"]
        if noun == "instance":
            return instances[owner]
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


def test_the_table_of_this_test_names_every_command(commands):
    assert set(COMMANDS) == {name for name, _ in commands}


@pytest.mark.parametrize("persona", SOME_UNLESS_LONG)
def test_each_persona_may_do_what_the_policy_says_and_learns_nothing_of_another_project(run, words, persona):
    wrong = {}
    for command, (_, operations, complaint) in COMMANDS.items():
        noun = noun_of(command)
        for owner in ("manager", "other") if noun else ("manager",):
            if not all(persona in ALLOWED[operation] for operation in operations):
                expected = True, "is not allowed with your roles"
            elif owner == "other" and command not in COMMANDS_OF_ANY_PROJECT and persona not in SYSTEM:
                expected = True, f"no {noun} "
            else:
                expected = complaint != "", complaint
            status, out, err = run(persona, *words(command, owner))
            if (status > 0, expected[1] in out + err) != (expected[0], True):
                wrong[command, owner] = (status, out[-200:], err[-200:], expected)
    assert wrong == {}


@pytest.mark.parametrize("persona", SOME_UNLESS_LONG)
def test_only_admins_may_name_another_project(commands, run, words, persona):
    wrong = {}
    for command, (_, operations, complaint) in COMMANDS.items():
        parser = commands.find_command(command.split())[0](None, None).get_parser("")
        # For the events of a single object, `event list` does not send a project.
        if "--project-id" not in parser.format_help() or command == "event list":
            continue
        may = persona in {"admin", *SYSTEM} and all(persona in ALLOWED[operation] for operation in operations)
        expected = (complaint != "", complaint) if may else (True, "is not allowed with your roles")
        status, out, err = run(persona, *words(command, "other"), "--project-id", OTHER_PROJECT)
        if (status > 0, expected[1] in out + err) != (expected[0], True):
            wrong[command] = (status, out[-200:], err[-200:], expected)
    assert wrong == {}
