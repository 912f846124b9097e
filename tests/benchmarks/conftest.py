"""Parts that several benchmarks measure against."""

import pytest

from support.deployment import Deployment


@pytest.fixture
def scheduler_process(rabbitmq, mariadb, tmp_path):
    """Start `fpga-pool-scheduler` on RabbitMQ and MariaDB; gives its deployment and the database's URL."""
    url = mariadb.new_database()
    options = {"scheduler": {"host_timeout_s": 3600}, "database": {"max_pool_size": 20}}
    pool = Deployment(tmp_path / "pool", rabbitmq.url, url, agents=0, options=options)
    try:
        pool.prepare()
        pool.restart("scheduler-1")
        yield pool, url
    finally:
        pool.close()
        mariadb.drop_database(url)
