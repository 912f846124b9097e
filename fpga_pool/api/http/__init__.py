"""The HTTP server of the API and of metrics: cheroot, with worker threads that never wait for a client."""
