"""Groups of calls to schedulers, which are combined in `rpc.scheduler_api`."""
