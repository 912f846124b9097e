"""Placement itself on loopback, in a process of its own: `serve_placement.py PORT DATABASE`.  It trusts everybody."""

import sys

from cheroot.wsgi import Server
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration


def application(database):
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", f"sqlite:///{database}", group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf([], project="placement", default_config_files=[], default_config_dirs=[])
    db_api.configure(conf)
    migration.upgrade("head")
    return deploy.loadapp(conf)


def main():
    port, database = sys.argv[1:]
    Server(("127.0.0.1", int(port)), application(database), numthreads=4).start()


if __name__ == "__main__":
    main()
