"""[runner_libvirt], [runner_nova] and [runner_simulated]: drivers of the processes of gangs."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "runner_libvirt",
    title="Processes of gangs as virtual machines of libvirt",
    help="The libvirt of [agent] libvirt_uri runs them; [tiers] libvirt_pid_dir says where it has their processes.",
)
OPTS = [
    cfg.StrOpt(
        "images",
        default="/var/lib/fpga_pool/images",
        help="Directory of images, one directory NAME each, with a kernel and an initrd, or a disk (disk.qcow2 or "
        "disk.raw), or all of these; with a kernel there may be a file cmdline. Each host needs the same.",
    ),
    cfg.StrOpt("default_image", default="default", help="The image of gangs that name none."),
    cfg.StrOpt(
        "saved",
        default="/var/lib/fpga_pool/saved",
        help="Directory of the memory of guests that move to other processors. All hosts share it; it needs room for "
        "memory_mib of each process that moves at a time.",
    ),
    cfg.FloatOpt(
        "keep_saved_s",
        default=86400.0,
        min=60.0,
        help="A saved memory that nobody has gone on from for so long is removed, in seconds.",
    ),
    cfg.StrOpt(
        "consoles",
        default="/var/log/fpga_pool/gangs",
        help="Directory of what guests print on their first serial port, one file GANG.INDEX.log each; share it as "
        "well to have one file for a process wherever it runs. Nobody but you removes them. Empty = they are not kept.",
    ),
    cfg.IntOpt("memory_mib", default=1024, min=16, help="Memory of each guest, MiB."),
    cfg.StrOpt(
        "virt_type",
        default="kvm",
        choices=["kvm", "qemu"],
        help="Type of the guests' domains; qemu emulates them where there is no KVM.",
    ),
    cfg.StrOpt(
        "cpu_model",
        default="",
        help="CPU model of the guests (virsh cpu-models x86_64). It must be one that all hosts have, or guests cannot "
        "move; empty = the plainest one.",
    ),
    cfg.StrOpt("bridge", default="", help="Bridge of this host that the guests are connected to; empty = none."),
]
