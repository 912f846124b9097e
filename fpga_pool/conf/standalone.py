"""[standalone]: the embedded pool, everything in one process."""

import os
from pathlib import Path

from oslo_config import cfg

GROUP = cfg.OptGroup("standalone", title="Embedded pool")


def _default_state_dir() -> str:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(base) / "fpga_pool")


OPTS = [
    cfg.StrOpt(
        "state_dir",
        default=_default_state_dir(),
        sample_default="~/.local/state/fpga_pool",
        help="Directory of everything that must survive: database, keys, bitstreams, journals, inputs and results. "
        "A pool that is started again on the same directory goes on where it was.",
    ),
    cfg.StrOpt("catalogue", help="Catalogue file; the one that is installed with fpga_pool unless this is set."),
    cfg.IntOpt("hosts", default=3, min=1, max=200, help="Hosts with simulated cards, named node-1 and so on."),
    cfg.IntOpt(
        "requesters",
        default=4,
        min=0,
        max=200,
        help="Hosts without cards, named requester-1 and so on, from which clients send their inputs. Any host can be "
        "a requester; what one of the hosts above sends to itself does not count against its NIC limits.",
    ),
    cfg.IntOpt(
        "gang_processors",
        default=4,
        min=0,
        max=1024,
        help="Simulated pCPUs of each host with cards that gangs have.",
    ),
    cfg.FloatOpt("egress_mbps", default=200.0, min=0.001, help="Egress limit of each host, Mbit/s."),
    cfg.FloatOpt("ingress_mbps", default=400.0, min=0.001, help="Ingress limit of each host, Mbit/s."),
]
