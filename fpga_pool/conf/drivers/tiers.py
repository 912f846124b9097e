"""[tiers]: the pCPUs of a compute node that carry a foreground and a background guest each."""

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

#: The name of no tier driver.
NO_TIERS = "none"

GROUP = cfg.OptGroup(
    "tiers",
    title="Tiers of a compute node",
    help="Two guests per pCPU: the background guest runs in the idle cycles of the foreground guest.",
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
        help="pCPUs with two tiers, in the syntax of nova.conf: 2-7,^5. They must equal [compute] cpu_shared_set of "
        "nova.conf, and cpu_allocation_ratio must be 2 there.",
    ),
    cfg.StrOpt(
        "nova_conf",
        default="/etc/nova/nova.conf",
        help="Configuration file of nova-compute on this host, checked when the agent starts; empty if the guests are "
        "not managed by Nova.",
    ),
    cfg.StrOpt(
        "libvirt_pid_dir",
        default="/run/libvirt/qemu",
        help="Directory of libvirt's pid files of guests, GUEST.pid.",
    ),
    cfg.FloatOpt(
        "usage_threshold",
        default=0.96,
        min=0.0,
        max=1.0,
        help="Usage of a pCPU by its foreground from which on it gets no background: as many are reserved in "
        "Placement, by the usage at one moment of each minute. With 1 none is.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=5.0,
        min=0.1,
        help="Interval in seconds at which CPU usage is measured and all guests are checked for missed events.",
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
            raise InvalidInput(f"pCPUs: {part!r} is invalid; expected a set such as 2-7,^5,10")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers:
            raise InvalidInput(f"pCPUs: {part!r} is invalid; the first number is above the last")
        (without if excluded else there).update(numbers)
    return frozenset(there - without)
