"""The libvirt runner with real guests: each method has its effect, can be repeated, and leaves other guests alone."""

import contextlib
import time
import uuid
from pathlib import Path

import pytest

from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.flavor import Tier

from .gang_guests import domains

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND

pytestmark = pytest.mark.timeout(900)


def spec(gang=None, count=1_000_000, **fields):
    return ProcessSpec(
        key=Key(gang or str(uuid.uuid4()), 0, 1), processes=1, cpu_usage=0.5, work_s=60.0,
        command=f"count {count} rest 0.1", **fields,
    )  # fmt: skip


@pytest.fixture
def host(gang_hosts):
    return gang_hosts[0]


@pytest.fixture
def counts(shared, until):
    """Wait until a process has counted up to a number; return the id of its last boot."""

    def wait(gang, number):
        until(lambda: any(n >= number for _, n in shared.counted(gang)), f"it counts up to {number}")
        return shared.births(gang)[-1]

    return wait


def test_a_guest_runs_until_it_powers_off_and_leaves_nothing(host, shared, until, counts):
    runner, wanted = host.new_runner(), spec(count=20)
    runner.launch(wanted, 1, BEHIND)
    runner.launch(wanted, 1, BEHIND)
    seen = runner.observe()[wanted.key]
    assert (seen.phase, seen.processor, seen.tier) == (Phase.RUNNING, 1, BEHIND)
    assert host.tier(wanted.key) == (BEHIND, (1,))
    counts(wanted.key.gang, 5)
    assert runner.observe()[wanted.key].cpu_s > 0
    assert f"fpga_pool.gang={wanted.key.gang} fpga_pool.index=0 fpga_pool.processes=1" in shared.text(wanted.key.gang)
    until(lambda: runner.observe()[wanted.key].phase is Phase.EXITED, "it powers off")
    assert host.new_runner().observe()[wanted.key].phase is Phase.EXITED  # the next agent sees it, too
    assert runner.observe()[wanted.key].cpu_s > 0
    runner.end(wanted.key)
    runner.end(wanted.key)
    assert runner.observe() == {}
    assert domains(host.connection) == {}
    (born,) = shared.births(wanted.key.gang)
    assert shared.done(wanted.key.gang) == [born]


def test_tiers_are_swapped_live_and_found_by_the_next_agent(host, counts):
    runner, first, second = host.new_runner(), spec(), spec()
    runner.launch(first, 1, FRONT)
    runner.launch(second, 1, BEHIND)
    with pytest.raises(Conflict):
        runner.launch(spec(), 1, BEHIND)
    runner.end(first.key)
    runner.set_tier(second.key, FRONT)
    assert host.tier(second.key) == (FRONT, (1,))
    assert {key: seen.tier for key, seen in host.new_runner().observe().items()} == {second.key: FRONT}
    with pytest.raises(NotFound):
        runner.set_tier(first.key, FRONT)


def test_a_saved_guest_goes_on_where_it_was_on_another_host(gang_hosts, shared, until, counts):
    """1. It counts. 2. Its memory is saved. 3. It continues on another host, without another boot."""
    here, there = gang_hosts
    runner, wanted = here.new_runner(), spec()
    runner.launch(wanted, 0, BEHIND)
    born = counts(wanted.key.gang, 10)
    until(lambda: runner.observe()[wanted.key].done_s > 0, "progress is told")
    runner.save(wanted.key)
    runner.save(wanted.key)
    until(lambda: runner.observe()[wanted.key].phase is Phase.SAVED, "it is saved")
    last = shared.counted(wanted.key.gang)[-1][1]
    seen = here.new_runner().observe()[wanted.key]
    assert (seen.phase, seen.saved) == (Phase.SAVED, str(wanted.key))
    runner.leave(wanted.key)
    assert domains(here.connection) == {}
    assert shared.memories() == [f"{wanted.key}.memory"]

    heir = spec(wanted.key.gang, saved=seen.saved, done_s=9.0)
    heir = ProcessSpec(**{name: getattr(heir, name) for name in heir.__slots__} | {"key": Key(heir.key.gang, 0, 2)})
    other = there.new_runner()
    other.launch(heir, 1, FRONT)
    other.launch(heir, 1, FRONT)
    assert there.tier(heir.key) == (FRONT, (1,))
    assert list(other.observe()) == [heir.key]
    assert other.observe()[heir.key].done_s >= 9.0
    assert counts(heir.key.gang, last + 5) == born
    assert shared.births(heir.key.gang) == [born]
    numbers = [number for _, number in shared.counted(heir.key.gang)]
    assert numbers == list(range(1, len(numbers) + 1))  # no number is missing or repeated
    other.discard(seen.saved)
    other.discard(seen.saved)
    other.end(heir.key)
    assert shared.memories() == []
    assert domains(there.connection) == {}


@pytest.mark.parametrize("ends", ["destroyed", "killed"])
def test_a_guest_that_ends_otherwise_than_by_itself_has_failed(host, until, ends):
    runner, wanted = host.new_runner(), spec()
    runner.launch(wanted, 1, BEHIND)
    if ends == "destroyed":
        host.domain(wanted.key).destroy()
    else:
        host.kill_guest(wanted.key)
    until(lambda: runner.observe()[wanted.key].phase is Phase.FAILED, "it is seen")
    assert runner.observe()[wanted.key].reason in ("its guest was destroyed", "its guest crashed")
    runner.end(wanted.key)
    assert domains(host.connection) == {}


def test_a_guest_that_somebody_else_has_saved_has_failed_and_can_be_ended(host):
    """libvirt keeps the memory of such a domain, and undefines it only if told to remove the memory, too."""
    runner, wanted = host.new_runner(), spec()
    runner.launch(wanted, 1, BEHIND)
    host.domain(wanted.key).managedSave()
    assert runner.observe()[wanted.key].phase is Phase.FAILED
    runner.end(wanted.key)
    assert domains(host.connection) == {}


def test_memory_that_cannot_be_saved_or_is_none_is_told_and_nothing_is_left(host, shared, until):
    runner, wanted = host.new_runner(), spec()
    runner.launch(wanted, 1, BEHIND)
    (shared.saved / f"{wanted.key}.memory").mkdir()  # a directory of this name prevents writing
    runner.save(wanted.key)
    until(lambda: runner.observe()[wanted.key].phase is Phase.FAILED, "the save fails")
    assert "cannot be saved" in runner.observe()[wanted.key].reason
    (shared.saved / f"{wanted.key}.memory").rmdir()
    runner.end(wanted.key)

    for saved, content in (("gone.1.0", None), ("broken.1.0", b"LibvirtQemudSave nonsense")):
        if content is not None:
            (shared.saved / f"{saved}.memory").write_bytes(content)
        with pytest.raises(Conflict):
            runner.launch(spec(saved=saved), 1, BEHIND)
        runner.discard(saved)
    for wrong in ("../default", "none", ""):
        with pytest.raises((InvalidInput, Conflict)):
            runner.launch(spec(image=wrong or "no/name"), 1, BEHIND)
    assert domains(host.connection) == {}
    assert shared.memories() == []


def test_guests_of_others_are_seen_by_nobody_and_left_alone(host, tier_machines):
    """Foreign domains remain unchanged, even if they are in tiers, and the tier driver of instances ignores ours."""
    foreign = host.connection.createXML(
        f"""<domain type='qemu'><name>fpga-pool-x.1.0</name><metadata>{wish("background")}</metadata>
        <memory unit='MiB'>32</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>"""
    )
    try:
        runner, wanted = host.new_runner(), spec()
        runner.launch(wanted, 1, BEHIND)
        before = foreign.XMLDesc(), foreign.vcpuPinInfo(0)
        assert list(runner.observe()) == [wanted.key]
        runner.end(Key("x", 0, 1))
        runner.end(wanted.key)
        assert (foreign.XMLDesc(), foreign.vcpuPinInfo(0)) == before
        with contextlib.closing(host.new_tiers()) as tiers:
            assert [guest.name for guest in tiers.guests()] == ["fpga-pool-x.1.0"]
            runner.launch(wanted, 1, BEHIND)
            assert [guest.name for guest in tiers.guests()] == ["fpga-pool-x.1.0"]
            with pytest.raises(NotFound):
                tiers.release(host.uuid(wanted.key))
    finally:
        foreign.destroy()


def test_old_memory_that_nobody_wants_is_removed(host, shared):
    old, new = (shared.saved / f"{name}.1.0.memory" for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"")
    long_ago = time.time() - 100_000
    import os

    os.utime(old, (long_ago, long_ago))
    host.new_runner().observe()
    assert shared.memories() == [new.name]
    Path(new).unlink()
