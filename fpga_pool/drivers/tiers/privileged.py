"""The only operation of the tier driver that needs root besides libvirt: writing to a guest's control group.

A privsep daemon, configured in `[privsep_tiers]` as in other OpenStack services, performs it.
A process that may write control groups itself needs no daemon: see `use_own_capabilities`.
"""

import os
from pathlib import Path

from oslo_config import cfg
from oslo_privsep import capabilities, priv_context

from fpga_pool.drivers.tiers.cgroups import IDLE_FILE, ROOT
from fpga_pool.model.exceptions import InvalidInput

_TIMEOUT_S = 10.0

tiers_context = priv_context.PrivContext(
    "fpga_pool.drivers.tiers",
    cfg_section="privsep_tiers",
    pypath=f"{__name__}.tiers_context",
    capabilities=[capabilities.CAP_DAC_OVERRIDE],
    timeout=_TIMEOUT_S,
)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options of oslo.privsep that an operator may want to set, for the sample configuration."""
    group = cfg.OptGroup("privsep_tiers", title="Helper process for the libvirt tier driver")
    return [(group, [option for option in priv_context.OPTS if option.name in ("user", "group", "helper_command")])]


def use_own_capabilities() -> bool:
    """Skip the daemon if this process may write control groups; return whether it may."""
    capable = os.access(ROOT, os.W_OK)
    if capable:
        tiers_context.set_client_mode(False)
    return capable


@tiers_context.entrypoint
def set_idle(group: str, idle: bool) -> None:
    """Set whether a group runs only when its siblings are idle."""
    path = Path(group).resolve()
    if not path.is_relative_to(ROOT):
        raise InvalidInput(f"{group}: not a control group")
    (path / IDLE_FILE).write_text("1" if idle else "0")
