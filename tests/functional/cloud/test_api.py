"""The pool's API under uWSGI in a real cloud: found in Keystone's catalog, used by tenants with their own tokens."""

import hashlib
import json
import os

import pytest
from keystoneauth1 import adapter, discover
from keystoneauth1.session import Session

from .conftest import REQUESTER, Tenant

pytestmark = [pytest.mark.timeout(900)]

STRANGER = "stranger"
NO_SUCH = 1


@pytest.fixture(scope="module")
def stranger(api, admin):
    """A project that is unrelated to the other one."""
    identity = admin.adapter("identity")
    project = identity.post("/projects", json={"project": {"name": STRANGER}}).json()["project"]["id"]
    user = {"name": STRANGER, "password": api.environment["OS_PASSWORD"], "default_project_id": project}
    uuid = identity.post("/users", json={"user": user}).json()["user"]["id"]
    (member,) = identity.get("/roles", params={"name": "member"}).json()["roles"]
    identity.put(f"/projects/{project}/users/{uuid}/roles/{member['id']}")
    return Tenant(api.environment, STRANGER)


def test_a_tenants_batch_is_its_own(openstack, stranger, tmp_path):
    file = tmp_path / "input"
    file.write_bytes(os.urandom(100_000))
    work = ("--function", "sha256", "--requester", REQUESTER, "-f", "json", file)
    code, rows, said = openstack("demo", "batch", "create", *work)
    assert code == 0, said
    assert [row["result"] for row in json.loads(rows)] == [hashlib.sha256(file.read_bytes()).hexdigest()]
    code, rows, said = openstack("demo", "batch", "list", "-f", "json")
    assert code == 0, said
    (uuid,) = [row["uuid"] for row in json.loads(rows)]

    code, rows, said = openstack(STRANGER, "batch", "list", "-f", "json")
    assert (code, json.loads(rows)) == (0, []), said
    code, _, said = openstack(STRANGER, "batch", "show", uuid)
    assert code == NO_SUCH
    assert f"no batch {uuid}" in said
    pool = stranger.adapter("fpga")
    for method, path in (("get", "/v1/batches/{}"), ("get", "/v1/batches/{}/jobs"), ("delete", "/v1/batches/{}")):
        assert getattr(pool, method)(path.format(uuid), raise_exc=False).status_code == 404


@pytest.mark.long
def test_operators_drain_and_tenants_do_not(openstack, admin, tenant):
    (slot, *_) = admin.adapter("fpga").get("/v1/slots").json()["slots"]
    code, _, said = openstack("demo", "slot", "drain", slot["name"])
    assert code == NO_SUCH
    assert "is not allowed with your roles" in said
    code, _, said = openstack("admin", "slot", "drain", slot["name"])
    assert code == 0, said
    code, _, said = openstack("admin", "slot", "resume", slot["name"])
    assert code == 0, said


def test_keystoneauth_finds_its_versions_by_the_catalogue(tenant):
    found = tenant.adapter("fpga").get_endpoint_data()
    assert found.api_version == (1, 0)
    assert discover.version_between((1, 0), (1, "latest"), found.max_microversion)


def test_a_token_is_asked_for_and_looked_at(tenant):
    endpoint = tenant.adapter("fpga").get_endpoint()
    anonymous = adapter.Adapter(Session(), endpoint_override=endpoint)
    assert anonymous.get("/v1/slots", raise_exc=False).status_code == 401
    forged = {"X-Auth-Token": "gAAAAA" + "x" * 120}
    assert anonymous.get("/v1/slots", headers=forged, raise_exc=False).status_code == 401
    claimed = {"X-Project-Id": "demo", "X-Roles": "admin"}
    assert anonymous.get("/v1/slots", headers=claimed, raise_exc=False).status_code == 401
