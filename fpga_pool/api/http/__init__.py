"""The HTTP server of the API and of metrics: cheroot, with threads that wait for no client."""
