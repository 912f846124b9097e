"""[metrics]: the endpoint that Prometheus scrapes."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "metrics",
    title="Metrics",
    help="Each process serves its metrics at http://HOST:PORT/metrics. There is no authentication and no TLS, and "
    "metrics name projects and functions: use an address that only the monitoring network reaches.",
)


def _port(process: str, default: int) -> cfg.PortOpt:
    return cfg.PortOpt(
        f"{process}_port", default=default, min=0, help="Port of the metrics; 0 selects a free port, which is logged."
    )


OPTS = [
    cfg.BoolOpt("enabled", default=False, help="Serve metrics."),
    cfg.StrOpt("host", default="127.0.0.1", help="Address to listen on."),
    _port("scheduler", 9513),
    _port("agent", 9514),
    _port("api", 9515),
    _port("standalone", 9516),
    cfg.IntOpt(
        "max_projects",
        default=200,
        min=0,
        help="Number of projects that metrics tell apart, the first ones since the start of the process. The values "
        'of further projects are added up under project="other".',
    ),
]
