"""The rules of the pool: what each request, report, heartbeat and tick does to the objects, in one transaction each.

The scheduler service calls them on SQL, the simulator in memory; there is no other place where an object of the
pool changes.
"""
