"""Builds guests from the installed Debian kernel, busybox, Python, and the guest's side of fpga_pool."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import fpga_pool
from fpga_pool.model.exceptions import NotFound

COMMAND_S = 60.0

#: Modules in the order in which the kernel needs them.
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_console")
PYTHON = "/usr/bin/python3"

#: A guest that has its accelerators compute on the same input over and over, and prints the results on its console.
#: `function` on the kernel's command line is the function of the accelerators.
INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in {modules}; do busybox insmod /modules/$module.ko 2>/dev/null; done
echo "guest: up"
turn=0
while true; do
    turn=$((turn + 1))
    echo "turn $turn: $({python} -m fpga_pool.guest --timeout 6 run ${{function:-sha256}} /input 2>&1)"
    [ $turn = 1 ] && echo "list: $({python} -m fpga_pool.guest list 2>&1)"
    busybox sleep 0.5
done
"""

#: A guest that is busy: every vCPU computes for a share of each fifth of a second.  The share is `duty` percent, from
#: the kernel's command line.
BUSY_INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /dev
busybox mount -t proc proc /proc
busybox mount -t devtmpfs devtmpfs /dev
echo "guest: up"
busybox sleep 1
burn() {
    if [ "${duty:-100}" -ge 100 ]; then while true; do :; done; fi
    while true; do
        read up rest < /proc/uptime; now=${up%.*}${up#*.}; end=$((now + duty / 5))
        while [ "$now" -lt "$end" ]; do read up rest < /proc/uptime; now=${up%.*}${up#*.}; done
        busybox usleep $(((100 - duty) * 2000))
    done
}
for vcpu in $(busybox seq $(busybox nproc)); do burn & done
wait
"""

#: A guest that is a process of a gang: its command `count N` or `count N rest SECONDS` lets it count up to N and power
#: off.  The command is in the tables of its firmware, or, as `command="count N"`, on the kernel's command line.  The
#: uuid that it prints with each count is drawn when it boots, and exists only in its memory.
COUNTING_INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs devtmpfs /dev
read born < /proc/sys/kernel/random/uuid
words=$(busybox strings /sys/firmware/dmi/tables/DMI | busybox grep '^fpga_pool[.]' | busybox tr '\\n' ' ')
words="$words$command"
echo "born $born: $words"
until=${words##*count }; until=${until%% *}
rest=${words##*rest }; rest=${rest%% *}
count=0
while [ "$count" -lt "$until" ]; do
    step=0; while [ "$step" -lt 400 ]; do step=$((step + 1)); done
    count=$((count + 1)); echo "counted $born $count"
    [ "$rest" = "${rest#fpga_pool}" ] && [ -n "$rest" ] && busybox sleep "$rest"
done
echo "done $born"
busybox poweroff -f
"""

#: A guest that sends as fast as it can, regardless of any limit: from `address` to the port `at` of the address `to`,
#: all on the kernel's command line.
SENDING_INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs devtmpfs /dev
for module in {modules}; do busybox insmod /modules/$module.ko; done
busybox ip address add "$address/24" dev eth0
busybox ip link set eth0 up
echo "guest: up"
while true; do
    busybox nc "$to" "$at" < /dev/zero
    busybox sleep 1
done
"""
#: A guest that is a tenant's server with work for the pool: from `address`, through the gateway `via` (both on the
#: kernel's command line), it runs batches of one file of zeros.
CLIENT_INIT = """#!/bin/busybox sh
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs devtmpfs /dev
for module in {modules}; do busybox insmod /modules/$module.ko; done
busybox ip address add 127.0.0.1/8 dev lo
busybox ip link set lo up
busybox ip address add "$address/24" dev eth0
busybox ip link set eth0 up
busybox ip route add default via "$via"
busybox dd if=/dev/zero of=/input bs=1000000 count={megabytes}
echo "guest: up"
while true; do
    {python} /client.py 2>&1
    busybox sleep 2
done
"""
_CLIENT = """
import json, keystoneauth1.identity.v3, keystoneauth1.session, fpga_pool.client, fpga_pool.client.session, pathlib
with open("/login.json") as file:
    login = json.load(file)
region = login.pop("region_name")
who = keystoneauth1.session.Session(keystoneauth1.identity.v3.Password(**login))
uuid = pathlib.Path("/sys/class/dmi/id/product_uuid").read_text().strip().lower()
with fpga_pool.client.Client(login=fpga_pool.client.session.Login(who, region=region)) as pool:
    while True:
        done = pool.run("sha256", [pathlib.Path("/input")], requester=f"server:{uuid}")
        for job in done.jobs:
            print("result:", job.result.read_text().strip() if job.result else job.reason, flush=True)
"""
_DISTRIBUTIONS = """
import sys, fpga_pool.client, keystoneauth1.identity.v3
from importlib.metadata import distribution, packages_distributions
owners = packages_distributions()
names = {owner for module in sys.modules for owner in owners.get(module.partition(".")[0], ())} - {"fpga_pool"}
for name in names:
    for file in distribution(name).files:
        if file.locate().is_file():
            print(file, file.locate(), sep="\t")
"""
#: Network modules in the order in which the kernel needs them, after those of virtio.
NET_MODULES = ("failover", "net_failover", "virtio_net")


def kernel() -> Path | None:
    """Return the newest installed kernel whose modules are installed; None if there is none."""
    found = [path for path in Path("/boot").glob("vmlinuz-*") if _modules(path).is_dir()]
    return max(found, default=None)


def _busybox() -> str:
    found = shutil.which("busybox")
    if found is None:
        raise NotFound("busybox is not installed")
    return found


def _modules(kernel: Path) -> Path:
    return Path("/lib/modules") / kernel.name.removeprefix("vmlinuz-")


def build(kernel: Path, payload: bytes, directory: Path) -> Path:
    """Build the initial file system of a guest that computes on a payload."""
    root = directory / "root"
    copy_modules(kernel, MODULES, root)
    (root / "input").write_bytes(payload)
    copy_busybox(root)
    _copy_python(
        root,
        "encodings.ascii, encodings.latin_1, encodings.idna, runpy, fpga_pool.guest.tool, fpga_pool.guest.__main__",
    )
    package = Path(fpga_pool.__file__).parent
    place = root / _site() / "fpga_pool"
    shutil.copytree(package / "guest", place / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(package / "__init__.py", place)
    write_init(root, INIT.format(modules=" ".join(MODULES), python=PYTHON))
    return packed(root, directory)


def build_sending(kernel: Path, directory: Path) -> Path:
    """Build the initial file system of a guest that sends."""
    root = directory / "root"
    modules = (*MODULES[:-1], *NET_MODULES)
    copy_modules(kernel, modules, root)
    copy_busybox(root)
    write_init(root, SENDING_INIT.format(modules=" ".join(modules)))
    return packed(root, directory)


def build_client(kernel: Path, directory: Path, login: Mapping[str, str], megabytes: int) -> Path:
    """Build the initial file system of a guest that logs in to a cloud, and submits a file of zeros repeatedly."""
    root = directory / "root"
    modules = (*MODULES[:-1], *NET_MODULES)
    copy_modules(kernel, modules, root)
    copy_busybox(root)
    _copy_python(root, "fpga_pool.client, keystoneauth1.identity.v3, encodings.idna")
    _copy_distributions(root)
    (root / "login.json").write_text(json.dumps(dict(login)))
    (root / "client.py").write_text(_CLIENT)
    write_init(root, CLIENT_INIT.format(modules=" ".join(modules), python=PYTHON, megabytes=megabytes))
    return packed(root, directory)


def build_busy(directory: Path) -> Path:
    """Build the initial file system of a busy guest, which contains only busybox."""
    root = directory / "root"
    (root / "bin").mkdir(parents=True)
    copy_busybox(root)
    write_init(root, BUSY_INIT)
    return packed(root, directory)


def build_counting(directory: Path) -> Path:
    """Build the initial file system of a guest whose command `count N` lets it count up to N."""
    root = directory / "root"
    (root / "bin").mkdir(parents=True)
    copy_busybox(root)
    write_init(root, COUNTING_INIT)
    return packed(root, directory)


def packed(root: Path, directory: Path) -> Path:
    """Pack a directory into an initial file system, and remove the directory."""
    image = directory / "initrd"
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    image.write_bytes(_output([_busybox(), "cpio", "-o", "-H", "newc"], cwd=root, given=names))
    shutil.rmtree(root)
    return image


def copy_modules(kernel: Path, names: Sequence[str], root: Path) -> None:
    """Copy modules of a kernel, uncompressed, into `modules`; modules that are built in are left out."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    (root / "modules").mkdir()
    for name in names:
        source = next(_modules(kernel).rglob(f"{name}.ko*"), None)
        if source is not None:  # otherwise it is built in
            _unpack(source, root / "modules" / f"{name}.ko")


def copy_busybox(root: Path) -> None:
    """Copy busybox, which provides the shell and its programs."""
    copy(root, Path(_busybox()))
    if not (root / "bin" / "busybox").exists():
        (root / "bin" / "busybox").symlink_to(_busybox())


def write_init(root: Path, text: str) -> None:
    """Write the program that the kernel runs first."""
    init = root / "init"
    init.write_text(text)
    init.chmod(0o755)


def _unpack(source: Path, target: Path) -> None:
    if source.suffix == ".xz":
        target.write_bytes(_output(["xz", "-dc", str(source)]))
    else:
        shutil.copy2(source, target)


def copy(root: Path, *paths: Path) -> None:
    """Copy files to the same places below a directory, with the libraries that they need."""
    for path in {*paths, *_libraries(path for path in paths if path.suffix not in (".py", ".pyc"))}:
        target = root / path.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """Return the libraries that programs, or other libraries, need."""
    asked = [str(path) for path in programs]
    words = _output(["ldd", *asked], check=False).decode().split() if asked else []
    return [Path(word) for word in words if word.startswith("/") and not word.endswith(":")]


def _ask(program: str) -> list[str]:
    places = [Path(fpga_pool.__file__).parents[1], sysconfig.get_path("purelib")]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONDONTWRITEBYTECODE": "1"}
    return _output([PYTHON, "-c", program], environment=environment).decode().split("\n")[:-1]


def _output(
    command: list[str],
    *,
    cwd: Path | None = None,
    given: str = "",
    environment: dict[str, str] | None = None,
    check: bool = True,
) -> bytes:
    done = subprocess.run(
        command, cwd=cwd, input=given.encode(), env=environment, capture_output=True, check=check, timeout=COMMAND_S
    )
    return done.stdout


def _copy_python(root: Path, names: str) -> None:
    copy(root, Path(PYTHON), *_python_files(names))


def _copy_distributions(root: Path) -> None:
    """Copy the client and its dependencies as they are installed here, with the data files and metadata they read."""
    site = root / _site()
    ignored = shutil.ignore_patterns("__pycache__", "dashboard")
    shutil.copytree(Path(fpga_pool.__file__).parent, site / "fpga_pool", ignore=ignored)
    for line in _output([sys.executable, "-c", _DISTRIBUTIONS]).decode().split("\n")[:-1]:
        name, place = line.split("\t")
        if not name.startswith("..") and "/tests/" not in name:
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, site / name)
            if name.endswith(".so"):
                copy(root, *_libraries([Path(place)]))


def _python_files(names: str) -> list[Path]:
    """Return the files of the standard library that are needed to import modules, named with commas between."""
    program = (
        "import sys\nsys.argv = ['x', '--help']\ntry:\n    import " + names + "\nexcept SystemExit:\n    pass\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in ('__file__', '__cached__'):\n"
        "        print(getattr(module, name, None) or '')\n"
    )
    found = [Path(line) for line in _ask(program) if line.startswith("/")]
    others = (Path(fpga_pool.__file__).parent, Path(sysconfig.get_path("purelib")))
    return [path for path in found if path.is_file() and not any(path.is_relative_to(other) for other in others)]


def _site() -> Path:
    """Return a directory on Python's default import path, relative to the root directory."""
    standard = _ask("import os; print(os.path.dirname(os.__file__))")[0]
    return Path(standard).relative_to("/")
