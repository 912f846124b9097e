"""[agent]: habits of the compute-node agent."""

from oslo_config import cfg

GROUP = cfg.OptGroup("agent", title="Compute-node agent")
OPTS = [
    cfg.FloatOpt("heartbeat_s", default=1.0, min=0.05, help="How often the observed state is told, in seconds."),
    cfg.FloatOpt(
        "retention_s",
        default=3600.0,
        min=0.0,
        help="How long a result stays fetchable when its client is gone, in seconds.",
    ),
    cfg.FloatOpt(
        "hang_factor",
        default=4.0,
        min=1.0,
        help="A job hangs, and is stopped, when it computes longer than hang_factor times what was expected plus "
        "hang_grace_s.",
    ),
    cfg.FloatOpt("hang_grace_s", default=10.0, min=0.0, help="See hang_factor; in seconds."),
    cfg.FloatOpt(
        "drain_timeout_s",
        default=30.0,
        min=0.0,
        help="How long a graceful stop waits for running jobs, in seconds; what still runs then starts again later.",
    ),
    cfg.FloatOpt(
        "fault_pause_s",
        default=2.0,
        min=0.01,
        help="Pause before a faulted slot is offered again, in seconds; doubles with every fault in a row, up to 60.",
    ),
]
