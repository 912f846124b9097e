"""Interfaces of schedulers to Nova, Placement and Keystone: slots of instances, providers, migrations, limits."""
