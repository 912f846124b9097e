"""The libvirt domain of a process: its definition, and the values that are read from it."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fpga_pool.drivers.runners.domain import (
    Consoles,
    Image,
    Machine,
    ProcessDomain,
    SavedMemory,
    find_image,
    moved_domain,
    new_domain,
)
from fpga_pool.drivers.tiers.domain import PROCESS_URI, Before, parse
from fpga_pool.model.agent.gang_process import Key, ProcessSpec
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Tier

GANG = "3b0f4a5e-5d55-4a0c-8a53-9f1b7dcb3a01"
SPEC = ProcessSpec(key=Key(GANG, 2, 1), processes=4, cpu_usage=0.5, work_s=60.0, command='run "a, b" <&>')
MACHINE = Machine(
    virt_type="kvm",
    memory_mib=512,
    cpu_model="",
    bridge="",
    start_shares=16384,
    consoles=Consoles(Path("/consoles"), 60.0),
)
KERNEL = Image(Path("/images/x/kernel"), Path("/images/x/initrd"), "console=ttyS0", None)
DISK = Image(None, None, "", Path("/images/x/disk.qcow2"))


def made(image=KERNEL, machine=MACHINE):
    return new_domain(SPEC, ProcessDomain.launched(SPEC, 3, Tier.BACKGROUND), image, machine)


def test_a_domain_says_which_process_it_is_and_tells_it_to_the_guest():
    root = ElementTree.fromstring(made())
    element = root.find(f"./metadata/{{{PROCESS_URI}}}process")
    about = ProcessDomain.from_element(ElementTree.tostring(element, encoding="unicode"))
    assert about == ProcessDomain.launched(SPEC, 3, Tier.BACKGROUND)
    assert [entry.text for entry in root.iterfind("./sysinfo/oemStrings/entry")] == [
        f"fpga_pool.gang={GANG}",
        "fpga_pool.index=2",
        "fpga_pool.processes=4",
        'fpga_pool.command=run "a, b" <&>',
    ]
    assert root.find("./devices/serial/source").attrib == {"path": f"/consoles/{GANG}.2.log", "append": "on"}
    assert [tune.tag for tune in root.find("cputune")] == ["shares"]
    tiered = parse(made())
    assert (tiered.is_process, tiered.wanted, tiered.dedicated) == (True, None, False)


def test_each_attempt_that_begins_again_is_another_machine():
    again = ProcessSpec(**{name: getattr(SPEC, name) for name in SPEC.__slots__} | {"key": Key(GANG, 2, 2)})
    texts = [new_domain(spec, ProcessDomain.launched(spec, 3, Tier.BACKGROUND), KERNEL, MACHINE) for spec in (SPEC, again)]  # fmt: skip  # noqa: E501
    names, uuids = ({ElementTree.fromstring(text).findtext(tag) for text in texts} for tag in ("name", "uuid"))
    assert len(names) == len(uuids) == 2


def test_a_disk_is_read_only_and_a_nic_is_there_where_there_is_a_bridge():
    root = ElementTree.fromstring(made(DISK, Machine(virt_type="qemu", memory_mib=64, cpu_model="Haswell", bridge="br0", start_shares=1600, consoles=None)))  # fmt: skip  # noqa: E501
    assert root.find("./devices/disk/readonly") is not None
    assert root.find("./devices/disk/driver").get("type") == "qcow2"
    assert root.find("./os/kernel") is None
    assert root.find("./devices/interface/source").get("bridge") == "br0"
    assert root.find("./devices/serial") is None
    assert root.findtext("./cpu/model") == "Haswell"


def test_a_guest_that_goes_on_is_the_same_machine_in_another_place():
    """The saved domain contains the CPU pins and the priority of the old host."""
    before = Before(shares=1024, emulator="0,1", vcpus=("0,1",)).to_xml()
    saved = made().replace("</metadata>", f"{before}</metadata>")
    saved = saved.replace("</vcpu>", "</vcpu><cputune><shares>2</shares><vcpupin vcpu='0' cpuset='3'/></cputune>")
    heir = ProcessDomain(key=Key(GANG, 2, 2), processor=5, tier=Tier.FOREGROUND, cpu_usage=0.5, carried_s=7.5)
    uuid, text = moved_domain(saved, heir, MACHINE)
    old, new = ElementTree.fromstring(saved), ElementTree.fromstring(text)
    assert [new.findtext(tag) for tag in ("name", "uuid")] == [old.findtext(tag) for tag in ("name", "uuid")]
    assert uuid == old.findtext("uuid")
    (element,) = new.iterfind(f"./metadata/{{{PROCESS_URI}}}process")
    assert ProcessDomain.from_element(ElementTree.tostring(element, encoding="unicode")) == heir
    assert [(tune.tag, tune.text) for tune in new.find("cputune")] == [("shares", "16384")]
    assert (parse(text).before, parse(text).dedicated) == (None, False)
    with pytest.raises(InvalidInput, match="does not belong to a gang process"):
        moved_domain("<domain><metadata/></domain>", heir, MACHINE)


@pytest.mark.parametrize("xml", ["<process", "<process gang='g'/>", "<process gang='g' index='0' attempt='x'/>"])
def test_metadata_that_cannot_be_read_are_refused(xml):
    with pytest.raises(InvalidInput, match="invalid metadata"):
        ProcessDomain.from_element(xml)


def test_an_image_is_a_kernel_or_a_disk_by_name(tmp_path):
    for name, files in {"linux": ("kernel", "initrd"), "disk": ("disk.raw",), "empty": ("initrd",)}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    (tmp_path / "linux" / "cmdline").write_text("a=b\n c\n")
    linux = find_image(tmp_path, "linux")
    assert (linux.kernel, linux.initrd, linux.cmdline, linux.disk) == (
        tmp_path / "linux" / "kernel",
        tmp_path / "linux" / "initrd",
        "a=b c",
        None,
    )
    assert find_image(tmp_path, "disk").disk == tmp_path / "disk" / "disk.raw"
    for wrong in ("empty", "other", "../linux", "", ".", "a/b"):
        with pytest.raises(InvalidInput, match="image"):
            find_image(tmp_path, wrong)


def test_saved_memories_stay_in_their_directory(tmp_path):
    memory = SavedMemory(tmp_path / "saved", 60.0)
    (tmp_path / "saved").mkdir()
    (tmp_path / "other.memory").touch()
    with pytest.raises(InvalidInput, match="saved memory"):
        memory.remove("../other")
    memory.file("g.1.0").touch()
    assert memory.sweep() == []
    memory.remove("g.1.0")
    memory.remove("g.1.0")
    assert not memory.file("g.1.0").exists()
