"""The HTTP server of the API and of metrics: on top of cheroot, with clients that hold nothing."""
