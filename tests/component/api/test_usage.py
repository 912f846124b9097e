"""The usage of projects over the REST API, in the client and on the command line."""

import pytest

from fpga_pool.api.app import create_app


@pytest.fixture
def used(pool):
    pool.have_used(["demo", "other"], ["aes", "sha256"], days=[1])
    return pool


@pytest.fixture
def api(used):
    return create_app(used).test_client()


def keys(answer):
    return [(row["project_id"], row["function"]) for row in answer.json["usage"]]


def test_a_tenant_sees_its_own_usage_and_an_admin_that_of_all(api):
    answer = api.get("/v1/usage?start=1970-01-02T00:00:00Z&end=1970-01-03T00:00:00Z")
    assert keys(answer) == [("demo", "aes"), ("demo", "sha256")]
    assert answer.json["usage"][0] == {
        "project_id": "demo", "function": "aes", "begin_at": "1970-01-02T00:00:00.000000+00:00",
        "end_at": "1970-01-03T00:00:00.000000+00:00", "jobs": 2, "slot_s": 1.5, "cpu_s": 0.0, "vcpu_s": 3.0,
        "instance_slot_s": 60.0, "input_bytes": 20, "result_bytes": 7, "loads": 3,
    }  # fmt: skip
    assert len(keys(api.get("/v1/usage?project_id=all"))) == 4
    tenant = {"X-Roles": "reader,member"}
    assert keys(api.get("/v1/usage?project_id=demo", headers=tenant)) == [("demo", "aes"), ("demo", "sha256")]
    for other in ("other", "all"):
        assert api.get(f"/v1/usage?project_id={other}", headers=tenant).status_code == 403


def test_pages_are_of_one_period(api):
    seen, href = [], "/v1/usage?project_id=all&limit=3"
    while href:
        answer = api.get(href)
        assert answer.status_code == 200
        seen += [(row["project_id"], row["function"], row["end_at"]) for row in answer.json["usage"]]
        href = answer.json["links"][0]["href"] if answer.json["links"] else None
    assert [row[:2] for row in seen] == [(p, f) for p in ("demo", "other") for f in ("aes", "sha256")]
    assert len({row[2] for row in seen}) == 1


@pytest.mark.parametrize(
    "query", ["marker=aes", "limit=0", "start=soon", "start=2026-01-01T00:00:00", "project_id=a%20b"]
)
def test_impossible_parameters_are_refused(api, query):
    assert api.get(f"/v1/usage?{query}").status_code == 400


def test_a_period_may_begin_and_end_at_any_time(api):
    early = api.get("/v1/usage?start=1969-01-01T00:00:00Z&end=1970-01-03T00:00:00Z")
    assert keys(early) == [("demo", "aes"), ("demo", "sha256")]
    late = api.get("/v1/usage?start=9999-12-30T00:00:00Z&end=9999-12-31T23:59:59.999999Z")
    assert (late.status_code, keys(late)) == (200, [])


def test_the_client_reads_all_pages(used, client, monkeypatch):
    monkeypatch.setattr("fpga_pool.client.api._PAGE", 1)
    assert [one.function for one in client.usage(start=0.0, end=172800.0)] == ["aes", "sha256"]
    assert {(one.begin_at, one.end_at) for one in client.usage(project_id="all", end=172800.0)} == {(86400.0, 172800.0)}
