import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from fpga_pool.api.app import create_app
from fpga_pool.api.rates import BURST_S, REFRESH_S, Places, RequestRates
from fpga_pool.client import Client
from fpga_pool.model.exceptions import QuotaExceeded, ServiceUnavailable, TooManyRequests
from fpga_pool.model.objects.quotas import QuotaLimits

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_a_project_sees_its_own_quota_and_use(api):
    api.post("/v1/batches", json={"jobs": [JOB, JOB]})
    quota = api.get("/v1/quotas").json["quota"]
    assert quota["project_id"] == "demo"
    assert quota["resources"][0] == {"resource": "jobs", "limit": 100_000, "default": True, "used": 2}
    assert api.get("/v1/quotas/other").json["quota"]["resources"][0]["used"] == 0


def test_limits_are_set_one_by_one_and_unset_together(api):
    api.put("/v1/quotas/other", json={"jobs": 5})
    answer = api.put("/v1/quotas/other", json={"task_slots": -1, "jobs": None})
    assert answer.status_code == 200
    limits = {one["resource"]: (one["limit"], one["default"]) for one in answer.json["quota"]["resources"]}
    assert (limits["jobs"], limits["task_slots"]) == ((5, False), (-1, False))
    answer = api.delete("/v1/quotas/other")
    assert (answer.status_code, answer.json["quota"]["resources"][0]["default"]) == (200, True)


@pytest.mark.parametrize("body", [{"jobs": -2}, {"jobs": 2**63}, {"jobs": "5"}, {"cards": 5}, {"jobs": 1.5}, []])
def test_impossible_limits_are_refused(api, body):
    assert api.put("/v1/quotas/other", json=body).status_code == 400


@pytest.mark.parametrize("name", ["a%20b", "x" * 65, "%00"])
def test_impossible_projects_are_refused(api, name):
    assert api.put(f"/v1/quotas/{name}", json={"jobs": 5}).status_code == 400


def test_what_a_quota_does_not_allow_is_forbidden_with_a_code_of_its_own(api, pool):
    pool.breaks["create_batch"] = [QuotaExceeded("jobs: 1 requested, 3 of 3 used")]
    answer = api.post("/v1/batches", json={"jobs": [JOB]})
    (error,) = answer.json["errors"]
    assert (answer.status_code, error["code"]) == (403, "fpga_pool.quota_exceeded")
    assert "3 of 3 used" in error["detail"]


def test_more_requests_than_the_quota_allows_are_refused_with_the_time_to_come_again(api, pool):
    pool.set_quota("demo", QuotaLimits(requests_per_s=1))
    answers = [api.get("/v1/hosts") for _ in range(int(BURST_S) + 20)]
    assert [answer.status_code for answer in answers[: int(BURST_S)]] == [200] * int(BURST_S)
    refused = next(answer for answer in answers if answer.status_code != 200)
    (error,) = refused.json["errors"]
    assert (refused.status_code, error["code"]) == (429, "fpga_pool.too_many_requests")
    # A token for a whole request is available again within a second. The header has whole seconds.
    assert refused.headers["Retry-After"] == "1"
    assert api.get("/v1/hosts", headers={"X-Project-Id": "other"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/v1/", "/v1/openapi.json", "/dashboard/"])
def test_what_belongs_to_no_project_is_not_counted(api, pool, path):
    pool.set_quota("demo", QuotaLimits(requests_per_s=0))
    assert api.get("/v1/hosts").status_code == 429
    assert api.get(path).status_code == 200


def test_operators_without_a_project_have_no_quota(api, pool):
    pool.set_quota("demo", QuotaLimits(requests_per_s=0))
    assert api.get("/v1/hosts", headers={"X-System-Scope": "all"}).status_code == 200


class Now:
    """The clock of a test, in seconds."""

    s = 1000.0

    def __call__(self):
        return self.s


def test_a_quota_that_was_changed_is_in_force_after_a_while(pool):
    now = Now()
    rates = RequestRates(now)
    pool.set_quota("p", QuotaLimits(requests_per_s=0))
    with pytest.raises(TooManyRequests, match="its quota is 0") as refused:
        rates.take("p", pool.quota)
    assert refused.value.retry_after_s == REFRESH_S
    pool.set_quota("p", QuotaLimits(requests_per_s=2))
    now.s += REFRESH_S
    for _ in range(int(2 * BURST_S)):
        rates.take("p", pool.quota)
    with pytest.raises(TooManyRequests, match="more than 2 requests per second") as refused:
        rates.take("p", pool.quota)
    assert refused.value.retry_after_s == 0.5
    now.s += 0.5
    rates.take("p", pool.quota)


def test_a_scheduler_that_is_away_for_a_moment_changes_no_quota(pool):
    now = Now()
    rates = RequestRates(now)
    pool.set_quota("p", QuotaLimits(requests_per_s=-1))
    rates.take("p", pool.quota)
    now.s += REFRESH_S
    pool.breaks["quota"] = [ServiceUnavailable("away")]
    with pytest.raises(ServiceUnavailable):
        rates.take("p", pool.quota)
    for _ in range(10_000):
        rates.take("p", pool.quota)


def test_the_client_repeats_what_came_too_early(pool, serve):
    pool.set_quota("demo", QuotaLimits(requests_per_s=1))
    with Client(serve(pool)) as client:
        for _ in range(int(BURST_S) + 1):  # the last one waits for a second
            assert client.hosts()


def test_the_client_does_not_repeat_for_ever(pool, serve, monkeypatch):
    monkeypatch.setattr("fpga_pool.client.session._PATIENCE_S", 0.5)
    pool.set_quota("demo", QuotaLimits(requests_per_s=0))
    with Client(serve(pool)) as client, pytest.raises(TooManyRequests, match="its quota is 0"):
        client.hosts()


def test_no_project_has_all_places_of_requests_that_wait():
    places = Places()
    with contextlib.ExitStack() as stack:
        granted = [stack.enter_context(places.taken(project, 5.0)) for project in ["p"] * 20 + ["q"] * 16]
        # Requests that may not wait count as requests under way.
        assert (granted[:20].count(5.0), granted[20:].count(5.0)) == (16, 8)
    with places.taken("p", 5.0) as wait_s:
        assert wait_s == 5.0


def test_no_project_has_many_requests_under_way_those_that_wait_not_counted():
    places = Places()
    with contextlib.ExitStack() as stack:
        for wait_s in [5.0] * 12 + [0.0] * 12:  # 24 of 32 threads are taken
            stack.enter_context(places.taken("p", wait_s))
        with (
            pytest.raises(TooManyRequests, match="12 requests of project p are under way"),
            places.taken("p", 0.0),
        ):
            pass
        for _ in range(8):
            stack.enter_context(places.taken("q", 0.0))
        with pytest.raises(TooManyRequests), places.taken("q", 0.0):
            pass
        for _ in range(20):  # operators of the whole system
            stack.enter_context(places.taken("", 0.0))
    with places.taken("p", 0.0):
        pass


def test_the_client_repeats_a_request_of_which_too_many_were_under_way(pool, serve, monkeypatch):
    begun, go_on, hosts = threading.Semaphore(0), threading.Event(), pool.hosts

    def slowly(page):
        begun.release()
        assert go_on.wait(60)
        return hosts(page)

    monkeypatch.setattr(pool, "hosts", slowly)
    with Client(serve(pool)) as client, ThreadPoolExecutor(25) as threads:
        asked = [threads.submit(client.hosts) for _ in range(24)]
        assert all(begun.acquire(timeout=60) for _ in asked)
        refused = requests.get(f"{client._http.endpoint}/v1/hosts", timeout=60)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        last = threads.submit(client.hosts)
        go_on.set()
        assert all(one.result(60) == last.result(60) != [] for one in asked)
