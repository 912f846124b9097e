"""Private RabbitMQ, MariaDB, PostgreSQL and libvirt servers, each with its own port, files and password.

A system-wide instance is never touched: all state of a server lives in the directory that it is given.  PostgreSQL
and MariaDB refuse to run as root, so root gives each server to the user that its package made.
"""

from support.servers.databases import Database, MariaDB, PostgreSQL
from support.servers.libvirt import Libvirt
from support.servers.rabbitmq import RabbitMQ
from support.servers.server import Server

__all__ = ["Database", "Libvirt", "MariaDB", "PostgreSQL", "RabbitMQ", "Server"]
