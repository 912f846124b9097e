"""Two tenants and an operator who only use `openstack`: tenants see their own objects, and nothing else."""

import json
import os
import re
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib.metadata import entry_points

import pytest

from fpga_pool.api.operations import OPERATIONS
from fpga_pool.model.objects.history import EVENTFUL
from support.permissions import (
    ALLOWED,
    COMMANDS,
    COMMANDS_OF_ANY_PROJECT,
    NAMED_ELSEWHERE,
    OF_PROJECTS,
    body_of,
    expected_status,
    noun_of,
)
from support.personas import OTHER_PROJECT
from support.waiting import wait_until

from .conftest import FICTION, cloud_name, program
from .terminals import Tenant, Terminal
from .test_jobs import requester
from .test_pool import assert_has

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("default")]

#: Numbers of objects of each kind that a tenant has; pipelines and tasks are batches, too.
WORK = {"batch": 4, "pipeline": 1, "task": 1, "gang": 1}
#: Slots for a machine and a task of both tenants.
SLOTS = 6
#: Verbs of read-only commands.
LOOKS = ("calibrate", "export", "list", "show", "stats", "top")
NOT_ALLOWED = "is not allowed with your roles"
#: Group of the commands' entry points.
GROUP = "openstack.fpga.v1"


@pytest.fixture(scope="module")
def openstack_command():
    found = program("openstack")
    if found is None or subprocess.run([found, "fpga", "batch", "list", "--help"], check=False).returncode:
        pytest.skip("no `openstack fpga` in PATH: python-openstackclient in an environment with fpga_pool")
    return found


@pytest.fixture(scope="module")
def operator(openstack_command, tmp_path_factory):
    environment = os.environ | {"OS_CLOUD": cloud_name()}
    with closing(Terminal(openstack_command, environment, tmp_path_factory.mktemp("operator"))) as made:
        yield made


@pytest.fixture(scope="module")
def tenants(cloud, account, openstack_command, operator, flavor, counting, tmp_path_factory):
    """Two tenants, each with a machine, a design, and work of each kind."""
    cloud.require_free(SLOTS)
    kind = ("--property", f"img_hv_type={FICTION}") if cloud.hosts(real=False) else ()
    sha256, sender, slot = flavor("sha256").name, requester(cloud.pool), cloud.pool.slots(1)[0]

    def work(tenant):
        tenant.boot(sha256, kind)
        tenant.compute(sender)
        tenant.hold(sender)
        tenant.submit(slot.board, slot.kind)
        tenant.gang(counting)

    with ExitStack() as leaving:
        made = []
        for _ in range(2):
            tenant = Tenant(openstack_command, account(), tmp_path_factory.mktemp("tenant"))
            leaving.callback(tenant.close)
            leaving.callback(tenant.leave)
            made.append(tenant)
        with ThreadPoolExecutor(len(made)) as both:
            list(both.map(work, made))
        for tenant in made:
            operator.run("fpga", "design", "approve", tenant.ids["design"])
        yield made


def test_each_tenant_lists_its_own_machine_and_work_only(cloud, tenants):
    tenant, other = tenants
    assert_has(cloud, cloud.compute.get_server(tenant.ids["instance"]), 1)
    asked = {kind: count for kind, count in WORK.items() if kind in tenant.ids}
    kinds = (*asked, "job", "design")
    *lists, servers = tenant.read_all(*(("fpga", kind, "list") for kind in kinds), ("server", "list"))
    work = {kind: {row["uuid"] for row in rows} for kind, rows in zip(kinds, lists, strict=True)}
    assert {kind: len(work[kind]) for kind in asked} == asked
    assert {kind for kind in work if tenant.ids[kind] not in work[kind] or other.ids[kind] in work[kind]} == set()
    assert {server["ID"] for server in servers} == {tenant.ids["instance"]}


def on_objects(tenant, host):
    """Yield the commands on the objects of a tenant, by uuid and by name, each with the expected error for others."""
    for command, (arguments, _, _) in COMMANDS.items():
        noun = noun_of(command)
        if noun in tenant.ids:
            says = NOT_ALLOWED if command in COMMANDS_OF_ANY_PROJECT else f"no {noun} "
            for name in (tenant.ids[noun], f"{tenant.name}-{noun}") if noun in WORK else (tenant.ids[noun],):
                yield words_of(command, arguments, host, name), says
    for kind in EVENTFUL.keys() & tenant.ids.keys():
        yield ["fpga", "event", "list", kind, tenant.ids[kind]], "no "
    for words in (["server", "show"], ["server", "delete"], ["console", "log", "show"]):
        yield [*words, tenant.ids["instance"]], "No "


def on_nothing(tenant, host):
    """Yield the other read-only commands: those that members may not use, and those that show their own objects."""
    for command, (arguments, operations, _) in COMMANDS.items():
        if not noun_of(command):
            may = all("member" in ALLOWED[operation] for operation in operations)
            if not may or command.rpartition(" ")[2] in LOOKS:
                yield words_of(command, arguments, host), "" if may else NOT_ALLOWED
    yield ["fpga", "event", "list"], ""
    for kind in EVENTFUL.keys() & tenant.ids.keys():
        yield ["fpga", "event", "list", kind, "--name", tenant.ids[kind]], ""


def on_projects(tenant, host):
    """Yield the commands that accept any project, with the project of a tenant."""
    loaded = {entry.name.removeprefix("fpga_").replace("_", " "): entry for entry in entry_points(group=GROUP)}
    assert set(loaded) == set(COMMANDS)
    for command, (arguments, _, _) in COMMANDS.items():
        options = loaded[command].load()(None, None).get_parser("").format_help()
        # Events of a single object need no project.
        if "--project-id" in options and command != "event list":
            words = words_of(command, arguments, host, tenant.ids.get(noun_of(command), str(uuid.uuid4())))
            yield [*words, "--project-id", tenant.project], NOT_ALLOWED


def words_of(command, arguments, host, name=""):
    """Return the words of a command, with the name of an object inserted."""
    text = arguments.replace("DIR", ".").replace("a.bin", "input").replace("node-1", host)
    return ["fpga", *command.split(), *re.sub("<.*>", name, text).split()]


def test_no_command_shows_or_changes_what_the_other_has(cloud, tenants):
    tenant, other = tenants
    before = other.everything()
    host = requester(cloud.pool)
    commands = [*on_objects(other, host), *on_nothing(other, host), *on_projects(other, host)]
    assert len(commands) > len(COMMANDS)
    wrong = []
    for words, says in commands:
        status, out, err = tenant.call(*words)
        shown = secrets_in(out + err, other, said=words)
        if shown or (says and (status, says in out + err) != (1, True)):
            wrong.append((words, says, status, shown, out[-300:], err[-300:]))
    assert wrong == []
    assert other.everything() == before


def secrets_in(text, tenant, said):
    """Return data of a tenant in a text (prefixes, as tables truncate), except those that the caller has sent."""
    beginnings = [*(each[:8] for each in tenant.ids.values()), tenant.name[:20], tenant.project[:8]]
    return [secret for secret in beginnings if secret in text and secret not in str(said)]


def test_no_route_shows_or_changes_what_the_other_has(cloud, tenants):
    tenant, other = tenants
    before = other.everything()
    slot = cloud.pool.slots(1)[0]
    fixed = {
        "host": slot.host, "function": "sha256", "project": other.project, "slot": slot.uuid,
        "card": cloud.pool.cards(1)[0].uuid, "": "",
    }  # fmt: skip
    wrong, asked = [], 0
    for operation in OPERATIONS:
        if operation.noun in OF_PROJECTS - other.ids.keys():  # gangs exist only if a host runs them
            continue
        is_own = not operation.noun and operation.method != "GET" and "member" in ALLOWED[operation.name]
        name = fixed.get(operation.noun) or other.ids.get(operation.noun, "")
        path = operation.path.replace("<uuid>", name).replace("<name>", name)
        for project in (None, other.project, "all") if not is_own else ():
            query = {"params": {"project_id": project}} if project else {}
            body = body_of(operation.name, other.ids["job"])
            more = query if body is None else {**query, "json": body}
            answer = tenant.api.request(path, operation.method, raise_exc=False, **more)
            status = expected_status(operation, "member", OTHER_PROJECT, project, operation.status)
            shown = secrets_in(answer.text, other, said=(path, more))
            asked += 1
            if answer.status_code != status or shown:
                wrong.append((operation.name, project, answer.status_code, status, shown, answer.text[:300]))
    assert wrong == []
    assert asked > len(OPERATIONS)
    assert other.everything() == before


def test_what_the_other_has_is_answered_as_what_nobody_has(cloud, tenants):
    tenant, other = tenants
    function = other.api.get(f"/v1/designs/{other.ids['design']}").json()["design"]["function"]
    names = {**other.ids, "function": function}
    nobodys = {**dict.fromkeys(other.ids, str(uuid.uuid4())), "function": f"{function.rpartition('.')[0]}.00000000"}

    def answer(method, path, body, name):
        text = json.dumps(body).replace("<uuid>", name).replace("node-1", requester(cloud.pool))
        more = {} if body is None else {"json": json.loads(text)}
        own = path.replace("<own>", tenant.ids["batch"])
        found = tenant.api.request(own.replace("<uuid>", name), method, raise_exc=False, **more)
        plain = re.sub('"(request_id|at)": ?"[^"]*"', "", found.text)
        return found.status_code, plain.replace(name, "<uuid>")

    for noun, method, path, body in NAMED_ELSEWHERE:
        if noun in names:
            answers = [answer(method, path, body, name) for name in (names[noun], nobodys[noun])]
            assert answers[0] == answers[1], (method, path)


def test_an_operator_drains_a_slot_looks_at_it_and_resumes_it(operator, tenants):
    slots, cards = operator.read_all(("fpga", "slot", "list"), ("fpga", "card", "list"))
    shown_cards = operator.read_all(*(("fpga", "card", "show", card["name"]) for card in cards))
    used = {user.split()[1] for card in shown_cards for user in card["user_list"]}
    slot = next(slot["name"] for slot in slots if slot["state"] in ("EMPTY", "READY") and slot["name"] not in used)
    host, card, _ = slot.split("/")

    def shown():
        return operator.read("fpga", "slot", "show", slot)

    try:
        operator.run("fpga", "slot", "drain", slot, "--reason", "loud fan")
        wait_until(lambda: shown()["state"] == "DRAINED", f"{slot} is drained")
        drained, of_card, events, of_all = operator.read_all(
            ("fpga", "slot", "show", slot),
            ("fpga", "card", "show", f"{host}/{card}"),
            ("fpga", "event", "list", "slot", slot),
            ("fpga", "event", "list", "slot", "--name", slot, "--all-projects"),
        )
        assert (drained["drain_requested"], drained["reason"]) == (True, "loud fan")
        assert slot in str(of_card)
        asked = next(event for event in events if event["event"] == "DrainRequested")
        assert (asked["reason"], asked["request_id"][:4]) == ("loud fan", "req-")
        assert asked["request_id"] in {event["request_id"] for event in of_all}
    finally:
        operator.run("fpga", "slot", "resume", slot)
    found = wait_until(lambda: (now := shown())["state"] != "DRAINED" and now, f"{slot} is in service again")
    assert not found["drain_requested"]


def test_an_operator_sees_the_work_of_all_and_who_has_a_slot(operator, tenants):
    shows = [("fpga", "batch", "show", tenant.ids["batch"], "--project-id", tenant.project) for tenant in tenants]
    batches, cards, *shown = operator.read_all(
        ("fpga", "batch", "list", "--all-projects"), ("fpga", "card", "list"), *shows
    )
    assert {tenant.ids["batch"] for tenant in tenants} <= {batch["uuid"] for batch in batches}
    assert [batch["name"] for batch in shown] == [f"{tenant.name}-held" for tenant in tenants]
    # A service that a busy machine delayed is shown as down for a moment.
    wait_until(
        lambda: {service["state"] for service in operator.read("fpga", "service", "list")} == {"up"}, "services are up"
    )
    used = str(operator.read_all(*(("fpga", "card", "show", card["name"]) for card in cards)))
    assert [tenant.name for tenant in tenants if tenant.ids["instance"] not in used] == []


def test_an_operator_purges_what_has_ended_of_one_project(operator, tenants):
    one, other = tenants
    usage = ("fpga", "usage", "show")
    before, (used,) = other.everything(), one.read_all(usage)
    now = ("fpga", "work", "purge", "--before", "0s", "--project-id", one.project)
    assert NOT_ALLOWED in one.run(*now, code=1)
    dry, wet = operator.read_all((*now, "--dry-run"), now)
    found = {row["kind"]: row["found"] for row in dry}
    assert (found["batches"], found["tasks"], found["gangs"]) == (3, 1, int("gang" in one.ids))
    assert {row["kind"]: row["removed"] for row in wet} == found
    batches, still_used = one.read_all(("fpga", "batch", "list"), usage)
    assert [batch["uuid"] for batch in batches] == [one.ids["batch"]]
    assert f"no task {one.ids['task']}" in one.run("fpga", "task", "show", one.ids["task"], code=1)
    totals = [{row["function"]: row["jobs"] for row in rows} for rows in (used, still_used)]
    assert totals[0] == totals[1]
    assert other.everything() == before
