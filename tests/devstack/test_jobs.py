"""Work beside the machines of a cloud: batches, tasks on linked slots, gangs; each project sees only its own."""

import hashlib
import os

import pytest

from fpga_pool.model.exceptions import Forbidden, InvalidInput, NotFound
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState
from fpga_pool.model.objects.links import slot_links
from support.waiting import wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

GANG_TIMEOUT_S = 400.0


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / f"{number}.bin" for number in range(3)]
    for file in made:
        file.write_bytes(os.urandom(100_000))
    return made


def digests(files):
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def results(batch):
    return [job.result.read_text().strip() for job in batch.jobs]


def requester(pool):
    return min(host.name for host in pool.hosts())


def test_a_batch_runs_on_slots_that_no_machine_has(cloud, files):
    cloud.free()
    assert results(cloud.pool.run("sha256", files, requester=requester(cloud.pool))) == digests(files)


def test_a_batch_leaves_a_machine_its_slot(cloud, flavor, boot, files):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    batch = cloud.pool.run("sha256", files, requester=requester(cloud.pool))
    assert results(batch) == digests(files)
    assert not {job.slot for job in batch.jobs} & cloud.held(server).keys()


def test_a_task_runs_on_linked_slots(cloud, files):
    cloud.free()
    task = cloud.pool.run_task("sha256", files, requester=requester(cloud.pool), topology=Topology.LINE)
    assert results(task) == digests(files)
    names = {job.slot for job in task.jobs}
    slots = [slot for slot in cloud.pool.slots() if slot.name in names]
    # They are of one card, or of linked cards.
    assert len({(slot.host, slot_links(slot.links).card.enclosure or slot.card) for slot in slots}) == 1


def test_a_tenant_sees_and_changes_nothing_of_another(cloud, tenant, files):
    cloud.free()
    with tenant() as first, tenant() as second:
        run = first.run("sha256", files, requester=requester(cloud.pool))
        assert results(run) == digests(files)
        batch = run.batch
        assert [each.uuid for each in first.batches()] == [batch.uuid]
        assert (second.batches(), second.project_jobs()) == ([], [])
        for refused in (second.batch, second.jobs, second.cancel):
            with pytest.raises(NotFound):
                refused(batch.uuid)
        with pytest.raises(Forbidden):
            second.drain(cloud.pool.slots()[0].uuid)
        with pytest.raises(Forbidden):
            second.usage(project_id="all")


def test_a_gang_runs_to_its_end(cloud, counting):
    """With the runner `simulated` it computes for a second; with `nova` its servers count to five, and power off."""
    try:
        gang = cloud.pool.create_gang(1, 60.0, 1.0, work_s=1.0, image=counting)
    except InvalidInput as error:
        if "no host of the pool offers processors" in str(error):
            pytest.skip(str(error))
        raise
    try:

        def ended():
            found = cloud.pool.gang(gang.uuid).gang
            return found if found.state in ENDED_GANGS else None

        found = wait_until(ended, "the gang ends", GANG_TIMEOUT_S)
        assert found.state is GangState.COMPLETED, found.reason
    finally:
        if cloud.pool.gang(gang.uuid).gang.state not in ENDED_GANGS:
            cloud.pool.cancel_gang(gang.uuid)
