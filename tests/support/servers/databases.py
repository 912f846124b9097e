"""MariaDB and PostgreSQL servers, which make commits durable and hold many databases."""

import contextlib
import secrets
import signal
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from fpga_pool.model.exceptions import ServiceUnavailable
from support.servers.server import USER, Server

MAX_CONNECTIONS = 300


class Database(Server):
    """A server that holds many databases; each test uses a new one."""

    driver: ClassVar[str]

    @property
    def url(self) -> str:
        """The server's URL, without a database."""
        return f"{self.driver}://{USER}:{self.password}@{self.addresses[0]}:{self.port}"

    def new_database(self) -> str:
        """Create an empty database, and return its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"{self.url}/{name}"

    def drop_database(self, url: str) -> None:
        """Remove a database that `new_database` created."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]}")

    @abstractmethod
    def execute(self, statement: str) -> str:
        """Run one SQL statement as the server's administrator; return its output, one row per line."""

    def _answers(self) -> bool:
        with contextlib.suppress(ServiceUnavailable):
            return self.execute("SELECT 1").strip() == "1"
        return False


class MariaDB(Database):
    """A MariaDB server."""

    name = "mariadb"
    package = "mariadb-server"
    package_user = "mysql"
    programs = ("mariadbd", "mariadb", "mariadb-install-db")
    driver = "mysql+pymysql"

    def execute(self, statement: str) -> str:
        """Run one statement as USER, who has all privileges."""
        return self._client("mariadb", "--skip-column-names", f"--execute={statement}")

    def dump(self, names: Sequence[str]) -> str:
        """Return statements that create these databases with their content."""
        return self._client("mariadb-dump", "--skip-dump-date", "--databases", *names)

    def load(self, statements: str) -> None:
        """Run statements that `dump` has returned."""
        self._client("mariadb", given=statements)

    def copy(self, source: str, target: str) -> None:
        """Fill an empty database with the content of another."""
        self._client("mariadb", target, given=self._client("mariadb-dump", source))

    def _client(self, program: str, *options: str, given: str | None = None) -> str:
        address = ["--protocol=tcp", f"--host={self.addresses[0]}", f"--port={self.port}", f"--user={USER}"]
        return self._run([program, "--no-defaults", *address, *options], {"MYSQL_PWD": self.password}, given=given)

    def _initialise(self) -> None:
        options = ["--no-defaults", f"--datadir={self.directory}/data", "--skip-test-db"]
        self._run(["mariadb-install-db", *options, "--auth-root-authentication-method=normal"])
        account = f"'{USER}'@'%'"
        statements = [
            # This account has no password here.
            "DROP USER IF EXISTS root@localhost",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}'",
            f"GRANT ALL ON *.* TO {account} WITH GRANT OPTION",
        ]
        self._write("accounts.sql", "".join(f"{statement};\n" for statement in statements))

    def _launch(self, keep: bool) -> None:
        options = {
            "datadir": self.directory / "data",
            "tmpdir": self.directory,
            "socket": "socket",  # relative to the data directory, because the path of a socket must be short
            "pid-file": self.directory / "server.pid",
            "init-file": self.directory / "accounts.sql",
            "bind-address": ",".join(self.addresses),
            "port": self.port,
            "max-connections": MAX_CONNECTIONS,
            "innodb-flush-log-at-trx-commit": 1,
            "innodb-buffer-pool-size": "128M",
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        self._spawn(self._process, ["mariadbd", "--no-defaults", "--skip-name-resolve", *settings], keep)


class PostgreSQL(Database):
    """A PostgreSQL server."""

    name = "postgresql"
    package = "postgresql"
    package_user = "postgres"
    programs = ("postgres", "initdb", "psql")
    stop_signal = signal.SIGINT  # ends sessions; SIGTERM would wait for them
    orphan_signal = signal.SIGQUIT  # leaves no shared memory behind
    driver = "postgresql+psycopg"
    #: Size of a WAL file: on a full disk, the server continues until it needs the next file.
    log_file_mb: ClassVar[int] = 16

    def execute(self, statement: str) -> str:
        """Run one statement as USER, who has all privileges."""
        address = [f"--host={self.addresses[0]}", f"--port={self.port}", f"--username={USER}", "--dbname=postgres"]
        command = ["psql", "--no-psqlrc", *address, "--tuples-only", "--no-align", f"--command={statement}"]
        return self._run(command, {"PGPASSWORD": self.password})

    def drop_database(self, url: str) -> None:
        """Remove a database, and end the sessions that use it."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def _initialise(self) -> None:
        data = self.directory / "data"
        password = self._write("password", self.password)
        account = [f"--username={USER}", f"--pwfile={password}", "--auth=scram-sha-256"]
        form = ["--encoding=UTF8", "--locale=C", f"--wal-segsize={self.log_file_mb}"]
        self._run(["initdb", f"--pgdata={data}", *account, *form, "--no-sync"])
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")

    def _launch(self, keep: bool) -> None:
        settings = {
            "listen_addresses": ",".join(self.addresses),
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": MAX_CONNECTIONS,
            "fsync": "on",
            "synchronous_commit": "on",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._spawn(self._process, ["postgres", "-D", str(self.directory / "data"), *options], keep)
