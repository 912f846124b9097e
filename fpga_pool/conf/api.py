"""[api]: the REST API."""

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS

GROUP = cfg.OptGroup("api", title="REST API")

KEYSTONE, NOAUTH = "keystone", "noauth"

OPTS = [
    cfg.StrOpt(
        "auth_strategy",
        default=KEYSTONE,
        choices=[
            (KEYSTONE, "tokens are checked as configured in [keystone_authtoken]"),
            (NOAUTH, "the headers X-Project-Id, X-User-Id and X-Roles are believed; for tests on one machine"),
        ],
        help="Authentication of requests. The embedded pool always uses noauth.",
    ),
    cfg.StrOpt(
        "host",
        default="127.0.0.1",
        help="Address to listen on. Without authentication (noauth, the embedded pool) only loopback addresses are "
        "accepted.",
    ),
    cfg.PortOpt("port", default=9511, min=0, help="Port to listen on; 0 selects a free port, which is logged."),
    cfg.StrOpt(
        "tls_cert",
        help="Certificate (PEM, with its chain) of the API; it must name the host that clients connect to. Set it "
        "together with tls_key to serve https. Under another WSGI server, or behind a proxy, TLS is theirs.",
    ),
    cfg.StrOpt("tls_key", help="Private key (PEM, mode 0600 or 0640) of tls_cert."),
    cfg.StrOpt(
        "key",
        default=str(KEYS / "api.pem"),
        help="Private key (PEM, Ed25519, mode 0600) that signs calls of schedulers.",
    ),
]
