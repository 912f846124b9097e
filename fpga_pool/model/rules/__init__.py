"""The rules of the pool by family: what each request, report, heartbeat and tick does to the objects."""
