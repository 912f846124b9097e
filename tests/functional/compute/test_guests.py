"""Virtual machines with accelerator flavors, from the hook to the end, with real components."""

import pytest

from fpga_pool.model.objects.pool import LeaseKind, LeaseState
from fpga_pool.services.agent.journal import Journal
from fpga_pool.store import Store
from support.deployment import Deployment

from .conftest import DIGEST
from .hypervisor import as_installed

SHA256 = {"fpga_pool:function": "sha256"}


@pytest.fixture(scope="module")
def pool(rabbitmq, mariadb, hypervisor, tmp_path_factory):
    """A pool of one compute node, whose agent runs beside libvirtd."""
    database_url = mariadb.new_database()
    agent = {
        "guest_driver": "libvirt",
        "libvirt_uri": hypervisor.uri,
        "hook_socket": hypervisor.directory / "agent.sock",
        "heartbeat_s": 0.5,
    }
    with Deployment(
        tmp_path_factory.mktemp("pool"),
        rabbitmq.url,
        database_url,
        agents=1,
        options={"agent": agent, "scheduler": {"interval_s": 0.2}},
        launchers={"node-1": [*hypervisor.enter, *as_installed()]},
    ) as made:
        made.database_url = database_url
        yield made
        for name in made.names:  # pytest shows it if a test failed
            print(f"--- {name}\n{made.last_lines(name)}")


def instance_leases(pool):
    store = Store(pool.database_url)
    try:
        with store.reading() as tx:
            return [
                lease.holder
                for lease in tx.leases()
                if lease.state is LeaseState.HELD and lease.kind is LeaseKind.INSTANCE
            ]
    finally:
        store.close()


def held(pool):
    """Return the instances whose slots are held by the agent's journal."""
    journal = Journal(pool.directory / "node-1" / "journal.sqlite")
    try:
        return sorted(hold.instance for hold, _ in journal.holds().values())
    finally:
        journal.close()


def test_a_guest_computes_on_its_slot_also_after_its_agent_was_killed_and_nothing_stays_behind(
    pool, define, until, libvirt
):
    guest = define(SHA256)
    guest.domain.create()
    assert held(pool) == [guest.uuid]
    until(lambda: DIGEST in guest.turns(), "the guest computes")
    until(lambda: guest.said("list: 0  /dev/vport"), "the guest lists its accelerator")

    pool.kill("node-1")
    known = len(guest.turns())
    pool.restart("node-1")
    until(lambda: DIGEST in guest.turns(known + 1), "the guest computes with the agent that was started again")

    known = len(guest.turns())
    guest.domain.managedSave()  # as a suspend of Nova does
    until(lambda: held(pool) == [], "the slot of a suspended machine is let go")
    guest.domain.create()
    assert held(pool) == [guest.uuid]
    until(lambda: DIGEST in guest.turns(known + 1), "the guest computes after it was resumed")

    guest.domain.destroy()
    guest.domain.create()  # as a hard reboot of Nova does
    assert held(pool) == [guest.uuid]
    until(lambda: "org.fpga_pool.0" in guest.domain.XMLDesc(), "the guest has its port after a hard reboot")

    scrubbed = pool.log_file("node-1").read_text().count("memory scrubbed")
    guest.domain.destroy()
    guest.domain.undefine()
    until(lambda: held(pool) == [] and instance_leases(pool) == [], "the slot is let go")
    until(lambda: pool.log_file("node-1").read_text().count("memory scrubbed") > scrubbed, "the slot is scrubbed")


def test_a_machine_whose_slots_cannot_be_had_does_not_start_and_says_why(pool, define, libvirt, until):
    too_many = define(SHA256 | {"fpga_pool:count": "64"})
    with pytest.raises(libvirt.libvirtError, match="Hook script execution failed") as error:
        too_many.domain.create()
    assert "fpga_pool: " in str(error.value)
    assert not too_many.domain.isActive()
    wrong = define({"fpga_pool:function": "sha256", "fpga_pool:count": "none"})
    with pytest.raises(libvirt.libvirtError, match="fpga_pool:count: 'none' is invalid"):
        wrong.domain.create()
    bare = define(SHA256, devices="")
    with pytest.raises(libvirt.libvirtError, match="hw_qemu_guest_agent=yes"):
        bare.domain.create()

    pool.kill("node-1")
    guest = define(SHA256)
    with pytest.raises(libvirt.libvirtError, match="the agent does not answer"):
        guest.domain.create()
    plain = define({})
    plain.domain.create()
    assert plain.domain.isActive()
    pool.restart("node-1")
    until(lambda: instance_leases(pool) == [], "what was claimed is given back")
