"""Accelerator flavors on a real OpenStack cloud: where machines are placed, what they get, and what remains of them."""

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import uuid
from collections import Counter

import pytest

from fpga_pool.model.flavor import provider_uuid
from support import guest_image
from support.waiting import wait_until

from .conftest import FIRST_VM

pytestmark = [pytest.mark.timeout(1800)]

PAYLOAD = random.Random(7).randbytes(100_000)
#: How long a small guest may take to boot without hardware acceleration on a busy machine.
TURN_TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def guests(all_in_one, admin, tmp_path_factory):
    """Make images whose guests compute digests on their accelerators in a loop: `guests(function)` returns a name."""
    kernel = guest_image.kernel() or pytest.skip("no kernel with its modules is installed: linux-image-cloud-amd64")
    initrd = guest_image.build(kernel, PAYLOAD, tmp_path_factory.mktemp("guest"))
    properties = {
        "kernel_id": upload(admin, "guest-kernel", kernel, "aki", "aki"),
        "ramdisk_id": upload(admin, "guest-initrd", initrd, "ari", "ari"),
        "hw_qemu_guest_agent": "yes",
    }

    def make(function):
        line = f"console=ttyS0 panic=-1 quiet function={function}"
        # The content of its disk does not matter.
        disk = all_in_one.directory / "hello.qcow2"
        upload(admin, f"guest {function}", disk, "qcow2", "bare", os_command_line=line, **properties)
        return f"guest {function}"

    return make


@pytest.fixture(scope="module")
def guest(guests):
    return guests("sha256")


def upload(tenant, name, file, disk, container, **properties):
    images = tenant.adapter("image")
    asked = {"name": name, "disk_format": disk, "container_format": container, "visibility": "public", **properties}
    made = images.post("/v2/images", json=asked).json()["id"]
    with file.open("rb") as data:
        images.put(f"/v2/images/{made}/file", data=data, headers={"Content-Type": "application/octet-stream"})
    return made


@pytest.fixture
def booted(admin):
    """Boot machines that are deleted after the test."""
    with contextlib.ExitStack() as ending:

        def boot(name, **more):
            booted = admin.boot(name, **more)
            ending.callback(admin.delete, booted)
            server = admin.built(booted)
            assert server["status"] == "ACTIVE", server.get("fault")
            return server

        yield boot


@pytest.fixture(scope="module")
def flavors(manage):
    """Flavors of small guests, by their number of slots."""
    names = {count: f"guest.{count}.{uuid.uuid4()}" for count in (1, 2)}
    for count, name in names.items():
        options = ["--function", "sha256", "--count", str(count), "--ram", "256", "--disk", "1", "--vcpus", "1"]
        manage("flavor", "create", name, *options)
    return names


def allocated(admin, server):
    """Return how many slots Placement has given to an instance, by provider."""
    answer = admin.adapter("placement", "1.39").get(f"/allocations/{server['id']}").json()["allocations"]
    slots = {provider: given["resources"].get("CUSTOM_FPGA_SLOT", 0) for provider, given in answer.items()}
    return {provider: count for provider, count in slots.items() if count}


def leased(scheduler, server):
    """Return how many slots the pool has leased to an instance, by their provider in Placement."""
    host = server["OS-EXT-SRV-ATTR:host"]
    names = scheduler.instance_slots(host).get(server["id"], [])
    return Counter(provider_uuid(host, slot.card, slot.kind) for slot in scheduler.slots() if slot.name in names)


def functions(scheduler, server):
    """Return the functions that are loaded into the slots of an instance."""
    names = scheduler.instance_slots(server["OS-EXT-SRV-ATTR:host"]).get(server["id"], [])
    return [slot.function for slot in scheduler.slots() if slot.name in names]


def test_the_script_of_the_documentation_needs_fewer_than_ten_commands():
    steps = re.findall(r"^# (\d+)(?: - |, )?(\d+)?", FIRST_VM.read_text(), re.MULTILINE)
    assert max(int(last or first) for first, last in steps) < 10


def test_the_first_machine_of_the_script_holds_the_slot_that_placement_gave_it(admin, scheduler):
    (first,) = admin.compute.get("/servers?name=first-accelerated").json()["servers"]
    server = admin.show(first["id"])
    assert server["status"] == "ACTIVE"
    assert functions(scheduler, server) == ["sha256"]
    assert leased(scheduler, server) == allocated(admin, server)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_guest_computes_on_the_slots_of_its_flavor(admin, scheduler, guest, flavors, booted, count):
    server = booted(f"guest-{count}", flavor=flavors[count], image=guest, host="libvirt-1")
    assert functions(scheduler, server) == ["sha256"] * count
    assert leased(scheduler, server) == allocated(admin, server)
    admin.says(server["id"], f"turn 1: {hashlib.sha256(PAYLOAD).hexdigest()}", TURN_TIMEOUT_S)
    # The guest lists its accelerators between the first turn and the second.  Its shell may print a line twice when the
    # console is slow, so the numbers of the accelerators are compared, not the lines.
    console = admin.says(server["id"], "turn 2: ", TURN_TIMEOUT_S)
    assert set(re.findall(r"(\d)  /dev/vport", console)) == {str(number) for number in range(count)}


@pytest.mark.long
def test_a_guest_computes_with_the_design_of_its_project_and_no_other_project_gets_it(
    all_in_one, admin, tenant, scheduler, manage, guests, openstack, tmp_path
):
    slot = scheduler.slots()[0]
    manifest, bitstream = tmp_path / "design.toml", tmp_path / "design.bin"
    fields = {"name": "digest", "board": slot.board, "kind": slot.kind, "simulates": "sha256"}
    numbers = ["io_bps = 1e9", "b_s_per_byte = 1e-9"]
    manifest.write_text("\n".join([*(f'{name} = "{value}"' for name, value in fields.items()), *numbers]))
    bitstream.write_bytes(os.urandom(100_000))
    code, made, said = openstack("demo", "design", "create", manifest, bitstream, "-f", "json")
    assert code == 0, said
    design = json.loads(made)
    code, _, said = openstack("admin", "design", "approve", design["uuid"])
    assert code == 0, said
    name = f"guest.{design['function']}"
    manage("flavor", "create", name, "--function", design["function"], "--ram", "256", "--disk", "1", "--vcpus", "1")
    # Only the hosts with this trait run guests.
    specs = {"trait:COMPUTE_STORAGE_BUS_VIRTIO": "required"}
    flavor = admin.id_of("compute", "/flavors", name)
    admin.compute.post(f"/flavors/{flavor}/os-extra_specs", json={"extra_specs": specs})

    with ending(tenant, tenant.boot("own", flavor=name, image=guests(design["function"]))) as server:
        assert server["status"] == "ACTIVE", server.get("fault")
        server = admin.show(server["id"])
        assert server["OS-EXT-SRV-ATTR:host"] in all_in_one.libvirts
        assert functions(scheduler, server) == [design["function"]]
        assert leased(scheduler, server) == allocated(admin, server)
        tenant.says(server["id"], f"turn 1: {hashlib.sha256(PAYLOAD).hexdigest()}", TURN_TIMEOUT_S)
        assert "does not belong to an approved design that the project may use" in refusal(admin, name)
        code, _, said = openstack("demo", "design", "delete", design["uuid"])
        assert (code, "instance" in said) == (1, True), said
    wait_until(lambda: not leased(scheduler, server), "its slot is released")
    wait_until(lambda: openstack("demo", "design", "delete", design["uuid"])[0] == 0, "the design is deleted")


@contextlib.contextmanager
def ending(tenant, machine):
    """Wait until a machine is built; delete it at the end."""
    try:
        yield tenant.built(machine)
    finally:
        tenant.delete(machine)


def refusal(tenant, flavor):
    """Return the reason why a machine of this flavor is not built."""
    with ending(tenant, tenant.boot("refused", flavor=flavor)) as server:
        assert server["status"] == "ERROR"
        return server["fault"]["message"]


def test_a_machine_that_is_stopped_gives_its_slots_back_and_gets_others_when_it_starts(
    admin, scheduler, flavors, booted
):
    server = booted("stopped", flavor=flavors[2], host="fake-2")
    for action, status, slots in (("os-stop", "SHUTOFF", 0), ("os-start", "ACTIVE", 2)):
        admin.compute.post(f"/servers/{server['id']}/action", json={action: None})
        wait_until(lambda status=status: admin.show(server["id"])["status"] == status, status, TURN_TIMEOUT_S)
        wait_until(lambda slots=slots: sum(leased(scheduler, server).values()) == slots, f"{slots} slots")
    assert leased(scheduler, server) == allocated(admin, server)


@pytest.mark.long
def test_a_live_migration_is_refused_with_the_reason_and_the_machine_goes_on_where_it_is(
    all_in_one, admin, scheduler, flavors, booted
):
    here, there = all_in_one.libvirts
    server = booted("stays", flavor=flavors[1], host=here)
    admin.says(server["id"], "HELLO")
    held = leased(scheduler, server)
    body = {"os-migrateLive": {"host": there, "block_migration": "auto"}}
    admin.compute.post(f"/servers/{server['id']}/action", json=body)

    def is_refused():
        found = admin.compute.get(f"/os-migrations?instance_uuid={server['id']}").json()["migrations"]
        return [migration["status"] for migration in found] == ["error"]

    wait_until(is_refused, "the migration is refused", TURN_TIMEOUT_S)
    reason = "fpga_pool: machines with accelerators are not migrated live; migrate this one cold"
    assert reason in (all_in_one.directory / "logs" / f"nova-compute-{here}.log").read_text()
    assert [all_in_one.virsh(host, "domstate", server["id"]).strip() for host in (here, there)] == ["running", ""]
    wait_until(lambda: not admin.show(server["id"])["OS-EXT-STS:task_state"], "Nova has put all back")
    # Nova 34 sets a machine whose live migration has failed to ERROR; its state has to be reset.
    admin.compute.post(f"/servers/{server['id']}/action", json={"os-resetState": {"state": "active"}})
    after = admin.show(server["id"])
    assert (after["status"], after["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", here)
    assert leased(scheduler, after) == allocated(admin, after) == held
    assert sum(held.values()) == 1


def test_nothing_is_left_of_machines_that_are_deleted(admin, scheduler, manage, flavors):
    server = admin.built(admin.boot("short", flavor=flavors[2], host="fake-1"))
    assert sum(leased(scheduler, server).values()) == 2
    admin.delete(server["id"])
    wait_until(lambda: not leased(scheduler, server), "its slots are released")
    assert not allocated(admin, server)
    assert "no problems found" in manage("audit")


def test_what_a_machine_held_is_given_back_although_the_agent_of_its_host_is_dead(
    all_in_one, admin, scheduler, manage, flavors
):
    server = admin.built(admin.boot("left", flavor=flavors[1], host="fake-1"))
    assert sum(leased(scheduler, server).values()) == 1
    agent, logs = "fpga-pool-agent-fake-1", all_in_one.directory / "logs"
    os.killpg(int((all_in_one.directory / "run" / f"{agent}.pid").read_text().split()[0]), signal.SIGKILL)
    try:
        admin.delete(server["id"])
        # Nova has notified the pool.  Otherwise the log would say that the instance has no allocation, as found by the
        # comparison with Placement.
        told, log = f"as instance {server['id']} has left its host", logs / "fpga-pool-scheduler.log"
        wait_until(lambda: told in log.read_text(), "its slot is given back")
        assert not leased(scheduler, server)
    finally:
        all_in_one.run("restart", agent)
    # First, the slots that other machines hold on this host are loaded again.
    wait_until(lambda: "no problems found" in manage("audit", check=False), "agreement", TURN_TIMEOUT_S)


def test_a_wrong_flavor_is_refused_with_what_is_right(admin):
    flavor = admin.id_of("compute", "/flavors", "small")
    specs = {"extra_specs": {"fpga_pool:function": "sha256", "fpga_pool:topology": "star"}}
    refused = admin.adapter("compute", "2.86").post(f"/flavors/{flavor}/os-extra_specs", json=specs, raise_exc=False)
    assert refused.status_code == 400
    assert all(name in refused.text for name in ("any", "line", "ring"))
