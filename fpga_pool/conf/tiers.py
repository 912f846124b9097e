"""[tiers]: the pCPUs of a compute node that carry a foreground and a background guest each."""

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

#: The name of no tier driver.
NO_TIERS = "none"

GROUP = cfg.OptGroup(
    "tiers",
    title="Tiers of a compute node",
    help="Two guests on one pCPU: the foreground runs, the background gets what the foreground leaves idle.",
)
OPTS = [
    cfg.StrOpt(
        "driver",
        default=NO_TIERS,
        help="Driver of the tiers of this host: an entry point of group fpga_pool.tier_drivers (libvirt, simulated), "
        "or none.",
    ),
    cfg.StrOpt(
        "pcpus",
        default="",
        help="The pCPUs that carry tiers, as nova.conf writes them: 2-7,^5. They must be exactly [compute] "
        "cpu_shared_set of nova.conf, and cpu_allocation_ratio there must be 2.",
    ),
    cfg.StrOpt(
        "nova_conf",
        default="/etc/nova/nova.conf",
        help="Configuration of nova-compute on this host, checked when the agent starts; empty where guests are not "
        "Nova's.",
    ),
    cfg.StrOpt(
        "libvirt_pid_dir",
        default="/run/libvirt/qemu",
        help="Where the libvirt tier driver finds the process of a guest: GUEST.pid, as libvirt writes it.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=5.0,
        min=0.1,
        help="How often usage is measured, and guests are looked at of which nothing was heard, in seconds.",
    ),
]


def parse_pcpus(text: str) -> frozenset[int]:
    """Return a set of pCPUs as Nova writes it, `0-3,^1,8`; InvalidInput if it is none."""
    there: set[int] = set()
    without: set[int] = set()
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        excluded = part.startswith("^")
        first, dash, last = part.removeprefix("^").partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()) or (excluded and dash):
            raise InvalidInput(f"pCPUs: {part!r} is wrong; a set is written like 2-7,^5,10")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers:
            raise InvalidInput(f"pCPUs: {part!r} is wrong; the first is above the last")
        (without if excluded else there).update(numbers)
    return frozenset(there - without)
