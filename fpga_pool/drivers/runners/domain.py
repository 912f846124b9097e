"""The runner interface, and libvirt domains of gang processes: XML, boot images, saved memories and consoles."""

import abc
import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

from oslo_config import cfg

from fpga_pool.drivers.tiers.domain import PLACED_URI, PROCESS_URI
from fpga_pool.model.agent.gang_process import Key, ProcessSpec, Running
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable
from fpga_pool.model.flavor import Tier
from fpga_pool.model.objects.gangs import process_uuid


class Runner(abc.ABC):
    """The processes of gangs on one host; all other guests are ignored.

    Guests outlive their agent, so a runner reports what it observes, and stores persistent data with the guest.  All
    methods are idempotent, and raise ServiceUnavailable if the hypervisor does not respond.
    """

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:
        """Return the runner of this host as configured. Raises InvalidInput, which names the invalid option."""

    @abc.abstractmethod
    def observe(self) -> dict[Key, Running]:
        """Return all processes that were launched here and not removed by `end`."""

    @abc.abstractmethod
    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        """Launch a process. The caller ensures that the tier of the processor is free."""

    @abc.abstractmethod
    def set_tier(self, key: Key, tier: Tier) -> None:
        """Put a process into another tier of its processor.

        The caller ensures that the tier is free, except for a moment in which two processes exchange their tiers.
        """

    @abc.abstractmethod
    def save(self, key: Key) -> None:
        """Start saving a process so that it can resume elsewhere; `observe` reports when that is done."""

    @abc.abstractmethod
    def end(self, key: Key) -> None:
        """Stop a process in any state and remove it completely before returning."""

    @abc.abstractmethod
    def leave(self, key: Key) -> None:
        """Forget a process that is saved; its memory stays until `discard`."""

    @abc.abstractmethod
    def discard(self, saved: str) -> None:
        """Remove a saved memory, even one saved by another host; a missing one is ignored."""


#: Minimum time over which a rate is measured.
WINDOW_S = 2.0
#: A report remains valid while its error is at most TOLERANCE_S, or at most TOLERANCE times its age.
TOLERANCE_S, TOLERANCE = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Work done until `at`, in seconds on a dedicated processor, and the rate since then."""

    done_s: float
    rate: float
    at: float


class Meter:
    """The progress of one process."""

    def __init__(self) -> None:
        self._reported: Progress | None = None
        self._since = Progress(0.0, 0.0, 0.0)

    def measure(self, done_s: float, now_s: float) -> Progress:
        """Record that `done_s` of work is done by now; return the last report, renewed if it was too inaccurate."""
        reported = self._reported
        if reported is None:
            self._reported = self._since = Progress(done_s, 0.0, now_s)
            return self._reported
        wrong_s = abs(reported.done_s + reported.rate * (now_s - reported.at) - done_s)
        passed_s = now_s - self._since.at
        if passed_s < WINDOW_S:
            return reported
        rate = max((done_s - self._since.done_s) / passed_s, 0.0)
        self._since = Progress(done_s, rate, now_s)
        if wrong_s > max(TOLERANCE_S, TOLERANCE * (now_s - reported.at)):
            self._reported = self._since
        return self._reported or reported


#: Kernel command line of images that have no file `cmdline`.
DEFAULT_CMDLINE = "console=ttyS0"
DISKS = ("disk.qcow2", "disk.raw")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIX = ".memory"


@dataclass(frozen=True, slots=True)
class Image:
    """The image that a guest boots from: a kernel, a disk, or both."""

    kernel: Path | None
    initrd: Path | None
    cmdline: str
    disk: Path | None


def find_image(directory: Path, name: str) -> Image:
    """Return an image by its name. Raises InvalidInput, which names the missing files."""
    place = directory / _checked(name, "image")
    kernel, initrd, cmdline = place / "kernel", place / "initrd", place / "cmdline"
    disk = next((place / disk for disk in DISKS if (place / disk).is_file()), None)
    if not kernel.is_file() and disk is None:
        raise InvalidInput(f"image {name!r}: {place} has no kernel and no {' or '.join(DISKS)}")
    try:
        words = " ".join(cmdline.read_text().split()) if cmdline.is_file() else DEFAULT_CMDLINE
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"image {name!r}: {cmdline}: {error}") from error
    return Image(
        kernel=kernel if kernel.is_file() else None,
        initrd=initrd if initrd.is_file() else None,
        cmdline=words,
        disk=disk,
    )


class SavedMemory:
    """The directory of saved memories, which is shared by the hosts. Each is named after its process."""

    def __init__(self, directory: Path, keep_s: float) -> None:
        self._directory = directory
        self._keep_s = keep_s

    def file(self, name: str) -> Path:
        """Return the path of a saved memory. Raises InvalidInput if the name is invalid."""
        return self._directory / f"{_checked(name, 'saved memory')}{_SUFFIX}"

    def remove(self, name: str) -> None:
        """Remove a saved memory, if it exists. Raises ServiceUnavailable if the directory is not accessible."""
        try:
            self.file(name).unlink(missing_ok=True)
        except OSError as error:
            raise ServiceUnavailable(f"{self._directory}: {error}") from error

    def sweep(self) -> list[str]:
        """Remove saved memories older than `keep_s`; return their names."""
        swept = []
        try:
            for file in self._directory.glob(f"*{_SUFFIX}"):
                if time.time() - file.stat().st_mtime > self._keep_s:
                    file.unlink(missing_ok=True)
                    swept.append(file.name.removesuffix(_SUFFIX))
        except FileNotFoundError:  # another host has removed it; the next sweep continues
            return swept
        except OSError as error:
            raise ServiceUnavailable(f"{self._directory}: {error}") from error
        return swept


#: Names of console files. virtlogd appends a number to rotated files.
_CONSOLE = re.compile(r"[0-9a-f-]{36}\.\d+\.log(\.\d+)?")


class Consoles:
    """The directory of console output, which hosts may share. A process keeps its file when it moves."""

    def __init__(self, directory: Path, keep_s: float) -> None:
        self._directory = directory
        self._keep_s = keep_s

    def file(self, key: Key) -> Path:
        """Return the path of the console file of a process."""
        return self._directory / f"{key.gang}.{key.index}.log"

    def sweep(self, here: Iterable[Key]) -> list[str]:
        """Remove files that were not modified for `keep_s`: their processes are on no host. Return the removed names.

        The files of processes that are `here` are touched first, so that no other host removes them.
        """
        for key in here:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.file(key))
        swept = []
        for file in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another host has removed it
                if _CONSOLE.fullmatch(file.name) and time.time() - file.lstat().st_mtime > self._keep_s:
                    file.unlink()
                    swept.append(file.name)
        return swept


def _checked(name: str, what: str) -> str:
    """Return the name. Raises InvalidInput if it is not a plain file name."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{what}: {name!r} is not a valid name")
    return name


_PROCESS = f"./metadata/{{{PROCESS_URI}}}process"
#: Prefix of the parameters that a guest finds in its SMBIOS OEM strings (type 11).
_WORD = "fpga_pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Properties common to all guests of a host."""

    virt_type: str
    memory_mib: int
    cpu_model: str
    bridge: str
    #: `cpu_shares` of a guest while it starts, before it is put into its tier.
    start_shares: int
    #: None = console output is not kept.
    consoles: Consoles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDomain:
    """The metadata that identify a domain as a certain process of a gang."""

    key: Key
    processor: int
    #: The tier that it was launched in.
    tier: Tier
    cpu_usage: float
    #: Work done when it was launched here, in seconds on a dedicated processor.
    carried_s: float
    #: CPU time that the guest had used by then, if the same guest is resumed.
    before_s: float = 0.0

    @classmethod
    def launched(cls, spec: ProcessSpec, processor: int, tier: Tier) -> Self:
        """Return the metadata of a process to be launched."""
        return cls(key=spec.key, processor=processor, tier=tier, cpu_usage=spec.cpu_usage, carried_s=spec.done_s)

    @classmethod
    def from_element(cls, xml: str) -> Self:
        """Parse the element of a domain's metadata. Raises InvalidInput if it is invalid."""
        try:
            return cls.from_facts(ElementTree.fromstring(xml).attrib)  # noqa: S314  # written by libvirt on this host
        except (ElementTree.ParseError, ValueError) as error:
            raise InvalidInput(f"invalid metadata of a gang process: {error}") from error

    @classmethod
    def from_facts(cls, found: Mapping[str, str]) -> Self:
        """Parse the result of `facts`. Raises ValueError if it is invalid."""
        return cls(
            key=Key(found.get("gang", ""), int(found.get("index", "")), int(found.get("attempt", ""))),
            processor=int(found.get("processor", "")),
            tier=Tier(found.get("tier", "")),
            cpu_usage=float(found.get("cpu_usage", "")),
            carried_s=float(found.get("carried_s", "")),
            before_s=float(found.get("before_s", "0")),
        )

    def facts(self) -> dict[str, str]:
        """Return the metadata as strings by name, without `before_s`, which concerns only the current guest."""
        facts = {
            "gang": self.key.gang,
            "index": self.key.index,
            "attempt": self.key.attempt,
            "tier": self.tier,
            "processor": self.processor,
            "cpu_usage": self.cpu_usage,
            "carried_s": self.carried_s,
        }
        return {name: str(fact) for name, fact in facts.items()}

    def to_element(self) -> ElementTree.Element:
        """Return the metadata as an element of a domain's metadata."""
        return ElementTree.Element(f"{{{PROCESS_URI}}}process", self.facts() | {"before_s": str(self.before_s)})


def new_domain(spec: ProcessSpec, about: ProcessDomain, image: Image, machine: Machine) -> str:
    """Return the XML description of a new guest.

    It has one vCPU and no pins: the tier driver sets the pins and the priority.  Its disk is read-only, so that its
    memory is its whole state.
    """
    root = ElementTree.Element("domain", type=machine.virt_type)
    _text(root, "name", f"fpga-pool-{spec.key}")
    _text(root, "uuid", process_uuid(spec.key.gang, spec.key.attempt, spec.key.index))
    ElementTree.SubElement(root, "metadata").append(about.to_element())
    _text(root, "memory", str(machine.memory_mib), unit="MiB")
    _text(root, "vcpu", "1")
    _text(ElementTree.SubElement(root, "cputune"), "shares", str(machine.start_shares))
    if machine.cpu_model:
        _text(ElementTree.SubElement(root, "cpu", mode="custom", match="exact"), "model", machine.cpu_model)
    texts = ElementTree.SubElement(ElementTree.SubElement(root, "sysinfo", type="smbios"), "oemStrings")
    for word in _words(spec):
        _text(texts, "entry", word)
    _add_boot(root, image)
    ElementTree.SubElement(ElementTree.SubElement(root, "features"), "acpi")
    # A guest powers off when its work is done. One that reboots starts over on the same host.
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        _text(root, event, action)
    _add_devices(ElementTree.SubElement(root, "devices"), spec.key, image, machine)
    return ElementTree.tostring(root, encoding="unicode")


def moved_domain(saved: str, about: ProcessDomain, machine: Machine) -> tuple[str, str]:
    """Return uuid and XML description of a guest that resumes from the saved memory with the description `saved`.

    It keeps its name and uuid, as libvirt requires, gets the metadata of the new process, and loses its pins.
    """
    root = ElementTree.fromstring(saved)  # noqa: S314  # written by libvirt
    metadata = root.find("metadata")
    if metadata is None or root.find(_PROCESS) is None:
        raise InvalidInput("the saved memory does not belong to a gang process")
    for uri in (PROCESS_URI, PLACED_URI):
        for element in [element for element in metadata if element.tag.startswith(f"{{{uri}}}")]:
            metadata.remove(element)
    metadata.append(about.to_element())
    for tune in root.findall("cputune"):
        root.remove(tune)
    _text(ElementTree.SubElement(root, "cputune"), "shares", str(machine.start_shares))
    return root.findtext("uuid", ""), ElementTree.tostring(root, encoding="unicode")


def _words(spec: ProcessSpec) -> list[str]:
    """Return the parameters that are passed to a guest, as NAME=VALUE."""
    parameters = {"gang": spec.key.gang, "index": spec.key.index, "processes": spec.processes}
    return [f"{_WORD}.{name}={fact}" for name, fact in parameters.items()] + (
        [f"{_WORD}.command={spec.command}"] if spec.command else []
    )


def _add_boot(root: ElementTree.Element, image: Image) -> None:
    system = ElementTree.SubElement(root, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="pc")
    if image.kernel:
        _text(system, "kernel", str(image.kernel))
        if image.initrd:
            _text(system, "initrd", str(image.initrd))
        _text(system, "cmdline", image.cmdline)
    ElementTree.SubElement(system, "smbios", mode="sysinfo")


def _add_devices(devices: ElementTree.Element, key: Key, image: Image, machine: Machine) -> None:
    ElementTree.SubElement(devices, "controller", type="usb", model="none")
    if image.disk:
        disk = ElementTree.SubElement(devices, "disk", type="file", device="disk")
        ElementTree.SubElement(disk, "driver", name="qemu", type=image.disk.suffix.removeprefix("."))
        ElementTree.SubElement(disk, "source", file=str(image.disk))
        ElementTree.SubElement(disk, "target", dev="vda", bus="virtio")
        ElementTree.SubElement(disk, "readonly")
        ElementTree.SubElement(disk, "shareable")
    if machine.bridge:
        nic = ElementTree.SubElement(devices, "interface", type="bridge")
        ElementTree.SubElement(nic, "source", bridge=machine.bridge)
        ElementTree.SubElement(nic, "model", type="virtio")
    if machine.consoles is not None:
        console = machine.consoles.file(key)
        serial = ElementTree.SubElement(devices, "serial", type="file")
        ElementTree.SubElement(serial, "source", path=str(console), append="on")
    ElementTree.SubElement(devices, "memballoon", model="none")


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = text
