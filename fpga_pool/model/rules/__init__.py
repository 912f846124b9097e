"""The rules of the pool by family: how each request, report, heartbeat and tick changes the objects."""
