"""Tokens that Keystone's middleware found valid are cached for a moment. The cache makes no other token valid."""

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from keystonemiddleware.fixture import AuthTokenFixture
from werkzeug.test import Client

from fpga_pool.api import tokens
from fpga_pool.api.stack import make_application
from support.personas import PERSONAS, keystone_configuration, token

FUNCTIONS, JOBS = "/v1/functions", "/v1/jobs"


class Keystone(AuthTokenFixture):
    """A Keystone that, like the real one, returns an expired token only if asked with `allow_expired=1`."""

    def fetch_token(self, token, *, allow_expired=False):
        return self._token_data[token] if allow_expired and token in self._token_data else super().fetch_token(token)


@pytest.fixture
def keystone():
    fixture = Keystone()
    fixture.setUp()
    yield fixture
    fixture.cleanUp()


@pytest.fixture
def api(pool, keystone, tmp_path, monkeypatch):
    """Return an API that caches tokens for its whole lifetime."""
    monkeypatch.setattr(tokens, "REMEMBERED_S", 1000.0)
    configuration = keystone_configuration(tmp_path)
    application = make_application(configuration, pool, keystone=True)
    configuration.set_override("service_type", "fpga", "keystone_authtoken")
    return Client(application)


def status(api, path, name, **headers):
    return api.get(path, headers={"X-Auth-Token": name, **headers}).status_code


def test_a_token_is_checked_once_as_long_as_it_is_remembered(api, keystone):
    keystone.add_token(token(PERSONAS["reader"]), token_id="reader")
    assert status(api, FUNCTIONS, "reader") == 200
    keystone._token_data.clear()
    assert status(api, FUNCTIONS, "reader") == 200
    assert status(api, FUNCTIONS, "another") == 401


def test_a_token_is_checked_again_after_a_moment(api, keystone, monkeypatch):
    monkeypatch.setattr(tokens, "REMEMBERED_S", -1.0)
    keystone.add_token(token(PERSONAS["reader"]), token_id="reader")
    assert status(api, FUNCTIONS, "reader") == 200
    keystone._token_data.clear()
    assert status(api, FUNCTIONS, "reader") == 401


def test_a_remembered_token_that_expires_is_valid_no_more(api, keystone, monkeypatch):
    short = token(PERSONAS["reader"])
    short.expires = datetime.now(UTC) + timedelta(hours=1)
    keystone.add_token(short, token_id="reader")
    assert status(api, FUNCTIONS, "reader") == 200
    keystone._token_data.clear()
    assert status(api, FUNCTIONS, "reader") == 200
    later = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + 3600.0)
    monkeypatch.setattr(tokens, "time", later)
    assert status(api, FUNCTIONS, "reader") == 401


def test_headers_that_a_client_sends_with_a_remembered_token_are_not_believed(api, keystone):
    keystone.add_token(token(PERSONAS["reader"]), token_id="reader")
    faked = {"X-Roles": "admin", "X-Role": "admin", "OpenStack-System-Scope": "all", "X-Is-Admin-Project": "True"}
    for _ in range(2):
        assert status(api, "/v1/services", "reader", **faked) == 403
        assert status(api, "/v1/services", "nobody", **{**faked, "X-Identity-Status": "Confirmed"}) == 401


def test_a_token_with_rules_of_access_is_checked_for_each_path(api, keystone):
    limited = token(PERSONAS["reader"])
    limited.add_service("fpga")
    rules = [{"id": "1", "service": "fpga", "method": "GET", "path": FUNCTIONS}]
    limited.root["application_credential"] = {"id": "1", "name": "a", "restricted": True, "access_rules": rules}
    keystone.add_token(limited, token_id="limited")
    for _ in range(2):
        assert status(api, FUNCTIONS, "limited") == 200
        assert status(api, JOBS, "limited") == 401


def test_a_token_that_comes_with_that_of_a_service_is_checked_together_with_it(api, keystone):
    keystone.add_token(token(PERSONAS["reader"]), token_id="reader")
    assert status(api, FUNCTIONS, "reader") == 200
    keystone._token_data.clear()
    assert status(api, FUNCTIONS, "reader", **{"X-Service-Token": "unknown"}) == 401


@pytest.mark.parametrize(
    ("user", "service", "expected"),
    [
        ("reader", "service", 200), ("reader", "member", 401), ("reader", "unknown", 401),
        ("expired", "service", 200), ("expired", "member", 401), ("expired", "unknown", 401),
    ],
)  # fmt: skip
def test_a_token_of_a_service_makes_an_expired_one_valid_and_one_of_another_user_none(
    api, keystone, user, service, expected
):
    known = {"expired": token(PERSONAS["reader"]), **{name: token(PERSONAS[name]) for name in PERSONAS}}
    known["expired"].expires = datetime.now(UTC) - timedelta(hours=1)
    for name, data in known.items():
        keystone.add_token(data, token_id=name)
    assert status(api, FUNCTIONS, user, **{"X-Service-Token": service}) == expected
    assert status(api, FUNCTIONS, user) == (200 if user == "reader" else 401)  # an expired token is not cached
