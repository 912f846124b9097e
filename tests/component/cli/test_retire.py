"""Commands that remove cards, slots and hosts from the pool once they are no longer in use."""

import io

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.cli.admin import retire
from fpga_pool.cli.admin.main import ManageApp
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects.pool import Host, LeaseKind, Slot, SlotState
from fpga_pool.model.rules.shared.changes import end_lease, new_lease
from fpga_pool.model.rules.shared.reconcile import CARD_GONE
from fpga_pool.model.values import changed
from fpga_pool.rpc.identity import key_text
from fpga_pool.services.scheduler.enrolment import approve
from fpga_pool.store.store import Store

KEY = key_text(Ed25519PrivateKey.generate().public_key())


@pytest.fixture
def store(tmp_path):
    """Return the store of a pool with one lost host of two cards. An instance holds one of the slots."""
    config = tmp_path / "fpga_pool.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/pool.sqlite\n")
    ManageApp(stdout=io.StringIO()).run([f"--config-file={config}", "db", "sync"])
    store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
    store.ensure_shards(["default"], 0.0)
    with store.transaction("default") as tx:
        tx.add(
            Host(name="a", egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=1, heard_at=0, alive=False)
        )
        for card in ("c0", "c1"):
            for region in ("r0", "r1"):
                name = f"a/{card}/{region}"
                tx.add(Slot(name=name, host="a", card=card, region=region, board="demo", kind="small"))
        tx.add(new_lease(tx, "a/c0/r1", LeaseKind.INSTANCE, "vm-1", 1.0, project_id="p-1", function="sha256"))
    yield store
    store.close()


@pytest.fixture
def manage(tmp_path, store):
    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        status = ManageApp(stdout=out, stderr=err).run([f"--config-file={tmp_path}/fpga_pool.conf", *words])
        return status, out.getvalue() + err.getvalue()

    return run


def slots(store):
    with store.reading() as tx:
        return {slot.name: slot.drain_requested for slot in tx.slots()}


def release(store):
    with store.transaction("default") as tx:
        for lease in tx.leases():
            end_lease(tx, lease, 2.0)


def test_a_card_in_use_is_drained_and_its_users_are_listed(store, manage):
    status, output = manage("card", "remove", "a/c0", "--timeout", "0.001")
    assert status == 1
    assert output == (
        "fpga-pool-manage: not removed, but drained: slot a/c0/r1 is held by instance vm-1 of project p-1\n"
    )
    assert slots(store) == {"a/c0/r0": True, "a/c0/r1": True, "a/c1/r0": False, "a/c1/r1": False}


def test_a_card_whose_users_leave_in_time_is_removed_with_its_leases_of_the_past(store, manage, monkeypatch):
    monkeypatch.setattr(retire.time, "sleep", lambda _: release(store))
    assert manage("card", "remove", "a/c0") == (0, "removed: a/c0/r0, a/c0/r1\n")
    assert set(slots(store)) == {"a/c1/r0", "a/c1/r1"}


def test_a_slot_that_its_agent_still_reports_stays_until_its_card_is_gone(store, manage):
    with store.transaction("default") as tx:
        tx.save(changed(tx.host("a"), alive=True))
    status, output = manage("slot", "remove", "a/c1/r0", "--timeout", "0.001")
    assert status == 1
    assert "the agent of a reports them" in output
    with store.transaction("default") as tx:
        tx.save(changed(tx.slot("a/c1/r0"), state=SlotState.FAULTED, reason=CARD_GONE))
    assert manage("slot", "remove", "a/c1/r0") == (0, "removed: a/c1/r0\n")
    assert "a/c1/r0" not in slots(store)


def test_a_host_is_removed_with_everything_on_it(store, manage):
    assert manage("host", "remove", "a", "--timeout", "0.001")[0] == 1
    release(store)
    assert manage("host", "remove", "a")[0] == 0
    assert slots(store) == {}
    with store.reading() as tx, pytest.raises(NotFound):
        tx.host("a")
    assert manage("host", "remove", "a")[0] != 0


def test_a_removal_that_was_interrupted_at_its_end_can_be_repeated_and_the_key_is_the_first_to_go(
    store, manage, monkeypatch
):
    release(store)
    approve(store, "a", KEY, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(retire, "remove_host", lambda *_: 1 / 0)
        assert manage("host", "remove", "a")[0] != 0
    assert [enrolment.host for enrolment in store.enrolments()] == []
    assert manage("host", "remove", "a")[0] == 0
    with store.reading() as tx, pytest.raises(NotFound):
        tx.host("a")


def test_what_does_not_exist_cannot_be_removed(manage):
    status, output = manage("card", "remove", "a/c7")
    assert status != 0
    assert "a/c7: no such card" in output
