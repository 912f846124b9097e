"""How long a scheduler of virtual machines waits for the state of the pool: 8,000 slots, over real messages.

    pytest tests/benchmarks/test_snapshot.py -s

1,000 hosts with 2 cards of 4 slots each; half of the slots are held by an instance.  Prints medians as the caller
measures them; times are not asserted, as they depend on the machine.
"""

import statistics
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.objects.pool import Batch, BatchState, Host, Job, JobState, Lease, LeaseKind, Slot, SlotState
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.nova_plugin.follower import PoolFollower
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, Refusals, server, transport
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.scheduler.changes import Snapshots
from fpga_pool.services.scheduler.endpoint import SchedulerEndpoint
from fpga_pool.services.scheduler.metrics import SchedulerState
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.services.scheduler_settings import SchedulerSettings
from fpga_pool.store import Store

SHARD = "default"
HOSTS, CARDS, REGIONS = 1000, ("0000:3b:00.0", "0000:af:00.0"), range(4)
ROUNDS, CHANGED = 50, 10


def fill(store):
    """Store the pool; return the names of its slots."""
    hosts = [
        Host(
            name=f"compute-{number:04d}.example.org",
            egress_bps=1e10,
            ingress_bps=1e10,
            data_address="192.0.2.1",
            data_port=7000,
            heard_at=time.time(),
            availability_zone=f"zone-{number % 3}",
        )
        for number in range(HOSTS)
    ]
    slots = [
        Slot(
            name=f"{host.name}/{card}/r{region}", host=host.name, card=card, region=f"r{region}", board="u250", kind="s"
        )
        for host in hosts
        for card in CARDS
        for region in REGIONS
    ]
    known = {"kind": LeaseKind.INSTANCE, "project_id": "p", "epoch": 1, "revocable": False, "granted_at": 1.0}
    leases = [Lease(uuid=str(uuid.uuid4()), slot=slot.name, holder=str(uuid.uuid4()), **known) for slot in slots[::2]]
    with store.transaction(SHARD) as tx:
        tx.add(*hosts, *slots, *leases)
    return [slot.name for slot in slots]


@pytest.fixture
def embedded(tmp_path):
    """A scheduler in this process, on SQLite."""
    with ExitStack() as stack:
        store = Store(f"sqlite:///{tmp_path}/pool.sqlite")
        stack.callback(store.close)
        store.migrate()
        messages = transport(cfg.CONF, "inprocess://")
        key = Ed25519PrivateKey.generate()
        service = SchedulerService(
            SchedulerSettings(name="me", pool=PoolSettings(host_timeout_s=3600.0)),
            store,
            load_catalogue(installed_catalogue()),
            lambda name: load_policy("batch", name),
            AgentAPI(messages, Identity(Role.SCHEDULER, "me", key)),
            SchedulerAPI(messages, Identity(Role.SCHEDULER, "me", key)),
            key,
            {Role.API: [key.public_key()]},
            SteadyClock(),
            OnlineRule(load_policy("online", "benefit_plus"), lambda _: False),
            load_policy("gang", "measy_plus"),
            load_policy("task", "lattice_plus"),
        )
        gate = Gate(service.keys, SCHEDULER_METHODS)
        listening = server(messages, SCHEDULER_TOPIC, "me", [SchedulerEndpoint(service)], gate)
        listening.start()
        stack.callback(lambda: (listening.stop(), listening.wait()))
        service.start()
        stack.callback(service.stop)
        yield "me", store, SchedulerAPI(messages, Identity(Role.API, "test", key))


@pytest.fixture
def processes(scheduler_process, rabbitmq):
    """A scheduler process, on MariaDB."""
    pool, url = scheduler_process
    store, messages = Store(url), transport(cfg.CONF, rabbitmq.url)
    api = SchedulerAPI(messages, pool.identity(Role.API, "test"))
    yield "scheduler-1", store, api
    messages.cleanup()
    store.close()


@pytest.fixture(params=["mariadb", "postgresql"])
def database(request):
    """A store on a database server, without other processes."""
    server_of_it = request.getfixturevalue(request.param)
    url = server_of_it.new_database()
    store = Store(url)
    store.migrate()
    store.ensure_shards([SHARD], time.time())
    yield request.param, store
    store.close()
    server_of_it.drop_database(url)


def test_parts(database):
    """The parts of the scheduler and of the caller, without messages between them."""
    name, store = database
    slots = fill(store)
    asked = Snapshots(store, SteadyClock())
    known = asked.changed_after(None)
    times_ms = {f"{part}, {what}": [] for what in ("whole", f"{CHANGED} changed") for part in ("server", "asker")}
    for _ in range(ROUNDS):
        told, took_ms = timed(lambda: asked.changed_after(None).to_plain())
        times_ms["server, whole"].append(took_ms)
        known, took_ms = timed(PoolColumns.from_plain, told)
        times_ms["asker, whole"].append(took_ms)
    for turn in range(ROUNDS):
        change(store, some_of(slots, turn))
        told, took_ms = timed(lambda seen: asked.changed_after(seen).to_plain(), known.seen)
        times_ms[f"server, {CHANGED} changed"].append(took_ms)
        known, took_ms = timed(lambda old, plain: old.merged(PoolColumns.from_plain(plain)), known, told)
        times_ms[f"asker, {CHANGED} changed"].append(took_ms)
    show(f"{name}, no messages", times_ms)


class Owner:
    """Owns the only shard."""

    def shards(self):
        return (SHARD,)

    def lease_ages(self):
        return {SHARD: 0.5}

    def heartbeat_ages(self):
        return {SHARD: 0.5}


def test_scrape(database):
    """A scrape of a scheduler's metrics, without HTTP: 20,000 jobs of 200 projects wait, and 50,000 have ended."""
    name, store = database
    slots = fill(store)
    fill_with_jobs(store)
    instruments = Instruments()
    for reader in SchedulerState(store, Snapshots(store, SteadyClock()), Owner(), Refusals(), SteadyClock()).readers():
        instruments.read(reader)
    answer = instruments.application()

    def scrape():
        return b"".join(answer({"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"}, lambda *_: None))

    times_ms = {"first": [timed(scrape)[1]], f"{CHANGED} changed": [], "processor time": []}
    for turn in range(ROUNDS):
        change(store, some_of(slots, turn))
        began_s = time.thread_time()
        text, took_ms = timed(scrape)
        times_ms[f"{CHANGED} changed"].append(took_ms)
        times_ms["processor time"].append(1e3 * (time.thread_time() - began_s))
    assert text.count(b"fpga_pool_jobs{") == 200
    assert b"fpga_pool_scrape_errors_total" not in text
    show(f"{name}, scrape of {len(text)} bytes", times_ms)


def fill_with_jobs(store):
    """Store batches of 100 jobs, of 200 projects."""
    known = {"user_id": "u", "name": "", "created_at": time.time()}
    with store.transaction(SHARD) as tx:
        for number in range(700):
            whose = {"project_id": f"{number % 200:032d}"}
            state = "PENDING" if number < 200 else "COMPLETED"
            batch = Batch(uuid=str(uuid.uuid4()), policy="ect", jobs=100, state=BatchState(state), **known, **whose)
            jobs = [
                Job(
                    uuid=str(uuid.uuid4()),
                    batch_uuid=batch.uuid,
                    index=index,
                    function="aes",
                    requester="compute-0001.example.org",
                    input_bytes=1000,
                    state=JobState(state),
                    **known,
                    **whose,
                )
                for index in range(100)
            ]
            tx.add(batch, *jobs)


def test_embedded(embedded):
    measure("inprocess://, SQLite", *embedded)


def test_processes(processes):
    measure("RabbitMQ, MariaDB", *processes)


def measure(name, scheduler, store, api):
    while SHARD not in api.snapshot()["seen"]:
        time.sleep(0.1)
    slots = fill(store)
    api.snapshot()
    whole, delta, empty, call = "whole", f"{CHANGED} changed", "none changed", "any call"
    times_ms = {what: [] for what in (whole, delta, empty, call)}
    for _ in range(ROUNDS):
        follower = PoolFollower(api)
        times_ms[whole].append(timed(follower.now)[1])
    for turn in range(ROUNDS):
        expected = change(store, some_of(slots, turn))
        times_ms[delta].append(timed(follower.now)[1])
        assert expected <= busy(follower)
        times_ms[empty].append(timed(follower.now)[1])
        times_ms[call].append(timed(api.describe, scheduler)[1])
    show(name, times_ms)


def show(name, times_ms):
    print(f"\n{name}, 8000 slots on {HOSTS} hosts: median (least, most) of about {ROUNDS}")
    for what, taken_ms in times_ms.items():
        print(f"  {what:>18}: {statistics.median(taken_ms):6.2f} ms ({min(taken_ms):.2f}, {max(taken_ms):.2f})")


def some_of(slots, turn):
    """Return different slots each turn, from all parts of the pool."""
    return slots[turn :: len(slots) // CHANGED][:CHANGED]


def change(store, names):
    """Change slots as reports of agents do; return their names."""
    with store.transaction(SHARD) as tx:
        for name in names:
            tx.save(replace(tx.slot(name), state=SlotState.BUSY, function="aes"))
    return set(names)


def busy(follower):
    pool = follower.now()
    rows = (pool.slots["state"] == pool.numbers["BUSY"]).nonzero()[0]
    return {pool.slot_name(row) for row in rows}


def timed(call, *arguments):
    """Return the result of a call, and its time in milliseconds."""
    began_s = time.perf_counter()
    returned = call(*arguments)
    return returned, 1e3 * (time.perf_counter() - began_s)
