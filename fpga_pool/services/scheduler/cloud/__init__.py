"""What schedulers settle with Nova, Placement and Keystone: slots of instances, providers, migrations, limits."""
