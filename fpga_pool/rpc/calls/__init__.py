"""Parts of what is called on schedulers, of which `rpc.scheduler_api` is made."""
