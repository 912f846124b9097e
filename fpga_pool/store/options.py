"""[database]: the options of oslo.db that the pool's store supports."""

import copy

from oslo_config import cfg, types
from oslo_db import options
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.store.engine import CONNECT_INTERVAL_S, CONNECT_RETRIES, translated
from fpga_pool.store.store import Store

GROUP = "database"

#: Options for the engine of a database server; a SQLite file needs none of them.
FOLLOWED = (
    "connection_recycle_time",
    "max_overflow",
    "max_pool_size",
    "max_retries",
    "mysql_sql_mode",
    "mysql_wsrep_sync_wait",
    "pool_timeout",
    "retry_interval",
)


#: Defaults that differ from oslo.db's: enough pooled connections for the threads that handle requests, and retries that
#: end after seconds, not minutes, if the service cannot start.
DEFAULTS = {"max_pool_size": 20, "max_retries": CONNECT_RETRIES, "retry_interval": int(CONNECT_INTERVAL_S)}
#: Minimum values, as oslo.db accepts any integer.  -1 means no limit, or no recycling.
LEAST = {
    "connection_recycle_time": -1,
    "max_overflow": -1,
    "max_pool_size": 0,
    "max_retries": -1,
    "mysql_wsrep_sync_wait": 0,
    "pool_timeout": 0,
    "retry_interval": 0,
}


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the supported options of oslo.db; also used for the sample configuration."""
    followed = [copy.copy(option) for option in options.database_opts if option.name in ("connection", *FOLLOWED)]
    for option in followed:
        option.default = DEFAULTS.get(option.name, option.default)
        if option.name in LEAST:
            option.type = types.Integer(min=LEAST[option.name])
    return [(GROUP, followed)]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register these options with `conf`."""
    for group, followed in list_opts():
        conf.register_opts(followed, group)


def has_database(conf: cfg.ConfigOpts) -> bool:
    """Return whether the configuration names the pool's database."""
    register_opts(conf)
    return bool(conf[GROUP].connection)


def open_store(conf: cfg.ConfigOpts) -> Store:
    """Return the store in the configured database; InvalidInput or ServiceUnavailable if it cannot be used.

    The options are registered here and not at import, so that processes without a database load nothing for one.
    """
    register_opts(conf)
    group = conf[GROUP]
    if not group.connection:
        raise InvalidInput(
            "[database] connection: set it to the URL of the pool's database, such as"
            " mysql+pymysql://USER:PASSWORD@HOST/fpga_pool"
        )
    followed = {name: group[name] for name in FOLLOWED}
    try:
        with translated():
            return Store(group.connection, **followed)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        raise InvalidInput(f"[database] connection: {error}") from error
