"""SIGKILL of agent and scheduler while a host is enrolled: in the end it is in the pool, with one key."""

import contextlib

import pytest

from fpga_pool.client import RunSettings
from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key
from fpga_pool.rpc.identity import key_text
from fpga_pool.store import Store
from support.deployment import Deployment
from support.waiting import wait_until

SCHEDULER, HOST, API = "scheduler-1", "node-1", "api"


class Enrolling:
    """A pool with a host that is not enrolled yet, and has a code of the operator."""

    def __init__(self, pool, database_url):
        self.pool = pool
        self._store = Store(database_url)

    def close(self):
        self._store.close()
        self.pool.close()

    @property
    def key_file(self):
        """The file of the agent's private key."""
        return self.pool.directory / HOST / "agent.pem"

    def enrolled(self):
        """Return the key that the pool has stored for the host; "" = none."""
        return next((one.key for one in self._store.enrolments() if one.host == HOST), "")

    def own_key(self):
        return key_text(load_or_create_signing_key(self.key_file).public_key())

    def check(self, tmp_path):
        """Assert that the host is enrolled with its own key, alive, and runs jobs."""
        self.pool.wait_for_hosts([HOST])
        assert self.enrolled() == self.own_key()
        settings = RunSettings(fast_poll_s=0.05, timeout_s=180.0)
        batch = self.pool.client().run("sha256", [b"x"], requester=HOST, output_dir=tmp_path, settings=settings)
        assert batch.ok


@pytest.fixture
def enrolling(rabbitmq, mariadb_url, tmp_path):
    options = {"scheduler": {"interval_s": 0.2, "shard_timeout_s": 1.0}, "agent": {"heartbeat_s": 0.5}}
    pool = Deployment(tmp_path / "pool", rabbitmq.url, mariadb_url, agents=1, options=options, forked=True)
    pool.prepare()
    with contextlib.closing(Enrolling(pool, mariadb_url)) as enrolling:
        yield enrolling
        for name in pool.names:  # pytest shows it where the test failed
            print(f"--- {name}\n{pool.last_lines(name)}")


def test_an_agent_that_is_killed_when_it_has_made_its_key_is_enrolled_with_it_later(enrolling, tmp_path):
    # Without a scheduler, the agent cannot proceed further.
    enrolling.pool.restart(HOST)
    wait_until(enrolling.key_file.exists, "the agent has a key")
    enrolling.pool.kill(HOST)
    key = enrolling.own_key()
    for name in (SCHEDULER, API, HOST):
        enrolling.pool.restart(name)
    enrolling.check(tmp_path)
    assert enrolling.own_key() == key


@pytest.mark.long
def test_an_agent_that_is_killed_when_the_pool_has_accepted_its_key_does_not_need_its_code_again(enrolling, tmp_path):
    for name in (SCHEDULER, API, HOST):
        enrolling.pool.restart(name)
    key = wait_until(enrolling.enrolled, "the pool has a key of the host")
    enrolling.pool.kill(HOST)
    enrolling.pool.restart(HOST)
    enrolling.check(tmp_path)
    assert enrolling.enrolled() == key


@pytest.mark.long
def test_a_scheduler_that_is_killed_when_it_has_accepted_a_key_knows_it_when_it_starts_again(enrolling, tmp_path):
    for name in (SCHEDULER, API, HOST):
        enrolling.pool.restart(name)
    key = wait_until(enrolling.enrolled, "the pool has a key of the host")
    enrolling.pool.kill(SCHEDULER)
    enrolling.pool.restart(SCHEDULER)
    enrolling.check(tmp_path)
    assert enrolling.enrolled() == key


@pytest.mark.long
def test_a_scheduler_that_is_killed_again_and_again_enrolls_the_host_in_the_end(enrolling, tmp_path):
    for name in (API, HOST):
        enrolling.pool.restart(name)
    log = enrolling.pool.log_file(SCHEDULER)
    for kills in range(3):
        enrolling.pool.restart(SCHEDULER)
        # It listens, and calls of the agent may be in progress.
        wait_until(lambda kills=kills: log.read_text().count("is owned by") > kills, "the scheduler has begun")
        enrolling.pool.kill(SCHEDULER)
    enrolling.pool.restart(SCHEDULER)
    enrolling.check(tmp_path)
