"""The Placement service on loopback, without authentication: `serve_placement.py PORT DATABASE_URL`."""

import sys
from typing import Any

from cheroot.wsgi import Server
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration


def application(database_url: str) -> Any:
    """Return Placement's WSGI application for a database, after creating or updating the schema."""
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", database_url, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf([], project="placement", default_config_files=[], default_config_dirs=[])
    db_api.configure(conf)
    migration.upgrade("head")
    return deploy.loadapp(conf)


def main() -> None:
    """Serve until the process is ended."""
    port, database_url = sys.argv[1:]
    Server(("127.0.0.1", int(port)), application(database_url), numthreads=4).start()


if __name__ == "__main__":
    main()
