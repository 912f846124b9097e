"""[runner_simulated]: processes of gangs that are a fiction."""

from oslo_config import cfg

GROUP = cfg.OptGroup("runner_simulated", title="Simulated gang processes")
OPTS = [
    cfg.FloatOpt(
        "migration_s",
        default=20.0,
        min=0.0,
        help="Time in seconds to save a process before it resumes elsewhere (two-tier paper: 20).",
    ),
]
