"""[runner_libvirt]: processes of gangs that are libvirt virtual machines."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "runner_libvirt",
    title="Gang processes as libvirt virtual machines",
    help="They run under the libvirt of [agent] libvirt_uri; their pid files are in [tiers] libvirt_pid_dir.",
)
OPTS = [
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
        "between hosts to have one file per process wherever it runs. The files are never removed automatically. "
        "Empty = no logs.",
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
