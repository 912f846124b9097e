"""Options of processes: [api], [metrics], [nova_notifications] and [standalone]."""

import os
from pathlib import Path

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS

KEYSTONE, NOAUTH = "keystone", "noauth"

API_GROUP = cfg.OptGroup("api", title="REST API")

API_OPTS = [
    cfg.StrOpt(
        "auth_strategy",
        default=KEYSTONE,
        choices=[
            (KEYSTONE, "tokens are checked as configured in [keystone_authtoken]"),
            (NOAUTH, "the headers X-Project-Id, X-User-Id and X-Roles are believed; for tests on one machine"),
        ],
        help="Authentication of requests. The embedded pool always uses noauth.",
    ),
    cfg.HostAddressOpt(
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


METRICS_GROUP = cfg.OptGroup(
    "metrics",
    title="Metrics",
    help="Each process serves its metrics at http://HOST:PORT/metrics. There is no authentication and no TLS, and "
    "metrics name projects and functions: use an address that only the monitoring network reaches.",
)


def _port(process: str, default: int) -> cfg.PortOpt:
    return cfg.PortOpt(
        f"{process}_port", default=default, min=0, help="Port of the metrics; 0 selects a free port, which is logged."
    )


METRICS_OPTS = [
    cfg.BoolOpt("enabled", default=False, help="Serve metrics."),
    cfg.HostAddressOpt("host", default="127.0.0.1", help="Address to listen on."),
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


NOTIFICATIONS_GROUP = cfg.OptGroup(
    "nova_notifications",
    title="Notifications of Nova",
    help="With [notifications] notification_format = versioned and [oslo_messaging_notifications] driver = "
    "messagingv2 in nova.conf, Nova reports the life cycle of virtual machines. With these notifications the "
    "slots of a machine that has left its host are released immediately, even if the agent of that host does not "
    "respond; without them, within two minutes.",
)

NOTIFICATIONS_OPTS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Message bus of Nova's notifications: the transport_url of [oslo_messaging_notifications] in nova.conf, "
        "or that of its [DEFAULT]. If it is not set, the schedulers do not listen to notifications.",
    ),
    cfg.StrOpt(
        "topic",
        default="versioned_notifications",
        help="One of versioned_notifications_topics of [notifications] in nova.conf.",
    ),
    cfg.StrOpt("exchange", default="nova", help="control_exchange of nova.conf."),
    cfg.StrOpt(
        "pool",
        default="fpga_pool",
        help="Name of the queue that all schedulers of this pool share: each notification reaches one of them, and "
        "listeners on other queues receive it as well.",
    ),
]


STANDALONE_GROUP = cfg.OptGroup("standalone", title="Embedded pool")


def _default_state_dir() -> str:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(base) / "fpga_pool")


STANDALONE_OPTS = [
    cfg.StrOpt(
        "state_dir",
        default=_default_state_dir(),
        sample_default="~/.local/state/fpga_pool",
        help="Directory of all persistent state: database, keys, bitstreams, journals, inputs and results. A pool "
        "restarted on the same directory continues where it stopped.",
    ),
    cfg.StrOpt("catalogue", help="Catalogue file; defaults to the catalogue installed with fpga_pool."),
    cfg.IntOpt(
        "hosts", default=3, min=1, max=200, help="Number of hosts with simulated cards, named node-1, node-2, ..."
    ),
    cfg.IntOpt(
        "requesters",
        default=4,
        min=0,
        max=200,
        help="Number of hosts without cards, named requester-1, requester-2, ..., from which clients send their "
        "inputs. Any host can be a requester; transfers of a host with cards to itself do not count against its "
        "NIC limits.",
    ),
    cfg.IntOpt(
        "gang_processors",
        default=4,
        min=0,
        max=1024,
        help="Number of simulated pCPUs for gangs on each host with cards.",
    ),
    cfg.FloatOpt("egress_mbps", default=200.0, min=0.001, help="Egress limit of each host, Mbit/s."),
    cfg.FloatOpt("ingress_mbps", default=400.0, min=0.001, help="Ingress limit of each host, Mbit/s."),
]
