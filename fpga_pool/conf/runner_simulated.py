"""[runner_simulated]: processes of gangs that are a fiction."""

from oslo_config import cfg

GROUP = cfg.OptGroup("runner_simulated", title="Simulated processes of gangs")
OPTS = [
    cfg.FloatOpt(
        "migration_s",
        default=20.0,
        min=0.0,
        help="Seconds that a process takes to be saved, before it goes on elsewhere (two-tier paper: 20).",
    ),
]
