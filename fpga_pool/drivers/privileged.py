"""The privsep daemon that changes the kernel's traffic control (`egress.tc.changes`), which needs root.

It is configured in `[privsep_tc]` as in other OpenStack services.  A process that may change traffic control itself
needs no daemon: see `use_own_capabilities`.
"""

from pathlib import Path

from oslo_config import cfg
from oslo_privsep import capabilities, priv_context

#: Ten thousand flows take a few seconds.
_TIMEOUT_S = 120.0

tc_context = priv_context.PrivContext(
    "fpga_pool.drivers",
    cfg_section="privsep_tc",
    pypath=f"{__name__}.tc_context",
    capabilities=[capabilities.CAP_NET_ADMIN],
    timeout=_TIMEOUT_S,
)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options of oslo.privsep that an operator may want to set, for the sample configuration."""
    group = cfg.OptGroup("privsep_tc", title="Helper process for the tc egress driver")
    return [(group, [option for option in priv_context.OPTS if option.name in ("user", "group", "helper_command")])]


def use_own_capabilities() -> bool:
    """Skip the daemon if this process may change the network; return whether it may.

    Each call then works in the network namespace of the thread that makes it.
    """
    status = Path("/proc/thread-self/status").read_text()
    effective = int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)
    capable = bool(effective >> capabilities.CAP_NET_ADMIN & 1)
    if capable:
        tc_context.set_client_mode(False)
    return capable
