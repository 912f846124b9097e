"""[database]: the options of oslo.db, as far as the pool's store follows them."""

import copy

from oslo_config import cfg, types
from oslo_db import options
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.store.engine import CONNECT_INTERVAL_S, CONNECT_RETRIES, translated
from fpga_pool.store.store import Store

GROUP = "database"

#: What goes to the engine of a database server; a SQLite file needs none of them.
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


#: Requests are worked on in threads, each with a connection: they are kept.  A start that cannot succeed ends after
#: seconds, not minutes.
DEFAULTS = {"max_pool_size": 20, "max_retries": CONNECT_RETRIES, "retry_interval": int(CONNECT_INTERVAL_S)}
#: oslo.db takes any integer.  -1 is no limit, and no recycling.
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
    """Return oslo.db's options that the store follows, for the sample configuration too."""
    followed = [copy.copy(option) for option in options.database_opts if option.name in ("connection", *FOLLOWED)]
    for option in followed:
        option.default = DEFAULTS.get(option.name, option.default)
        if option.name in LEAST:
            option.type = types.Integer(min=LEAST[option.name])
    return [(GROUP, followed)]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Make these options known to `conf`."""
    for group, followed in list_opts():
        conf.register_opts(followed, group)


def has_database(conf: cfg.ConfigOpts) -> bool:
    """Return whether the configuration names the pool's database."""
    register_opts(conf)
    return bool(conf[GROUP].connection)


def open_store(conf: cfg.ConfigOpts) -> Store:
    """Return the store in the configured database; InvalidInput or ServiceUnavailable if it cannot be used.

    Only here are the options made known to `conf`: a process that needs no database loads nothing for one.
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
