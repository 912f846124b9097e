"""Options of drivers: [driver_simulated], [driver_tc], [tiers], [runner_libvirt], [runner_nova], [runner_simulated]."""

import ipaddress

from oslo_config import cfg

from fpga_pool.conf.agent import NO_GUESTS
from fpga_pool.model.exceptions import InvalidInput

SIMULATED_GROUP = cfg.OptGroup("driver_simulated", title="Simulated slot driver")
SIMULATED_OPTS = [
    cfg.StrOpt("board", default="demo", help="Board of the catalogue of all simulated cards."),
    cfg.IntOpt(
        "cards", default=1, min=0, max=1000, help="Simulated cards per host; a host with 0 cards only sends inputs."
    ),
    cfg.BoolOpt(
        "virtual_functions",
        default=False,
        help="Whether each slot reports a PCI address, like a slot of an SR-IOV card, which guests get instead of a "
        "channel. There is no device at these addresses: only the simulated guest driver accepts them.",
    ),
    cfg.FloatOpt(
        "neighbour_cost",
        default=0.0,
        min=0.0,
        help="Interference between the slots of a card beyond its shared DMA: slowdown of a job for each other job "
        "that computes on the card, as a fraction of its time alone.",
    ),
    cfg.FloatOpt("load_fails", default=0.0, min=0.0, max=1.0, help="Probability that a load fails."),
    cfg.FloatOpt("job_hangs", default=0.0, min=0.0, max=1.0, help="Probability that a job hangs."),
    cfg.FloatOpt(
        "card_disappears", default=0.0, min=0.0, max=1.0, help="Probability per job that the card disappears."
    ),
    cfg.FloatOpt("card_returns_after_s", default=1.0, min=0.0, help="Time in seconds after which a lost card returns."),
    cfg.IntOpt("fault_seed", default=0, min=0, help="Random seed of the faults."),
]

TC_GROUP = cfg.OptGroup("driver_tc", title="Egress limits by the kernel's traffic control")
TC_OPTS = [
    cfg.ListOpt(
        "devices",
        default=[],
        help="Network devices through which this host sends, each with its source addresses: DEVICE=NETWORK, such as "
        "eth0=192.0.2.0/24, eth1=2001:db8::/64. The most specific network that matches is used. Taps of Nova's servers "
        "need no entry: an agent with a guest driver finds them.",
    ),
]

#: Value of the option if there is no tier driver.
NO_TIERS = "none"

TIERS_GROUP = cfg.OptGroup(
    "tiers",
    title="Tiers of a compute node",
    help="Two guests per pCPU: the background guest runs in the idle cycles of the foreground guest.",
)
TIERS_OPTS = [
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
        help="CPU usage of a pCPU, including processes of the host, from which on it gets no background guest: the "
        "number of such pCPUs, sampled once a minute, is reserved in Placement. With 1, none is reserved.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=5.0,
        min=0.1,
        help="Interval in seconds at which CPU usage is measured and all guests are checked for missed events.",
    ),
]

RUNNER_LIBVIRT_GROUP = cfg.OptGroup(
    "runner_libvirt",
    title="Gang processes as libvirt virtual machines",
    help="They run under the libvirt of [agent] libvirt_uri; their pid files are in [tiers] libvirt_pid_dir.",
)
RUNNER_LIBVIRT_OPTS = [
    cfg.StrOpt(
        "images",
        default="/var/lib/fpga_pool/images",
        help="Directory of images, one directory NAME each, with a kernel and an initrd, or a disk (disk.qcow2 or "
        "disk.raw), or all of these, and optionally a file cmdline with the kernel's command line. It must be "
        "the same on each host.",
    ),
    cfg.StrOpt("default_image", default="default", help="Image of gangs that specify none."),
    cfg.StrOpt(
        "saved",
        default="/var/lib/fpga_pool/saved",
        help="Directory of the saved memory of guests that move to other processors. It must be shared by all hosts "
        "and needs space for memory_mib of each process that moves at a time.",
    ),
    cfg.FloatOpt(
        "keep_saved_s",
        default=86400.0,
        min=60.0,
        help="Time in seconds after which saved memory that was not resumed from is removed.",
    ),
    cfg.StrOpt(
        "consoles",
        default="/var/log/fpga_pool/gangs",
        help="Directory of the console logs of guests (first serial port), one file GANG.INDEX.log each; share it "
        "between hosts to have one file per process wherever it runs. Empty = no logs.",
    ),
    cfg.FloatOpt(
        "keep_consoles_s",
        default=604800.0,
        min=3600.0,
        help="Time in seconds after which the console log of a process that is on no host is removed, if nothing was "
        "added to it.",
    ),
    cfg.IntOpt("memory_mib", default=1024, min=16, help="Memory of each guest, MiB."),
    cfg.StrOpt(
        "virt_type",
        default="kvm",
        choices=["kvm", "qemu"],
        help="Domain type of the guests; use qemu (emulation) on hosts without KVM.",
    ),
    cfg.StrOpt(
        "cpu_model",
        default="",
        help="CPU model of the guests (virsh cpu-models x86_64). All hosts must support it, or guests cannot move; "
        "empty = libvirt's default.",
    ),
    cfg.StrOpt("bridge", default="", help="Bridge of this host to which the guests are connected; empty = none."),
]

RUNNER_NOVA_GROUP = cfg.OptGroup(
    "runner_nova",
    title="Gang processes as Nova servers",
    help="Properties of the servers; [nova] has the credentials to create them. Each server runs on the host whose "
    "agent has created it, under the libvirt of [agent] libvirt_uri.",
)
RUNNER_NOVA_OPTS = [
    cfg.StrOpt(
        "flavor",
        default="fpga-pool-gang",
        help="Name or uuid of the flavor of all servers: one vCPU, resources:VCPU=0 because its processor is not "
        "managed by Nova, no fpga_pool:tier because the gang sets its tier, and no dedicated pCPU.",
    ),
    cfg.StrOpt(
        "default_image",
        default="fpga-pool-gang",
        help="Name of the image of gangs that specify none. Images must be public or belong to the project of the "
        "servers.",
    ),
    cfg.ListOpt(
        "networks",
        default=[],
        help="Names or uuids of the networks to which servers are connected; empty = none.",
    ),
    cfg.FloatOpt(
        "poll_interval_s",
        default=10.0,
        min=1.0,
        help="Interval in seconds at which the servers of this host are read from Nova; one second while any of them "
        "is not running: being built, saved, moved, or ended.",
    ),
    cfg.FloatOpt(
        "build_timeout_s",
        default=600.0,
        min=10.0,
        help="Maximum time in seconds for Nova to build a server or to move it to this host; then it has failed.",
    ),
    cfg.FloatOpt(
        "keep_saved_s",
        default=86400.0,
        min=60.0,
        help="Time in seconds after which a paused server that was not resumed is deleted.",
    ),
]

RUNNER_SIMULATED_GROUP = cfg.OptGroup("runner_simulated", title="Simulated gang processes")
RUNNER_SIMULATED_OPTS = [
    cfg.FloatOpt(
        "migration_s",
        default=20.0,
        min=0.0,
        help="Time in seconds to save a process before it resumes elsewhere (two-tier paper: 20).",
    ),
]


def shaped_devices(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Return the device of each network of source addresses; InvalidInput says which entry is wrong."""
    found: dict[str, str] = {}
    for entry in conf.driver_tc.devices:
        device, _, network = entry.partition("=")
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise InvalidInput(f"[driver_tc] devices: {entry!r} is not DEVICE=NETWORK: {error}") from None
        if network in found:
            raise InvalidInput(f"[driver_tc] devices: {network} is already assigned to device {found[network]}")
        found[network] = device
    if not found and conf.agent.guest_driver == NO_GUESTS:
        raise InvalidInput(
            "[driver_tc] devices: required by [agent] egress_driver = tc on a host without a guest driver; expected "
            "DEVICE=NETWORK, such as eth0=192.0.2.0/24"
        )
    return found


def parse_pcpus(text: str) -> frozenset[int]:
    """Return a set of pCPUs from its syntax in Nova, such as `0-3,^1,8`; InvalidInput if it is not valid."""
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
