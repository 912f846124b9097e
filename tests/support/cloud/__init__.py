"""A real OpenStack cloud on one machine, as processes on loopback ports: what `tools/all-in-one` starts and stops.

Keystone, Glance, Neutron, Placement and Nova come from packages in a separate virtual environment (the extra `cloud`);
RabbitMQ and MariaDB are private servers of `support.servers`.  All state is in one directory.
"""
