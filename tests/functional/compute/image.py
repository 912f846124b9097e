"""A guest that is built here: the installed Debian kernel, busybox, Python, and the guest's side of fpga_pool."""

import shutil
import subprocess
import sys
from pathlib import Path

import fpga_pool

#: In the order in which the kernel needs them.
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_console")
PYTHON = "/usr/bin/python3"

#: What a guest does: it asks its accelerators for the same thing over and over, and tells on its console.
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
    echo "turn $turn: $({python} -m fpga_pool.guest --timeout 6 run sha256 /input 2>&1)"
    [ $turn = 1 ] && echo "list: $({python} -m fpga_pool.guest list 2>&1)"
    busybox sleep 0.5
done
"""


def kernel() -> Path | None:
    """The newest installed kernel that has its modules here."""
    found = [path for path in Path("/boot").glob("vmlinuz-*") if _modules(path).is_dir()]
    return max(found, default=None)


def _modules(kernel: Path) -> Path:
    return Path("/lib/modules") / kernel.name.removeprefix("vmlinuz-")


def build(kernel: Path, payload: bytes, directory: Path) -> Path:
    """Build the initial file system of a guest that computes on a payload."""
    root = directory / "root"
    for name in ("bin", "modules"):
        (root / name).mkdir(parents=True)
    (root / "input").write_bytes(payload)
    for name in MODULES:
        source = next(_modules(kernel).rglob(f"{name}.ko*"), None)
        if source is not None:  # or it is built in
            _unpack(source, root / "modules" / f"{name}.ko")
    for program in (shutil.which("busybox"), PYTHON):
        _copy(Path(program), root)
    (root / "bin" / "busybox").exists() or (root / "bin" / "busybox").symlink_to(shutil.which("busybox"))
    for path in _python_files():
        _copy(path, root)
    package = Path(fpga_pool.__file__).parent
    place = root / _site() / "fpga_pool"
    shutil.copytree(package / "guest", place / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(package / "__init__.py", place)
    init = root / "init"
    init.write_text(INIT.format(modules=" ".join(MODULES), python=PYTHON))
    init.chmod(0o755)
    image = directory / "initrd"
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with image.open("wb") as file:
        subprocess.run(
            ["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=file, check=True,
            stderr=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
    shutil.rmtree(root)
    return image


def _unpack(source: Path, target: Path) -> None:
    if source.suffix == ".xz":
        target.write_bytes(subprocess.run(["xz", "-dc", source], check=True, capture_output=True, timeout=60).stdout)
    else:
        shutil.copy2(source, target)


def _copy(path: Path, root: Path) -> None:
    """Copy a file with the libraries that it needs."""
    target = root / path.relative_to("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)
    if path.suffix not in (".py", ".pyc"):
        told = subprocess.run(["ldd", path], check=False, capture_output=True, text=True, timeout=60).stdout
        for word in told.split():
            if word.startswith("/"):
                _copy(Path(word), root)


def _ask(program: str) -> list[str]:
    environment = {"PYTHONPATH": str(Path(fpga_pool.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(
        [PYTHON, "-c", program], check=True, capture_output=True, text=True, timeout=60, env=environment
    )
    return told.stdout.split("\n")[:-1]


def _python_files() -> list[Path]:
    """What of the standard library a guest uses."""
    names = "encodings.ascii, encodings.latin_1, encodings.idna, runpy, fpga_pool.guest.tool, fpga_pool.guest.__main__"
    program = (
        "import sys\nsys.argv = ['x', '--help']\ntry:\n    import " + names + "\nexcept SystemExit:\n    pass\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in ('__file__', '__cached__'):\n"
        "        print(getattr(module, name, None) or '')\n"
    )
    found = [Path(line) for line in _ask(program) if line.startswith("/")]
    return [path for path in found if path.is_file() and not path.is_relative_to(Path(fpga_pool.__file__).parent)]


def _site() -> Path:
    """A directory where Python looks for modules by itself."""
    standard = _ask("import os; print(os.path.dirname(os.__file__))")[0]
    return Path(standard).relative_to("/")


if __name__ == "__main__":
    print(build(kernel(), b"abc", Path(sys.argv[1])))
