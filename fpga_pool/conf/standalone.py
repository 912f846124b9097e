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
