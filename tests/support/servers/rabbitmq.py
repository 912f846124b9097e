"""A RabbitMQ node with its own name, epmd and cookie."""

import base64
import hashlib
import json
import secrets
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fpga_pool.model.exceptions import ServiceUnavailable
from support.servers.process import Process
from support.servers.server import POLL_INTERVAL_S, START_TIMEOUT_S, USER, Server, free_ports

if TYPE_CHECKING:
    from fpga_pool.rpc.permissions import Permissions  # slow to import

PROBE_TIMEOUT_S = 5.0

#: AMQP 0-9-1, section 4.2.2: the first bytes of a client; a server that is ready answers with a method frame (type 1).
HELLO = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"

#: Ports of epmd and of the node's own tools.
OTHER_PORTS = range(16_000, 20_000)


class RabbitMQ(Server):
    """RabbitMQ as a local server."""

    name = "rabbitmq"
    package = "rabbitmq-server"
    package_user = "rabbitmq"
    #: The full path, because the program of this name on the PATH is a wrapper that insists on the system's own files.
    programs = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "epmd")

    def __init__(self, directory: Path, addresses: Sequence[str] = ("127.0.0.1",)) -> None:
        super().__init__(directory, addresses)
        self._epmd = Process(self.directory / "epmd.pid")

    @property
    def url(self) -> str:
        """Value for `transport_url` of oslo.messaging."""
        return f"rabbit://{USER}:{self.password}@{self.addresses[0]}:{self.port}/"

    def account(self, user: str) -> str:
        """Return the URL of another account, with the same password."""
        return self.url.replace(f"//{USER}:", f"//{user}:")

    def provide_accounts(self, accounts: "Mapping[str, Permissions]", exchange: str) -> None:
        """Create accounts with the permissions that processes of the pool need, replacing those of the same name."""
        salt = secrets.token_bytes(4)
        digest = base64.b64encode(salt + hashlib.sha256(salt + self.password.encode()).digest()).decode()
        at = {"vhost": "/"}
        definitions = {
            "users": [
                {
                    "name": user,
                    "password_hash": digest,
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": "",
                }
                for user in accounts
            ],
            "permissions": [
                {"user": user, "configure": own.configure, "write": own.write, "read": own.read, **at}
                for user, own in accounts.items()
            ],
            "topic_permissions": [
                {"user": user, "exchange": exchange, "write": own.topic_write, "read": own.topic_read, **at}
                for user, own in accounts.items()
            ],
        }
        file = self._write("accounts.json", json.dumps(definitions))
        self._run(["/usr/lib/rabbitmq/bin/rabbitmqctl", "import_definitions", str(file)])

    def stop(self) -> None:
        """Stop the node, then its epmd."""
        super().stop()
        self._epmd.end(signal.SIGTERM)

    def _initialise(self) -> None:
        self._write("enabled_plugins", "[].\n")
        self._write("ports", "{} {}".format(*free_ports(2, OTHER_PORTS)))

    def _ports(self) -> tuple[int, int]:
        """Return the port of epmd, and the port of the node for its own tools."""
        epmd, distribution = (self.directory / "ports").read_text().split()
        return int(epmd), int(distribution)

    def _environment(self) -> dict[str, str]:
        epmd_port, distribution_port = self._ports()
        return super()._environment() | {
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
            # Makes the script become the node by `exec`, so that signals reach the node.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": "fpga_pool@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "logs"),
            "RABBITMQ_PID_FILE": str(self.directory / "node.pid"),
            # Schedulers do not spin while they wait for work: the cores are shared with the tested programs.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"
            " +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _launch(self, keep: bool) -> None:
        listeners = [f"listeners.tcp.{i} = {address}:{self.port}" for i, address in enumerate(self.addresses, 1)]
        account = [f"default_user = {USER}", f"default_pass = {self.password}"]
        self._write("rabbitmq.conf", "\n".join([*listeners, *account, ""]))
        if self._epmd.pid is None:
            # If the node started it, it would become a daemon, and would not end with us.
            self._spawn(self._epmd, ["epmd", "-address", "127.0.0.1"], keep)
            self._wait_for_epmd()
        self._spawn(self._process, [self.programs[0]], keep)

    def _wait_for_epmd(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end_s:
            try:
                socket.create_connection(("127.0.0.1", self._ports()[0]), PROBE_TIMEOUT_S).close()
            except OSError:
                time.sleep(POLL_INTERVAL_S)
            else:
                return
        raise ServiceUnavailable(f"epmd did not answer in {START_TIMEOUT_S:g} s (log: {self.log})")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.addresses[0], self.port), PROBE_TIMEOUT_S) as client:
                client.sendall(HELLO)
                return client.recv(1) == METHOD_FRAME
        except OSError:
            return False
