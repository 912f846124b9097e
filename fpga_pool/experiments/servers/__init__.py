"""Private RabbitMQ, MariaDB, PostgreSQL and libvirt servers, each with its own port, files and password.

A system-wide instance is never touched: all state of a server lives in the directory that it is given.  PostgreSQL
and MariaDB refuse to run as root, so root gives each server to the user that its package made.
"""

from fpga_pool.experiments.servers.databases import Database, MariaDB, PostgreSQL
from fpga_pool.experiments.servers.libvirt import Libvirt
from fpga_pool.experiments.servers.rabbitmq import RabbitMQ
from fpga_pool.experiments.servers.server import Server

__all__ = ["Database", "Libvirt", "MariaDB", "PostgreSQL", "RabbitMQ", "Server"]
