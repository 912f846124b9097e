"""The services' databases: the services' own migrations create the schemas once, and copies are used from then on.

The migrations of all services take longer than everything else together, and always have the same result.  The result
is therefore kept beside the packages.  It contains nothing specific to one cloud: Nova's cells are named by templates.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from fpga_pool.model.exceptions import ServiceUnavailable
from support.cloud.programs import BIN, LAST_LINES
from support.cloud.settings import settings_file
from support.cloud.site import Site
from support.servers import MariaDB

SYNC_TIMEOUT_S = 900.0

DATABASES = ("keystone", "placement", "glance", "neutron", "nova_api", "nova_cell0", "nova_cell1")
PACKAGES = ("keystone", "openstack-placement", "glance", "neutron", "nova")

#: Templates that Nova fills in from the configuration of the service that reads them.
_CELL_DATABASE = "{scheme}://{username}:{password}@{hostname}:{port}/%s"
_CELL_MESSAGES = "{scheme}://{username}:{password}@{hostname}:{port}/"


def make_databases(site: Site, server: MariaDB) -> None:
    """Create all databases with their schemas, unless an earlier start has done so."""
    done = site.directory / "databases"
    if done.exists():
        return
    for name in DATABASES:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb3")
    template = _template()
    if template.exists():
        server.load(template.read_text())
    else:
        _migrate(site, server)
        _keep(template, server.dump(DATABASES))
    done.touch()


def _template() -> Path:
    return Path(sys.prefix) / "schemas" / ("-".join(version(package) for package in PACKAGES) + ".sql")


def _keep(template: Path, statements: str) -> None:
    """Write the template atomically, since another cloud may start at the same time."""
    template.parent.mkdir(exist_ok=True)
    draft = template.with_suffix(f".{os.getpid()}")
    draft.write_text(statements)
    draft.rename(template)


def _migrate(site: Site, server: MariaDB) -> None:
    """Run the services' migrations; those that do not depend on each other run concurrently."""
    jobs: list[Callable[[], None]] = [
        lambda: _keystone(site),
        lambda: _glance_and_placement(site),
        lambda: _neutron(site),
        lambda: _nova(site, server),
    ]
    with ThreadPoolExecutor(len(jobs)) as threads:
        for done in [threads.submit(job) for job in jobs]:
            done.result()


def _keystone(site: Site) -> None:
    run(site, "keystone-manage", f"--config-file={settings_file(site, 'keystone/keystone.conf')}", "db_sync")


def _glance_and_placement(site: Site) -> None:
    run(site, "glance-manage", f"--config-file={settings_file(site, 'glance/glance-api.conf')}", "db_sync")
    run(site, "placement-manage", f"--config-file={settings_file(site, 'placement/placement.conf')}", "db", "sync")


def _neutron(site: Site) -> None:
    files = [f"--config-file={settings_file(site, f'neutron/{name}')}" for name in ("neutron.conf", "ml2.ini")]
    run(site, "neutron-db-manage", *files, "upgrade", "heads")


def _nova(site: Site, server: MariaDB) -> None:
    manage = ["nova-manage", f"--config-file={settings_file(site, 'nova/nova.conf')}"]
    run(site, *manage, "api_db", "sync")
    run(site, *manage, "db", "sync", "--local_cell")
    # All cells have the same schema.
    server.copy("nova_cell1", "nova_cell0")
    run(site, *manage, "cell_v2", "map_cell0", f"--database_connection={_CELL_DATABASE % 'nova_cell0'}")
    cell = [f"--database_connection={_CELL_DATABASE % 'nova_cell1'}", f"--transport-url={_CELL_MESSAGES}"]
    run(site, *manage, "cell_v2", "create_cell", "--name=cell1", *cell)


def run(site: Site, *command: str) -> str:
    """Run a program of the packages to its end; return its output.  Raises ServiceUnavailable with its last lines."""
    words: Sequence[str] = [str(BIN / command[0]), *command[1:]]
    environment = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        words,
        cwd=site.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SYNC_TIMEOUT_S,
    )
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-LAST_LINES:])
        raise ServiceUnavailable(f"{' '.join(command)} failed: {said}")
    return done.stdout
