"""Private RabbitMQ, MariaDB, PostgreSQL and libvirt servers, each with its own port, files and password.

A system-wide instance is never touched: all state of a server is in the directory that it is given.  PostgreSQL and
MariaDB refuse to run as root, so for root each server runs as the user that its package created.
"""

from support.servers.databases import Database, MariaDB, PostgreSQL
from support.servers.libvirt import Libvirt
from support.servers.rabbitmq import RabbitMQ
from support.servers.server import Server

__all__ = ["Database", "Libvirt", "MariaDB", "PostgreSQL", "RabbitMQ", "Server"]
