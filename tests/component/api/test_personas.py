"""Every operation of the API as every persona, on objects of its own project and of another."""

import json
import re
import uuid

import pytest
from werkzeug.test import Client

from fpga_pool.api.operations import OPERATIONS
from fpga_pool.api.stack import make_application
from fpga_pool.model.objects.quotas import QuotaLimits
from support.permissions import (
    ALL_PROJECTS,
    ALLOWED,
    BODIES,
    NAMED_ELSEWHERE,
    NOUNS,
    OF_PROJECTS,
    OPERATE,
    SYSTEM,
    body_of,
    expected_status,
)
from support.personas import OTHER_PROJECT, PERSONAS, PROJECT, keystone_configuration, known_tokens

#: A part of the names of all objects of the other project.
SECRET = "aurora"
#: The persona that creates the objects of each project.
OWNERS = {PROJECT: "manager", OTHER_PROJECT: "other"}
#: Operations that fail here: a held job gets no tickets, and the card is still reported by its agent.
REFUSED = {"create_tickets": 409, "remove_card": 409}


class Projects:
    """The objects of two projects, which are created on demand, and the pool."""

    def __init__(self, client, pool):
        self._client, self._pool = client, pool
        self._kept = {}
        self._number = 0

    def open(self, method, path, who, **more):
        return self._client.open(path, method=method, headers={"X-Auth-Token": who} if who else {}, **more)

    def request(self, operation, who, owner=PROJECT, named=None):
        """Request an operation on an object of project `owner`; `named` is the value of the parameter `project_id`."""
        uuid, job = self.target(operation.noun, owner)
        path = operation.path.replace("<uuid>", uuid).replace("<name>", uuid)
        body = body_of(operation.name, job)
        if operation.name == "create_design":
            body = body | {"name": self._new_name("plain")}
        more = {} if body is None else {"json": body}
        answer = self.open(operation.method, path, who, query_string={"project_id": named} if named else {}, **more)
        if operation.method != "GET" and answer.status_code < 300:
            self._kept.pop((operation.noun, owner), None)
        return answer

    def target(self, noun, owner):
        """Return the object to put into the path, and one of its jobs if it has any."""
        fixed = {"host": "node-1", "function": "sha256", "project": OTHER_PROJECT, "quota": OTHER_PROJECT, "": ""}
        if noun in fixed:
            return fixed[noun], ""
        if noun not in OF_PROJECTS:
            return self.open("GET", f"/v1/{noun}s", "admin").json[f"{noun}s"][0]["uuid"], ""
        if (noun, owner) not in self._kept:
            self._kept[noun, owner] = self._made(noun, owner)
        return self._kept[noun, owner]

    def _made(self, noun, owner):
        if noun == "job":
            job = self.target("batch", owner)[1]
            return job, job
        if noun == "instance":
            return self._pool.instance_on("node-1" if owner == PROJECT else "node-2", owner), ""
        nouns = "batches" if noun == "batch" else f"{noun}s"
        body = BODIES[f"create_{noun}"] | {"name": self._new_name("plain" if owner == PROJECT else SECRET)}
        held = {"held": True} if noun == "batch" else {}
        uuid = self.open("POST", f"/v1/{nouns}", OWNERS[owner], json=body | held).json[noun]["uuid"]
        jobs = self.open("GET", f"/v1/jobs?batch_uuid={uuid}", OWNERS[owner]).json["jobs"] if noun == "batch" else []
        return uuid, jobs[0]["uuid"] if jobs else ""

    def _new_name(self, word):
        self._number += 1
        return f"{word}_{self._number}"

    def work_of(self, owner):
        """Return all objects of a project, as the API lists them."""
        for noun in (*NOUNS, "design"):
            self.target(noun, owner)
        lists = ("batches", "designs", "gangs", "jobs", "pipelines", "tasks")
        return {nouns: self.open("GET", f"/v1/{nouns}?limit=1000", OWNERS[owner]).json[nouns] for nouns in lists}


@pytest.fixture(scope="module")
def projects(tmp_path_factory, new_pool):
    pool = new_pool(tmp_path_factory.mktemp("pool"), 100)
    for project in OWNERS:  # the test must not be limited by its rate of requests
        pool.set_quota(project, QuotaLimits(requests_per_s=10**6))
    with known_tokens():
        conf = keystone_configuration(tmp_path_factory.mktemp("api"))
        yield Projects(Client(make_application(conf, pool, keystone=True)), pool)
    pool.close()


def test_the_table_of_permissions_names_every_operation_and_no_other():
    assert set(ALLOWED) == {operation.name for operation in OPERATIONS}


@pytest.mark.parametrize("named", [None, PROJECT, OTHER_PROJECT, ALL_PROJECTS])
@pytest.mark.parametrize("persona", PERSONAS)
def test_each_persona_may_do_what_the_policy_says_and_no_more(projects, persona, named):
    wrong = {}
    for operation in OPERATIONS:
        for owner in OWNERS if operation.noun in OF_PROJECTS else [PROJECT]:
            answer = projects.request(operation, persona, owner, named)
            succeeded = REFUSED.get(operation.name, operation.status)
            status = expected_status(operation, persona, owner, named, succeeded)
            if answer.status_code != status:
                wrong[operation.name, owner[0]] = f"{answer.status_code}, not {status}: {answer.text[:200]}"
            elif status == 403:
                assert answer.json["errors"][0]["code"] == "fpga_pool.forbidden"
            if persona not in OPERATE | SYSTEM:
                assert SECRET not in answer.text, operation.name
    assert wrong == {}


@pytest.mark.parametrize("persona", [persona for persona in PERSONAS if "admin" not in persona])
def test_no_request_of_a_tenant_changes_what_another_project_has(projects, persona):
    before = projects.work_of(OTHER_PROJECT)
    assert all(before.values())
    for operation in OPERATIONS:
        for named in (None, OTHER_PROJECT, ALL_PROJECTS):
            projects.request(operation, persona, OTHER_PROJECT, named)
    assert projects.work_of(OTHER_PROJECT) == before


@pytest.mark.parametrize(("noun", "method", "path", "body"), NAMED_ELSEWHERE)
def test_what_another_project_has_is_answered_as_what_nobody_has(projects, noun, method, path, body):
    own = projects.target("batch", PROJECT)[0]
    if noun == "function":
        design = projects.target("design", OTHER_PROJECT)[0]
        projects.open("PATCH", f"/v1/designs/{design}", "admin", json={"state": "APPROVED"})
        others = projects.open("GET", f"/v1/designs/{design}", "other").json["design"]["function"]
        unknown = f"{others.rpartition('.')[0]}.00000000"
    else:
        others, unknown = projects.target(noun, OTHER_PROJECT)[0], str(uuid.uuid4())

    def answer(name):
        more = {} if body is None else {"json": json.loads(json.dumps(body).replace("<uuid>", name))}
        found = projects.open(method, path.replace("<uuid>", name).replace("<own>", own), "member", **more)
        plain = re.sub('"(request_id|at)": ?"[^"]*"', "", found.text)
        return found.status_code, plain.replace(name, "<uuid>")

    assert answer(others) == answer(unknown)


@pytest.mark.parametrize("who", [None, "no such token"])
def test_without_a_valid_token_nothing_is_answered_but_what_leads_to_keystone(projects, who):
    for operation in OPERATIONS:
        answer = projects.request(operation, who)
        assert (answer.status_code, answer.json["errors"][0]["code"]) == (401, "fpga_pool.token_required")
        assert answer.headers["WWW-Authenticate"] == 'Keystone uri="http://keystone.test"'
