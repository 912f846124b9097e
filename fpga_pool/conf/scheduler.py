"""[scheduler]: how the pool plans, and when it gives up."""

from oslo_config import cfg

from fpga_pool.model.pool.settings import PoolSettings

GROUP = cfg.OptGroup("scheduler", title="Pool scheduler")
_DEFAULTS = PoolSettings()

OPTS = [
    cfg.StrOpt(
        "default_policy",
        default="ect",
        help="Batch policy (entry point of group fpga_pool.policies.batch) for batches that do not name one.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=1.0,
        min=0.01,
        help="How often, in seconds, pending jobs, undelivered commands and silent hosts are looked at when nothing "
        "else wakes the scheduler. Lower it only to find faults sooner.",
    ),
    cfg.FloatOpt("refit_interval_s", default=5.0, min=0.1, help="How often time models are refitted, in seconds."),
    cfg.FloatOpt(
        "token_lifetime_s",
        default=300.0,
        min=1.0,
        help="How long, in seconds, a client may take from getting a transfer token to opening the stream.",
    ),
    cfg.IntOpt(
        "max_batch_jobs",
        default=_DEFAULTS.max_batch_jobs,
        min=1,
        help="Largest batch that is accepted. Planning time and the size of the answer grow with it.",
    ),
    cfg.IntOpt("max_input_bytes", default=_DEFAULTS.max_input_bytes, min=0, help="Largest input of one job, in bytes."),
    cfg.IntOpt(
        "max_attempts",
        default=_DEFAULTS.max_attempts,
        min=1,
        help="How often a job is planned before it is given up. Raise it where cards fail often.",
    ),
    cfg.FloatOpt(
        "host_timeout_s",
        default=_DEFAULTS.host_timeout_s,
        min=0.1,
        help="A host that was silent for so many seconds is lost: its jobs run elsewhere. Several heartbeats of the "
        "agents must fit in.",
    ),
    cfg.FloatOpt(
        "input_timeout_s",
        default=_DEFAULTS.input_timeout_s,
        min=0.1,
        help="How long after its planned transfer a job waits for its input before it fails, in seconds.",
    ),
    cfg.FloatOpt(
        "dispatch_lead_s",
        default=_DEFAULTS.dispatch_lead_s,
        min=0.0,
        help="Time between the commit of a plan and its time 0, in which agents and clients learn of it, in seconds.",
    ),
]


def pool_settings(conf: cfg.ConfigOpts) -> PoolSettings:
    """Return the limits and times of the pool's rules as configured."""
    group = conf.scheduler
    return PoolSettings(
        max_batch_jobs=group.max_batch_jobs,
        max_input_bytes=group.max_input_bytes,
        max_attempts=group.max_attempts,
        host_timeout_s=group.host_timeout_s,
        input_timeout_s=group.input_timeout_s,
        dispatch_lead_s=group.dispatch_lead_s,
    )
