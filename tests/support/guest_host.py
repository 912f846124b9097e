"""A compute node that is an emulated guest: the installed kernel with only version 2 of control groups.

Its initial file system contains the libvirtd, QEMU, systemd and Python of this machine, and the package.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import fpga_pool
from support import guest_image
from support.servers.process import find_program

IMPORT_S = 120.0
MEMORY_MIB = 1536
PCPUS = 2

_PROGRAMS = ("libvirtd", "qemu-system-x86_64", "ip", "mount", "umount", "nsenter", "unshare", "setpriv")
#: Programs that systemd needs to run machines.
_SYSTEMD = ("dbus-daemon", "systemctl", "/lib/systemd/systemd", "/lib/systemd/systemd-machined")
#: Programs that systemd runs itself, if they are installed.
_SYSTEMD_PROGRAMS = ("systemd-executor", "systemd-shutdown")
#: Library files that programs load on demand, if they are installed, and the helper with which libvirtd saves a guest.
_LIBRARIES = (
    "libvirt/connection-driver/libvirt_driver_qemu.so", "qemu/accel-tcg-*.so", "systemd/libsystemd-*.so",
    "libvirt_iohelper",
)  # fmt: skip
_DATA = (
    "libvirt/cpu_map/*", "qemu/bios-256k.bin", "qemu/kvmvapic.bin", "seabios/bios-256k.bin", "qemu/linuxboot_dma.bin",
    "dbus-1/system.conf", "dbus-1/system.d/org.freedesktop.systemd1.conf",
    # libvirt treats a service that cannot be activated as one that does not exist.
    "dbus-1/system.d/org.freedesktop.machine1.conf", "dbus-1/system-services/org.freedesktop.machine1.service",
)  # fmt: skip
_MODULES = ("veth",)
_DIRECTORIES = "/proc /sys /dev /tmp /run /root /var/lib /var/log /var/cache"

_QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = ["cpu", "cpuacct", "cpuset"]
"""
_LIBVIRTD_CONF = 'auth_unix_ro = "none"\nauth_unix_rw = "none"\nhost_uuid = "4e1f6a52-7c0b-4a1d-9f3e-2b8c5d7a9061"\n'

_INIT = f"""#!/bin/busybox sh
busybox mkdir -p {_DIRECTORIES}
busybox ln -s /run /var/run
"""
#: The init script if there is no systemd.
_PLAIN = """\
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox mount -t tmpfs run /run
busybox --install -s /bin
busybox insmod /modules/veth.ko
busybox ip link set lo up
sh /program.sh
busybox poweroff -f
"""
#: The only units if systemd is the first program.
_UNITS = {
    "default.target": "[Unit]\nDefaultDependencies=no\nWants=program.service\n",
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": """\
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
NotifyAccess=main
ExecStart={dbus-daemon} --system --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only
""",
    "systemd-machined.service": """\
[Unit]
DefaultDependencies=no
Requires=dbus.service
After=dbus.service
[Service]
Type=dbus
BusName=org.freedesktop.machine1
ExecStart=/lib/systemd/systemd-machined
TimeoutStartSec=infinity
""",
    "libvirtd.service": """\
[Unit]
DefaultDependencies=no
Requires=systemd-machined.service
After=systemd-machined.service
[Service]
Type=notify
ExecStart={libvirtd}
KillMode=process
TimeoutStartSec=infinity
""",
    "program.service": """\
[Unit]
DefaultDependencies=no
Requires=libvirtd.service
After=libvirtd.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
ExecStart=/bin/busybox sh /program.sh
""",
}
_SYSTEM_CONF = "[Manager]\nDefaultStandardOutput=tty\nLogTarget=console\nLogLevel=warning\nShowStatus=no\n"


def missing(*, systemd: bool) -> str:
    """Return what this machine lacks for such a node; "" = nothing."""
    lacking = [name for name in (*_PROGRAMS, *(_SYSTEMD if systemd else ())) if find_program(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def build(kernel: Path, directory: Path, program: Path, *, systemd: bool) -> Path:
    """Build the initial file system of a node that runs a Python program and then powers off.

    With `systemd`, libvirtd and systemd-machined run before the program; otherwise nothing else does.
    """
    root = directory / "root"
    guest_image.copy_modules(kernel, _MODULES, root)
    guest_image.copy_busybox(root)
    named = {name: Path(find_program(name) or name) for name in (*_PROGRAMS, "virsh", *(_SYSTEMD if systemd else ()))}
    interpreter = Path(os.path.realpath(sys.executable))
    files = [*named.values(), interpreter, *_python_files(program), Path("/etc/passwd"), Path("/etc/group")]
    files += [
        path for name in _LIBRARIES for lib in ("/usr/lib", "/usr/lib64", "/usr/libexec") for path in _found(lib, name)
    ]
    files += [path for name in _DATA for path in Path("/usr/share").glob(name)]
    if systemd:
        programs = [Path(lib) / "systemd" / name for lib in ("/lib", "/usr/lib") for name in _SYSTEMD_PROGRAMS]
        files += [path for path in programs if path.exists()]
    guest_image.copy(root, *files)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONHOME": sys.base_prefix,
        "PYTHONPATH": _python_path(),
        "PYTHONWARNINGS": "ignore",
        "PYTHONDONTWRITEBYTECODE": "1",
        "EVENTLET_NO_GREENDNS": "yes",  # imports take ten seconds more with it
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    written = {
        "program.sh": f"{exports}exec {interpreter} -s /program.py\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
        "etc/machine-id": f"{'0123456789abcdef' * 2}\n",
        "etc/libvirt/qemu.conf": _QEMU_CONF,
        "etc/libvirt/libvirtd.conf": _LIBVIRTD_CONF,
        "etc/systemd/system.conf": _SYSTEM_CONF,
    }
    if systemd:
        places = {name: str(path) for name, path in named.items()}
        written |= {f"etc/systemd/system/{name}": text.format_map(places) for name, text in _UNITS.items()}
    for name, text in written.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copy2(program, root / "program.py")
    guest_image.write_init(root, _INIT + ("exec /lib/systemd/systemd\n" if systemd else _PLAIN))
    return guest_image.packed(root, directory)


def run(kernel: Path, initrd: Path, console: Path, timeout_s: float) -> str:
    """Boot a node, wait until it powers off, and return what it printed."""
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-smp", str(PCPUS), "-m", str(MEMORY_MIB),
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}",
        "-kernel", str(kernel), "-initrd", str(initrd),
        # An emulated timer may fire too late for the kernel's check.
        "-append", "console=ttyS0 panic=-1 quiet no_timer_check",
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, timeout=timeout_s)
    finally:
        said = console.read_text(errors="replace") if console.exists() else ""
        print(said[-6000:])
    return said


def _found(directory: str, pattern: str) -> list[Path]:
    return [*Path(directory).glob(pattern), *Path(directory).glob(f"*/{pattern}")]


def _python_path() -> str:
    repository = str(Path(fpga_pool.__file__).parents[1])
    return os.pathsep.join(dict.fromkeys([repository, *(path for path in sys.path if path.startswith("/"))]))


def _python_files(program: Path) -> list[Path]:
    """Return the files of all modules that a program imports at its top, and the metadata of installed packages."""
    listing = (
        f"import runpy, sys\nrunpy.run_path({str(program)!r}, run_name='imported')\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in ('__file__', '__cached__'):\n"
        "        print(getattr(module, name, None) or '')\n"
    )
    environment = os.environ | {"PYTHONPATH": _python_path(), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-s", "-c", listing]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=IMPORT_S)
    modules = {Path(line) for line in said.stdout.splitlines() if line.startswith("/")} - {program}
    packages = {path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")}
    described = [file for path in packages for file in path.glob("*.dist-info/METADATA")]
    return [path for path in (*modules, *described) if path.is_file()]
