"""[agent]: habits of the compute-node agent."""

import ssl

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

GROUP = cfg.OptGroup("agent", title="Compute-node agent")
OPTS = [
    cfg.FloatOpt("heartbeat_s", default=1.0, min=0.05, help="How often the observed state is told, in seconds."),
    cfg.FloatOpt(
        "retention_s",
        default=3600.0,
        min=0.0,
        help="How long a result stays fetchable when its client is gone, in seconds.",
    ),
    cfg.StrOpt(
        "data_tls_cert",
        help="Certificate (PEM, with its chain) of the data port; it must name the address that clients connect to. "
        "Set it together with data_tls_key to have inputs and results encrypted on their way.",
    ),
    cfg.StrOpt("data_tls_key", help="Private key (PEM) of data_tls_cert."),
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


def data_tls(conf: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """Return what the data port speaks TLS with; None where it shall not.  InvalidInput names what cannot be used."""
    group = conf.agent
    if not group.data_tls_cert and not group.data_tls_key:
        return None
    if not group.data_tls_cert or not group.data_tls_key:
        raise InvalidInput("[agent] data_tls_cert and data_tls_key: set both or none")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(group.data_tls_cert, group.data_tls_key)
    except OSError as error:
        raise InvalidInput(f"[agent] data_tls_cert, data_tls_key: {error}") from error
    return context
