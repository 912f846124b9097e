"""Operations on the kernel's traffic control that need root, executed by a small daemon.

Group `[privsep_tc]` of the configuration says how the daemon is started, as in all of OpenStack.  A process that may
do these things itself needs no daemon: see `use_own_capabilities`.
"""

from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_privsep import capabilities, priv_context

from fpga_pool.drivers.egress.tc import changes
from fpga_pool.drivers.egress.tc.messages import FlowFilter, HtbClass

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


@tc_context.entrypoint
def attach_root(index: int) -> None:
    """Make our queue the root of a device."""
    changes.add_root(index)


@tc_context.entrypoint
def detach_root(index: int) -> None:
    """Take our queue from a device, with all below it."""
    changes.remove_root(index)


@tc_context.entrypoint
def redirect_ingress(device: str, index: int, ifb: str) -> None:
    """Send what enters the host at a device through its own device, where it can be queued."""
    changes.redirect(device, index, ifb)


@tc_context.entrypoint
def remove_redirect(index: int | None, ifb: str) -> None:
    """Undo `redirect_ingress`; the device itself may be gone (None)."""
    changes.remove_redirect(index, ifb)


@tc_context.entrypoint
def add_groups(index: int, positions: Sequence[int]) -> None:
    """Add queues for more flows below our root."""
    changes.add_groups(index, positions)


@tc_context.entrypoint
def add_flows(index: int, classes: Sequence[HtbClass], filters: Sequence[FlowFilter]) -> None:
    """Add classes and what sends flows there: all of them, or none and an error."""
    changes.add_flows(index, [HtbClass(*one) for one in classes], [FlowFilter(*one) for one in filters])


@tc_context.entrypoint
def change_classes(index: int, classes: Sequence[HtbClass], forgiven: Sequence[int]) -> list[int]:
    """Change rates, without debts of the old rate for the handles in `forgiven`; return handles that are not there."""
    return changes.change_classes(index, [HtbClass(*one) for one in classes], frozenset(forgiven))


@tc_context.entrypoint
def remove_flows(index: int, handles: Sequence[int], filters: Sequence[FlowFilter]) -> None:
    """Remove classes and filters; missing ones are ignored."""
    changes.remove_flows(index, handles, [FlowFilter(*one) for one in filters])
