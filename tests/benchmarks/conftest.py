"""Fixtures of several benchmarks."""

import pytest

from support.deployment import Deployment


@pytest.fixture
def scheduler_options():
    """Options of `scheduler_process`, which a test module may override."""
    return {"scheduler": {"host_timeout_s": 3600}, "database": {"max_pool_size": 20}}


@pytest.fixture
def scheduler_process(rabbitmq, mariadb, tmp_path, scheduler_options):
    """Start `fpga-pool-scheduler` on RabbitMQ and MariaDB; yield its deployment and the database's URL."""
    url = mariadb.new_database()
    pool = Deployment(tmp_path / "pool", rabbitmq.url, url, agents=0, options=scheduler_options)
    try:
        pool.prepare()
        pool.restart("scheduler-1")
        yield pool, url
    finally:
        pool.close()
        mariadb.drop_database(url)
