"""[api]: the REST API."""

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS

GROUP = cfg.OptGroup("api", title="REST API")
OPTS = [
    cfg.StrOpt(
        "host",
        default="127.0.0.1",
        help="Address to listen on. Without authentication (the embedded pool) only loopback addresses are accepted.",
    ),
    cfg.PortOpt("port", default=9511, min=0, help="Port to listen on; 0 selects a free port, which is logged."),
    cfg.StrOpt(
        "key",
        default=str(KEYS / "api.pem"),
        help="Private key (PEM, Ed25519, mode 0600) that signs calls of schedulers.",
    ),
]
